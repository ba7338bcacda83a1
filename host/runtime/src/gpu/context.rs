//! Primary contexts, kept as long as the process lives: the first world on a GPU retains its context once
//! more than it releases it, as CUDA's runtime and PyTorch do.
//!
//! The next world of a process then finds its context made, and no context is destroyed while other PEs of
//! the process go on: one died in a thread of the driver (docs/gpu-findings.md), perhaps of that. A context
//! that is lost (a kernel trapped, say) is let go, so that a world after it has a fresh one.

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

/// Gives back what `retain` gave. `lost`: no further call on the context can succeed.
pub(super) fn release(device: CUdevice, lost: bool) {
    let let_go = lost && {
        let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
        let place = kept.iter().position(|it| *it == device);
        place.map(|i| kept.swap_remove(i)).is_some()
    };
    if let_go {
        release_once(device);
    }
    release_once(device);
}

fn retain_once(device: CUdevice) -> Result<CUcontext> {
    let mut context = std::ptr::null_mut();
    // SAFETY: a device of the driver's; writes its context. The caller releases it, or keeps it.
    unsafe { cu!(cuDevicePrimaryCtxRetain(&mut context, device)) }?;
    Ok(context)
}

fn release_once(device: CUdevice) {
    // SAFETY: retained here before; the caller has nothing left that was made with it.
    ignore("cuDevicePrimaryCtxRelease", unsafe { sys::cuDevicePrimaryCtxRelease_v2(device) });
}
