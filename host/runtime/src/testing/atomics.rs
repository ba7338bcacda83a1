//! What an atomic operation makes of a word: the model that tests compare every implementation with.

use rushmem_abi::c::*;

/// The word of `bytes` that operation `RUSHMEM_ATOMIC_*` leaves where `old` was.
pub(crate) fn updated(op: i32, bytes: usize, old: u64, value: u64, compare: u64) -> u64 {
    let mask = u64::MAX >> (64 - 8 * bytes);
    let (value, compare) = (value & mask, compare & mask);
    let new = match op {
        RUSHMEM_ATOMIC_FETCH => old,
        RUSHMEM_ATOMIC_SET | RUSHMEM_ATOMIC_SWAP => value,
        RUSHMEM_ATOMIC_COMPARE_SWAP if old == compare => value,
        RUSHMEM_ATOMIC_COMPARE_SWAP => old,
        RUSHMEM_ATOMIC_ADD | RUSHMEM_ATOMIC_FETCH_ADD => old.wrapping_add(value),
        RUSHMEM_ATOMIC_AND | RUSHMEM_ATOMIC_FETCH_AND => old & value,
        RUSHMEM_ATOMIC_OR | RUSHMEM_ATOMIC_FETCH_OR => old | value,
        RUSHMEM_ATOMIC_XOR | RUSHMEM_ATOMIC_FETCH_XOR => old ^ value,
        other => panic!("atomic {other}"),
    };
    new & mask
}
