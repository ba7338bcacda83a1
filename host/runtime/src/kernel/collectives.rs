//! The kernels of collectives on streams: instances of the templates in `device/src/collectives.cu`. Each is
//! a module of its own, made when it is first needed by what makes programs' modules, so that nobody waits
//! for instances that nobody calls, and the next process finds them in the cache.
//!
//! On a GPU the driver may hold a module back until the kernels that run have ended, and these may wait for
//! the very call that needs the module. So a program may have modules made beforehand; and none is made for a
//! stream that is being captured.

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::{Arc, Mutex};

use once_cell::sync::OnceCell;

use super::streams::On;
use super::{lock, Code, Function, Kernels, LaunchName, Runner};
use crate::error::{err, Result};
use crate::gpu::launch::Shape;
use rushmem_abi::c::rushmem_launch_t;

/// The templates.
const SOURCE: &str = rushmem_device::COLLECTIVES;
/// What the source is called in messages.
const NAME: &str = "collectives.cu";

/// One of the kernels, with the code that it is in.
pub(crate) struct CollectiveKernel {
    function: Function,
    /// Keeps it loaded.
    _code: Code,
}

/// Those of a world.
pub(super) struct CollectiveKernels {
    /// What is made, or being made, by the instance's name.
    made: Mutex<HashMap<String, Arc<OnceCell<CollectiveKernel>>>>,
    /// Multiprocessors that every PE has at least.
    least: u64,
}

impl CollectiveKernels {
    pub(super) fn new(least: u64) -> CollectiveKernels {
        CollectiveKernels { made: Mutex::default(), least }
    }
}

impl Kernels {
    /// The kernel of that instance, such as `rushmem_stream_sync<rushmem::block>`. On a stream that is being
    /// captured, only where it is made already: `advice` says what makes it.
    pub(crate) fn collective(
        &self,
        instance: &str,
        on: Option<&On>,
        advice: &dyn Fn() -> String,
    ) -> Result<CollectiveHandle> {
        let cell = Arc::clone(lock(&self.core.collectives.made).entry(instance.to_owned()).or_default());
        if cell.get().is_none() {
            if let Some(On::Gpu(stream)) = on {
                if stream.is_capturing()? {
                    return Err(err!(
                        UNSUPPORTED,
                        "its kernel is not loaded yet, and loading code does not go with the capture of a stream: {} \
                         before the capture begins",
                        advice()
                    ));
                }
            }
        }
        cell.get_or_try_init(|| self.make_collective(instance))?;
        Ok(CollectiveHandle(cell))
    }

    /// Blocks of a collective that are surely resident together on every PE's GPU, which is what all PEs
    /// launch alike: each multiprocessor takes one at least (the bounds that the kernels are compiled with).
    /// 0 where a PE has no GPU.
    pub(crate) fn blocks_together(&self) -> u64 {
        self.core.collectives.least
    }

    fn make_collective(&self, instance: &str) -> Result<CollectiveKernel> {
        let core = &self.core;
        core.common.health.check()?;
        let options = vec![format!("--kernel={instance}")];
        let code = match &core.runner {
            Runner::Cpu(runner) => Code::Cpu(runner.load(NAME, SOURCE, options)?),
            Runner::Gpu(runner) => Code::Gpu(runner.load(NAME, SOURCE, options)?),
        };
        (core.announce)();
        let function = code.function(instance).ok_or_else(|| {
            let there: Vec<&str> = code.kernel_names().collect();
            err!(INTERNAL, "{NAME} has no kernel {instance}, but {}", there.join(", "))
        })?;
        Ok(CollectiveKernel { function, _code: code })
    }

    /// Puts a launch on the stream that C calls `raw`; the values are copied. `what` it is called in texts.
    ///
    /// # Safety
    /// Each of `values` points at a value of its parameter's type, and the kernel is sound with them. The
    /// stream is null, or one that the device knows.
    pub(crate) unsafe fn launch_collective(
        &self,
        kernel: &CollectiveHandle,
        (blocks, threads): (u32, u32),
        values: &[*const c_void],
        what: &str,
        raw: *mut c_void,
    ) -> Result<()> {
        let who = self.core.common.health.who();
        let name = LaunchName { what: what.to_owned(), head: format!("{who}: {what}") };
        let (grid, block) = ([blocks, 1, 1], [threads, 1, 1]);
        match (&kernel.get().function, &self.core.runner) {
            (Function::Cpu(function), Runner::Cpu(runner)) => {
                let size = size_of::<rushmem_launch_t>() as u32;
                let config = rushmem_launch_t {
                    size,
                    flags: 0,
                    grid,
                    block,
                    shared_bytes: 0,
                    stream: raw,
                    cluster: [0; 3],
                    reserved: 0,
                };
                // SAFETY: the caller vouches for the kernel, the arguments and the stream.
                unsafe { runner.launch(function, name, &config, &function.params(), values) }
            }
            (Function::Gpu(function), Runner::Gpu(runner)) => {
                // Not cooperative: that takes longer, and the caller has seen to it that all blocks fit.
                let shape = Shape { grid, block, shared: 0, cooperative: false, cluster: None };
                // SAFETY: the caller vouches for the kernel, the arguments and the stream.
                unsafe { runner.launch_own(function, name, &shape, values, raw) }
            }
            _ => Err(err!(INTERNAL, "a kernel of another kind of device")),
        }
    }
}

/// A kernel that is made.
pub(crate) struct CollectiveHandle(Arc<OnceCell<CollectiveKernel>>);

impl CollectiveHandle {
    fn get(&self) -> &CollectiveKernel {
        self.0.get().expect("made before the handle was")
    }
}
