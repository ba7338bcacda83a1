//! CUDA's older way to share memory between processes, for what has no descriptor: `cuMemAlloc`,
//! `cudaMalloc`. The owner's process makes a handle of 64 bytes; another process opens it, and finds the
//! memory at an address of the driver's choosing. Threads of one process use the owner's address, for which
//! their GPUs need peer access.

use std::sync::Arc;

use cudarc::driver::sys::{self, CUresult};

use super::driver::{check, cu, ignore};
use super::Cuda;
use crate::error::Result;

/// The words of a handle.
pub(crate) const HANDLE_WORDS: usize = 8;

/// A handle to an allocation, as others get it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct IpcHandle(pub(crate) [u64; HANDLE_WORDS]);

const _: () = assert!(size_of::<sys::CUipcMemHandle>() == size_of::<IpcHandle>());

impl IpcHandle {
    /// Of the allocation that starts at `start`. It is valid until the allocation is freed.
    pub(crate) fn of(cuda: &Cuda, start: usize) -> Result<IpcHandle> {
        let _current = cuda.current()?;
        let mut handle = sys::CUipcMemHandle { reserved: [0; 64] };
        // SAFETY: writes the handle; an address that cannot be shared is refused.
        unsafe { cu!(cuIpcGetMemHandle(&mut handle, start as u64)) }?;
        // SAFETY: both are 64 bytes without padding or forbidden values.
        Ok(IpcHandle(unsafe { std::mem::transmute::<[std::ffi::c_char; 64], [u64; 8]>(handle.reserved) }))
    }
}

/// Another process' allocation, open here. Closed on drop, for which nothing may be using it any more; its
/// owner must not free it before.
#[derive(Debug)]
pub(crate) struct IpcMapping {
    cuda: Arc<Cuda>,
    start: usize,
}

impl IpcMapping {
    /// Opens a handle of another process for this GPU. The driver counts how often one process opens the
    /// same.
    pub(crate) fn open(cuda: &Arc<Cuda>, handle: &IpcHandle) -> Result<IpcMapping> {
        let _current = cuda.current()?;
        // SAFETY: 64 bytes that the driver gave, as bytes of either sign; any value is one.
        let reserved = unsafe { std::mem::transmute::<[u64; 8], [std::ffi::c_char; 64]>(handle.0) };
        let flags = sys::CUipcMem_flags::CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS as u32;
        let mut start = 0;
        // SAFETY: writes the address of the mapping, which is owned here at once; a handle that is none is
        // refused.
        unsafe { cu!(cuIpcOpenMemHandle_v2(&mut start, sys::CUipcMemHandle { reserved }, flags)) }?;
        Ok(IpcMapping { cuda: Arc::clone(cuda), start: start as usize })
    }

    /// Where the allocation starts here.
    pub(crate) fn start(&self) -> usize {
        self.start
    }
}

impl Drop for IpcMapping {
    fn drop(&mut self) {
        let Ok(_current) = self.cuda.current() else { return };
        // SAFETY: opened in `open`; the owner has waited for the work that uses it.
        ignore("cuIpcCloseMemHandle", unsafe { sys::cuIpcCloseMemHandle(self.start as u64) });
    }
}

impl Cuda {
    /// Lets this GPU reach whatever `cuMemAlloc` gives on `other`, a GPU of this process, now and later.
    /// Never undone: other code of the process may rely on it by the time that we no longer do.
    pub(crate) fn enable_peer_access(&self, other: &Cuda) -> Result<()> {
        if self.device() == other.device() {
            return Ok(());
        }
        let _current = self.current()?;
        // SAFETY: a context that is retained as long as `other`.
        match unsafe { sys::cuCtxEnablePeerAccess(other.context(), 0) } {
            CUresult::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED => Ok(()),
            result => check("cuCtxEnablePeerAccess", result)
                .map_err(|e| e.context(format_args!("letting {self} reach memory of {other}"))),
        }
    }
}
