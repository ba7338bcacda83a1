//! Room for the stacks of kernels' threads.
//!
//! A context has stacks of one size for all kernels, 1 KiB at first. "The driver automatically increases
//! the per-thread stack size for each kernel launch as needed", and then "the device will block until all
//! preceding requested tasks are complete" (CUDA Driver API, `cuCtxSetLimit`). A kernel that runs may be
//! waiting for the very launch that is held back so. So stacks grow when code is loaded, which is while no
//! kernel of these PEs is under way (`sharing.rs`), and not when it is launched. A load that makes them
//! grow waits for kernels that run, as a launch would have: who launches a kernel that waits for the host
//! loads before it does.

use std::sync::{Mutex, PoisonError};

use cudarc::driver::sys::{self, CUfunction, CUfunction_attribute, CUlimit};

use super::driver::{cu, ignore};
use crate::error::Result;

/// Between asking for the size and setting it. Of all contexts: each is asked for seldom.
static GROWING: Mutex<()> = Mutex::new(());

/// Bytes of stack that a thread of the kernel needs.
pub(super) fn stack_of(kernel: CUfunction) -> Result<usize> {
    let mut bytes = 0;
    let attribute = CUfunction_attribute::CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES;
    // SAFETY: a function of a loaded module; writes one int.
    unsafe { cu!(cuFuncGetAttribute(&mut bytes, attribute, kernel)) }?;
    Ok(usize::try_from(bytes).unwrap_or(0))
}

/// Makes the current context's stacks at least as large. Where there is no memory for it, a launch that needs
/// it will say so.
pub(super) fn grow(bytes: usize) -> Result<()> {
    let _growing = GROWING.lock().unwrap_or_else(PoisonError::into_inner);
    let mut now = 0;
    // SAFETY: writes a number.
    unsafe { cu!(cuCtxGetLimit(&mut now, CUlimit::CU_LIMIT_STACK_SIZE)) }?;
    if now < bytes {
        // SAFETY: of the current context; no memory of ours is concerned.
        ignore("cuCtxSetLimit", unsafe { sys::cuCtxSetLimit(CUlimit::CU_LIMIT_STACK_SIZE, bytes) });
    }
    Ok(())
}
