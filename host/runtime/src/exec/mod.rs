//! Who carries operations out. An [`Op`] that has been checked goes to one [`Executor`], by how the PE's
//! memory is reached:
//!
//! | memory | now, or nbi | in a stream's turn |
//! |---|---|---|
//! | host memory, mapped | [`host`] | [`stream::cpu`]: the stream's thread calls [`host`] |
//! | GPU memory, mapped | [`gpu`] | [`stream::gpu`] |
//! | not mapped | [`net`] | either, calling [`net`] |
//!
//! [`run`] and [`on_stream`] are the two entries for operations on one PE, [`order`] has fence and quiet,
//! [`context`] those of some operations, [`wait`] what a PE waits for. Memory that a peer may touch at any
//! time is only reached through raw pointers and atomics, never through a reference.

mod checked;
pub(crate) mod context;
pub(crate) mod gpu;
pub(crate) mod host;
pub(crate) mod net;
pub(crate) mod order;
pub(crate) mod stream;
#[cfg(test)]
mod tests;
mod traced;
pub(crate) mod wait;

use std::sync::Arc;
use std::time::Duration;

use rushmem_device_cpu::check;

use crate::config::launches::Launches;
use crate::error::{err, Result};
use crate::health::Health;
use crate::kernel::Kernels;
use crate::net::{Far, Lane};
use crate::op::{Op, Reach, Reached};
use crate::topology::near::Near;
use crate::trace::Trace;
use context::Contexts;
use gpu::GpuEngine;
use host::MappedHost;
use net::FarPe;

pub(crate) use stream::collective::{collective_on_stream, prepare_collective, SlotSet};
pub(crate) use stream::{on_stream, order_on_stream, wait_on_stream};

/// What executors need of the world that they work for.
pub(crate) trait Home: Reach {
    /// Whether the job is whole.
    fn health(&self) -> &Arc<Health>;
    /// How collectives on streams are launched.
    fn launches(&self) -> &Launches;
    /// The limit of waits that name none.
    fn wait_limit(&self) -> Option<Duration>;
    /// What carries out operations on GPU memory, where the heap is some.
    fn engine(&self) -> Option<&GpuEngine>;
    /// The way to PEs whose memory is not mapped, where there are any.
    fn far(&self) -> Option<&Arc<Far>>;
    /// The contexts of operations on those.
    fn contexts(&self) -> &Contexts;
    /// The PEs whose memory is mapped.
    fn near(&self) -> &Arc<Near>;
    /// The timeline of a run that is traced.
    fn trace(&self) -> Option<&Arc<Trace>>;
    /// The checker of a run that is checked.
    fn check(&self) -> Option<&Arc<check::World>>;
    /// The world's kernels and streams.
    fn kernels(&self) -> &Kernels;
    /// Where in the heap an address of this PE's is, for texts.
    fn offset_of(&self, at: usize) -> Option<usize>;
}

/// When an operation returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// When its source may be used again, or its result is there.
    Blocking,
    /// It may be before the operation has begun: local memory is in use until the next quiet.
    Nbi,
}

/// Carries out operations whose addresses it reaches.
pub(crate) trait Executor {
    /// Carries `op` out; the value of those that give one, else 0.
    ///
    /// # Safety
    /// The operation has been checked, for this executor. Its local memory is valid: until the call returns
    /// where the form is blocking, else until the next quiet.
    unsafe fn run(&self, op: Op, form: Form) -> Result<u64>;
}

/// Checks `op` on PE `pe` and carries it out; the value of those that give one. Nothing is written unless all
/// of it is valid.
///
/// # Safety
/// The operation's local memory is valid for its length: until the call returns where `form` is blocking,
/// else until the next quiet.
#[inline(always)]
pub(crate) unsafe fn run(home: &impl Home, op: Op, pe: i32, form: Form) -> Result<u64> {
    let (op, way) = op.check(home, pe)?.into_parts();
    match way {
        // SAFETY: checked; the caller vouches for local memory.
        Reached::Host => unsafe { MappedHost.run(op, form) },
        // SAFETY: checked; the caller vouches for local memory.
        Reached::Gpu | Reached::Net | Reached::Noted => unsafe {
            Elsewhere { home, op, way, pe, form }.run()
        },
    }
}

/// An operation on other memory than the host's. A struct of its own, made where it is needed: the way to
/// host memory then has its operation in registers alone.
struct Elsewhere<'a, H> {
    home: &'a H,
    op: Op,
    way: Reached,
    pe: i32,
    form: Form,
}

impl<H: Home> Elsewhere<'_, H> {
    /// # Safety
    /// As for [`Executor::run`], of that `way`.
    #[cold]
    #[inline(never)]
    unsafe fn run(self) -> Result<u64> {
        let Elsewhere { home, op, way, pe, form } = self;
        if op.is_nothing() {
            return Ok(0);
        }
        let op = op.simplified();
        let _span = home.trace().map(|trace| traced::span(home, trace, &op, way, pe, form));
        if let Some(check) = home.check() {
            checked::note(check, &op, way, pe, form);
        }
        // SAFETY: the caller says that the operation was checked, and vouches for local memory.
        let result = unsafe {
            match (way, home.engine(), home.far()) {
                (Reached::Noted, ..) => MappedHost.run(op, form),
                (Reached::Gpu, Some(engine), _) => engine.run(op, form),
                (Reached::Net, _, Some(far)) => {
                    FarPe { far, lane: Lane { pe: pe as usize, context: home.contexts().entered() } }
                        .run(op, form)
                }
                _ => {
                    let by = if way == Reached::Gpu { "its GPU's copies" } else { "a network" };
                    Err(err!(INTERNAL, "PE {pe} is to be reached by {by}, which this world does not have"))
                }
            }
        };
        if let Some(check) = home.check() {
            checked::note_answer(check, &op, way, pe);
        }
        result
    }
}
