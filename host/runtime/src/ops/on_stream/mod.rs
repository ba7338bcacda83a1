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
mod far;
mod gpu;
#[cfg(test)]
mod gpu_tests;
pub(crate) mod pageable;
#[cfg(test)]
mod pageable_tests;
#[cfg(test)]
mod tests;

use std::ffi::c_void;

use far::{Errand, What};

use super::rma::Strided;
use super::signal::SignalOp;
use super::waitset::{comparison, Cmp, Integer};
use super::{check_aligned, check_private};
use crate::error::{err, Result};
use crate::kernel::streams::On;
use crate::net::Place;
use crate::world::{Route, World};

/// What a stream carries out. Addresses are mapped for whoever does it.
#[derive(Debug, Clone, Copy)]
enum Work {
    /// `bytes` from one place to another. `given` is the side that the caller gave.
    Copy { dst: usize, src: usize, bytes: usize, given: Given },
    /// Elements at distances. `given` is the side that the caller gave.
    CopyStrided { dst: usize, src: usize, shape: Strided, given: Given },
    /// The low `bytes` (1, 2, 4 or 8) of `bits`.
    Store { at: usize, bits: u64, bytes: usize },
    /// A copy, and then the update of a signal word that announces it and all before it.
    PutSignal { dst: usize, src: usize, bytes: usize, given: Given, sig: usize, op: SignalOp },
    /// The update alone.
    Signal { sig: usize, op: SignalOp },
    /// Nothing goes on before the word compares so; `offset` is its place in the heap.
    Wait { at: usize, offset: Option<usize>, kind: Integer, cmp: Cmp, value: u64 },
    /// Something for a PE whose memory is not mapped.
    Far(Errand),
    /// What is before happens before what is behind, to whoever looks.
    Fence,
    /// What is before is complete.
    Quiet,
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
            unsafe { gpu::start(&work, stream, engine, w.far()) }
                .map_err(|e| w.kernels().explain(e, what))?;
            if matches!(work, Work::Wait { .. } | Work::Sync | Work::Far(_)) {
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
    let route = w.route(dst, bytes, pe)?;
    let given = Given::new(w, "the source", src, bytes)?;
    let src = given.at;
    if bytes == 0 {
        // SAFETY: passed on.
        return unsafe { nothing(w, on) };
    }
    let work = match mapped(route) {
        Ok(dst) => Work::Copy { dst, src, bytes, given },
        Err(place) => Work::Far(Errand::new(place, What::Put { src, bytes })),
    };
    // SAFETY: `route` vouches for the far side, the caller for the rest.
    unsafe { enqueue(w, on, "put", work) }
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
    let route = w.route(src, bytes, pe)?;
    let given = Given::new(w, "the destination", dst, bytes)?;
    let dst = given.at;
    if bytes == 0 {
        // SAFETY: passed on.
        return unsafe { nothing(w, on) };
    }
    let work = match mapped(route) {
        Ok(src) => Work::Copy { dst, src, bytes, given },
        Err(place) => Work::Far(Errand::new(place, What::Get { dst, bytes })),
    };
    // SAFETY: `route` vouches for the far side, the caller for the rest.
    unsafe { enqueue(w, on, "get", work) }
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
    let route = w.route(dst, far, pe)?;
    let given = Given::new(w, "the source", src, near)?;
    if far == 0 {
        // SAFETY: passed on.
        return unsafe { nothing(w, on) };
    }
    let work = match mapped(route) {
        Ok(dst) => Work::CopyStrided { dst, src: given.at, shape, given },
        Err(place) => {
            let rows = shape.rows(shape.src_stride, shape.dst_stride);
            Work::Far(Errand::new(place, What::PutRows { src: given.at, rows }))
        }
    };
    // SAFETY: `route` vouches for the far extent, the caller for the rest.
    unsafe { enqueue(w, on, "iput", work) }
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
    let route = w.route(src, far, pe)?;
    let given = Given::new(w, "the destination", dst, near)?;
    if far == 0 {
        // SAFETY: passed on.
        return unsafe { nothing(w, on) };
    }
    let work = match mapped(route) {
        Ok(src) => Work::CopyStrided { dst: given.at, src, shape, given },
        Err(place) => {
            let rows = shape.rows(shape.dst_stride, shape.src_stride);
            Work::Far(Errand::new(place, What::GetRows { dst: given.at, rows }))
        }
    };
    // SAFETY: `route` vouches for the far extent, the caller for the rest.
    unsafe { enqueue(w, on, "iget", work) }
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
    let work = match mapped(w.route(dst, bytes, pe)?) {
        Ok(at) => Work::Store { at, bits, bytes },
        Err(place) => Work::Far(Errand::new(place, What::Store { bits, bytes })),
    };
    // SAFETY: `route` vouches for the word, the caller for the stream.
    unsafe { enqueue(w, on, "p", work) }
}

/// A signal word on some PE.
fn signal_word(w: &World, sig: usize, pe: i32) -> Result<Route<'_>> {
    check_aligned("the signal", sig, 8)?;
    w.route(sig, 8, pe)
}

/// The mapped address, or where in a far PE's memory.
fn mapped(route: Route<'_>) -> std::result::Result<usize, Place<'_>> {
    match route {
        Route::Host(at) => Ok(at as usize),
        Route::Gpu(at, _) => Ok(at),
        Route::Far(place) => Err(place),
    }
}

/// Copies like [`put`], then updates the signal word on the same PE.
///
/// # Safety
/// As for [`put`].
#[allow(clippy::too_many_arguments, reason = "the operation has that many")]
pub(crate) unsafe fn put_signal(
    w: &World,
    dst: usize,
    src: usize,
    bytes: usize,
    sig: usize,
    op: SignalOp,
    pe: i32,
    on: *mut c_void,
) -> Result<()> {
    let sig = mapped(signal_word(w, sig, pe)?);
    let dst = mapped(w.route(dst, bytes, pe)?);
    let given = Given::new(w, "the source", src, bytes)?;
    let work = match (sig, dst) {
        (Ok(sig), _) if bytes == 0 => Work::Signal { sig, op },
        (Ok(sig), Ok(dst)) => Work::PutSignal { dst, src: given.at, bytes, given, sig, op },
        (Err(place), _) if bytes == 0 => Work::Far(Errand::new(place, What::Signal { op })),
        (Err(word), Err(place)) => {
            let what = What::PutSignal { src: given.at, bytes, sig: word.offset, op };
            Work::Far(Errand::new(place, what))
        }
        _ => return Err(err!(INTERNAL, "PE {pe} is both near and far")),
    };
    // SAFETY: `route` vouches for the far side, the caller for the rest.
    unsafe { enqueue(w, on, "put_signal", work) }
}

/// Updates a signal word without data.
///
/// # Safety
/// The stream as for [`enqueue`].
pub(crate) unsafe fn signal_op(w: &World, sig: usize, op: SignalOp, pe: i32, on: *mut c_void) -> Result<()> {
    let work = match mapped(signal_word(w, sig, pe)?) {
        Ok(sig) => Work::Signal { sig, op },
        Err(place) => Work::Far(Errand::new(place, What::Signal { op })),
    };
    // SAFETY: `route` vouches for the word, the caller for the stream.
    unsafe { enqueue(w, on, "signal_op", work) }
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
    let cmp = comparison(cmp)?;
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
    unsafe { enqueue(w, on, "quiet", Work::Quiet) }
}

/// Holds the stream back until every PE has come to its own; `what` it is called. For the `barrier`, what was before is complete
/// first; where all memory is mapped, it is anyway.
///
/// # Safety
/// The stream as for [`enqueue`].
pub(crate) unsafe fn sync_all(w: &World, what: &str, barrier: bool, on: *mut c_void) -> Result<()> {
    w.health().check()?;
    if barrier && w.far().is_some() {
        // SAFETY: as above.
        unsafe { enqueue(w, on, what, Work::Quiet) }?;
    }
    // SAFETY: as above.
    unsafe { enqueue(w, on, what, Work::Sync) }
}
