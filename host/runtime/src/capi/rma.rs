//! The C ABI of remote memory access: put, get, p and g (OpenSHMEM 1.5, section 9.6), at once and in
//! a stream's turn.

use std::os::raw::c_void;

use super::{called, check_out, guard, world};
use crate::exec::{on_stream, run, Form};
use crate::op::Op;
use rushmem_abi::c::*;

/// Copies `bytes` bytes from local memory at `src` to the symmetric address `dst` on PE `pe`.
///
/// `dst` is this PE's own symmetric address of the destination; `src` is any local memory. On return `src`
/// may be reused. The data is visible on `pe` at the latest after `rushmem_quiet` or a barrier; it is seen
/// before any put, atomic or signal that follows a `rushmem_fence`. 1, 2, 4 or 8 bytes, aligned on both
/// sides, arrive in one piece. Overlapping buffers on the same PE have an unspecified result.
///
/// Errors, with nothing written: `RUSHMEM_ERR_BAD_PE`, `RUSHMEM_ERR_BAD_ADDRESS` (not symmetric, or freed),
/// `RUSHMEM_ERR_OUT_OF_BOUNDS` (past the end of the allocation), `RUSHMEM_ERR_INVALID_ARGUMENT` (null
/// source).
///
/// # Safety
/// `src` is valid for reads of `bytes` bytes.
#[no_mangle]
pub unsafe extern "C" fn rushmem_put(
    w: *mut rushmem_world_t,
    dst: *mut c_void,
    src: *const c_void,
    bytes: usize,
    pe: i32,
) -> i32 {
    let op = Op::put(dst as usize, src as usize, bytes);
    // SAFETY: the caller vouches for the world and the source.
    guard(|| unsafe { run(called!(w, "put", pe), op, pe, Form::Blocking) }.map(drop))
}

/// Like `rushmem_put`, but may return before `src` has been read: leave it alone until `rushmem_quiet`.
///
/// # Safety
/// `src` is valid for reads of `bytes` bytes until the next quiet.
#[no_mangle]
pub unsafe extern "C" fn rushmem_put_nbi(
    w: *mut rushmem_world_t,
    dst: *mut c_void,
    src: *const c_void,
    bytes: usize,
    pe: i32,
) -> i32 {
    let op = Op::put(dst as usize, src as usize, bytes);
    // SAFETY: the caller vouches for the world and the source.
    guard(|| unsafe { run(called!(w, "put_nbi", pe), op, pe, Form::Nbi) }.map(drop))
}

/// `rushmem_put` in the stream's turn: `bytes` bytes from local memory at `src` to the symmetric address
/// `dst` on PE `pe`.
///
/// Returns at once. `src` is read, and both sides must live, until the work is done. Arguments are checked
/// now, and an error (as `rushmem_put`; also `RUSHMEM_ERR_BAD_HANDLE` for the stream) means that nothing was
/// put on the stream; `rushmem_stream_synchronize` or an event reports what goes wrong later. On a GPU
/// this and the other operations on streams may be captured into a CUDA graph: addresses are recorded, and
/// what is at them is read at each launch of the graph. Ordinary (pageable) host memory goes through pinned
/// buffers, 32 MiB at most for all streams; no call waits for its stream.
///
/// # Safety
/// `src` is valid for reads of `bytes` bytes until the work is done.
#[no_mangle]
pub unsafe extern "C" fn rushmem_put_on_stream(
    w: *mut rushmem_world_t,
    dst: *mut c_void,
    src: *const c_void,
    bytes: usize,
    pe: i32,
    stream: *mut c_void,
) -> i32 {
    let op = Op::put(dst as usize, src as usize, bytes);
    // SAFETY: the caller vouches for the world, the source and the stream.
    guard(|| unsafe { on_stream(called!(w, "put_on_stream", pe), op, pe, stream) })
}

/// Copies `bytes` bytes from the symmetric address `src` on PE `pe` to local memory at `dst`.
///
/// On return `dst` holds the data. 1, 2, 4 or 8 bytes, aligned on both sides, are read in one piece. Errors
/// as `rushmem_put`, with nothing written.
///
/// # Safety
/// `dst` is valid for writes of `bytes` bytes.
#[no_mangle]
pub unsafe extern "C" fn rushmem_get(
    w: *mut rushmem_world_t,
    dst: *mut c_void,
    src: *const c_void,
    bytes: usize,
    pe: i32,
) -> i32 {
    let op = Op::get(dst as usize, src as usize, bytes);
    // SAFETY: the caller vouches for the world and the destination.
    guard(|| unsafe { run(called!(w, "get", pe), op, pe, Form::Blocking) }.map(drop))
}

/// Like `rushmem_get`, but `dst` holds the data only after `rushmem_quiet`.
///
/// # Safety
/// `dst` is valid for writes of `bytes` bytes until the next quiet.
#[no_mangle]
pub unsafe extern "C" fn rushmem_get_nbi(
    w: *mut rushmem_world_t,
    dst: *mut c_void,
    src: *const c_void,
    bytes: usize,
    pe: i32,
) -> i32 {
    let op = Op::get(dst as usize, src as usize, bytes);
    // SAFETY: the caller vouches for the world and the destination.
    guard(|| unsafe { run(called!(w, "get_nbi", pe), op, pe, Form::Nbi) }.map(drop))
}

/// `rushmem_get` in the stream's turn: `bytes` bytes from the symmetric address `src` on PE `pe` to local
/// memory at `dst`. Otherwise as `rushmem_put_on_stream`.
///
/// # Safety
/// `dst` is valid for writes of `bytes` bytes until the work is done.
#[no_mangle]
pub unsafe extern "C" fn rushmem_get_on_stream(
    w: *mut rushmem_world_t,
    dst: *mut c_void,
    src: *const c_void,
    bytes: usize,
    pe: i32,
    stream: *mut c_void,
) -> i32 {
    let op = Op::get(dst as usize, src as usize, bytes);
    // SAFETY: the caller vouches for the world, the destination and the stream.
    guard(|| unsafe { on_stream(called!(w, "get_on_stream", pe), op, pe, stream) })
}

/// Puts one value of 1, 2, 4 or 8 bytes, the low ones of `bits`, at the symmetric address `dst` on PE `pe`.
///
/// An aligned value arrives in one piece. Ordering and errors as `rushmem_put`; another width is
/// `RUSHMEM_ERR_INVALID_ARGUMENT`.
///
/// # Safety
/// `w` is a world that is not finalised.
#[no_mangle]
pub unsafe extern "C" fn rushmem_p(
    w: *mut rushmem_world_t,
    dst: *mut c_void,
    bits: u64,
    bytes: usize,
    pe: i32,
) -> i32 {
    let op = Op::P { at: dst as usize, bits, bytes };
    // SAFETY: the caller vouches for the world; there is no local memory.
    guard(|| unsafe { run(called!(w, "p", pe), op, pe, Form::Blocking) }.map(drop))
}

/// `rushmem_p` in the stream's turn: one value of 1, 2, 4 or 8 bytes, the low ones of `bits`, taken now. An
/// aligned value arrives in one piece. Otherwise as `rushmem_put_on_stream`.
///
/// # Safety
/// `w` is a world that is not finalised, and the stream lives.
#[no_mangle]
pub unsafe extern "C" fn rushmem_p_on_stream(
    w: *mut rushmem_world_t,
    dst: *mut c_void,
    bits: u64,
    bytes: usize,
    pe: i32,
    stream: *mut c_void,
) -> i32 {
    let op = Op::P { at: dst as usize, bits, bytes };
    // SAFETY: the caller vouches for the world and the stream; there is no local memory.
    guard(|| unsafe { on_stream(called!(w, "p_on_stream", pe), op, pe, stream) })
}

/// Gets one value of 1, 2, 4 or 8 bytes from the symmetric address `src` on PE `pe` into `*bits`,
/// zero-extended.
///
/// An aligned value is read in one piece. Errors as `rushmem_get`, `*bits` then being left alone; another
/// width or a null `bits` is `RUSHMEM_ERR_INVALID_ARGUMENT`.
///
/// # Safety
/// `bits` is null or valid for writes.
#[no_mangle]
pub unsafe extern "C" fn rushmem_g(
    w: *mut rushmem_world_t,
    src: *const c_void,
    bits: *mut u64,
    bytes: usize,
    pe: i32,
) -> i32 {
    guard(|| {
        // SAFETY: the caller vouches for the world and the out-parameter.
        unsafe {
            let out = check_out(bits, "bits")?;
            let op = Op::G { at: src as usize, bytes };
            out.write(run(called!(w, "g", pe), op, pe, Form::Blocking)?);
        }
        Ok(())
    })
}
