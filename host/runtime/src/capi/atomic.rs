//! The C ABI of atomic memory operations (OpenSHMEM 1.5, section 9.7).

use std::os::raw::c_void;

use super::{called, guard, world};
use crate::error::err;
use crate::exec::{run, Form};
use crate::op::atomic::AtomicOp;
use crate::op::Op;
use rushmem_abi::c::*;

/// Carries out the atomic operation `op` (`RUSHMEM_ATOMIC_*`) on the word of `type` (`RUSHMEM_INT32` …) at
/// the symmetric address `target` on PE `pe`.
///
/// `value` and `compare` are bit patterns in their low bytes; `compare` is read by
/// `RUSHMEM_ATOMIC_COMPARE_SWAP` only, and `value` not by `RUSHMEM_ATOMIC_FETCH`. The fetching operations
/// write the old value's bit pattern, zero-extended, to `*fetched`, which must not be null for them; the
/// others leave it alone. Additions wrap. `RUSHMEM_FLOAT` and `RUSHMEM_DOUBLE` have fetch, set and swap.
///
/// Atomic towards every other rushmem atomic, signal operation and wait on that word, from host or kernel.
/// Orders nothing else by contract: call `rushmem_fence` after the puts that the update announces. (To a
/// mapped PE a fetch also acquires and an update releases, so locks made of compare_swap work as in C11.)
///
/// Errors, with nothing written: `RUSHMEM_ERR_BAD_PE`, `RUSHMEM_ERR_BAD_ADDRESS`,
/// `RUSHMEM_ERR_OUT_OF_BOUNDS`, `RUSHMEM_ERR_INVALID_ARGUMENT` (unknown or undefined combination of operation
/// and type, unaligned target, null `fetched`), `RUSHMEM_ERR_PEER_DEAD` where a fetching operation finds the
/// job broken.
///
/// # Safety
/// `fetched` is null or valid for writes.
#[no_mangle]
pub unsafe extern "C" fn rushmem_atomic(
    w: *mut rushmem_world_t,
    op: i32,
    r#type: i32,
    target: *mut c_void,
    value: u64,
    compare: u64,
    pe: i32,
    fetched: *mut u64,
) -> i32 {
    guard(|| {
        // SAFETY: the caller vouches for the world.
        let w = unsafe { called!(w, "atomic", pe) };
        let op = AtomicOp::from_code(op)?;
        if op.fetches() && fetched.is_null() {
            return Err(err!(
                INVALID_ARGUMENT,
                "a fetching atomic needs a place for the old value; fetched is null"
            ));
        }
        let atomic = Op::atomic(op, r#type, target as usize, value, compare)?;
        // SAFETY: there is no local memory.
        let old = unsafe { run(w, atomic, pe, Form::Blocking) }?;
        if op.fetches() {
            // SAFETY: not null, and the caller vouches for it.
            unsafe { fetched.write(old) };
        }
        Ok(())
    })
}
