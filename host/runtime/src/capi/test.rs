//! The C ABI of test: what [`wait`](super::wait) waits for, asked once (OpenSHMEM 1.5, section 9.10).

use std::os::raw::c_void;

use super::wait::Args;
use crate::exec::wait;
use crate::op::waitset::Expected;
use rushmem_abi::c::*;

/// Whether the word at `ivar` compares with `value` as `cmp` says now: `*result` becomes 1 or 0.
///
/// Never waits. Acquires when the answer is 1, like `rushmem_wait_until`. Errors as there;
/// `RUSHMEM_ERR_PEER_DEAD` where the answer is 0 and the job is broken, so that a loop around the test ends.
///
/// # Safety
/// `result` is null or valid for writes.
#[no_mangle]
pub unsafe extern "C" fn rushmem_test(
    w: *mut rushmem_world_t,
    r#type: i32,
    ivar: *const c_void,
    cmp: i32,
    value: u64,
    result: *mut i32,
) -> i32 {
    let expected = Expected::One(value);
    let args = Args { w, kind: r#type, ivars: ivar, n: 1, status: std::ptr::null(), cmp, expected };
    // SAFETY: the caller vouches for the world and `result`.
    unsafe { args.answer(result, "result", |w, set| Ok(wait::test_all(w, set)?.into())) }
}

/// Whether every one of the `n` words at `ivars` compares with `value` as `cmp` says now: `*result` becomes 1
/// or 0.
///
/// `status`, unless null, is an array of `n`; a non-zero entry excludes its word. With nothing to test the
/// answer is 1. Otherwise as `rushmem_test`.
///
/// # Safety
/// The arrays are null or valid for `n` elements, and the out-parameters for writes.
#[no_mangle]
pub unsafe extern "C" fn rushmem_test_all(
    w: *mut rushmem_world_t,
    r#type: i32,
    ivars: *const c_void,
    n: usize,
    status: *const i32,
    cmp: i32,
    value: u64,
    result: *mut i32,
) -> i32 {
    let args = Args { w, kind: r#type, ivars, n, status, cmp, expected: Expected::One(value) };
    // SAFETY: the caller vouches for the world, the arrays and `result`.
    unsafe { args.answer(result, "result", |w, set| Ok(wait::test_all(w, set)?.into())) }
}

/// Finds a word among the `n` at `ivars` that compares with `value` as `cmp` says now: `*index` becomes its
/// index, or `SIZE_MAX` if there is none.
///
/// `status`, unless null, is an array of `n`; a non-zero entry excludes its word. Of several satisfied words
/// none is favoured for ever. Otherwise as `rushmem_test`.
///
/// # Safety
/// The arrays are null or valid for `n` elements, and the out-parameters for writes.
#[no_mangle]
pub unsafe extern "C" fn rushmem_test_any(
    w: *mut rushmem_world_t,
    r#type: i32,
    ivars: *const c_void,
    n: usize,
    status: *const i32,
    cmp: i32,
    value: u64,
    index: *mut usize,
) -> i32 {
    let args = Args { w, kind: r#type, ivars, n, status, cmp, expected: Expected::One(value) };
    // SAFETY: the caller vouches for the world, the arrays and `index`.
    unsafe { args.run_any(index, wait::test_any) }
}

/// Finds all words among the `n` at `ivars` that compare with `value` as `cmp` says now: their indices,
/// ascending, go to `indices` (room for `n`), their number to `*count`.
///
/// `status`, unless null, is an array of `n`; a non-zero entry excludes its word. Otherwise as
/// `rushmem_test`.
///
/// # Safety
/// The arrays are null or valid for `n` elements, and the out-parameters for writes.
#[no_mangle]
pub unsafe extern "C" fn rushmem_test_some(
    w: *mut rushmem_world_t,
    r#type: i32,
    ivars: *const c_void,
    n: usize,
    status: *const i32,
    cmp: i32,
    value: u64,
    indices: *mut usize,
    count: *mut usize,
) -> i32 {
    let args = Args { w, kind: r#type, ivars, n, status, cmp, expected: Expected::One(value) };
    // SAFETY: the caller vouches for the world, the arrays, `indices` and `count`.
    unsafe { args.run_some(indices, count, |w, set, take| wait::test_some(w, set, take)) }
}

/// `rushmem_test_all` with a value for each word: `values` is an array of `n` elements of `type` in local
/// memory.
///
/// # Safety
/// The arrays are null or valid for `n` elements, and the out-parameters for writes.
#[no_mangle]
pub unsafe extern "C" fn rushmem_test_all_vector(
    w: *mut rushmem_world_t,
    r#type: i32,
    ivars: *const c_void,
    n: usize,
    status: *const i32,
    cmp: i32,
    values: *const c_void,
    result: *mut i32,
) -> i32 {
    let args = Args { w, kind: r#type, ivars, n, status, cmp, expected: Expected::Each(values.cast()) };
    // SAFETY: the caller vouches for the world, the arrays and `result`.
    unsafe { args.answer(result, "result", |w, set| Ok(wait::test_all(w, set)?.into())) }
}

/// `rushmem_test_any` with a value for each word: `values` is an array of `n` elements of `type` in local
/// memory.
///
/// # Safety
/// The arrays are null or valid for `n` elements, and the out-parameters for writes.
#[no_mangle]
pub unsafe extern "C" fn rushmem_test_any_vector(
    w: *mut rushmem_world_t,
    r#type: i32,
    ivars: *const c_void,
    n: usize,
    status: *const i32,
    cmp: i32,
    values: *const c_void,
    index: *mut usize,
) -> i32 {
    let args = Args { w, kind: r#type, ivars, n, status, cmp, expected: Expected::Each(values.cast()) };
    // SAFETY: the caller vouches for the world, the arrays and `index`.
    unsafe { args.run_any(index, wait::test_any) }
}

/// `rushmem_test_some` with a value for each word: `values` is an array of `n` elements of `type` in local
/// memory.
///
/// # Safety
/// The arrays are null or valid for `n` elements, and the out-parameters for writes.
#[no_mangle]
pub unsafe extern "C" fn rushmem_test_some_vector(
    w: *mut rushmem_world_t,
    r#type: i32,
    ivars: *const c_void,
    n: usize,
    status: *const i32,
    cmp: i32,
    values: *const c_void,
    indices: *mut usize,
    count: *mut usize,
) -> i32 {
    let args = Args { w, kind: r#type, ivars, n, status, cmp, expected: Expected::Each(values.cast()) };
    // SAFETY: the caller vouches for the world, the arrays, `indices` and `count`.
    unsafe { args.run_some(indices, count, |w, set, take| wait::test_some(w, set, take)) }
}
