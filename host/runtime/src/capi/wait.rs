//! The C ABI of wait_until and test (OpenSHMEM 1.5, section 9.10). A thin layer: it gathers the arguments, and
//! `ops::wait` does the rest.

use super::{guard, world};
use crate::error::Result;
use crate::ops::check_out;
use crate::ops::wait::{self, Watched, Words};
use crate::ops::waitset::Expected;
use rushmem_abi::c::*;

use std::os::raw::c_void;

/// The arguments of every form with several words, gathered.
struct Args {
    w: *mut rushmem_world_t,
    kind: i32,
    ivars: *const c_void,
    n: usize,
    status: *const i32,
    cmp: i32,
    expected: Expected,
}

impl Args {
    /// Runs `body` with the world and the checked set.
    ///
    /// # Safety
    /// The contract of the C function whose arguments these are.
    unsafe fn run(self, body: impl FnOnce(&crate::world::World, &Watched<'_>) -> Result<()>) -> i32 {
        guard(|| {
            let Args { w, kind, ivars, n, status, cmp, expected } = self;
            // SAFETY: the caller vouches for the world and the arrays.
            unsafe {
                let w = world(w)?;
                let set = Words { kind, ivars: ivars as usize, n, status, cmp, expected }.check(w)?;
                body(w, &set)
            }
        })
    }

    /// The same for the "some" forms: `body` gets a function that appends an index.
    ///
    /// # Safety
    /// As `run`; `indices` has room for `n` of them.
    unsafe fn run_some(
        self,
        indices: *mut usize,
        count: *mut usize,
        body: impl FnOnce(&crate::world::World, &Watched<'_>, &mut dyn FnMut(usize)) -> Result<()>,
    ) -> i32 {
        // SAFETY: the caller vouches for the arguments, `indices` and `count`.
        unsafe {
            self.run(|w, set| {
                let count = check_out(count, "count")?;
                let indices = if set.len() == 0 { indices } else { check_out(indices, "indices")? };
                let mut found = 0;
                // At most n indices are found: each word once.
                body(w, set, &mut |i| {
                    indices.add(found).write(i);
                    found += 1;
                })?;
                count.write(found);
                Ok(())
            })
        }
    }
}

/// Index for "none".
fn index_or_max(found: Option<usize>) -> usize {
    found.unwrap_or(usize::MAX)
}

/// Waits until the word of `type` (`RUSHMEM_INT32` to `RUSHMEM_UINT64`) at `ivar`, in this PE's own symmetric
/// memory, compares with `value` as `cmp` (`RUSHMEM_CMP_*`) says.
///
/// `value` is a bit pattern in its low bytes; the comparison has the type's sign. Acquires: what the peer
/// wrote before it updated the word (with a fence in between, or by a signal) is visible on return. Update
/// the word with `rushmem_p`, an atomic or a signal, so that it is never seen half-written.
///
/// A wait that lasts is reported (`RUSHMEM_STALL_REPORT`). `timeout_ns` bounds it; 0 means the world's
/// default (`RUSHMEM_WAIT_TIMEOUT`, unbounded unless set).
///
/// Errors: `RUSHMEM_ERR_BAD_ADDRESS`, `RUSHMEM_ERR_OUT_OF_BOUNDS`, `RUSHMEM_ERR_INVALID_ARGUMENT` (not an
/// integer type, unknown comparison, unaligned or null words), `RUSHMEM_ERR_TIMEOUT`, `RUSHMEM_ERR_PEER_DEAD`
/// once a PE of the job is dead.
///
/// # Safety
/// `w` is a world that is not finalised.
#[no_mangle]
pub unsafe extern "C" fn rushmem_wait_until(
    w: *mut rushmem_world_t,
    r#type: i32,
    ivar: *const c_void,
    cmp: i32,
    value: u64,
    timeout_ns: u64,
) -> i32 {
    let expected = Expected::One(value);
    let args = Args { w, kind: r#type, ivars: ivar, n: 1, status: std::ptr::null(), cmp, expected };
    // SAFETY: the caller vouches for the world.
    unsafe { args.run(|w, set| wait::until_all(w, set, timeout_ns)) }
}

/// Waits until each of the `n` words at `ivars` has compared with `value` as `cmp` says; not necessarily all
/// at one moment.
///
/// `status`, unless null, is an array of `n`; a non-zero entry excludes its word. With nothing to wait for it
/// returns at once. Otherwise as `rushmem_wait_until`.
///
/// # Safety
/// The arrays are null or valid for `n` elements, and the out-parameters for writes.
#[no_mangle]
pub unsafe extern "C" fn rushmem_wait_until_all(
    w: *mut rushmem_world_t,
    r#type: i32,
    ivars: *const c_void,
    n: usize,
    status: *const i32,
    cmp: i32,
    value: u64,
    timeout_ns: u64,
) -> i32 {
    let args = Args { w, kind: r#type, ivars, n, status, cmp, expected: Expected::One(value) };
    // SAFETY: the caller vouches for the world and the arrays.
    unsafe { args.run(|w, set| wait::until_all(w, set, timeout_ns)) }
}

/// Waits until one of the `n` words at `ivars` compares with `value` as `cmp` says, and writes its index to
/// `*index`.
///
/// `status`, unless null, is an array of `n`; a non-zero entry excludes its word. With nothing to wait for,
/// `*index` is `SIZE_MAX` at once. Of several satisfied words none is favoured for ever. Otherwise as
/// `rushmem_wait_until`.
///
/// # Safety
/// The arrays are null or valid for `n` elements, and the out-parameters for writes.
#[no_mangle]
pub unsafe extern "C" fn rushmem_wait_until_any(
    w: *mut rushmem_world_t,
    r#type: i32,
    ivars: *const c_void,
    n: usize,
    status: *const i32,
    cmp: i32,
    value: u64,
    timeout_ns: u64,
    index: *mut usize,
) -> i32 {
    let args = Args { w, kind: r#type, ivars, n, status, cmp, expected: Expected::One(value) };
    // SAFETY: the caller vouches for the world, the arrays and `index`.
    unsafe {
        args.run(|w, set| {
            let index = check_out(index, "index")?;
            index.write(index_or_max(wait::until_any(w, set, timeout_ns)?));
            Ok(())
        })
    }
}

/// Waits until at least one of the `n` words at `ivars` compares with `value` as `cmp` says, and writes the
/// indices of all that do, ascending, to `indices` (room for `n`) and their number to `*count`.
///
/// `status`, unless null, is an array of `n`; a non-zero entry excludes its word. With nothing to wait for,
/// `*count` is 0 at once. On an error `*count` is left alone and `indices` is unspecified. Otherwise as
/// `rushmem_wait_until`.
///
/// # Safety
/// The arrays are null or valid for `n` elements, and the out-parameters for writes.
#[no_mangle]
pub unsafe extern "C" fn rushmem_wait_until_some(
    w: *mut rushmem_world_t,
    r#type: i32,
    ivars: *const c_void,
    n: usize,
    status: *const i32,
    cmp: i32,
    value: u64,
    timeout_ns: u64,
    indices: *mut usize,
    count: *mut usize,
) -> i32 {
    let args = Args { w, kind: r#type, ivars, n, status, cmp, expected: Expected::One(value) };
    // SAFETY: the caller vouches for the world, the arrays, `indices` and `count`.
    unsafe { args.run_some(indices, count, |w, set, take| wait::until_some(w, set, timeout_ns, take)) }
}

/// `rushmem_wait_until_all` with a value for each word: `values` is an array of `n` elements of `type` in
/// local memory.
///
/// # Safety
/// The arrays are null or valid for `n` elements, and the out-parameters for writes.
#[no_mangle]
pub unsafe extern "C" fn rushmem_wait_until_all_vector(
    w: *mut rushmem_world_t,
    r#type: i32,
    ivars: *const c_void,
    n: usize,
    status: *const i32,
    cmp: i32,
    values: *const c_void,
    timeout_ns: u64,
) -> i32 {
    let args = Args { w, kind: r#type, ivars, n, status, cmp, expected: Expected::Each(values.cast()) };
    // SAFETY: the caller vouches for the world and the arrays.
    unsafe { args.run(|w, set| wait::until_all(w, set, timeout_ns)) }
}

/// `rushmem_wait_until_any` with a value for each word: `values` is an array of `n` elements of `type` in
/// local memory.
///
/// # Safety
/// The arrays are null or valid for `n` elements, and the out-parameters for writes.
#[no_mangle]
pub unsafe extern "C" fn rushmem_wait_until_any_vector(
    w: *mut rushmem_world_t,
    r#type: i32,
    ivars: *const c_void,
    n: usize,
    status: *const i32,
    cmp: i32,
    values: *const c_void,
    timeout_ns: u64,
    index: *mut usize,
) -> i32 {
    let args = Args { w, kind: r#type, ivars, n, status, cmp, expected: Expected::Each(values.cast()) };
    // SAFETY: the caller vouches for the world, the arrays and `index`.
    unsafe {
        args.run(|w, set| {
            let index = check_out(index, "index")?;
            index.write(index_or_max(wait::until_any(w, set, timeout_ns)?));
            Ok(())
        })
    }
}

/// `rushmem_wait_until_some` with a value for each word: `values` is an array of `n` elements of `type` in
/// local memory.
///
/// # Safety
/// The arrays are null or valid for `n` elements, and the out-parameters for writes.
#[no_mangle]
pub unsafe extern "C" fn rushmem_wait_until_some_vector(
    w: *mut rushmem_world_t,
    r#type: i32,
    ivars: *const c_void,
    n: usize,
    status: *const i32,
    cmp: i32,
    values: *const c_void,
    timeout_ns: u64,
    indices: *mut usize,
    count: *mut usize,
) -> i32 {
    let args = Args { w, kind: r#type, ivars, n, status, cmp, expected: Expected::Each(values.cast()) };
    // SAFETY: the caller vouches for the world, the arrays, `indices` and `count`.
    unsafe { args.run_some(indices, count, |w, set, take| wait::until_some(w, set, timeout_ns, take)) }
}

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
    unsafe {
        args.run(|w, set| {
            let result = check_out(result, "result")?;
            result.write(wait::test_all(w, set)?.into());
            Ok(())
        })
    }
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
    unsafe {
        args.run(|w, set| {
            let result = check_out(result, "result")?;
            result.write(wait::test_all(w, set)?.into());
            Ok(())
        })
    }
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
    unsafe {
        args.run(|w, set| {
            let index = check_out(index, "index")?;
            index.write(index_or_max(wait::test_any(w, set)?));
            Ok(())
        })
    }
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
    unsafe {
        args.run(|w, set| {
            let result = check_out(result, "result")?;
            result.write(wait::test_all(w, set)?.into());
            Ok(())
        })
    }
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
    unsafe {
        args.run(|w, set| {
            let index = check_out(index, "index")?;
            index.write(index_or_max(wait::test_any(w, set)?));
            Ok(())
        })
    }
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
