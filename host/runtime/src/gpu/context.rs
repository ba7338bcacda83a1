//! Primary contexts, kept as long as the process lives: the first world on a GPU retains its context once
//! more than it releases it, as CUDA's runtime and PyTorch do.
//!
//! The next world of a process then finds its context made, and no context is destroyed while other PEs of
//! the process go on: one died in a thread of the driver (docs/gpu-findings.md), perhaps of that.

use std::sync::{Mutex, PoisonError};

use cudarc::driver::sys::{self, CUcontext, CUdevice};

use super::driver::{cu, ignore};
use crate::error::Result;

/// GPUs whose contexts are kept.
static KEPT: Mutex<Vec<CUdevice>> = Mutex::new(Vec::new());

/// The primary context of a GPU, retained once for the caller.
pub(super) fn retain(device: CUdevice) -> Result<CUcontext> {
    // Outside of the lock: it may take a second, and PEs of one process make contexts side by side.
    let context = retain_once(device)?;
    let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    // Should this fail where that did not, the context goes with the caller's.
    if !kept.contains(&device) && retain_once(device).is_ok() {
        kept.push(device);
    }
    Ok(context)
}

/// Gives back what `retain` gave.
pub(super) fn release(device: CUdevice) {
    // SAFETY: retained by the caller, which has nothing left that was made with it; kept once more here.
    ignore("cuDevicePrimaryCtxRelease", unsafe { sys::cuDevicePrimaryCtxRelease_v2(device) });
}

fn retain_once(device: CUdevice) -> Result<CUcontext> {
    let mut context = std::ptr::null_mut();
    // SAFETY: a device of the driver's; writes its context. The caller releases it, or keeps it.
    unsafe { cu!(cuDevicePrimaryCtxRetain(&mut context, device)) }?;
    Ok(context)
}
