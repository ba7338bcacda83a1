//! Streams, completion handles, and operations on streams.
//!
//! What is on a stream happens in order, after the call that put it there has returned. A stream is, where the PE's device is
//! a GPU, any `cudaStream_t` or `CUstream` of that GPU's primary context; on the CPU, one that rushmem made. Null is the
//! world's default stream, on which kernels run that were given none.

use std::os::raw::c_void;

use super::{called, guard, world, write_out};
use crate::kernel::event::Event;
use crate::kernel::handle::Handle;
use crate::ops::check_out;
use crate::ops::on_stream;
use crate::ops::rma::Strided;
use crate::ops::signal::SignalOp;
use rushmem_abi::c::*;

/// Makes a stream on the PE's device. Work on it runs beside that of other streams; on a GPU it does not wait for CUDA's
/// legacy default stream.
///
/// On a GPU, streams share a few hardware queues (`CUDA_DEVICE_MAX_CONNECTIONS`): with more streams than those, a stream that
/// waits may hold up another.
///
/// # Safety
/// `w` is a world's handle; `out` is null or valid.
#[no_mangle]
pub unsafe extern "C" fn rushmem_stream_create(w: *mut rushmem_world_t, out: *mut *mut c_void) -> i32 {
    guard(|| {
        // SAFETY: per contract.
        unsafe {
            let out = check_out(out, "out")?;
            write_out(out, world(w)?.kernels().create_stream()?, "out")
        }
    })
}

/// Ends a stream of `rushmem_stream_create`'s at once; what is on it still runs to its end, and a world that ends waits for
/// it. `RUSHMEM_ERR_INVALID_ARGUMENT` for the default stream and those of the pool, `RUSHMEM_ERR_BAD_HANDLE` for any other.
///
/// # Safety
/// `w` is a world's handle; no other thread uses the stream.
#[no_mangle]
pub unsafe extern "C" fn rushmem_stream_destroy(w: *mut rushmem_world_t, stream: *mut c_void) -> i32 {
    // SAFETY: per contract.
    guard(|| unsafe { world(w) }?.kernels().destroy_stream(stream))
}

/// The stream that null means: on a GPU the `CUstream`, for other libraries.
///
/// # Safety
/// `w` is a world's handle; `out` is null or valid.
#[no_mangle]
pub unsafe extern "C" fn rushmem_stream_default(w: *mut rushmem_world_t, out: *mut *mut c_void) -> i32 {
    guard(|| {
        // SAFETY: per contract.
        unsafe {
            let out = check_out(out, "out")?;
            write_out(out, world(w)?.kernels().default_stream(), "out")
        }
    })
}

/// A stream of the world's pool, the next one with each call: for transfers that a thread of the CPU drives, each with a
/// completion handle (`rushmem_event_record`). The pool has `RUSHMEM_STREAMS` streams (4), made when they are first given
/// out.
///
/// # Safety
/// `w` is a world's handle; `out` is null or valid.
#[no_mangle]
pub unsafe extern "C" fn rushmem_stream_pool(w: *mut rushmem_world_t, out: *mut *mut c_void) -> i32 {
    guard(|| {
        // SAFETY: per contract.
        unsafe {
            let out = check_out(out, "out")?;
            write_out(out, world(w)?.kernels().pool_stream()?, "out")
        }
    })
}

/// Waits for all work on the stream. The first failure of it since the last call, as `rushmem_synchronize` tells them; a
/// wait that lasts is reported (`RUSHMEM_STALL_REPORT`), and the death of a PE ends it.
///
/// # Safety
/// `w` is a world's handle, and the stream lives through the call.
#[no_mangle]
pub unsafe extern "C" fn rushmem_stream_synchronize(w: *mut rushmem_world_t, stream: *mut c_void) -> i32 {
    // SAFETY: per contract.
    guard(|| unsafe { world(w)?.synchronize_stream(stream) })
}

/// A completion handle: it tells of all work that the stream has been given so far. To be given back by
/// `rushmem_event_free`; a world that ends takes its events with it. `RUSHMEM_ERR_UNSUPPORTED` while the stream is being
/// captured into a graph.
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
        // SAFETY: per contract.
        unsafe {
            let out = check_out(out, "out")?;
            write_out(out, world(w)?.kernels().record(stream)?.as_raw(), "out")
        }
    })
}

/// Whether the work has ended: 1 or 0 in `*done`. The error of work that failed, as `rushmem_synchronize` tells them.
///
/// # Safety
/// `event` is null or an event that was not freed; `done` is null or valid.
#[no_mangle]
pub unsafe extern "C" fn rushmem_event_test(event: *mut rushmem_event_t, done: *mut i32) -> i32 {
    guard(|| {
        // SAFETY: per contract.
        unsafe {
            let out = check_out(done, "done")?;
            write_out(out, i32::from(Handle::<Event>::from_raw(event.cast())?.get()?.test()?), "done")
        }
    })
}

/// Waits until the work has ended. Errors and reports as `rushmem_stream_synchronize`; the failure stays for that one to
/// tell as well.
///
/// # Safety
/// `event` is null or an event that was not freed.
#[no_mangle]
pub unsafe extern "C" fn rushmem_event_wait(event: *mut rushmem_event_t) -> i32 {
    guard(|| Handle::<Event>::from_raw(event.cast())?.get()?.wait())
}

/// Gives an event back; the work goes on. The same handle may be given out again for another event.
///
/// # Safety
/// `event` is null or an event that was not freed.
#[no_mangle]
pub unsafe extern "C" fn rushmem_event_free(event: *mut rushmem_event_t) -> i32 {
    guard(|| Handle::<Event>::from_raw(event.cast())?.free())
}

/// `rushmem_put` in the stream's turn: `bytes` bytes from local memory at `src` to the symmetric address `dst` on PE `pe`.
///
/// Returns at once. `src` is read, and both sides must live, until the work is done. Arguments are checked now, and an
/// error (as `rushmem_put`; also `RUSHMEM_ERR_BAD_HANDLE` for the stream) means that nothing was put on the stream; what goes
/// wrong later is told by `rushmem_stream_synchronize` or an event. On a GPU this and the other operations on streams
/// may be captured into a CUDA graph: addresses are recorded, and what is at them is read at each launch of the graph.
/// Ordinary (pageable) host memory goes through pinned buffers, 32 MiB at most for all streams; no call waits for its stream.
///
/// # Safety
/// `src` is valid for reads of `bytes` bytes until the work is done.
#[no_mangle]
pub unsafe extern "C" fn rushmem_put_on_stream(
    w: *mut rushmem_world_t,
    dst: *mut c_void,
    src: *const c_void,
    bytes: usize,
    pe: i32,
    stream: *mut c_void,
) -> i32 {
    // SAFETY: the caller vouches for the world, the source and the stream.
    guard(|| unsafe {
        on_stream::put(called!(w, "put_on_stream", pe), dst as usize, src as usize, bytes, pe, stream)
    })
}

/// `rushmem_get` in the stream's turn: `bytes` bytes from the symmetric address `src` on PE `pe` to local memory at `dst`.
/// Otherwise as `rushmem_put_on_stream`.
///
/// # Safety
/// `dst` is valid for writes of `bytes` bytes until the work is done.
#[no_mangle]
pub unsafe extern "C" fn rushmem_get_on_stream(
    w: *mut rushmem_world_t,
    dst: *mut c_void,
    src: *const c_void,
    bytes: usize,
    pe: i32,
    stream: *mut c_void,
) -> i32 {
    // SAFETY: the caller vouches for the world, the destination and the stream.
    guard(|| unsafe {
        on_stream::get(called!(w, "get_on_stream", pe), dst as usize, src as usize, bytes, pe, stream)
    })
}

/// `rushmem_p` in the stream's turn: one value of 1, 2, 4 or 8 bytes, the low ones of `bits`, taken now. An aligned value
/// arrives in one piece. Otherwise as `rushmem_put_on_stream`.
///
/// # Safety
/// `w` is a world that is not finalised, and the stream lives.
#[no_mangle]
pub unsafe extern "C" fn rushmem_p_on_stream(
    w: *mut rushmem_world_t,
    dst: *mut c_void,
    bits: u64,
    bytes: usize,
    pe: i32,
    stream: *mut c_void,
) -> i32 {
    // SAFETY: the caller vouches for the world and the stream.
    guard(|| unsafe { on_stream::p(called!(w, "p_on_stream", pe), dst as usize, bits, bytes, pe, stream) })
}

/// `rushmem_iput` in the stream's turn. Otherwise as `rushmem_put_on_stream`.
///
/// # Safety
/// `src` is valid for reads of `((n - 1) * src_stride + 1) * elem_bytes` bytes until the work is done.
#[no_mangle]
pub unsafe extern "C" fn rushmem_iput_on_stream(
    w: *mut rushmem_world_t,
    dst: *mut c_void,
    src: *const c_void,
    dst_stride: isize,
    src_stride: isize,
    elem_bytes: usize,
    n: usize,
    pe: i32,
    stream: *mut c_void,
) -> i32 {
    let shape = Strided { dst_stride, src_stride, elem: elem_bytes, n };
    // SAFETY: the caller vouches for the world, the source and the stream.
    guard(|| unsafe {
        on_stream::iput(called!(w, "iput_on_stream", pe), dst as usize, src as usize, shape, pe, stream)
    })
}

/// `rushmem_iget` in the stream's turn. Otherwise as `rushmem_put_on_stream`.
///
/// # Safety
/// `dst` is valid for writes of `((n - 1) * dst_stride + 1) * elem_bytes` bytes until the work is done.
#[no_mangle]
pub unsafe extern "C" fn rushmem_iget_on_stream(
    w: *mut rushmem_world_t,
    dst: *mut c_void,
    src: *const c_void,
    dst_stride: isize,
    src_stride: isize,
    elem_bytes: usize,
    n: usize,
    pe: i32,
    stream: *mut c_void,
) -> i32 {
    let shape = Strided { dst_stride, src_stride, elem: elem_bytes, n };
    // SAFETY: the caller vouches for the world, the destination and the stream.
    guard(|| unsafe {
        on_stream::iget(called!(w, "iget_on_stream", pe), dst as usize, src as usize, shape, pe, stream)
    })
}

/// `rushmem_put_signal` in the stream's turn: who sees the update of `sig` sees the data, and all that was on the stream
/// before. Otherwise as `rushmem_put_on_stream`.
///
/// # Safety
/// `src` is valid for reads of `bytes` bytes until the work is done.
#[no_mangle]
pub unsafe extern "C" fn rushmem_put_signal_on_stream(
    w: *mut rushmem_world_t,
    dst: *mut c_void,
    src: *const c_void,
    bytes: usize,
    sig: *mut u64,
    value: u64,
    sig_op: i32,
    pe: i32,
    stream: *mut c_void,
) -> i32 {
    guard(|| {
        let (op, sig) = (SignalOp::from_code(sig_op, value)?, sig as usize);
        let (dst, src) = (dst as usize, src as usize);
        // SAFETY: the caller vouches for the world, the source and the stream.
        unsafe {
            on_stream::put_signal(
                called!(w, "put_signal_on_stream", pe),
                dst,
                src,
                bytes,
                sig,
                op,
                pe,
                stream,
            )
        }
    })
}

/// `rushmem_signal_op` in the stream's turn: who sees the update sees all that was on the stream before.
/// Otherwise as `rushmem_put_on_stream`.
///
/// # Safety
/// `w` is a world that is not finalised, and the stream lives.
#[no_mangle]
pub unsafe extern "C" fn rushmem_signal_op_on_stream(
    w: *mut rushmem_world_t,
    sig: *mut u64,
    value: u64,
    sig_op: i32,
    pe: i32,
    stream: *mut c_void,
) -> i32 {
    guard(|| {
        let op = SignalOp::from_code(sig_op, value)?;
        // SAFETY: the caller vouches for the world and the stream.
        unsafe { on_stream::signal_op(called!(w, "signal_op_on_stream", pe), sig as usize, op, pe, stream) }
    })
}

/// Holds the stream back until this PE's own signal word `sig` compares with `value` as `cmp` (`RUSHMEM_CMP_*`) says,
/// unsigned: what the signal announces is visible to all that is behind. A wait that lasts is reported; one that passes
/// `RUSHMEM_WAIT_TIMEOUT`, or a dead PE, makes the stream's work fail. On a GPU the wait is a small kernel, and its failure a
/// trap, which takes the process' context on that GPU with it.
///
/// # Safety
/// `w` is a world that is not finalised, and the stream lives.
#[no_mangle]
pub unsafe extern "C" fn rushmem_signal_wait_until_on_stream(
    w: *mut rushmem_world_t,
    sig: *const u64,
    cmp: i32,
    value: u64,
    stream: *mut c_void,
) -> i32 {
    // SAFETY: the caller vouches for the world and the stream.
    guard(|| unsafe {
        on_stream::signal_wait_until(
            called!(w, "signal_wait_until_on_stream"),
            sig as usize,
            cmp,
            value,
            stream,
        )
    })
}

/// Holds the stream back until this PE's own word `ivar`, of `type` (`RUSHMEM_INT32` to `RUSHMEM_UINT64`), compares with
/// `value` as `cmp` says. Otherwise as `rushmem_signal_wait_until_on_stream`.
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
    // SAFETY: the caller vouches for the world and the stream.
    guard(|| unsafe {
        on_stream::wait_until(called!(w, "wait_until_on_stream"), r#type, ivar as usize, cmp, value, stream)
    })
}

/// Orders the operations on the stream before the fence, on each PE, before those behind it. To PEs whose memory is mapped
/// the stream's own order does that already.
///
/// # Safety
/// `w` is a world that is not finalised, and the stream lives.
#[no_mangle]
pub unsafe extern "C" fn rushmem_fence_on_stream(w: *mut rushmem_world_t, stream: *mut c_void) -> i32 {
    // SAFETY: the caller vouches for the world and the stream.
    guard(|| unsafe { on_stream::fence(called!(w, "fence_on_stream"), stream) })
}

/// Completes the operations on the stream before it at their PEs, before what is behind it begins. To PEs whose memory is
/// mapped the stream's own order does that already.
///
/// # Safety
/// `w` is a world that is not finalised, and the stream lives.
#[no_mangle]
pub unsafe extern "C" fn rushmem_quiet_on_stream(w: *mut rushmem_world_t, stream: *mut c_void) -> i32 {
    // SAFETY: the caller vouches for the world and the stream.
    guard(|| unsafe { on_stream::quiet(called!(w, "quiet_on_stream"), stream) })
}

/// Collective: holds the stream back until every PE has come to its own call, on a stream or in a kernel
/// (`rushmem::sync_all`). A PE has one such call under way at a time, in kernels and on all streams together. It is
/// another matter than `rushmem_sync_all` of the host, and does not meet it.
///
/// Failures as `rushmem_signal_wait_until_on_stream`.
///
/// # Safety
/// `w` is a world that is not finalised, and the stream lives.
#[no_mangle]
pub unsafe extern "C" fn rushmem_sync_all_on_stream(w: *mut rushmem_world_t, stream: *mut c_void) -> i32 {
    // SAFETY: the caller vouches for the world and the stream.
    guard(|| unsafe { on_stream::sync_all(called!(w, "sync_all_on_stream"), "sync_all", false, stream) })
}

/// Collective: `rushmem_quiet_on_stream`, then `rushmem_sync_all_on_stream`: what any PE had on its stream before, every PE
/// sees behind it.
///
/// # Safety
/// `w` is a world that is not finalised, and the stream lives.
#[no_mangle]
pub unsafe extern "C" fn rushmem_barrier_all_on_stream(w: *mut rushmem_world_t, stream: *mut c_void) -> i32 {
    // SAFETY: the caller vouches for the world and the stream.
    guard(|| unsafe { on_stream::sync_all(called!(w, "barrier_all_on_stream"), "barrier_all", true, stream) })
}
