//! Operations on PEs whose memory is not mapped, carried out by the network's engine ([`crate::net`]).
//!
//! [`begin`] is the whole of what an operation becomes there. The host waits for it where the form asks for
//! that; a stream has it begun in its turn.

use crate::error::{err, Result};
use crate::net::engine::{Done, Engine, Rows, INLINE};
use crate::net::message::Record;
use crate::net::{Far, Lane};
use crate::op::movement::Movement;
use crate::op::signal::Signal;
use crate::op::strided::Strides;
use crate::op::Op;
use crate::word::Update;

use super::{Executor, Form};

/// The executor: the way to one PE.
pub(crate) struct FarPe<'a> {
    pub(crate) far: &'a Far,
    pub(crate) lane: Lane,
}

impl Executor for FarPe<'_> {
    unsafe fn run(&self, op: Op, form: Form) -> Result<u64> {
        let &FarPe { far, lane } = self;
        // A put of little is copied before it returns, so it need not be waited for.
        let copied = |bytes: usize| bytes <= INLINE && !far.on_gpu();
        let waits = match op {
            Op::Put(Movement::Bytes(t)) | Op::PutSignal(Movement::Bytes(t), _) => {
                form == Form::Blocking && !copied(t.bytes)
            }
            Op::Get(Movement::Bytes(_)) => form == Form::Blocking,
            Op::Put(_) | Op::PutSignal(..) | Op::Get(_) | Op::G { .. } => true,
            Op::Atomic(a) => a.op.fetches(),
            Op::P { .. } | Op::Signal(_) => false,
        };
        let value = if waits {
            // SAFETY: the caller vouches for local memory; it is waited for.
            far.ask(Some(lane.pe), &|| report(&op, lane.pe), |engine, done| unsafe {
                begin(op, lane, engine, done)
            })
        } else {
            // SAFETY: the caller vouches for local memory, until quiet or, for little, until the call
            // returns.
            far.begin(Some(lane.pe), |engine| unsafe { begin(op, lane, engine, Done::Nothing) }).map(|()| 0)
        }?;
        Ok(match op {
            // As everywhere: the word's new value.
            Op::Atomic(a) if a.op.update() == Update::Set => a.value,
            _ => value,
        })
    }
}

/// Begins `op` on a lane; `done` when its source is free, or its data or value is there.
///
/// # Safety
/// The operation has been checked, for the network. Its local memory is valid until then.
pub(super) unsafe fn begin(op: Op, lane: Lane, engine: &mut Engine, done: Done) -> Result<()> {
    // SAFETY: the caller vouches for local memory.
    unsafe {
        match op {
            Op::Put(data) => put(data, lane, engine, done),
            Op::Get(Movement::Bytes(t)) => engine.get(lane, t.remote as u64, t.local.at, t.bytes, done),
            Op::Get(Movement::Elements(s)) => {
                let rows = rows(&s.strides, s.strides.dst_stride, s.strides.src_stride);
                engine.get_rows(lane, s.remote as u64, s.local.at, rows, done)
            }
            Op::P { at, bits, bytes } => {
                engine.record(lane, &Record::Word { width: bytes as u8, offset: at as u64, value: bits })?;
                engine.complete(done);
                Ok(())
            }
            Op::G { at, bytes } => engine.load(lane, bytes as u8, at as u64, done),
            Op::Atomic(a) => {
                let (number, width, at) = (a.op.update() as u8, a.bytes as u8, a.at as u64);
                if a.op.fetches() {
                    return engine.atomic(lane, number, width, at, a.value, a.compare, done);
                }
                engine.atomic(lane, number, width, at, a.value, a.compare, Done::Nothing)?;
                engine.complete(done);
                Ok(())
            }
            Op::Signal(s) => {
                engine.record(lane, &record(s))?;
                engine.complete(done);
                Ok(())
            }
            // A one-sided copy carries its signal itself; what goes as rows has it behind them.
            Op::PutSignal(Movement::Bytes(t), s) => {
                engine.put_signal(lane, t.remote as u64, t.local.at, t.bytes, &record(s), done)
            }
            Op::PutSignal(data, s) => {
                put(data, lane, engine, done)?;
                engine.fence_rows(lane);
                engine.record(lane, &record(s))
            }
        }
    }
}

/// Begins a put.
///
/// # Safety
/// As for [`begin`].
unsafe fn put(data: Movement, lane: Lane, engine: &mut Engine, done: Done) -> Result<()> {
    // SAFETY: the caller vouches for the source.
    unsafe {
        match data {
            Movement::Bytes(t) => engine.put(lane, t.remote as u64, t.local.at, t.bytes, done),
            Movement::Elements(s) => {
                let rows = rows(&s.strides, s.strides.src_stride, s.strides.dst_stride);
                engine.put_rows(lane, s.remote as u64, s.local.at, rows, done)
            }
        }
    }
}

/// A signal's update, as a record of a message.
fn record(s: Signal) -> Record<'static> {
    let (value, add) = s.op.parts();
    Record::Signal { add, offset: s.at as u64, value }
}

/// Strides in bytes.
fn rows(strides: &Strides, near: isize, far: isize) -> Rows {
    Rows { elem: strides.elem, near_stride: strides.step(near), far_stride: strides.step(far), n: strides.n }
}

/// What a wait that lasts says.
fn report(op: &Op, pe: usize) -> String {
    let (what, offset) = match *op {
        Op::Put(data) | Op::PutSignal(data, _) => (data.names().put_to, data.remote()),
        Op::Get(data) => (data.names().get_from, data.remote()),
        Op::P { at, .. } => ("a store to", at),
        Op::G { at, .. } => ("a word of", at),
        Op::Atomic(a) => ("an atomic on", a.at),
        Op::Signal(s) => ("a signal to", s.at),
    };
    format!("for {what} PE {pe} at offset {offset:#x}")
}

/// The way to PEs that are not mapped, of a world that has one.
pub(super) fn of<T>(far: Option<T>) -> Result<T> {
    far.ok_or_else(|| err!(INTERNAL, "a far operation in a world without a network"))
}
