//! The short way of bytes from symmetric memory of one PE to that of another, both mapped on this PE's GPU:
//! one call of the driver, and little before it. The host is what limits small ones, and code that is not in
//! its first cache after the driver's own (docs/performance-log.md, 20).

use std::ffi::c_void;

use crate::error::Result;
use crate::exec::Home;
use crate::kernel::streams::On;
use crate::op::movement::Movement;
use crate::op::{Op, Reached};

/// Puts `op` on the stream where this is its way: `None`, and nothing done, where it is not, or where
/// something is wrong with it, which the check of any operation says.
///
/// # Safety
/// As for [`super::on_stream`].
#[inline(always)]
pub(super) unsafe fn copy(w: &impl Home, op: &Op, pe: i32, raw: *mut c_void) -> Option<Result<()>> {
    let (data, puts) = match op {
        Op::Put(Movement::Bytes(data)) => (data, true),
        Op::Get(Movement::Bytes(data)) => (data, false),
        _ => return None,
    };
    if data.bytes == 0 || w.engine().is_none() || w.trace().is_some() {
        return None;
    }
    let Ok((remote, Reached::Gpu)) = w.reach(data.remote, data.bytes, pe) else { return None };
    let local = w.own_if_symmetric(data.local.at, data.bytes)?;
    // SAFETY: the caller vouches for the stream.
    let Ok(On::Gpu(stream)) = (unsafe { w.kernels().on(raw) }) else { return None };
    let (dst, src) = if puts { (remote, local) } else { (local, remote) };
    // SAFETY: both sides are live symmetric memory, as has been looked up, and stay as the caller vouches.
    let put = unsafe { stream.copy_on_gpus(dst, src, data.bytes) };
    Some(put.map_err(|e| w.kernels().explain(e, op.name())))
}
