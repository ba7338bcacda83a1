//! The runtime's own kernels, for operations that the GPU's front end and copy engines cannot do: `device/src/service.cu`,
//! built by nvcc when the runtime was, or by NVRTC when a world starts.
//!
//! They are loaded when the world starts, not when first needed: loading code may wait for kernels that run, and these
//! may be waiting for what the new code is to do.

use std::ffi::c_void;
use std::sync::Arc;

use crate::config::Config;
use crate::error::{err, Error, Result};
use crate::gpu::compile::Compiler;
use crate::gpu::embedded;
use crate::gpu::launch::Shape;
use crate::gpu::module::{Kernel, Module};
use crate::gpu::stream::{Priority, Stream};
use crate::gpu::Cuda;
use crate::kernel::headers;
use rushmem_abi::device::RawState;

/// The kernels of one PE, or why there are none.
pub(crate) struct Service {
    kernels: std::result::Result<Kernels, Error>,
}

struct Kernels {
    atomic: Kernel,
    signal: Kernel,
    put_signal: Kernel,
    copy_strided: Kernel,
    wait: Kernel,
    sync: Kernel,
    mailbox: Kernel,
}

/// What a service kernel can do. Addresses are of memory that the GPU can reach.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Task {
    /// `RUSHMEM_ATOMIC_*` on a word of 4 or 8 bytes; the old value goes to `result` where that is not 0.
    Atomic { op: i32, bytes: usize, at: usize, value: u64, compare: u64, result: usize },
    /// A signal's update, released to the system.
    Signal { at: usize, value: u64, add: bool },
    /// A copy by one block, then a signal.
    PutSignal { dst: usize, src: usize, bytes: usize, sig: usize, value: u64, add: bool },
    /// Elements at distances, counted in elements.
    CopyStrided { dst: usize, src: usize, dst_stride: isize, src_stride: isize, elem: usize, n: usize },
    /// Waits until the word compares; `cmp` is a `RUSHMEM_CMP_*`.
    Wait { at: usize, bytes: usize, signed: bool, cmp: i32, value: u64 },
    /// The device's sync of all PEs.
    Sync,
    /// Carries out what is in the mailbox at `at`, up to the request before number `upto`.
    Mailbox { at: usize, upto: u64 },
}

impl Service {
    /// Loads the kernels for the PE of `state`. A machine without NVRTC, and a runtime built without nvcc, give a service
    /// whose every task is an error that says so.
    pub(crate) fn load(cuda: &Arc<Cuda>, config: &Config, state: &RawState) -> Result<Service> {
        let built = prebuilt().map_or_else(|| compile(cuda, config), |code| Ok(code.to_vec()));
        let module = built.and_then(|code| Module::load(cuda, "rushmem's service kernels", &code, &[]));
        let module = match module {
            Ok(module) => module,
            Err(e) => {
                log::info!("no service kernels: {e}");
                return Ok(Service { kernels: Err(e) });
            }
        };
        module.upload(state, &Stream::new(cuda, Priority::High)?)?;
        let kernel = |name: &str| {
            module.kernel(name).ok_or_else(|| err!(INTERNAL, "rushmem's service kernels lack {name}"))
        };
        Ok(Service {
            kernels: Ok(Kernels {
                atomic: kernel("rushmem_service_atomic")?,
                signal: kernel("rushmem_service_signal")?,
                put_signal: kernel("rushmem_service_put_signal")?,
                copy_strided: kernel("rushmem_service_copy_strided")?,
                wait: kernel("rushmem_service_wait")?,
                sync: kernel("rushmem_service_sync")?,
                mailbox: kernel("rushmem_service_mailbox")?,
            }),
        })
    }

    /// Whether there are kernels.
    pub(crate) fn works(&self) -> bool {
        self.kernels.is_ok()
    }

    /// Puts a task on the stream.
    ///
    /// # Safety
    /// Its addresses are valid until it is done.
    pub(crate) unsafe fn start(&self, task: &Task, stream: &Stream) -> Result<()> {
        let kernels = self.kernels.as_ref().map_err(|e| {
            e.clone().context(
                "this operation on GPU memory needs a kernel of rushmem's own, which this runtime was built without (no nvcc) \
                 and cannot compile",
            )
        })?;
        let arg = |value: &u64| std::ptr::from_ref(value).cast::<c_void>();
        let (kernel, threads, blocks, values): (_, u32, u32, Vec<u64>) = match *task {
            Task::Atomic { op, bytes, at, value, compare, result } => {
                let words = vec![op as u64, bytes as u64, at as u64, value, compare, result as u64, 0, 0];
                (&kernels.atomic, 1, 1, words)
            }
            Task::Signal { at, value, add } => {
                (&kernels.signal, 1, 1, vec![at as u64, value, u64::from(add)])
            }
            Task::PutSignal { dst, src, bytes, sig, value, add } => {
                let threads = if bytes <= 16 * 32 { 32 } else { 1024 };
                let words = vec![dst as u64, src as u64, bytes as u64, sig as u64, value, u64::from(add)];
                (&kernels.put_signal, threads, 1, words)
            }
            Task::CopyStrided { dst, src, dst_stride, src_stride, elem, n } => {
                let strides = [dst_stride as u64, src_stride as u64];
                let words = vec![dst as u64, src as u64, strides[0], strides[1], elem as u64, n as u64];
                (&kernels.copy_strided, 256, n.div_ceil(1024).clamp(1, 64) as u32, words)
            }
            Task::Wait { at, bytes, signed, cmp, value } => {
                let words = vec![at as u64, bytes as u64, u64::from(signed), cmp as u64, value];
                (&kernels.wait, 1, 1, words)
            }
            Task::Sync => (&kernels.sync, 64, 1, vec![]),
            Task::Mailbox { at, upto } => (&kernels.mailbox, 1, 1, vec![at as u64, upto]),
        };
        let shape = Shape {
            grid: [blocks, 1, 1],
            block: [threads, 1, 1],
            shared: 0,
            cooperative: false,
            cluster: None,
        };
        // Little-endian: a parameter of 4 bytes is the first half of its word.
        let args: Vec<*const c_void> = values.iter().map(arg).collect();
        // SAFETY: as many words as parameters, each at least as long; the addresses per contract.
        unsafe { kernel.launch(&shape, &args, stream) }
    }
}

/// The code that nvcc made for this runtime, if it did.
fn prebuilt() -> Option<&'static [u8]> {
    let code = embedded::SERVICE;
    (!code.is_empty()).then_some(code)
}

fn compile(cuda: &Arc<Cuda>, config: &Config) -> Result<Vec<u8>> {
    let compiler = Compiler {
        nvrtc: config.nvrtc.clone(),
        nvjitlink: config.nvjitlink.clone(),
        cache_dir: config.cache_dir.clone(),
        capability: cuda.facts().capability,
        options: Vec::new(),
        headers: headers::DEVICE_HEADERS,
    };
    Ok(compiler.compile("service.cu", embedded::SERVICE_SOURCE)?.code)
}
