//! What a stream has to do for PEs whose memory is not mapped: the host's own far operations, made when the stream comes to them.
//! Each ends before the next operation of the stream begins, so that sources and destinations may be used behind it.

use crate::error::Result;
use crate::net::engine::{Done, Engine};
use crate::net::message::Record;
use crate::net::{Far, Place, Rows};
use crate::ops::signal::SignalOp;

/// One operation on a far PE.
#[derive(Debug, Clone, Copy)]
pub(super) struct Errand {
    pub(super) pe: usize,
    /// In the PE's stride.
    pub(super) offset: u64,
    pub(super) what: What,
}

/// The operations.
#[derive(Debug, Clone, Copy)]
pub(super) enum What {
    Put { src: usize, bytes: usize },
    Get { dst: usize, bytes: usize },
    PutRows { src: usize, rows: Rows },
    GetRows { dst: usize, rows: Rows },
    Store { bits: u64, bytes: usize },
    PutSignal { src: usize, bytes: usize, sig: u64, op: SignalOp },
    Signal { op: SignalOp },
}

impl Errand {
    /// Begins it; `done` when its source is free, or its data is there.
    ///
    /// # Safety
    /// Its local addresses are valid until then.
    pub(super) unsafe fn begin(self, engine: &mut Engine, done: Done) -> Result<()> {
        let Errand { pe, offset, what } = self;
        let record = |engine: &mut Engine, record: &Record<'_>| {
            engine.record(pe, record)?;
            engine.tell(done);
            Ok(())
        };
        let signal = |op: SignalOp, offset| {
            let (value, add) = op.parts();
            Record::Signal { add, offset, value }
        };
        // SAFETY: passed on.
        unsafe {
            match what {
                What::Put { src, bytes } => engine.put(pe, offset, src, bytes, done),
                What::Get { dst, bytes } => engine.get(pe, offset, dst, bytes, done),
                What::PutRows { src, rows } => engine.put_rows(pe, offset, src, rows, done),
                What::GetRows { dst, rows } => engine.get_rows(pe, offset, dst, rows, done),
                What::Store { bits, bytes } => {
                    record(engine, &Record::Word { width: bytes as u8, offset, value: bits })
                }
                What::PutSignal { src, bytes, sig, op } => {
                    let signal = signal(op, sig);
                    engine.put_signal(pe, offset, src, bytes, &signal, done)
                }
                What::Signal { op } => record(engine, &signal(op, offset)),
            }
        }
    }

    pub(super) fn new(place: Place<'_>, what: What) -> Errand {
        Errand { pe: place.pe, offset: place.offset, what }
    }

    /// Carries it out, by the thread that calls.
    ///
    /// # Safety
    /// Its local addresses are valid.
    pub(super) unsafe fn run(self, far: &Far) -> Result<()> {
        let what = match self.what {
            What::Put { .. } | What::PutSignal { .. } => "a put to",
            What::Get { .. } => "a get from",
            What::PutRows { .. } => "a strided put to",
            What::GetRows { .. } => "a strided get from",
            What::Store { .. } => "a store to",
            What::Signal { .. } => "a signal to",
        };
        let report = || format!("for {what} PE {} at offset {:#x}", self.pe, self.offset);
        // SAFETY: passed on; it is waited for.
        far.ask(&report, |engine, done| unsafe { self.begin(engine, done) }).map(drop)
    }
}
