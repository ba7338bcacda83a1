//! The C ABI of wait_until (OpenSHMEM 1.5, section 9.10). A thin layer: it gathers the arguments, and
//! `exec::wait` does the rest.

use std::os::raw::c_void;

use super::{called, check_out, guard, world};
use crate::error::Result;
use crate::exec::wait::{self, Watched};
use crate::exec::wait_on_stream;
use crate::op::wait::{Wait, Words};
use crate::op::waitset::Expected;
use crate::world::World;
use rushmem_abi::c::*;

/// The arguments of every form with several words, gathered.
pub(super) struct Args {
    pub(super) w: *mut rushmem_world_t,
    pub(super) kind: i32,
    pub(super) ivars: *const c_void,
    pub(super) n: usize,
    pub(super) status: *const i32,
    pub(super) cmp: i32,
    pub(super) expected: Expected,
}

impl Args {
    /// Runs `body` with the world and the checked set.
    ///
    /// # Safety
    /// The contract of the C function whose arguments these are.
    pub(super) unsafe fn run(self, body: impl FnOnce(&World, &Watched<'_>) -> Result<()>) -> i32 {
        guard(|| {
            let Args { w, kind, ivars, n, status, cmp, expected } = self;
            // SAFETY: the caller vouches for the world and the arrays.
            unsafe {
                let w = world(w)?;
                let set = Watched::new(w, &Words { kind, ivars: ivars as usize, n, status, cmp, expected })?;
                body(w, &set)
            }
        })
    }

    /// The same for forms with one answer, which goes to `out`, the argument of that name.
    ///
    /// # Safety
    /// As `run`; `out` is null or valid for writes.
    pub(super) unsafe fn answer<T>(
        self,
        out: *mut T,
        name: &str,
        body: impl FnOnce(&World, &Watched<'_>) -> Result<T>,
    ) -> i32 {
        // SAFETY: the caller vouches for the arguments and `out`.
        unsafe {
            self.run(|w, set| {
                let out = check_out(out, name)?;
                out.write(body(w, set)?);
                Ok(())
            })
        }
    }

    /// The same for the "any" forms: the index found, or `SIZE_MAX`.
    ///
    /// # Safety
    /// As `run`; `index` is null or valid for writes.
    pub(super) unsafe fn run_any(
        self,
        index: *mut usize,
        body: impl FnOnce(&World, &Watched<'_>) -> Result<Option<usize>>,
    ) -> i32 {
        // SAFETY: the caller vouches for the arguments and `index`.
        unsafe { self.answer(index, "index", |w, set| Ok(body(w, set)?.unwrap_or(usize::MAX))) }
    }

    /// The same for the "some" forms: `body` gets a function that appends an index.
    ///
    /// # Safety
    /// As `run`; `indices` has room for `n` of them.
    pub(super) unsafe fn run_some(
        self,
        indices: *mut usize,
        count: *mut usize,
        body: impl FnOnce(&World, &Watched<'_>, &mut dyn FnMut(usize)) -> Result<()>,
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

/// Waits until the word of `type` (`RUSHMEM_INT32` to `RUSHMEM_UINT64`, `RUSHMEM_INT16`, `RUSHMEM_UINT16`) at
/// `ivar`, in this PE's own symmetric memory, compares with `value` as `cmp` (`RUSHMEM_CMP_*`) says.
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

/// Holds the stream back until this PE's own word `ivar`, of `type` (as `rushmem_wait_until` takes it),
/// compares with `value` as `cmp` says. Otherwise as `rushmem_signal_wait_until_on_stream`.
///
/// # Safety
/// `w` is a world that is not finalised, and the stream lives.
#[no_mangle]
pub unsafe extern "C" fn rushmem_wait_until_on_stream(
    w: *mut rushmem_world_t,
    r#type: i32,
    ivar: *const c_void,
    cmp: i32,
    value: u64,
    stream: *mut c_void,
) -> i32 {
    guard(|| {
        // SAFETY: the caller vouches for the world and the stream.
        unsafe {
            let w = called!(w, "wait_until_on_stream");
            let wait = Wait::until(w, r#type, ivar as usize, cmp, value)?;
            wait_on_stream(w, "wait_until", wait, stream)
        }
    })
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
    unsafe { args.run_any(index, |w, set| wait::until_any(w, set, timeout_ns)) }
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
    unsafe { args.run_any(index, |w, set| wait::until_any(w, set, timeout_ns)) }
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
