//! What checked runs (`RUSHMEM_CHECK`) note of operations: whose memory they read and write, when, and what
//! they order (`rushmem_device_cpu::check`). By what the operations promise, not by how they are carried out.

use std::sync::Arc;

use rushmem_device_cpu::check::{Notes, Place, When, World};

use super::Form;
use crate::op::signal::{Signal, SignalOp};
use crate::op::strided::Elements;
use crate::op::waitset::WaitSet;
use crate::op::{Op, Reached};

/// Notes an operation that has been checked, before it is carried out.
pub(super) fn note(check: &Arc<World>, op: &Op, way: Reached, pe: i32, form: Form) {
    let there = |at| if way == Reached::Net { Place::Of(pe, at) } else { Place::At(at) };
    let later = if form == Form::Nbi { When::Complete } else { When::Now };
    let delivered = if form == Form::Nbi || way == Reached::Net { When::Ordered } else { When::Delivered };
    check.note(op.name(), |notes| match *op {
        // Single words go in one piece: the Rust API's p is such a put.
        Op::Put(t) if is_word(t.remote, t.bytes) => {
            notes.reads(Place::At(t.local.at), t.bytes, later);
            notes.stores(there(t.remote), t.bytes);
        }
        Op::Get(t) if is_word(t.remote, t.bytes) => {
            notes.loads(there(t.remote), t.bytes);
            notes.writes(Place::At(t.local.at), t.bytes, later);
        }
        Op::Put(t) => {
            notes.reads(Place::At(t.local.at), t.bytes, later);
            notes.writes(there(t.remote), t.bytes, delivered);
        }
        Op::Get(t) => {
            notes.reads(there(t.remote), t.bytes, later);
            notes.writes(Place::At(t.local.at), t.bytes, later);
        }
        Op::P { at, bytes, .. } => notes.stores(there(at), bytes),
        Op::G { at, bytes } => notes.loads(there(at), bytes),
        Op::Iput(s) => put_elements(notes, &s, later, there, delivered),
        Op::Iget(s) => {
            let (to, from) = (s.strides.dst_stride, s.strides.src_stride);
            each(&s, s.remote, from, |at, bytes| notes.reads(there(at), bytes, When::Now));
            each(&s, s.local.at, to, |at, bytes| notes.writes(Place::At(at), bytes, later));
        }
        Op::Atomic(a) => notes.updates(there(a.at), a.bytes),
        Op::Signal(s) => match s.op {
            SignalOp::Set(_) => notes.stores(there(s.at), 8),
            SignalOp::Add(_) => notes.updates(there(s.at), 8),
        },
        Op::PutSignal(t, Signal { at, .. }) => {
            notes.reads(Place::At(t.local.at), t.bytes, later);
            notes.writes(there(t.remote), t.bytes, When::Now);
            notes.signals(there(at));
        }
        Op::IputSignal(s, Signal { at, .. }) => {
            put_elements(notes, &s, later, there, When::Now);
            notes.signals(there(at));
        }
    });
}

/// Notes that a value has come: what its word carried when it was read.
pub(super) fn note_answer(check: &Arc<World>, op: &Op, way: Reached, pe: i32) {
    let Op::Atomic(a) = op else { return };
    if a.op.fetches() {
        let word = if way == Reached::Net { Place::Of(pe, a.at) } else { Place::At(a.at) };
        check.note(op.name(), |notes| notes.waits(word, a.bytes));
    }
}

fn is_word(at: usize, bytes: usize) -> bool {
    matches!(bytes, 1 | 2 | 4 | 8) && at % bytes == 0
}

fn put_elements(
    notes: &mut Notes<'_>,
    s: &Elements,
    later: When,
    there: impl Fn(usize) -> Place,
    delivered: When,
) {
    let (to, from) = (s.strides.dst_stride, s.strides.src_stride);
    each(s, s.local.at, from, |at, bytes| notes.reads(Place::At(at), bytes, later));
    each(s, s.remote, to, |at, bytes| notes.writes(there(at), bytes, delivered));
}

/// What the elements of one side are.
fn each(s: &Elements, first: usize, stride: isize, mut take: impl FnMut(usize, usize)) {
    for (offset, bytes) in s.strides.parts(stride) {
        take(first + offset, bytes);
    }
}

/// Notes a wait or test whose words compare as asked.
pub(super) fn waited(check: &Arc<World>, set: &WaitSet) {
    check.note("wait", |notes| {
        for i in set.some() {
            let (at, bytes) = set.word(i);
            notes.waits(Place::At(at), bytes);
        }
    });
}
