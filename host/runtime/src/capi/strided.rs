//! The C ABI of strided puts and gets (OpenSHMEM 1.5, section 9.6), at once and in a stream's turn.

use std::os::raw::c_void;

use super::{called, guard, world};
use crate::exec::{on_stream, run, Form};
use crate::op::movement::Movement;
use crate::op::signal::SignalOp;
use crate::op::strided::Strides;
use crate::op::Op;
use rushmem_abi::c::*;

/// Elements put: element `i * src_stride` of `src` goes to element `i * dst_stride` of the symmetric `dst` on
/// PE `pe`, for `i` in `0 .. n`.
///
/// Strides count elements of `elem_bytes` bytes and are 1 or more. The bytes between the elements are left
/// alone. Ordering and errors as `rushmem_put`; also `RUSHMEM_ERR_INVALID_ARGUMENT` for a stride below 1, an
/// element of 0 bytes or an extent past the address space.
///
/// # Safety
/// `src` is valid for reads of `((n - 1) * src_stride + 1) * elem_bytes` bytes.
#[no_mangle]
pub unsafe extern "C" fn rushmem_iput(
    w: *mut rushmem_world_t,
    dst: *mut c_void,
    src: *const c_void,
    dst_stride: isize,
    src_stride: isize,
    elem_bytes: usize,
    n: usize,
    pe: i32,
) -> i32 {
    let strides = Strides { dst_stride, src_stride, elem: elem_bytes, n };
    let op = Op::iput(dst as usize, src as usize, strides);
    // SAFETY: the caller vouches for the world and the source.
    guard(|| unsafe { run(called!(w, "iput", pe), op, pe, Form::Blocking) }.map(drop))
}

/// `rushmem_iput` in the stream's turn. Otherwise as `rushmem_put_on_stream`.
///
/// # Safety
/// `src` is valid for reads of `((n - 1) * src_stride + 1) * elem_bytes` bytes until the work is done.
#[no_mangle]
pub unsafe extern "C" fn rushmem_iput_on_stream(
    w: *mut rushmem_world_t,
    dst: *mut c_void,
    src: *const c_void,
    dst_stride: isize,
    src_stride: isize,
    elem_bytes: usize,
    n: usize,
    pe: i32,
    stream: *mut c_void,
) -> i32 {
    let strides = Strides { dst_stride, src_stride, elem: elem_bytes, n };
    let op = Op::iput(dst as usize, src as usize, strides);
    // SAFETY: the caller vouches for the world, the source and the stream.
    guard(|| unsafe { on_stream(called!(w, "iput_on_stream", pe), op, pe, stream) })
}

/// Elements put like `rushmem_iput`, then updates the signal word `sig` on the same PE: a PE that sees the
/// update sees all elements. One signal counts for all of them: with `RUSHMEM_SIGNAL_ADD` and `value` their
/// number, say, a receiver of several senders' elements waits for the sum.
///
/// `sig` is an aligned symmetric word; `sig_op` is `RUSHMEM_SIGNAL_SET` or `RUSHMEM_SIGNAL_ADD`. `n` may be
/// 0. Elements and word must not overlap. Errors as `rushmem_iput`, for both addresses, with nothing written;
/// also `RUSHMEM_ERR_INVALID_ARGUMENT` for an unaligned signal or an unknown operation.
///
/// # Safety
/// `src` is valid for reads of `((n - 1) * src_stride + 1) * elem_bytes` bytes.
#[no_mangle]
pub unsafe extern "C" fn rushmem_iput_signal(
    w: *mut rushmem_world_t,
    dst: *mut c_void,
    src: *const c_void,
    dst_stride: isize,
    src_stride: isize,
    elem_bytes: usize,
    n: usize,
    sig: *mut u64,
    value: u64,
    sig_op: i32,
    pe: i32,
) -> i32 {
    guard(|| {
        let strides = Strides { dst_stride, src_stride, elem: elem_bytes, n };
        let signal = SignalOp::from_code(sig_op, value)?;
        let put = Movement::elements(dst as usize, src as usize, strides);
        let op = Op::put_signal(put, sig as usize, signal);
        // SAFETY: the caller vouches for the world and the source.
        unsafe { run(called!(w, "iput_signal", pe), op, pe, Form::Blocking) }.map(drop)
    })
}

/// `rushmem_iput_signal` in the stream's turn: a PE that sees the update sees the elements, and all that was
/// on the stream before. Otherwise as `rushmem_put_on_stream`.
///
/// # Safety
/// `src` is valid for reads of `((n - 1) * src_stride + 1) * elem_bytes` bytes until the work is done.
#[no_mangle]
pub unsafe extern "C" fn rushmem_iput_signal_on_stream(
    w: *mut rushmem_world_t,
    dst: *mut c_void,
    src: *const c_void,
    dst_stride: isize,
    src_stride: isize,
    elem_bytes: usize,
    n: usize,
    sig: *mut u64,
    value: u64,
    sig_op: i32,
    pe: i32,
    stream: *mut c_void,
) -> i32 {
    guard(|| {
        let strides = Strides { dst_stride, src_stride, elem: elem_bytes, n };
        let signal = SignalOp::from_code(sig_op, value)?;
        let put = Movement::elements(dst as usize, src as usize, strides);
        let op = Op::put_signal(put, sig as usize, signal);
        // SAFETY: the caller vouches for the world, the source and the stream.
        unsafe { on_stream(called!(w, "iput_signal_on_stream", pe), op, pe, stream) }
    })
}

/// Elements get: element `i * src_stride` of the symmetric `src` on PE `pe` goes to element `i * dst_stride`
/// of `dst`, for `i` in `0 .. n`. Otherwise as `rushmem_iput` and `rushmem_get`.
///
/// # Safety
/// `dst` is valid for writes of `((n - 1) * dst_stride + 1) * elem_bytes` bytes.
#[no_mangle]
pub unsafe extern "C" fn rushmem_iget(
    w: *mut rushmem_world_t,
    dst: *mut c_void,
    src: *const c_void,
    dst_stride: isize,
    src_stride: isize,
    elem_bytes: usize,
    n: usize,
    pe: i32,
) -> i32 {
    let strides = Strides { dst_stride, src_stride, elem: elem_bytes, n };
    let op = Op::iget(dst as usize, src as usize, strides);
    // SAFETY: the caller vouches for the world and the destination.
    guard(|| unsafe { run(called!(w, "iget", pe), op, pe, Form::Blocking) }.map(drop))
}

/// `rushmem_iget` in the stream's turn. Otherwise as `rushmem_put_on_stream`.
///
/// # Safety
/// `dst` is valid for writes of `((n - 1) * dst_stride + 1) * elem_bytes` bytes until the work is done.
#[no_mangle]
pub unsafe extern "C" fn rushmem_iget_on_stream(
    w: *mut rushmem_world_t,
    dst: *mut c_void,
    src: *const c_void,
    dst_stride: isize,
    src_stride: isize,
    elem_bytes: usize,
    n: usize,
    pe: i32,
    stream: *mut c_void,
) -> i32 {
    let strides = Strides { dst_stride, src_stride, elem: elem_bytes, n };
    let op = Op::iget(dst as usize, src as usize, strides);
    // SAFETY: the caller vouches for the world, the destination and the stream.
    guard(|| unsafe { on_stream(called!(w, "iget_on_stream", pe), op, pe, stream) })
}
