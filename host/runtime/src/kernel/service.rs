//! The runtime's own kernels, for operations that the GPU's front end and copy engines cannot do:
//! `device/src/service.cu`, built by nvcc when the runtime was, or by NVRTC when a world starts.
//!
//! They are loaded when the world starts, not when first needed: loading code may wait for kernels that run,
//! and these may be waiting for what the new code is to do.

use std::ffi::c_void;
use std::sync::Arc;

use crate::config::Config;
use crate::error::{err, Error, Result};
use crate::gpu::embedded;
use crate::gpu::launch::Shape;
use crate::gpu::module::{Kernel, Module};
use crate::gpu::stream::{Priority, Stream};
use crate::gpu::Cuda;
use crate::op::atomic::AtomicWord;
use crate::op::signal::{Signal, SignalOp};
use crate::op::strided::Strides;
use crate::op::wait::Wait;
use rushmem_abi::device::RawState;

/// The kernels of one PE, or why there are none.
pub(crate) struct Service {
    kernels: std::result::Result<ServiceKernels, Error>,
}

struct ServiceKernels {
    atomic: Kernel,
    signal: Kernel,
    put_signal: Kernel,
    copy_strided: Kernel,
    wait: Kernel,
    sync: Kernel,
    mailbox: Kernel,
}

impl Service {
    /// Loads the kernels for the PE of `state`. A machine without NVRTC, and a runtime built without nvcc,
    /// give a service whose every task is an error that says so.
    pub(crate) fn load(cuda: &Arc<Cuda>, config: &Config, state: &RawState) -> Result<Service> {
        let built = prebuilt().map_or_else(|| compile(cuda, config), |code| Ok(code.to_vec()));
        let module = built.and_then(|code| Module::load(cuda, None, "rushmem's service kernels", &code, &[]));
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
            kernels: Ok(ServiceKernels {
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

    /// Atomic operation on a word of 4 or 8 bytes; the old value goes to `result` where that is not 0.
    ///
    /// # Safety
    /// Here and below: the addresses are of memory that the GPU reaches, and valid until the kernel is done.
    pub(crate) unsafe fn atomic(&self, stream: &Stream, a: &AtomicWord, result: usize) -> Result<()> {
        let kernel = &self.kernels()?.atomic;
        let words =
            [a.op.code() as u64, a.bytes as u64, a.at as u64, a.value, a.compare, result as u64, 0, 0];
        // SAFETY: the caller vouches for the addresses.
        unsafe { launch(kernel, 1, 1, &words, stream) }
    }

    /// A signal's update, released to the system.
    ///
    /// # Safety
    /// As for [`Service::atomic`].
    pub(crate) unsafe fn signal(&self, stream: &Stream, at: usize, op: SignalOp) -> Result<()> {
        let (value, add) = op.parts();
        // SAFETY: the caller vouches for the word.
        unsafe { launch(&self.kernels()?.signal, 1, 1, &[at as u64, value, u64::from(add)], stream) }
    }

    /// A copy by one block, then a signal.
    ///
    /// # Safety
    /// As for [`Service::atomic`].
    pub(crate) unsafe fn put_signal(
        &self,
        stream: &Stream,
        dst: usize,
        src: usize,
        bytes: usize,
        signal: &Signal,
    ) -> Result<()> {
        let threads = if bytes <= 16 * 32 { 32 } else { 1024 };
        let (value, add) = signal.op.parts();
        let words = [dst as u64, src as u64, bytes as u64, signal.at as u64, value, u64::from(add)];
        // SAFETY: the caller vouches for the addresses.
        unsafe { launch(&self.kernels()?.put_signal, threads, 1, &words, stream) }
    }

    /// Elements at distances.
    ///
    /// # Safety
    /// As for [`Service::atomic`].
    pub(crate) unsafe fn copy_strided(
        &self,
        stream: &Stream,
        dst: usize,
        src: usize,
        strides: &Strides,
    ) -> Result<()> {
        let &Strides { dst_stride, src_stride, elem, n } = strides;
        let words = [dst as u64, src as u64, dst_stride as u64, src_stride as u64, elem as u64, n as u64];
        let blocks = n.div_ceil(1024).clamp(1, 64) as u32;
        // SAFETY: the caller vouches for the addresses.
        unsafe { launch(&self.kernels()?.copy_strided, 256, blocks, &words, stream) }
    }

    /// Waits until the word compares.
    ///
    /// # Safety
    /// As for [`Service::atomic`].
    pub(crate) unsafe fn wait(&self, stream: &Stream, wait: &Wait) -> Result<()> {
        let (bytes, signed) = (wait.kind.bytes() as u64, u64::from(wait.kind.is_signed()));
        let words = [wait.at as u64, bytes, signed, wait.cmp.code() as u64, wait.value];
        // SAFETY: the caller vouches for the word.
        unsafe { launch(&self.kernels()?.wait, 1, 1, &words, stream) }
    }

    /// The device's sync of all PEs.
    pub(crate) fn sync(&self, stream: &Stream) -> Result<()> {
        // SAFETY: the kernel takes no addresses; what it uses is in the state, which lives as long as the
        // module.
        unsafe { launch(&self.kernels()?.sync, 64, 1, &[], stream) }
    }

    /// Carries out what is in the mailbox at `at`, up to the request before number `upto`.
    ///
    /// # Safety
    /// As for [`Service::atomic`].
    pub(crate) unsafe fn mailbox(&self, stream: &Stream, at: usize, upto: u64) -> Result<()> {
        // SAFETY: the caller vouches for the mailbox.
        unsafe { launch(&self.kernels()?.mailbox, 1, 1, &[at as u64, upto], stream) }
    }

    fn kernels(&self) -> Result<&ServiceKernels> {
        self.kernels.as_ref().map_err(|e| {
            e.clone().context(
                "this operation on GPU memory needs a kernel of rushmem's own, which this runtime was built without (no nvcc) \
                 and cannot compile",
            )
        })
    }
}

/// Puts a kernel on the stream; `values` are its parameters.
///
/// # Safety
/// There are as many values as parameters, and the addresses among them are valid until the kernel is done.
unsafe fn launch(kernel: &Kernel, threads: u32, blocks: u32, values: &[u64], stream: &Stream) -> Result<()> {
    let shape = Shape {
        grid: [blocks, 1, 1],
        block: [threads, 1, 1],
        shared: 0,
        cooperative: false,
        cluster: None,
        early: false,
    };
    // Little-endian: a parameter of 4 bytes is the first half of its word.
    let args: Vec<*const c_void> =
        values.iter().map(|value| std::ptr::from_ref(value).cast::<c_void>()).collect();
    // SAFETY: each word is at least as long as its parameter; the rest per contract.
    unsafe { kernel.launch(&shape, &args, stream) }
}

/// The code that nvcc made for this runtime, if it did.
fn prebuilt() -> Option<&'static [u8]> {
    let code = embedded::SERVICE;
    (!code.is_empty()).then_some(code)
}

fn compile(cuda: &Arc<Cuda>, config: &Config) -> Result<Vec<u8>> {
    let compiler = super::gpu_compiler(config, cuda.facts().capability, Vec::new());
    Ok(compiler.compile("service.cu", embedded::SERVICE_SOURCE)?.code)
}
