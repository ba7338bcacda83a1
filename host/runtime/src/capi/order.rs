//! The C ABI of memory ordering and barriers (OpenSHMEM 1.5, sections 9.9.1 and 9.11), at once and in a
//! stream's turn.

use std::os::raw::c_void;

use super::{called, guard, world};
use crate::exec::order;
use crate::exec::order_on_stream;
use crate::exec::stream::StreamOrder;
use crate::node::control::Call;
use rushmem_abi::c::*;

/// Orders: every put, atomic and signal of this PE before the fence is seen, on each PE, before every one
/// after it. Those in contexts (`rushmem_context_enter`) to PEs whose memory is not mapped have fences of
/// their own.
///
/// Errors: `RUSHMEM_ERR_PEER_DEAD` once the job is broken.
///
/// # Safety
/// `w` is a world that is not finalised.
#[no_mangle]
pub unsafe extern "C" fn rushmem_fence(w: *mut rushmem_world_t) -> i32 {
    // SAFETY: the caller vouches for the world.
    guard(|| order::fence(unsafe { called!(w, "fence") }, RUSHMEM_CONTEXT_DEFAULT))
}

/// Orders the operations on the stream before the fence, on each PE, before those behind it. To PEs whose
/// memory is mapped the stream's own order does that already.
///
/// # Safety
/// `w` is a world that is not finalised, and the stream lives.
#[no_mangle]
pub unsafe extern "C" fn rushmem_fence_on_stream(w: *mut rushmem_world_t, stream: *mut c_void) -> i32 {
    // SAFETY: the caller vouches for the world and the stream.
    guard(|| unsafe { order_on_stream(called!(w, "fence_on_stream"), "fence", StreamOrder::Fence, stream) })
}

/// Completes: every operation of this PE before it, nbi ones included, has taken effect on its PE, and the
/// local buffers are free. A read after it, here or there, cannot miss them. That covers all contexts.
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

/// Completes the operations on the stream before it at their PEs, before what is behind it begins. To PEs
/// whose memory is mapped the stream's own order does that already.
///
/// # Safety
/// `w` is a world that is not finalised, and the stream lives.
#[no_mangle]
pub unsafe extern "C" fn rushmem_quiet_on_stream(w: *mut rushmem_world_t, stream: *mut c_void) -> i32 {
    // SAFETY: the caller vouches for the world and the stream.
    guard(|| unsafe { order_on_stream(called!(w, "quiet_on_stream"), "quiet", StreamOrder::Quiet, stream) })
}

/// Collective: returns once every PE has called it. Completes nothing that goes to another PE's memory
/// through the network; call `rushmem_barrier_all` for that.
///
/// Errors: `RUSHMEM_ERR_MISMATCH` if a PE is in another collective call, `RUSHMEM_ERR_TIMEOUT`
/// (`RUSHMEM_TIMEOUT`) naming who never came, `RUSHMEM_ERR_PEER_DEAD`, `RUSHMEM_ERR_BUSY` if another thread
/// is in a collective call of this world.
///
/// # Safety
/// `w` is a world that is not finalised.
#[no_mangle]
pub unsafe extern "C" fn rushmem_sync_all(w: *mut rushmem_world_t) -> i32 {
    // SAFETY: the caller vouches for the world.
    guard(|| unsafe { called!(w, "sync_all") }.sync_all(Call::SyncAll))
}

/// Collective: holds the stream back until every PE has come to its own call, on a stream or in a kernel
/// (`rushmem::sync_all`). A PE has one such call under way at a time, in kernels and on all streams together.
/// It is another matter than `rushmem_sync_all` of the host, and does not meet it.
///
/// Failures as `rushmem_signal_wait_until_on_stream`.
///
/// # Safety
/// `w` is a world that is not finalised, and the stream lives.
#[no_mangle]
pub unsafe extern "C" fn rushmem_sync_all_on_stream(w: *mut rushmem_world_t, stream: *mut c_void) -> i32 {
    // SAFETY: the caller vouches for the world and the stream.
    guard(|| unsafe {
        order_on_stream(called!(w, "sync_all_on_stream"), "sync_all", StreamOrder::SyncAll, stream)
    })
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

/// Collective: `rushmem_quiet_on_stream`, then `rushmem_sync_all_on_stream`: what any PE had on its stream
/// before, every PE sees behind it.
///
/// # Safety
/// `w` is a world that is not finalised, and the stream lives.
#[no_mangle]
pub unsafe extern "C" fn rushmem_barrier_all_on_stream(w: *mut rushmem_world_t, stream: *mut c_void) -> i32 {
    // SAFETY: the caller vouches for the world and the stream.
    guard(|| unsafe {
        order_on_stream(called!(w, "barrier_all_on_stream"), "barrier_all", StreamOrder::BarrierAll, stream)
    })
}
