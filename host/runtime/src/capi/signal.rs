//! The C ABI of signals (OpenSHMEM 1.5, section 9.8), at once and in a stream's turn.

use std::os::raw::c_void;

use super::{called, check_out, guard, world};
use crate::exec::{on_stream, run, wait, wait_on_stream, Form};
use crate::op::movement::Movement;
use crate::op::signal::SignalOp;
use crate::op::wait::Wait;
use crate::op::Op;
use rushmem_abi::c::*;

/// Copies like `rushmem_put`, then updates the signal word `sig` on the same PE: a PE that sees the update
/// sees the data.
///
/// `sig` is an aligned symmetric word; `sig_op` is `RUSHMEM_SIGNAL_SET` or `RUSHMEM_SIGNAL_ADD`. `bytes` may
/// be 0. Data and word must not overlap. Errors as `rushmem_put`, for both addresses, with nothing written;
/// also `RUSHMEM_ERR_INVALID_ARGUMENT` for an unaligned signal or an unknown operation.
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
        let signal = SignalOp::from_code(sig_op, value)?;
        let put = Movement::bytes(dst as usize, src as usize, bytes);
        let op = Op::put_signal(put, sig as usize, signal);
        // SAFETY: the caller vouches for the world and the source.
        unsafe { run(called!(w, "put_signal", pe), op, pe, Form::Blocking) }.map(drop)
    })
}

/// Like `rushmem_put_signal`, but may return before `src` has been read: leave it alone until
/// `rushmem_quiet`.
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
        let signal = SignalOp::from_code(sig_op, value)?;
        let put = Movement::bytes(dst as usize, src as usize, bytes);
        let op = Op::put_signal(put, sig as usize, signal);
        // SAFETY: the caller vouches for the world and the source.
        unsafe { run(called!(w, "put_signal_nbi", pe), op, pe, Form::Nbi) }.map(drop)
    })
}

/// `rushmem_put_signal` in the stream's turn: a PE that sees the update of `sig` sees the data, and all that
/// was on the stream before. Otherwise as `rushmem_put_on_stream`.
///
/// # Safety
/// `src` is valid for reads of `bytes` bytes until the work is done.
#[no_mangle]
pub unsafe extern "C" fn rushmem_put_signal_on_stream(
    w: *mut rushmem_world_t,
    dst: *mut c_void,
    src: *const c_void,
    bytes: usize,
    sig: *mut u64,
    value: u64,
    sig_op: i32,
    pe: i32,
    stream: *mut c_void,
) -> i32 {
    guard(|| {
        let signal = SignalOp::from_code(sig_op, value)?;
        let put = Movement::bytes(dst as usize, src as usize, bytes);
        let op = Op::put_signal(put, sig as usize, signal);
        // SAFETY: the caller vouches for the world, the source and the stream.
        unsafe { on_stream(called!(w, "put_signal_on_stream", pe), op, pe, stream) }
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
    guard(|| {
        let op = Op::signal(sig as usize, SignalOp::from_code(sig_op, value)?);
        // SAFETY: the caller vouches for the world; there is no local memory.
        unsafe { run(called!(w, "signal_op", pe), op, pe, Form::Blocking) }.map(drop)
    })
}

/// `rushmem_signal_op` in the stream's turn: a PE that sees the update sees all that was on the stream
/// before. Otherwise as `rushmem_put_on_stream`.
///
/// # Safety
/// `w` is a world that is not finalised, and the stream lives.
#[no_mangle]
pub unsafe extern "C" fn rushmem_signal_op_on_stream(
    w: *mut rushmem_world_t,
    sig: *mut u64,
    value: u64,
    sig_op: i32,
    pe: i32,
    stream: *mut c_void,
) -> i32 {
    guard(|| {
        let op = Op::signal(sig as usize, SignalOp::from_code(sig_op, value)?);
        // SAFETY: the caller vouches for the world and the stream; there is no local memory.
        unsafe { on_stream(called!(w, "signal_op_on_stream", pe), op, pe, stream) }
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
            out.write(wait::fetch(world(w)?, sig as usize)?);
        }
        Ok(())
    })
}

/// Waits until this PE's own signal word `sig` compares with `value` as `cmp` (`RUSHMEM_CMP_*`) says,
/// unsigned.
///
/// `*out`, unless `out` is null, becomes the value that did. Acquires: the data that the signal announces is
/// visible on return. A wait that lasts is reported (`RUSHMEM_STALL_REPORT`) and may be bounded
/// (`RUSHMEM_WAIT_TIMEOUT`).
///
/// Errors: as `rushmem_signal_fetch`; `RUSHMEM_ERR_TIMEOUT`; `RUSHMEM_ERR_PEER_DEAD` once a PE of the job is
/// dead.
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
        let w = unsafe { called!(w, "signal_wait_until") };
        let seen = wait::until_value(w, &Wait::signal(w, sig as usize, cmp, value)?)?;
        if !out.is_null() {
            // SAFETY: not null, and the caller vouches for it.
            unsafe { out.write(seen) };
        }
        Ok(())
    })
}

/// Holds the stream back until this PE's own signal word `sig` compares with `value` as `cmp`
/// (`RUSHMEM_CMP_*`) says, unsigned: what the signal announces is visible to all that is behind. A wait that
/// lasts is reported; one that passes `RUSHMEM_WAIT_TIMEOUT`, or a dead PE, makes the stream's work fail. On
/// a GPU the wait is a small kernel, and its failure a trap, which takes the process' context on that GPU
/// with it.
///
/// # Safety
/// `w` is a world that is not finalised, and the stream lives.
#[no_mangle]
pub unsafe extern "C" fn rushmem_signal_wait_until_on_stream(
    w: *mut rushmem_world_t,
    sig: *const u64,
    cmp: i32,
    value: u64,
    stream: *mut c_void,
) -> i32 {
    guard(|| {
        // SAFETY: the caller vouches for the world and the stream.
        unsafe {
            let w = called!(w, "signal_wait_until_on_stream");
            let wait = Wait::signal(w, sig as usize, cmp, value)?;
            wait_on_stream(w, "signal_wait_until", wait, stream)
        }
    })
}
