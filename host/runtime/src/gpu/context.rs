//! Primary contexts, kept as long as the process lives: the first world on a GPU retains its context once
//! more than it releases it, as CUDA's runtime and PyTorch do.
//!
//! A context that is destroyed takes with it what a thread of the driver (`cuda-EvtHandlr`) may just be
//! looking at: a process whose PEs were threads was seen to die there (docs/gpu-findings.md). And the next
//! world of the process finds its context made. A context that is lost (a kernel trapped, say) is let go, so
//! that a world after it has a fresh one.

use std::sync::{Mutex, PoisonError};

use cudarc::driver::sys::{self, CUcontext, CUdevice};

use super::driver::{cu, ignore};
use crate::error::Result;

/// GPUs whose contexts are kept.
static KEPT: Mutex<Vec<CUdevice>> = Mutex::new(Vec::new());

/// The primary context of a GPU, retained once for the caller.
pub(super) fn retain(device: CUdevice) -> Result<CUcontext> {
    let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    let context = retain_once(device)?;
    if !kept.contains(&device) {
        // What fails here failed above already; without it the context goes with the caller's.
        if retain_once(device).is_ok() {
            kept.push(device);
        }
    }
    Ok(context)
}

/// Gives back what `retain` gave. `lost`: no further call on the context can succeed.
pub(super) fn release(device: CUdevice, lost: bool) {
    let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    if lost && kept.contains(&device) {
        kept.retain(|it| *it != device);
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
