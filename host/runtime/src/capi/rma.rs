//! The C ABI of remote memory access (OpenSHMEM 1.5, sections 9.5 and 9.6).

use super::{called, guard, world};
use crate::ops::check_out;
use crate::ops::rma::{self, Strided};
use rushmem_abi::c::*;
use std::os::raw::c_void;

/// Copies `bytes` bytes from local memory at `src` to the symmetric address `dst` on PE `pe`.
///
/// `dst` is this PE's own symmetric address of the destination; `src` is any local memory. On return `src` may be
/// reused. The data is visible on `pe` at the latest after `rushmem_quiet` or a barrier; it is seen before any
/// put, atomic or signal that follows a `rushmem_fence`. 1, 2, 4 or 8 bytes, aligned on both sides, arrive in
/// one piece. Overlapping buffers on the same PE have an unspecified result.
///
/// Errors, with nothing written: `RUSHMEM_ERR_BAD_PE`, `RUSHMEM_ERR_BAD_ADDRESS` (not symmetric, or freed),
/// `RUSHMEM_ERR_OUT_OF_BOUNDS` (past the end of the allocation), `RUSHMEM_ERR_INVALID_ARGUMENT` (null source).
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
    // SAFETY: the caller vouches for the world and the source.
    guard(|| unsafe { rma::put(called!(w, "put", pe), dst as usize, src.cast(), bytes, pe) })
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
    // SAFETY: the caller vouches for the world and the source.
    guard(|| unsafe { rma::put_nbi(called!(w, "put_nbi", pe), dst as usize, src.cast(), bytes, pe) })
}

/// Copies `bytes` bytes from the symmetric address `src` on PE `pe` to local memory at `dst`.
///
/// On return `dst` holds the data. 1, 2, 4 or 8 bytes, aligned on both sides, are read in one piece. Errors as
/// `rushmem_put`, with nothing written.
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
    // SAFETY: the caller vouches for the world and the destination.
    guard(|| unsafe { rma::get(called!(w, "get", pe), dst.cast(), src as usize, bytes, pe) })
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
    // SAFETY: the caller vouches for the world and the destination.
    guard(|| unsafe { rma::get_nbi(called!(w, "get_nbi", pe), dst.cast(), src as usize, bytes, pe) })
}

/// Strided put: element `i * src_stride` of `src` goes to element `i * dst_stride` of the symmetric `dst` on PE
/// `pe`, for `i` in `0 .. n`.
///
/// Strides count elements of `elem_bytes` bytes and are 1 or more. The bytes between the elements are left alone.
/// Ordering and errors as `rushmem_put`; also `RUSHMEM_ERR_INVALID_ARGUMENT` for a stride below 1, an element of
/// 0 bytes or an extent past the address space.
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
    let shape = Strided { dst_stride, src_stride, elem: elem_bytes, n };
    // SAFETY: the caller vouches for the world and the source.
    guard(|| unsafe { rma::iput(called!(w, "iput", pe), dst as usize, src.cast(), shape, pe) })
}

/// Strided get: element `i * src_stride` of the symmetric `src` on PE `pe` goes to element `i * dst_stride` of
/// `dst`, for `i` in `0 .. n`. Otherwise as `rushmem_iput` and `rushmem_get`.
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
    let shape = Strided { dst_stride, src_stride, elem: elem_bytes, n };
    // SAFETY: the caller vouches for the world and the destination.
    guard(|| unsafe { rma::iget(called!(w, "iget", pe), dst.cast(), src as usize, shape, pe) })
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
    // SAFETY: the caller vouches for the world.
    guard(|| rma::p(unsafe { called!(w, "p", pe) }, dst as usize, bits, bytes, pe))
}

/// Gets one value of 1, 2, 4 or 8 bytes from the symmetric address `src` on PE `pe` into `*bits`, zero-extended.
///
/// An aligned value is read in one piece. Errors as `rushmem_get`, `*bits` then being left alone; another width
/// or a null `bits` is `RUSHMEM_ERR_INVALID_ARGUMENT`.
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
            out.write(rma::g(called!(w, "g", pe), src as usize, bytes, pe)?);
        }
        Ok(())
    })
}
