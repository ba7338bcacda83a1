//! The C ABI of signals (OpenSHMEM 1.5, sections 9.8.3 and 9.9).

use super::{called, guard, world};
use crate::ops::check_out;
use crate::ops::signal::{self, SignalOp};
use rushmem_abi::c::*;
use std::os::raw::c_void;

/// Copies like `rushmem_put`, then updates the signal word `sig` on the same PE: whoever sees the update sees the
/// data.
///
/// `sig` is an aligned symmetric word; `sig_op` is `RUSHMEM_SIGNAL_SET` or `RUSHMEM_SIGNAL_ADD`. `bytes` may be 0.
/// Data and word must not overlap. Errors as `rushmem_put`, for both addresses, with nothing written; also
/// `RUSHMEM_ERR_INVALID_ARGUMENT` for an unaligned signal or an unknown operation.
///
/// # Safety
/// `src` is valid for reads of `bytes` bytes.
#[no_mangle]
pub unsafe extern "C" fn rushmem_put_signal(
    w: *mut rushmem_world_t,
    dst: *mut c_void,
    src: *const c_void,
    bytes: usize,
    sig: *mut u64,
    value: u64,
    sig_op: i32,
    pe: i32,
) -> i32 {
    guard(|| {
        let op = SignalOp::from_code(sig_op, value)?;
        // SAFETY: the caller vouches for the world and the source.
        unsafe {
            signal::put_signal(
                called!(w, "put_signal", pe),
                dst as usize,
                src.cast(),
                bytes,
                sig as usize,
                op,
                pe,
            )
        }
    })
}

/// Like `rushmem_put_signal`, but may return before `src` has been read: leave it alone until `rushmem_quiet`.
///
/// # Safety
/// `src` is valid for reads of `bytes` bytes until the next quiet.
#[no_mangle]
pub unsafe extern "C" fn rushmem_put_signal_nbi(
    w: *mut rushmem_world_t,
    dst: *mut c_void,
    src: *const c_void,
    bytes: usize,
    sig: *mut u64,
    value: u64,
    sig_op: i32,
    pe: i32,
) -> i32 {
    guard(|| {
        let op = SignalOp::from_code(sig_op, value)?;
        // SAFETY: the caller vouches for the world and the source.
        unsafe {
            signal::put_signal_nbi(
                called!(w, "put_signal_nbi", pe),
                dst as usize,
                src.cast(),
                bytes,
                sig as usize,
                op,
                pe,
            )
        }
    })
}

/// Updates the signal word `sig` on PE `pe` without data.
///
/// Not ordered behind earlier puts by contract: call `rushmem_fence` in between, or use `rushmem_put_signal`.
/// Errors as `rushmem_put_signal`.
///
/// # Safety
/// `w` is a world that is not finalised.
#[no_mangle]
pub unsafe extern "C" fn rushmem_signal_op(
    w: *mut rushmem_world_t,
    sig: *mut u64,
    value: u64,
    sig_op: i32,
    pe: i32,
) -> i32 {
    // SAFETY: the caller vouches for the world.
    guard(|| {
        signal::signal_op(
            // SAFETY: per contract.
            unsafe { called!(w, "signal_op", pe) },
            sig as usize,
            SignalOp::from_code(sig_op, value)?,
            pe,
        )
    })
}

/// Reads this PE's own signal word `sig` into `*out`, without waiting.
///
/// Acquires: the data that the value read announces is visible after it. Errors: `RUSHMEM_ERR_BAD_ADDRESS`,
/// `RUSHMEM_ERR_OUT_OF_BOUNDS`, `RUSHMEM_ERR_INVALID_ARGUMENT` (unaligned, null `out`).
///
/// # Safety
/// `out` is null or valid for writes.
#[no_mangle]
pub unsafe extern "C" fn rushmem_signal_fetch(
    w: *mut rushmem_world_t,
    sig: *const u64,
    out: *mut u64,
) -> i32 {
    guard(|| {
        // SAFETY: the caller vouches for the world and the out-parameter.
        unsafe {
            let out = check_out(out, "out")?;
            out.write(signal::fetch(world(w)?, sig as usize)?);
        }
        Ok(())
    })
}

/// Waits until this PE's own signal word `sig` compares with `value` as `cmp` (`RUSHMEM_CMP_*`) says, unsigned.
///
/// `*out`, unless `out` is null, becomes the value that did. Acquires: the data that the signal announces is
/// visible on return. A wait that lasts is reported (`RUSHMEM_STALL_REPORT`) and may be bounded
/// (`RUSHMEM_WAIT_TIMEOUT`).
///
/// Errors: as `rushmem_signal_fetch`; `RUSHMEM_ERR_TIMEOUT`; `RUSHMEM_ERR_PEER_DEAD` once a PE of the job is dead.
///
/// # Safety
/// `out` is null or valid for writes.
#[no_mangle]
pub unsafe extern "C" fn rushmem_signal_wait_until(
    w: *mut rushmem_world_t,
    sig: *const u64,
    cmp: i32,
    value: u64,
    out: *mut u64,
) -> i32 {
    guard(|| {
        // SAFETY: the caller vouches for the world.
        let seen = signal::wait_until(unsafe { called!(w, "signal_wait_until") }, sig as usize, cmp, value)?;
        if !out.is_null() {
            // SAFETY: not null, and the caller vouches for it.
            unsafe { out.write(seen) };
        }
        Ok(())
    })
}
