//! The C ABI of memory ordering and barriers (OpenSHMEM 1.5, sections 9.11.1 and 9.12).

use super::{called, guard, world};
use crate::node::control::Call;
use crate::ops::order;
use rushmem_abi::c::*;

/// Orders: every put, atomic and signal of this PE before the fence is seen, on each PE, before every one after it.
///
/// Errors: `RUSHMEM_ERR_PEER_DEAD` once the job is broken.
///
/// # Safety
/// `w` is a world that is not finalised.
#[no_mangle]
pub unsafe extern "C" fn rushmem_fence(w: *mut rushmem_world_t) -> i32 {
    // SAFETY: the caller vouches for the world.
    guard(|| order::fence(unsafe { called!(w, "fence") }))
}

/// Completes: every operation of this PE before it, nbi ones included, has taken effect on its PE, and the local
/// buffers are free. A read after it, here or there, cannot miss them.
///
/// Errors: `RUSHMEM_ERR_PEER_DEAD` once the job is broken.
///
/// # Safety
/// `w` is a world that is not finalised.
#[no_mangle]
pub unsafe extern "C" fn rushmem_quiet(w: *mut rushmem_world_t) -> i32 {
    // SAFETY: the caller vouches for the world.
    guard(|| order::quiet(unsafe { called!(w, "quiet") }))
}

/// Collective: returns once every PE has called it. Completes nothing that goes to another PE's memory through
/// the network; call `rushmem_barrier_all` for that.
///
/// Errors: `RUSHMEM_ERR_MISMATCH` if a PE is in another collective call, `RUSHMEM_ERR_TIMEOUT`
/// (`RUSHMEM_TIMEOUT`) naming who never came, `RUSHMEM_ERR_PEER_DEAD`, `RUSHMEM_ERR_BUSY` if another thread is in
/// a collective call of this world.
///
/// # Safety
/// `w` is a world that is not finalised.
#[no_mangle]
pub unsafe extern "C" fn rushmem_sync_all(w: *mut rushmem_world_t) -> i32 {
    // SAFETY: the caller vouches for the world.
    guard(|| unsafe { called!(w, "sync_all") }.sync_all(Call::SyncAll))
}

/// Collective: `rushmem_quiet`, then `rushmem_sync_all`. Errors as those.
///
/// # Safety
/// `w` is a world that is not finalised.
#[no_mangle]
pub unsafe extern "C" fn rushmem_barrier_all(w: *mut rushmem_world_t) -> i32 {
    guard(|| {
        // SAFETY: the caller vouches for the world.
        let w = unsafe { called!(w, "barrier_all") };
        order::quiet(w)?;
        w.sync_all(Call::BarrierAll)
    })
}
