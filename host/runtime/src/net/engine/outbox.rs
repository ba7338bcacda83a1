//! What goes to each peer in messages: records share one until it is full, or until the engine's next turn sends it.

use super::Engine;
use crate::error::Result;
use crate::net::peer::Op;
use crate::net::transport::MESSAGE;
use crate::net::wire::message::{self, Record};

impl Engine {
    /// Sends a record of at most [`RECORD`](super::RECORD) bytes of data that changes memory and is not answered by itself.
    #[inline]
    pub(crate) fn record(&mut self, pe: usize, record: &Record<'_>) -> Result<()> {
        if self.peers[pe].order.may_start(false) {
            return self.record_now(pe, record);
        }
        self.hold(pe, Op::Records(encode(record)));
        Ok(())
    }

    /// Sends a record that is answered: `reply` is the number of what awaits it.
    pub(in crate::net) fn ask_by(&mut self, pe: usize, record: &Record<'_>, reply: u64) -> Result<()> {
        if self.peers[pe].order.may_start(false) {
            self.open_awaited(pe, reply);
            return self.emit(pe, record);
        }
        self.hold(pe, Op::Ask { record: encode(record), reply });
        Ok(())
    }

    /// Sends a record now: it belongs to an operation that has started.
    #[inline]
    pub(in crate::net) fn record_now(&mut self, pe: usize, record: &Record<'_>) -> Result<()> {
        if !matches!(record, Record::Reply { .. } | Record::ReplyData { .. }) {
            self.peers[pe].order.changed();
        }
        self.emit(pe, record)
    }

    /// The same for some that are encoded already, and change memory.
    pub(in crate::net) fn encoded(&mut self, pe: usize, records: &[u8]) -> Result<()> {
        self.peers[pe].order.changed();
        self.append(pe, records)
    }

    /// Puts encoded records into the message for `pe`.
    pub(in crate::net) fn append(&mut self, pe: usize, records: &[u8]) -> Result<()> {
        self.room(pe, records.len())?;
        self.peers[pe].out.extend_from_slice(records);
        Ok(())
    }

    /// Puts a record into the message for `pe`.
    #[inline]
    pub(in crate::net) fn emit(&mut self, pe: usize, record: &Record<'_>) -> Result<()> {
        self.room(pe, record.encoded())?;
        record.encode(&mut self.peers[pe].out);
        Ok(())
    }

    /// The message for `pe` has room for so many bytes more.
    #[inline]
    pub(in crate::net) fn room(&mut self, pe: usize, bytes: usize) -> Result<()> {
        if self.peers[pe].out.len() + bytes > MESSAGE {
            self.post(pe)?;
        }
        if self.peers[pe].out.is_empty() {
            let mut out = self.transport.buffer();
            message::begin(&mut out, self.me as u32);
            self.peers[pe].out = out;
            self.note_busy(pe);
        }
        Ok(())
    }

    #[inline]
    pub(in crate::net) fn note_busy(&mut self, pe: usize) {
        if !std::mem::replace(&mut self.is_busy[pe], true) {
            self.busy.push(pe);
        }
    }

    /// Sends the message for `pe`, if there is one.
    pub(in crate::net) fn post(&mut self, pe: usize) -> Result<()> {
        let peer = &mut self.peers[pe];
        if peer.out.is_empty() {
            return Ok(());
        }
        let mut out = std::mem::take(&mut peer.out);
        message::number(&mut out, peer.next_out);
        peer.next_out += 1;
        self.transport.send(pe, out)
    }
}

/// A record by itself.
pub(super) fn encode(record: &Record<'_>) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(record.encoded());
    record.encode(&mut bytes);
    bytes
}
