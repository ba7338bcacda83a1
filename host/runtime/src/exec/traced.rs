//! What traced runs (`RUSHMEM_TRACE`) note of operations: which PE they ask, for how many bytes, how that PE
//! is reached, and which word announces the data.

use std::sync::Arc;

use super::{Form, Home};
use crate::op::movement::Movement;
use crate::op::signal::Signal;
use crate::op::{Op, Reached};
use crate::trace::event::About;
use crate::trace::{OpenSpan, Trace};

/// The span of an operation that has been checked.
pub(super) fn span(
    home: &impl Home,
    trace: &Arc<Trace>,
    op: &Op,
    way: Reached,
    pe: i32,
    form: Form,
) -> OpenSpan {
    let kind = if form == Form::Nbi { "nbi" } else { "rma" };
    trace.span(kind, op.name(), about(home, op, way, pe))
}

/// What an operation that has been checked is about.
pub(super) fn about(home: &impl Home, op: &Op, way: Reached, pe: i32) -> About {
    About {
        peer: Some(pe),
        path: Some(if way == Reached::Net { "net" } else { "direct" }),
        bytes: Some(bytes(op)),
        word: word(op).and_then(|at| heap_offset(home, way, pe, at)),
        ..About::default()
    }
}

/// The span of another call, where the run is traced.
pub(super) fn call(
    home: &impl Home,
    kind: &'static str,
    name: &'static str,
    about: impl FnOnce() -> About,
) -> Option<OpenSpan> {
    home.trace().map(|trace| trace.span(kind, name, about()))
}

fn bytes(op: &Op) -> u64 {
    let bytes = match op {
        Op::Put(data) | Op::Get(data) | Op::PutSignal(data, _) => data.size(),
        Op::P { bytes, .. } | Op::G { bytes, .. } => *bytes,
        Op::Atomic(a) => a.bytes,
        Op::Signal(_) => 8,
    };
    bytes as u64
}

/// The word that the other PE may wait for.
fn word(op: &Op) -> Option<usize> {
    match *op {
        Op::P { at, .. } => Some(at),
        Op::Put(Movement::Bytes(t)) if matches!(t.bytes, 4 | 8) => Some(t.remote),
        Op::Atomic(a) => Some(a.at),
        Op::Signal(Signal { at, .. }) | Op::PutSignal(_, Signal { at, .. }) => Some(at),
        Op::Put(_) | Op::Get(_) | Op::G { .. } => None,
    }
}

/// Where in PE `pe`'s heap an operation's address is.
fn heap_offset(home: &impl Home, way: Reached, pe: i32, at: usize) -> Option<u64> {
    let offset = match way {
        Reached::Net => at,
        Reached::Host | Reached::Noted | Reached::Gpu => {
            home.offset_of(at.wrapping_sub(home.near().distance(pe)? as usize))?
        }
    };
    Some(offset as u64)
}
