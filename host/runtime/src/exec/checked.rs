//! What checked runs (`RUSHMEM_CHECK`) note of operations: whose memory they read and write, when, and what
//! they order (`rushmem_device_cpu::check`). By what the operations promise, not by how they are carried out.

use std::sync::Arc;

use rushmem_device_cpu::check::{Location, Notes, When, World};

use super::Form;
use crate::op::movement::Movement;
use crate::op::signal::{Signal, SignalOp};
use crate::op::waitset::WaitSet;
use crate::op::{Op, Reached};

/// Notes an operation that has been checked, before it is carried out.
pub(super) fn note(check: &Arc<World>, op: &Op, way: Reached, pe: i32, form: Form) {
    let there = |at| if way == Reached::Net { Location::Of(pe, at) } else { Location::At(at) };
    let later = if form == Form::Nbi { When::Complete } else { When::Now };
    let delivered = if form == Form::Nbi || way == Reached::Net { When::Ordered } else { When::Delivered };
    let each = |notes: &mut Notes<'_>| match *op {
        // Single words go in one piece: the Rust API's p is such a put.
        Op::Put(Movement::Bytes(t)) if is_word(t.remote, t.bytes) => {
            notes.reads(Location::At(t.local.at), t.bytes, later);
            notes.stores(there(t.remote), t.bytes);
        }
        Op::Get(Movement::Bytes(t)) if is_word(t.remote, t.bytes) => {
            notes.loads(there(t.remote), t.bytes);
            notes.writes(Location::At(t.local.at), t.bytes, later);
        }
        Op::Put(data) => note_put(notes, data, later, there, delivered),
        Op::Get(data) => {
            data.each_read(data.remote(), |at, bytes| notes.reads(there(at), bytes, later));
            data.each_written(data.local().at, |at, bytes| notes.writes(Location::At(at), bytes, later));
        }
        Op::P { at, bytes, .. } => notes.stores(there(at), bytes),
        Op::G { at, bytes } => notes.loads(there(at), bytes),
        // What was there has come back when the call returns.
        Op::Atomic(a) if a.op.fetches() && form == Form::Blocking => notes.fetches(there(a.at), a.bytes),
        Op::Atomic(a) => notes.updates(there(a.at), a.bytes),
        Op::Signal(s) => match s.op {
            SignalOp::Set(_) => notes.stores(there(s.at), 8),
            SignalOp::Add(_) => notes.updates(there(s.at), 8),
        },
        Op::PutSignal(data, Signal { at, .. }) => {
            note_put(notes, data, later, there, When::Now);
            notes.signals(there(at));
        }
    };
    check.note(op.name(), |notes| {
        if form == Form::Nbi || way == Reached::Net && matches!(op, Op::Put(_)) {
            notes.unordered();
        }
        each(notes);
    });
}

/// Notes that a value has come: what its word carried when it was read.
pub(super) fn note_answer(check: &Arc<World>, op: &Op, way: Reached, pe: i32) {
    let Op::Atomic(a) = op else { return };
    if a.op.fetches() {
        let word = if way == Reached::Net { Location::Of(pe, a.at) } else { Location::At(a.at) };
        check.note(op.name(), |notes| notes.waits(word, a.bytes));
    }
}

fn is_word(at: usize, bytes: usize) -> bool {
    matches!(bytes, 1 | 2 | 4 | 8) && at % bytes == 0
}

fn note_put(
    notes: &mut Notes<'_>,
    data: Movement,
    later: When,
    there: impl Fn(usize) -> Location,
    delivered: When,
) {
    data.each_read(data.local().at, |at, bytes| notes.reads(Location::At(at), bytes, later));
    data.each_written(data.remote(), |at, bytes| notes.writes(there(at), bytes, delivered));
}

/// Notes a wait or test whose words compare as asked.
pub(super) fn waited(check: &Arc<World>, set: &WaitSet) {
    check.note("wait", |notes| {
        for i in set.some() {
            let (at, bytes) = set.word(i);
            notes.waits(Location::At(at), bytes);
        }
    });
}
