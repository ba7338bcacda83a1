//! Operations in a stream's turn: the host's operations, put behind what the stream has to do already
//! (NVSHMEM's `_on_stream` forms).
//!
//! All that can be checked is checked when the call is made; what a stream is then given is a [`Work`], which
//! knows addresses as they are reached and nothing of the world any more. A CPU stream carries it out on its
//! thread ([`cpu`]); on a GPU it becomes copies, words and service kernels of the stream ([`gpu`]), all of
//! which can be captured into a graph.
//!
//! **Order.** What is on one stream happens in order: the next operation begins when the one before has ended
//! and its effects are visible (CUDA C++ Programming Guide, "Streams": the operations of a stream execute in
//! order; CUDA Driver API, stream memory operations: a write is preceded by a system-wide fence). To PEs
//! whose memory is mapped, a fence or a quiet on a stream therefore has nothing left to do; they are there
//! for programs that run on other transports too.

pub(crate) mod collective;
mod cpu;
mod direct;
mod gpu;
pub(crate) mod pageable;
mod sync;

use std::ffi::c_void;

use super::{traced, Home};
use crate::error::{err, Result};
use crate::kernel::streams::On;
use crate::op::wait::Wait;
use crate::op::{Op, Reached};
use crate::trace::event::About;

/// What a stream carries out.
#[derive(Debug, Clone, Copy)]
enum Work {
    /// An operation on PE `pe`, whose memory is mapped.
    Near { pe: i32, op: Op },
    /// The same on one that the network reaches. It ends before the next work of the stream begins, so that
    /// its local memory may be used behind it.
    Net { pe: usize, op: Op },
    /// Nothing goes on before the word compares so; `offset` is its place in the heap.
    Wait { wait: Wait, offset: Option<usize> },
    /// What is before happens before what is behind, to every PE.
    Fence,
    /// What is before is complete.
    Quiet,
    /// All PEs have come.
    Sync,
}

/// What orders the operations of a stream with those of all PEs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StreamOrder {
    /// What is before on the stream, on each PE, before what is behind it.
    Fence,
    /// What is before is complete before what is behind begins.
    Quiet,
    /// Every PE has come to its own.
    SyncAll,
    /// [`StreamOrder::Quiet`], then [`StreamOrder::SyncAll`].
    BarrierAll,
}

/// What a span of `work` is about.
fn about(w: &impl Home, work: &Work) -> About {
    match work {
        Work::Near { pe, op } => traced::about(w, op, Reached::Noted, *pe),
        Work::Net { pe, op } => traced::about(w, op, Reached::Net, *pe as i32),
        Work::Wait { offset, .. } => About { word: offset.map(|at| at as u64), ..About::default() },
        Work::Fence | Work::Quiet | Work::Sync => About::default(),
    }
}

/// Puts `work` on a stream; `what` it is called.
///
/// # Safety
/// The stream is one that [`crate::kernel::Kernels::on`] takes, and the work's addresses are valid until it
/// is done.
unsafe fn enqueue(w: &impl Home, raw: *mut c_void, what: &str, work: Work) -> Result<()> {
    // SAFETY: the caller vouches for the stream.
    let on = unsafe { w.kernels().on(raw) }?;
    let _span = w.trace().map(|trace| {
        // Only what a CPU stream carries out has a span of its own then.
        let (about, cpu) = (about(w, &work), matches!(on, On::Cpu(_)));
        let kind = if cpu || about.peer.is_none() { "enqueue" } else { "rma" };
        trace.span(kind, format!("{what} on a stream"), about)
    });
    match (&on, w.engine()) {
        // SAFETY: the caller vouches for the addresses.
        (On::Cpu(stream), _) => stream.push(unsafe { cpu::job(w, what, work) }),
        (On::Gpu(stream), Some(engine)) => {
            // SAFETY: the caller vouches for the addresses.
            unsafe { gpu::start(&work, stream, engine, w.far()) }
                .map_err(|e| w.kernels().explain(e, what))?;
            if matches!(work, Work::Wait { .. } | Work::Sync | Work::Net { .. }) {
                w.kernels().note(&on, format!("{what} on a stream"));
            }
            Ok(())
        }
        (On::Gpu(_), None) => Err(err!(INTERNAL, "a GPU's stream in a world whose heap is in host memory")),
    }
}

/// Checks `op` on PE `pe` now, and has it carried out in the stream's turn. On an error nothing was put on
/// the stream.
///
/// # Safety
/// The operation's local memory is valid for its length until it is done; the stream is one that
/// [`crate::kernel::Kernels::on`] takes.
#[inline]
pub(crate) unsafe fn on_stream(w: &impl Home, op: Op, pe: i32, raw: *mut c_void) -> Result<()> {
    // SAFETY: as the caller vouches.
    match unsafe { direct::copy(w, &op, pe, raw) } {
        Some(put) => put,
        // SAFETY: as the caller vouches.
        None => unsafe { any_on_stream(w, op, pe, raw) },
    }
}

/// The same of any operation.
///
/// # Safety
/// As for [`on_stream`].
#[inline(never)]
unsafe fn any_on_stream(w: &impl Home, op: Op, pe: i32, raw: *mut c_void) -> Result<()> {
    let (mut op, way) = op.check(w, pe)?.into_parts();
    if op.is_nothing() {
        // SAFETY: the caller vouches for the stream.
        return unsafe { w.kernels().on(raw) }.map(drop);
    }
    op = op.simplified();
    if w.engine().is_some() {
        // Registered memory of a GPU is not mapped at its alias.
        op.find_local(|at, bytes| w.own_if_symmetric(at, bytes));
    }
    let work = match way {
        Reached::Host | Reached::Gpu | Reached::Noted => Work::Near { pe, op },
        Reached::Net => Work::Net { pe: pe as usize, op },
    };
    // SAFETY: checked; the caller vouches for local memory and the stream.
    unsafe { enqueue(w, raw, op.name(), work) }
}

/// Holds the stream back until a word of this PE compares as asked; `what` the wait is called.
///
/// **Waits** are kernels on a GPU, not `cuStreamWaitValue`: a kernel reports a stall, keeps to the limit of
/// waits and ends when the job breaks, and the front end does none of it.
///
/// # Safety
/// The stream is one that [`crate::kernel::Kernels::on`] takes.
pub(crate) unsafe fn wait_on_stream(w: &impl Home, what: &str, wait: Wait, raw: *mut c_void) -> Result<()> {
    w.health().check()?;
    let work = Work::Wait { wait, offset: w.offset_of(wait.at) };
    // SAFETY: live symmetric memory, as the check of `wait` says; the caller vouches for the stream.
    unsafe { enqueue(w, raw, what, work) }
}

/// Orders the stream's work; `what` the call is named.
///
/// # Safety
/// The stream is one that [`crate::kernel::Kernels::on`] takes.
pub(crate) unsafe fn order_on_stream(
    w: &impl Home,
    what: &str,
    order: StreamOrder,
    raw: *mut c_void,
) -> Result<()> {
    w.health().check()?;
    // Of a GPU whose PEs are all mapped, the stream's own order is all that it takes.
    let is_mapped = w.engine().is_some() && w.far().is_none();
    if is_mapped && w.trace().is_none() && matches!(order, StreamOrder::Fence | StreamOrder::Quiet) {
        return w.kernels().check_alive();
    }
    // SAFETY: no addresses; the caller vouches for the stream.
    let put = |work| unsafe { enqueue(w, raw, what, work) };
    match order {
        StreamOrder::Fence => put(Work::Fence),
        StreamOrder::Quiet => put(Work::Quiet),
        StreamOrder::SyncAll => put(Work::Sync),
        StreamOrder::BarrierAll => {
            // Where all memory is mapped, what was before is complete anyway: a checked run is to know.
            if w.far().is_some() || w.check().is_some() {
                put(Work::Quiet)?;
            }
            put(Work::Sync)
        }
    }
}
