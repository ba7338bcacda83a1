//! The C ABI of contexts (OpenSHMEM 1.5, section 9.5), of operations on PEs whose memory is not mapped.

use super::{called, check_out, guard, world};
use crate::exec::context;
use rushmem_abi::c::*;

/// Makes a context, in which operations on PEs whose memory is not mapped have an order and a completion of
/// their own: `rushmem_context_fence` and `rushmem_context_quiet` of one context wait for nothing of
/// another's, but for what is in front of it on the same connection. Operations on PEs whose memory is mapped
/// are over when they return, in host memory, and need none. `*context` is a number that no other context of
/// this process has or will have. `RUSHMEM_CONTEXT_DEFAULT` is the one of operations that name none.
///
/// # Safety
/// `w` is a world that is not finalised; `context` is valid for a write.
#[no_mangle]
pub unsafe extern "C" fn rushmem_context_create(w: *mut rushmem_world_t, context: *mut u64) -> i32 {
    guard(|| {
        let out = check_out(context, "context")?;
        // SAFETY: the caller vouches for the world and the pointer, which is not null.
        unsafe { out.write(context::create(called!(w, "context_create"))) };
        Ok(())
    })
}

/// The calling thread's operations on far PEs of this world are in the context from here on, until it enters
/// another one: each thread begins in `RUSHMEM_CONTEXT_DEFAULT`. Operations on streams and in kernels are
/// always in that one.
///
/// Errors: `RUSHMEM_ERR_BAD_HANDLE` for a context that was destroyed or never made.
///
/// # Safety
/// `w` is a world that is not finalised.
#[no_mangle]
pub unsafe extern "C" fn rushmem_context_enter(w: *mut rushmem_world_t, context: u64) -> i32 {
    // SAFETY: the caller vouches for the world.
    guard(|| context::enter(unsafe { called!(w, "context_enter") }, context))
}

/// Orders: every put, atomic and signal of the context before the fence is seen, on each PE, before every one
/// of the context after it. Of the default context it is `rushmem_fence`.
///
/// Errors: `RUSHMEM_ERR_BAD_HANDLE`, and those of `rushmem_fence`.
///
/// # Safety
/// `w` is a world that is not finalised.
#[no_mangle]
pub unsafe extern "C" fn rushmem_context_fence(w: *mut rushmem_world_t, context: u64) -> i32 {
    // SAFETY: the caller vouches for the world.
    guard(|| context::fence(unsafe { called!(w, "context_fence") }, context))
}

/// Completes the context's operations, as `rushmem_quiet` does those of all contexts.
///
/// It waits for these alone, and for what shares a connection with them: messages to a PE are carried out in
/// their order, and one-sided copies to a PE are known to have arrived together, so that the completion of a
/// copy of more than 512 bytes takes that of the copies begun before it to the same PE. On heaps in GPU
/// memory it also waits for the host's operations on mapped PEs, which are on one stream.
///
/// Errors: `RUSHMEM_ERR_BAD_HANDLE`, and those of `rushmem_quiet`.
///
/// # Safety
/// `w` is a world that is not finalised.
#[no_mangle]
pub unsafe extern "C" fn rushmem_context_quiet(w: *mut rushmem_world_t, context: u64) -> i32 {
    // SAFETY: the caller vouches for the world.
    guard(|| context::quiet(unsafe { called!(w, "context_quiet") }, context))
}

/// Completes the context's operations, and ends it. No thread may be in it any more, or use it.
///
/// Errors: as `rushmem_context_quiet`; the context lives on then.
///
/// # Safety
/// `w` is a world that is not finalised.
#[no_mangle]
pub unsafe extern "C" fn rushmem_context_destroy(w: *mut rushmem_world_t, context: u64) -> i32 {
    // SAFETY: the caller vouches for the world.
    guard(|| context::destroy(unsafe { called!(w, "context_destroy") }, context))
}
