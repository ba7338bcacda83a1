//! Atomic memory operations (OpenSHMEM 1.5, section 9.8): every operation on `i32`, `u32`, `i64` and `u64`;
//! fetch, set and swap on `f32` and `f64`.
//!
//! Wrapping addition and the bitwise operations do not look at the sign, and the floating-point ones only move
//! bits, so a type is a width and the question whether arithmetic is allowed.

use super::check_aligned;
use super::word::{Update, Word};
use crate::capi::types::*;
use crate::error::{err, Result};
use crate::world::{Route, World};

/// One of `RUSHMEM_ATOMIC_*`, taken apart.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Op {
    pub(crate) update: Update,
    /// Whether the caller gets the old value.
    pub(crate) fetches: bool,
    name: &'static str,
}

impl Op {
    /// The operation behind a constant of the C ABI.
    pub(crate) fn from_code(code: i32) -> Result<Op> {
        let (update, fetches, name) = match code {
            RUSHMEM_ATOMIC_FETCH => (Update::Fetch, true, "fetch"),
            RUSHMEM_ATOMIC_SET => (Update::Set, false, "set"),
            RUSHMEM_ATOMIC_SWAP => (Update::Swap, true, "swap"),
            RUSHMEM_ATOMIC_COMPARE_SWAP => (Update::CompareSwap, true, "compare_swap"),
            RUSHMEM_ATOMIC_ADD => (Update::Add, false, "add"),
            RUSHMEM_ATOMIC_FETCH_ADD => (Update::Add, true, "fetch_add"),
            RUSHMEM_ATOMIC_AND => (Update::And, false, "and"),
            RUSHMEM_ATOMIC_FETCH_AND => (Update::And, true, "fetch_and"),
            RUSHMEM_ATOMIC_OR => (Update::Or, false, "or"),
            RUSHMEM_ATOMIC_FETCH_OR => (Update::Or, true, "fetch_or"),
            RUSHMEM_ATOMIC_XOR => (Update::Xor, false, "xor"),
            RUSHMEM_ATOMIC_FETCH_XOR => (Update::Xor, true, "fetch_xor"),
            _ => {
                return Err(err!(
                    INVALID_ARGUMENT,
                    "{code} is none of the atomic operations RUSHMEM_ATOMIC_*"
                ))
            }
        };
        Ok(Op { update, fetches, name })
    }
}

/// The size of an element type, once it is known that `op` is defined for it.
fn width(op: Op, kind: i32) -> Result<usize> {
    let (bytes, float) = match kind {
        RUSHMEM_INT32 | RUSHMEM_UINT32 => (4, None),
        RUSHMEM_INT64 | RUSHMEM_UINT64 => (8, None),
        RUSHMEM_FLOAT => (4, Some("float")),
        RUSHMEM_DOUBLE => (8, Some("double")),
        _ => {
            return Err(err!(
                INVALID_ARGUMENT,
                "{kind} is none of the element types RUSHMEM_INT32 … RUSHMEM_DOUBLE"
            ))
        }
    };
    match (float, op.update) {
        (None, _) | (_, Update::Fetch | Update::Set | Update::Swap) => Ok(bytes),
        (Some(name), _) => Err(err!(
            INVALID_ARGUMENT,
            "the atomic operation {} is not defined for {name}: floating-point words have fetch, set and swap",
            op.name
        )),
    }
}

/// Carries out `op` on the word at `target` on `pe` and returns its old value.
pub(crate) fn atomic(
    w: &World,
    op: Op,
    kind: i32,
    target: usize,
    value: u64,
    compare: u64,
    pe: i32,
) -> Result<u64> {
    match width(op, kind)? {
        4 => apply::<u32>(w, op.update, target, value, compare, pe),
        _ => apply::<u64>(w, op.update, target, value, compare, pe),
    }
}

fn apply<W: Word>(
    w: &World,
    update: Update,
    target: usize,
    value: u64,
    compare: u64,
    pe: i32,
) -> Result<u64> {
    check_aligned("the target", target, size_of::<W>())?;
    let Route::Direct(word) = w.route(target, size_of::<W>(), pe)?;
    // SAFETY: `route` vouches for the word, which is aligned here and so on every PE (heaps lie pages apart).
    Ok(unsafe { W::update(word, update, W::from_bits(value), W::from_bits(compare)) }.bits())
}
