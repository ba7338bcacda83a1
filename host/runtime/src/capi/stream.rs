//! Streams and completion handles. The operations on streams stand beside their namesakes.
//!
//! What is on a stream happens in order, after the call that put it there has returned. A stream is, where
//! the PE's device is a GPU, any `cudaStream_t` or `CUstream` of that GPU's primary context; on the CPU, one
//! that rushmem made. Null is the world's default stream, on which kernels run that were given none.

use std::os::raw::c_void;

use super::{check_out, guard, world, write_out};
use crate::kernel::event::StreamEvent;
use crate::kernel::handle::Handle;
use rushmem_abi::c::*;

/// Makes a stream on the PE's device. Work on it runs beside that of other streams; on a GPU it does not wait
/// for CUDA's legacy default stream.
///
/// On a GPU, streams share a few hardware queues (`CUDA_DEVICE_MAX_CONNECTIONS`): with more streams than
/// those, a stream that waits may hold up another.
///
/// # Safety
/// `w` is a world's handle; `out` is null or valid.
#[no_mangle]
pub unsafe extern "C" fn rushmem_stream_create(w: *mut rushmem_world_t, out: *mut *mut c_void) -> i32 {
    guard(|| {
        // SAFETY: the caller vouches for the arguments, as the contract says.
        unsafe {
            let out = check_out(out, "out")?;
            write_out(out, world(w)?.kernels().create_stream()?, "out")
        }
    })
}

/// Ends a stream of `rushmem_stream_create`'s at once; what is on it still runs to its end, and a world that
/// ends waits for it. `RUSHMEM_ERR_INVALID_ARGUMENT` for the default stream and those of the pool,
/// `RUSHMEM_ERR_BAD_HANDLE` for any other.
///
/// # Safety
/// `w` is a world's handle; no other thread uses the stream.
#[no_mangle]
pub unsafe extern "C" fn rushmem_stream_destroy(w: *mut rushmem_world_t, stream: *mut c_void) -> i32 {
    // SAFETY: the caller vouches for the arguments, as the contract says.
    guard(|| unsafe { world(w) }?.kernels().destroy_stream(stream))
}

/// The stream that null means: on a GPU the `CUstream`, for other libraries.
///
/// # Safety
/// `w` is a world's handle; `out` is null or valid.
#[no_mangle]
pub unsafe extern "C" fn rushmem_stream_default(w: *mut rushmem_world_t, out: *mut *mut c_void) -> i32 {
    guard(|| {
        // SAFETY: the caller vouches for the arguments, as the contract says.
        unsafe {
            let out = check_out(out, "out")?;
            write_out(out, world(w)?.kernels().default_stream(), "out")
        }
    })
}

/// A stream of the world's pool, the next one with each call: for transfers that a thread of the CPU drives,
/// each with a completion handle (`rushmem_event_record`). The pool has `RUSHMEM_STREAMS` streams (4), made
/// when they are first given out.
///
/// # Safety
/// `w` is a world's handle; `out` is null or valid.
#[no_mangle]
pub unsafe extern "C" fn rushmem_stream_pool(w: *mut rushmem_world_t, out: *mut *mut c_void) -> i32 {
    guard(|| {
        // SAFETY: the caller vouches for the arguments, as the contract says.
        unsafe {
            let out = check_out(out, "out")?;
            write_out(out, world(w)?.kernels().pool_stream()?, "out")
        }
    })
}

/// Waits for all work on the stream. The first failure of it since the last call, as `rushmem_synchronize`
/// tells them; a wait that lasts is reported (`RUSHMEM_STALL_REPORT`), and the death of a PE ends it.
///
/// # Safety
/// `w` is a world's handle, and the stream lives through the call.
#[no_mangle]
pub unsafe extern "C" fn rushmem_stream_synchronize(w: *mut rushmem_world_t, stream: *mut c_void) -> i32 {
    // SAFETY: the caller vouches for the arguments, as the contract says.
    guard(|| unsafe { world(w)?.synchronize_stream(stream) })
}

/// A completion handle: it tells of all work that the stream has been given so far. To be given back by
/// `rushmem_event_free`; a world that ends takes its events with it. `RUSHMEM_ERR_UNSUPPORTED` while the
/// stream is being captured into a graph.
///
/// # Safety
/// `w` is a world's handle; the stream lives through the call; `out` is null or valid.
#[no_mangle]
pub unsafe extern "C" fn rushmem_event_record(
    w: *mut rushmem_world_t,
    stream: *mut c_void,
    out: *mut *mut rushmem_event_t,
) -> i32 {
    guard(|| {
        // SAFETY: the caller vouches for the arguments, as the contract says.
        unsafe {
            let out = check_out(out, "out")?;
            write_out(out, world(w)?.kernels().record(stream)?.as_raw(), "out")
        }
    })
}

/// Whether the work has ended: 1 or 0 in `*done`. The error of work that failed, as `rushmem_synchronize`
/// tells them.
///
/// # Safety
/// `event` is null or an event that was not freed; `done` is null or valid.
#[no_mangle]
pub unsafe extern "C" fn rushmem_event_test(event: *mut rushmem_event_t, done: *mut i32) -> i32 {
    guard(|| {
        // SAFETY: the caller vouches for the arguments, as the contract says.
        unsafe {
            let out = check_out(done, "done")?;
            write_out(out, i32::from(Handle::<StreamEvent>::from_raw(event.cast())?.get()?.test()?), "done")
        }
    })
}

/// Waits until the work has ended. Errors and reports as `rushmem_stream_synchronize`; the failure stays for
/// that one to tell as well.
///
/// # Safety
/// `event` is null or an event that was not freed.
#[no_mangle]
pub unsafe extern "C" fn rushmem_event_wait(event: *mut rushmem_event_t) -> i32 {
    guard(|| Handle::<StreamEvent>::from_raw(event.cast())?.get()?.wait())
}

/// Gives an event back; the work goes on. The same handle may be given out again for another event.
///
/// # Safety
/// `event` is null or an event that was not freed.
#[no_mangle]
pub unsafe extern "C" fn rushmem_event_free(event: *mut rushmem_event_t) -> i32 {
    guard(|| Handle::<StreamEvent>::from_raw(event.cast())?.free())
}
