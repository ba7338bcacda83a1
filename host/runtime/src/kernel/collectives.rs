//! The kernels of collectives on streams: instances of the templates in `device/src/collectives.cu`. Each is
//! a module of its own, made when it is first needed by what makes programs' modules, so that nobody waits
//! for instances that nobody calls, and the next process finds them in the cache.
//!
//! On a GPU the driver may hold a module back until the kernels that run have ended, and these may wait for
//! the very call that needs the module. So the PE that first needs an instance has it made for all PEs of its
//! process on its GPU, before any of them launches it. A program may have modules made beforehand, too; and
//! none is made for a stream that is being captured.

use std::collections::{HashMap, HashSet};
use std::ffi::c_void;
use std::sync::{Arc, Mutex, Weak};

use super::launch_name::LaunchName;
use super::module::{Code, Function};
use super::streams::On;
use super::{ahead, lock, KernelCore, Kernels, Runner};
use crate::error::{err, Result};
use crate::gpu::compile::Cubin;
use crate::gpu::launch::Shape;
use crate::gpu::turns::Turns;
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
    /// What is made, by the instance's name: for every PE that shares the GPU.
    made: Mutex<HashMap<String, Arc<CollectiveKernel>>>,
    /// Those that are compiled for GPUs that are not here.
    ahead: Mutex<HashSet<String>>,
    sharers: Arc<Sharers>,
    /// Multiprocessors that every PE has at least.
    least: u64,
}

/// The PEs of this process whose kernels run on one device. On the CPU, where nothing is held back, each is
/// alone.
#[derive(Default)]
struct Sharers {
    /// To make instances in.
    turns: Turns,
    pes: Mutex<Vec<Weak<KernelCore>>>,
}

/// The GPUs of this process's PEs, by UUID.
static GPUS: Mutex<Vec<([u8; 16], Weak<Sharers>)>> = Mutex::new(Vec::new());

impl CollectiveKernels {
    /// For a PE on the GPU with that UUID, or on the CPU.
    pub(super) fn new(gpu: Option<[u8; 16]>, least: u64) -> CollectiveKernels {
        let sharers = gpu.map(|uuid| {
            let mut gpus = lock(&GPUS);
            gpus.retain(|(_, sharers)| sharers.strong_count() > 0);
            let known =
                gpus.iter().find(|(other, _)| *other == uuid).and_then(|(_, sharers)| sharers.upgrade());
            known.unwrap_or_else(|| {
                let sharers = Arc::new(Sharers::default());
                gpus.push((uuid, Arc::downgrade(&sharers)));
                sharers
            })
        });
        CollectiveKernels {
            made: Mutex::default(),
            ahead: Mutex::default(),
            sharers: sharers.unwrap_or_default(),
            least,
        }
    }

    fn get(&self, instance: &str) -> Option<CollectiveHandle> {
        lock(&self.made).get(instance).map(|kernel| CollectiveHandle(Arc::clone(kernel)))
    }
}

impl KernelCore {
    /// From now on, other PEs on the GPU make instances for this one, too.
    pub(super) fn share(self: &Arc<Self>) {
        let mut pes = lock(&self.collectives.sharers.pes);
        pes.retain(|core| core.strong_count() > 0);
        pes.push(Arc::downgrade(self));
    }

    /// Makes an instance for all that share the device, while none of their kernels runs. Nobody finds it
    /// before all have it: a launch might run, and hold back the others' code.
    fn make_for_all(self: &Arc<Self>, instance: &str) -> Result<CollectiveHandle> {
        let made = || self.collectives.get(instance);
        self.collectives.sharers.turns.get_or_make(made, || self.make_in_turn(instance))
    }

    fn make_in_turn(self: &Arc<Self>, instance: &str) -> Result<CollectiveHandle> {
        let sharers = &self.collectives.sharers;
        let cubin = self.compile_collective(instance)?;
        let load_all = || -> Result<_> {
            let mut all = vec![(Arc::clone(self), Arc::new(self.load_collective(instance, cubin.as_ref())?))];
            let others: Vec<_> = lock(&sharers.pes).iter().filter_map(Weak::upgrade).collect();
            for core in others {
                if Arc::ptr_eq(&core, self) || core.collectives.get(instance).is_some() {
                    continue;
                }
                match core.load_collective(instance, cubin.as_ref()) {
                    Ok(kernel) => all.push((core, Arc::new(kernel))),
                    // It will say so itself, where it needs the instance.
                    Err(e) => log::debug!("{}: {instance} is not loaded: {e}", core.common.health.who()),
                }
            }
            Ok(all)
        };
        let all = match &self.runner {
            Runner::Cpu(_) => load_all(),
            Runner::Gpu(runner) => runner.while_idle(instance, load_all),
        }?;
        let mine = Arc::clone(&all[0].1);
        for (core, kernel) in all {
            lock(&core.collectives.made).insert(instance.to_owned(), kernel);
        }
        Ok(CollectiveHandle(mine))
    }

    /// Machine code of an instance, the same for all PEs on a GPU; the CPU's is made as it is loaded.
    fn compile_collective(&self, instance: &str) -> Result<Option<Cubin>> {
        match &self.runner {
            Runner::Cpu(_) => Ok(None),
            Runner::Gpu(runner) => runner.compile(NAME, SOURCE, options(instance)).map(Some),
        }
    }

    fn load_collective(&self, instance: &str, cubin: Option<&Cubin>) -> Result<CollectiveKernel> {
        self.common.health.check()?;
        let code = match (&self.runner, cubin) {
            (Runner::Cpu(runner), _) => Code::Cpu(runner.load(NAME, SOURCE, options(instance))?),
            (Runner::Gpu(runner), Some(cubin)) => Code::Gpu(runner.load_cubin(NAME, cubin)?),
            (Runner::Gpu(runner), None) => Code::Gpu(runner.load(NAME, SOURCE, options(instance))?),
        };
        (self.announce)();
        let function = code.function(instance).ok_or_else(|| {
            let there: Vec<&str> = code.kernel_names().collect();
            err!(INTERNAL, "{NAME} has no kernel {instance}, but {}", there.join(", "))
        })?;
        Ok(CollectiveKernel { function, _code: code })
    }
}

fn options(instance: &str) -> Vec<String> {
    vec![format!("--kernel={instance}")]
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
        if let Some(made) = self.core.collectives.get(instance) {
            return Ok(made);
        }
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
        self.core.make_for_all(instance)
    }

    /// Compiles instances for the kinds of GPUs that RUSHMEM_COMPILE_FOR names, each once. (On a GPU nothing:
    /// there they are made when they are needed.)
    pub(crate) fn collectives_ahead(&self, instances: &dyn Fn() -> Result<Vec<String>>) -> Result<()> {
        let common = &self.core.common;
        if common.config.compile_for.is_empty() || matches!(self.core.runner, Runner::Gpu(_)) {
            return Ok(());
        }
        for instance in instances()? {
            if !lock(&self.core.collectives.ahead).contains(&instance) {
                ahead::compile(common, NAME, SOURCE, &options(&instance))?;
                lock(&self.core.collectives.ahead).insert(instance);
            }
        }
        Ok(())
    }

    /// Multiprocessors that every PE has at least, by which all PEs launch collectives alike: a GPU's, shared
    /// out to the PEs that use it. 0 where a PE has no GPU.
    pub(crate) fn multiprocessors(&self) -> u64 {
        self.core.collectives.least
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
        match (&kernel.0.function, &self.core.runner) {
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
                let early = self.core.common.config.early;
                let shape = Shape { grid, block, shared: 0, cooperative: false, cluster: None, early };
                // SAFETY: the caller vouches for the kernel, the arguments and the stream.
                unsafe { runner.launch_own(function, name, &shape, values, raw) }
            }
            _ => Err(err!(INTERNAL, "a kernel of another kind of device")),
        }
    }
}

/// A kernel that is made.
pub(crate) struct CollectiveHandle(Arc<CollectiveKernel>);
