//! Operations on streams: the host's operations, put behind what a stream has to do already and carried out in their turn
//! (NVSHMEM's `_on_stream` forms).
//!
//! All that can be checked is checked when the call is made; what a stream is then given is a [`Work`], which knows mapped
//! addresses and nothing of the world any more. A CPU stream runs it on its thread ([`cpu`]); on a GPU it becomes copies,
//! words and service kernels of the stream ([`gpu`]), all of which can be captured into a graph.
//!
//! **Order.** What is on one stream happens in order: the next operation begins when the one before has ended and its effects
//! are visible (CUDA C++ Programming Guide, "Streams": the operations of a stream execute in order; CUDA Driver API, stream
//! memory operations: a write is preceded by a system-wide fence). To PEs whose memory is mapped, a fence or a quiet on a
//! stream therefore has nothing left to do; they are there for programs that run on other transports too.
//!
//! **Waits** are kernels on a GPU, not `cuStreamWaitValue`: a kernel reports a stall, keeps to the limit of waits and ends when
//! the job breaks, and the front end does none of it.

mod cpu;
mod gpu;
#[cfg(test)]
mod gpu_tests;
#[cfg(test)]
mod tests;

use std::ffi::c_void;

use super::rma::Strided;
use super::signal::SignalOp;
use super::waitset::{Cmp, Integer};
use super::{check_aligned, check_private};
use crate::error::{err, Result};
use crate::kernel::streams::On;
use crate::world::World;

/// What a stream carries out. Addresses are mapped for whoever does it.
#[derive(Debug, Clone, Copy)]
enum Work {
    /// `bytes` from one place to another.
    Copy { dst: usize, src: usize, bytes: usize },
    /// Elements at distances. `given` is the side that the caller gave.
    CopyStrided { dst: usize, src: usize, shape: Strided, given: Given },
    /// The low `bytes` (1, 2, 4 or 8) of `bits`.
    Store { at: usize, bits: u64, bytes: usize },
    /// A copy, and then the update of a signal word that announces it and all before it.
    PutSignal { dst: usize, src: usize, bytes: usize, given: Given, sig: usize, value: u64, op: SignalOp },
    /// The update alone.
    Signal { sig: usize, value: u64, op: SignalOp },
    /// Nothing goes on before the word compares so; `offset` is its place in the heap.
    Wait { at: usize, offset: Option<usize>, kind: Integer, cmp: Cmp, value: u64 },
    /// What is before happens before what is behind, to whoever looks.
    Fence,
    /// All PEs have come.
    Sync,
}

/// The local side of a transfer: any memory, and this PE's symmetric memory among others.
#[derive(Debug, Clone, Copy)]
struct Given {
    at: usize,
    /// It is symmetric, so that kernels of this PE's GPU reach it there.
    symmetric: bool,
}

impl Given {
    fn new(w: &World, what: &str, at: usize, bytes: usize) -> Result<Given> {
        check_private(what, at, bytes)?;
        // Registered memory of a GPU is not mapped at its alias.
        let symmetric = w.engine().and_then(|_| w.check_local(at, bytes).ok());
        Ok(Given { at: symmetric.unwrap_or(at), symmetric: symmetric.is_some() })
    }
}

/// Puts `work` on a stream; `what` it is called.
///
/// # Safety
/// The stream is one that [`crate::kernel::Kernels::on`] takes, and the work's addresses are valid until it is done.
unsafe fn enqueue(w: &World, raw: *mut c_void, what: &str, work: Work) -> Result<()> {
    // SAFETY: per contract.
    let on = unsafe { w.kernels().on(raw) }?;
    match (&on, w.engine()) {
        (On::Cpu(stream), _) => stream.push(cpu::job(w, what, work)),
        (On::Gpu(stream), Some(engine)) => {
            // SAFETY: per contract.
            unsafe { gpu::start(&work, stream, engine.service()) }
                .map_err(|e| w.kernels().explain(e, what))?;
            if matches!(work, Work::Wait { .. } | Work::Sync) {
                w.kernels().note(&on, format!("{what} on a stream"));
            }
            Ok(())
        }
        (On::Gpu(_), None) => Err(err!(INTERNAL, "a GPU's stream in a world whose heap is in host memory")),
    }
}

/// Nothing is to be done: only the stream is checked.
///
/// # Safety
/// As for [`enqueue`].
unsafe fn nothing(w: &World, raw: *mut c_void) -> Result<()> {
    // SAFETY: per contract.
    unsafe { w.kernels().on(raw) }.map(drop)
}

/// Copies `bytes` from private `src` to symmetric `dst` on `pe`.
///
/// # Safety
/// `src` is valid for reads of `bytes` until the work is done; the stream as for [`enqueue`].
pub(crate) unsafe fn put(
    w: &World,
    dst: usize,
    src: usize,
    bytes: usize,
    pe: i32,
    on: *mut c_void,
) -> Result<()> {
    let dst = w.route(dst, bytes, pe)?.address();
    let src = Given::new(w, "the source", src, bytes)?.at;
    if bytes == 0 {
        // SAFETY: passed on.
        return unsafe { nothing(w, on) };
    }
    // SAFETY: `route` vouches for the far side, the caller for the rest.
    unsafe { enqueue(w, on, "put", Work::Copy { dst, src, bytes }) }
}

/// Copies `bytes` from symmetric `src` on `pe` to private `dst`.
///
/// # Safety
/// `dst` is valid for writes of `bytes` until the work is done; the stream as for [`enqueue`].
pub(crate) unsafe fn get(
    w: &World,
    dst: usize,
    src: usize,
    bytes: usize,
    pe: i32,
    on: *mut c_void,
) -> Result<()> {
    let src = w.route(src, bytes, pe)?.address();
    let dst = Given::new(w, "the destination", dst, bytes)?.at;
    if bytes == 0 {
        // SAFETY: passed on.
        return unsafe { nothing(w, on) };
    }
    // SAFETY: `route` vouches for the far side, the caller for the rest.
    unsafe { enqueue(w, on, "get", Work::Copy { dst, src, bytes }) }
}

/// Strided put: elements of private `src` to elements of symmetric `dst` on `pe`.
///
/// # Safety
/// `src` is valid for reads of its extent until the work is done; the stream as for [`enqueue`].
pub(crate) unsafe fn iput(
    w: &World,
    dst: usize,
    src: usize,
    shape: Strided,
    pe: i32,
    on: *mut c_void,
) -> Result<()> {
    let far = shape.extent("destination", shape.dst_stride)?;
    let near = shape.extent("source", shape.src_stride)?;
    let dst = w.route(dst, far, pe)?.address();
    let given = Given::new(w, "the source", src, near)?;
    if far == 0 {
        // SAFETY: passed on.
        return unsafe { nothing(w, on) };
    }
    // SAFETY: `route` vouches for the far extent, the caller for the rest.
    unsafe { enqueue(w, on, "iput", Work::CopyStrided { dst, src: given.at, shape, given }) }
}

/// Strided get: elements of symmetric `src` on `pe` to elements of private `dst`.
///
/// # Safety
/// `dst` is valid for writes of its extent until the work is done; the stream as for [`enqueue`].
pub(crate) unsafe fn iget(
    w: &World,
    dst: usize,
    src: usize,
    shape: Strided,
    pe: i32,
    on: *mut c_void,
) -> Result<()> {
    let near = shape.extent("destination", shape.dst_stride)?;
    let far = shape.extent("source", shape.src_stride)?;
    let src = w.route(src, far, pe)?.address();
    let given = Given::new(w, "the destination", dst, near)?;
    if far == 0 {
        // SAFETY: passed on.
        return unsafe { nothing(w, on) };
    }
    // SAFETY: `route` vouches for the far extent, the caller for the rest.
    unsafe { enqueue(w, on, "iget", Work::CopyStrided { dst: given.at, src, shape, given }) }
}

/// Writes the low `bytes` bytes of `bits` to `dst` on `pe`, in one piece if `dst` is aligned.
///
/// # Safety
/// The stream as for [`enqueue`].
pub(crate) unsafe fn p(
    w: &World,
    dst: usize,
    bits: u64,
    bytes: usize,
    pe: i32,
    on: *mut c_void,
) -> Result<()> {
    if !matches!(bytes, 1 | 2 | 4 | 8) {
        return Err(super::rma::bad_width("p", bytes));
    }
    let at = w.route(dst, bytes, pe)?.address();
    // SAFETY: `route` vouches for the word, the caller for the stream.
    unsafe { enqueue(w, on, "p", Work::Store { at, bits, bytes }) }
}

/// The mapped address of a signal word on some PE.
fn signal_word(w: &World, sig: usize, pe: i32) -> Result<usize> {
    check_aligned("the signal", sig, 8)?;
    Ok(w.route(sig, 8, pe)?.address())
}

/// Copies like [`put`], then updates the signal word on the same PE.
///
/// # Safety
/// As for [`put`].
#[allow(clippy::too_many_arguments)] // the operation has that many
pub(crate) unsafe fn put_signal(
    w: &World,
    dst: usize,
    src: usize,
    bytes: usize,
    sig: usize,
    value: u64,
    op: SignalOp,
    pe: i32,
    on: *mut c_void,
) -> Result<()> {
    let sig = signal_word(w, sig, pe)?;
    let dst = w.route(dst, bytes, pe)?.address();
    let given = Given::new(w, "the source", src, bytes)?;
    let work = match bytes {
        0 => Work::Signal { sig, value, op },
        _ => Work::PutSignal { dst, src: given.at, bytes, given, sig, value, op },
    };
    // SAFETY: `route` vouches for the far side, the caller for the rest.
    unsafe { enqueue(w, on, "put_signal", work) }
}

/// Updates a signal word without data.
///
/// # Safety
/// The stream as for [`enqueue`].
pub(crate) unsafe fn signal_op(
    w: &World,
    sig: usize,
    value: u64,
    op: SignalOp,
    pe: i32,
    on: *mut c_void,
) -> Result<()> {
    let sig = signal_word(w, sig, pe)?;
    // SAFETY: `route` vouches for the word, the caller for the stream.
    unsafe { enqueue(w, on, "signal_op", Work::Signal { sig, value, op }) }
}

/// Holds the stream back until a signal word of this PE compares as asked.
///
/// # Safety
/// The stream as for [`enqueue`].
pub(crate) unsafe fn signal_wait_until(
    w: &World,
    sig: usize,
    cmp: i32,
    value: u64,
    on: *mut c_void,
) -> Result<()> {
    check_aligned("the signal", sig, 8)?;
    // SAFETY: passed on.
    unsafe { wait(w, "signal_wait_until", sig, Integer::U64, cmp, value, on) }
}

/// Holds the stream back until a word of this PE compares as asked.
///
/// # Safety
/// The stream as for [`enqueue`].
pub(crate) unsafe fn wait_until(
    w: &World,
    kind: i32,
    ivar: usize,
    cmp: i32,
    value: u64,
    on: *mut c_void,
) -> Result<()> {
    let kind = Integer::from_code(kind)?;
    check_aligned("the word to wait on", ivar, kind.bytes())?;
    // SAFETY: passed on.
    unsafe { wait(w, "wait_until", ivar, kind, cmp, value, on) }
}

/// # Safety
/// The stream as for [`enqueue`].
unsafe fn wait(
    w: &World,
    what: &str,
    at: usize,
    kind: Integer,
    cmp: i32,
    value: u64,
    on: *mut c_void,
) -> Result<()> {
    let cmp = Cmp::from_code(cmp)?;
    w.health().check()?;
    let at = w.check_local(at, kind.bytes())?;
    let work = Work::Wait { at, offset: w.offset_of(at), kind, cmp, value };
    // SAFETY: live symmetric memory, as just checked; the caller vouches for the stream.
    unsafe { enqueue(w, on, what, work) }
}

/// Orders what is before on the stream before what is behind it.
///
/// # Safety
/// The stream as for [`enqueue`].
pub(crate) unsafe fn fence(w: &World, on: *mut c_void) -> Result<()> {
    w.health().check()?;
    // SAFETY: no addresses; the caller vouches for the stream.
    unsafe { enqueue(w, on, "fence", Work::Fence) }
}

/// Completes what is before on the stream before what is behind it begins.
///
/// # Safety
/// The stream as for [`enqueue`].
pub(crate) unsafe fn quiet(w: &World, on: *mut c_void) -> Result<()> {
    w.health().check()?;
    // SAFETY: as above.
    unsafe { enqueue(w, on, "quiet", Work::Fence) }
}

/// Holds the stream back until every PE has come to its own; `what` it is called. Where all memory is mapped this is the
/// barrier too, as all that was before is complete.
///
/// # Safety
/// The stream as for [`enqueue`].
pub(crate) unsafe fn sync_all(w: &World, what: &str, on: *mut c_void) -> Result<()> {
    // Each PE's memory must be mapped, and `route` says why one's is not.
    for pe in (0..w.n_pes()).filter(|pe| !w.is_near(*pe)) {
        w.route(0, 0, pe)?;
    }
    w.health().check()?;
    // SAFETY: as above.
    unsafe { enqueue(w, on, what, Work::Sync) }
}
