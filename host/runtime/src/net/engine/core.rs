//! The core: the parts of an engine side by side, and what takes several of them: a record that counts in its
//! peer's order, a flush, an answer. Nothing here decides whether an operation may start, or knows GPU
//! memory: [`super::Operations`] does.

use super::failures::Failures;
use super::in_flight::{not_awaited, too_much, Awaited, Flight, InFlight};
use crate::error::{err, Result};
use crate::net::completion::{Completions, Done};
use crate::net::memory::host;
use crate::net::memory::segments::Segments;
use crate::net::ordering::{Lane, Ordering, Wanted};
use crate::net::transport::{Token, Transport};
use crate::net::wire::message::Record;
use crate::net::wire::Wire;

/// The parts. Each owns its fields; a function that takes two borrows two.
pub(in crate::net) struct Core {
    pub(in crate::net) me: usize,
    pub(in crate::net) transport: Box<dyn Transport>,
    pub(in crate::net) wire: Wire,
    pub(in crate::net) ordering: Ordering,
    pub(in crate::net) in_flight: InFlight,
    pub(in crate::net) completions: Completions,
    pub(in crate::net) segments: Segments,
    pub(in crate::net) failures: Failures,
    /// For `advance_quiet`.
    wanted: Vec<(Lane, Wanted)>,
}

impl Core {
    pub(super) fn new(me: usize, n: usize, transport: Box<dyn Transport>, failures: Failures) -> Core {
        Core {
            me,
            transport,
            wire: Wire::new(me, n),
            ordering: Ordering::new(n),
            in_flight: InFlight::default(),
            completions: Completions::default(),
            segments: Segments::default(),
            failures,
            wanted: Vec::new(),
        }
    }

    // ---- records ----

    /// Puts a record into the message for `pe`.
    #[inline]
    pub(in crate::net) fn emit(&mut self, pe: usize, record: &Record<'_>) -> Result<()> {
        self.wire.emit(&mut *self.transport, pe, record)
    }

    /// The same for encoded records.
    pub(in crate::net) fn append(&mut self, pe: usize, records: &[u8]) -> Result<()> {
        self.wire.append(&mut *self.transport, pe, records)
    }

    /// Puts a record of an operation that has started, and changes memory, into the message.
    #[inline]
    pub(in crate::net) fn emit_counted(&mut self, lane: Lane, record: &Record<'_>) -> Result<()> {
        self.ordering.lane(lane).changed();
        self.emit(lane.pe, record)
    }

    /// The same for records that are encoded already, and change memory.
    pub(in crate::net) fn append_counted(&mut self, lane: Lane, records: &[u8]) -> Result<()> {
        self.ordering.lane(lane).changed();
        self.append(lane.pe, records)
    }

    /// Sends the message for `pe`. True where there was one.
    pub(in crate::net) fn send(&mut self, pe: usize) -> Result<bool> {
        self.wire.send(&mut *self.transport, pe)
    }

    /// True where so much is under way or held back that more had better wait.
    pub(in crate::net) fn congested(&self) -> bool {
        self.ordering.is_full() || self.transport.congested()
    }

    // ---- completion ----

    /// An operation is over, with no result but that.
    pub(in crate::net) fn complete(&mut self, done: Done) {
        self.completions.complete(done, Ok(0));
    }

    // ---- the transport's operations ----

    /// Starts a flush of the copies so far.
    pub(in crate::net) fn flush(&mut self, pe: usize, flight: Flight) -> Result<()> {
        let token = self.in_flight.begin(flight);
        if self.transport.flush(pe, token)? {
            self.end_flight(token)?;
        }
        Ok(())
    }

    /// What the transport had is over at once.
    pub(in crate::net) fn end_flight(&mut self, token: Token) -> Result<()> {
        let flight = self.in_flight.end(token);
        self.landed(flight, Ok(()))
    }

    /// What the transport had, and has no chunk, is over. Its failure is known already.
    pub(in crate::net) fn landed(&mut self, flight: Flight, result: Result<()>) -> Result<()> {
        match flight {
            Flight::Copy { lane, op, done } => {
                self.close(lane, op);
                match result {
                    Ok(()) => self.complete(done),
                    Err(_) => self.failures.hold(done),
                }
            }
            Flight::Flush { lane, puts } => {
                if result.is_ok() {
                    self.ordering.lane(lane).flushed(puts);
                }
            }
            Flight::Announce { lane, op, signal } => {
                if result.is_ok() {
                    self.append_counted(lane, &signal)?;
                    self.ordering.lane(lane).close(op);
                }
            }
            Flight::Straight { reply, bytes } => {
                if result.is_ok() {
                    self.answered_bytes(reply, bytes)?;
                }
            }
            Flight::Chunk { .. } | Flight::Receive { .. } | Flight::Answer { .. } => {
                return Err(err!(INTERNAL, "a chunk of GPU memory's, where there is none"))
            }
        }
        Ok(())
    }

    // ---- quiet ----

    /// Ends a quiet if it is over, and asks for what it needs if not.
    pub(in crate::net) fn advance_quiet(&mut self, quiet: usize) -> Result<()> {
        let mut wanted = std::mem::take(&mut self.wanted);
        if let Some(done) = self.ordering.advance_quiet(quiet, &mut wanted) {
            self.complete(done);
        }
        let asked = wanted.drain(..).try_for_each(|(lane, wanted)| self.ask_how_far(lane, wanted));
        self.wanted = wanted;
        asked
    }

    /// Asks the network, or the target, how far it is.
    pub(in crate::net) fn ask_how_far(&mut self, lane: Lane, wanted: Wanted) -> Result<()> {
        if wanted.flush {
            let puts = self.ordering.lane(lane).asks_flush();
            self.flush(lane.pe, Flight::Flush { lane, puts })?;
        }
        if wanted.ack {
            let changes = self.ordering.lane(lane).asks_ack();
            let reply = self.in_flight.await_ack(lane, changes);
            self.emit(lane.pe, &Record::Flush { reply })?;
        }
        Ok(())
    }

    // ---- answers ----

    /// The operation whose answer is awaited under that number starts.
    pub(in crate::net) fn open_awaited(&mut self, lane: Lane, reply: u64) {
        let number = self.ordering.lane(lane).begin();
        self.in_flight.started(reply, number);
    }

    fn close(&mut self, lane: Lane, op: Option<u64>) {
        if let Some(op) = op {
            self.ordering.lane(lane).close(op);
        }
    }

    /// An answer of one word has come.
    pub(in crate::net) fn answered(&mut self, reply: u64, value: u64) -> Result<()> {
        match self.in_flight.answered(reply)? {
            Awaited::Word { lane, op, done } => {
                self.close(lane, op);
                self.completions.complete(done, Ok(value));
            }
            Awaited::Ack { lane, changes } => self.ordering.lane(lane).acked(changes),
            Awaited::Data { .. } => return Err(err!(INTERNAL, "a PE answers a get with a word")),
        }
        Ok(())
    }

    /// Part of an answer has come, and the host can write where it goes.
    pub(in crate::net) fn answered_data(&mut self, reply: u64, at: usize, data: &[u8]) -> Result<()> {
        let key = reply as usize;
        let (dst, _) = self.in_flight.destination(key).ok_or_else(not_awaited)?;
        if at.checked_add(data.len()).is_none_or(|end| end > dst.bytes()) {
            return Err(too_much());
        }
        // Pieces may begin and end inside an element.
        let mut laid = 0;
        while laid < data.len() {
            let (to, room) = dst.place(at + laid);
            let bytes = room.min(data.len() - laid);
            // SAFETY: an element of the destination, which the get's caller keeps valid until it completes.
            unsafe { host::copy(to, data[laid..].as_ptr() as usize, bytes) };
            laid += bytes;
        }
        self.answered_bytes(key, data.len())
    }

    /// So many bytes of an answer are in their place.
    pub(in crate::net) fn answered_bytes(&mut self, reply: usize, bytes: usize) -> Result<()> {
        if let Some((lane, op, done)) = self.in_flight.arrived(reply, bytes)? {
            self.close(lane, op);
            self.complete(done);
        }
        Ok(())
    }
}
