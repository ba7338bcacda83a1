//! What goes to each peer in messages: records share one until it is full, or until the engine's next turn sends it.

use super::Engine;
use crate::error::Result;
use crate::far::message::{self, Record};
use crate::far::peer::{Held, Op};
use crate::far::transport::MESSAGE;

impl Engine {
    /// Sends a record of at most [`RECORD`] bytes of data; `changes`: it changes memory and is not answered by itself.
    #[inline]
    pub(crate) fn record(&mut self, pe: usize, record: &Record<'_>, changes: bool) -> Result<()> {
        if self.peers[pe].held.is_empty() {
            if changes {
                self.peers[pe].changes += 1;
            }
            return self.emit(pe, record);
        }
        let mut bytes = Vec::with_capacity(record.encoded());
        record.encode(&mut bytes);
        self.peers[pe].held.push_back(Held::Op(Op::Records { bytes, changes }));
        Ok(())
    }

    /// Sends a record now: it belongs to an operation that no fence holds back.
    pub(in crate::far) fn record_now(&mut self, pe: usize, record: &Record<'_>) -> Result<()> {
        if !matches!(record, Record::Reply { .. } | Record::ReplyData { .. }) {
            self.peers[pe].changes += 1;
        }
        self.emit(pe, record)
    }

    /// The same for one that is encoded already.
    pub(in crate::far) fn encoded(&mut self, pe: usize, bytes: &[u8], changes: bool) -> Result<()> {
        if changes {
            self.peers[pe].changes += 1;
        }
        self.room(pe, bytes.len())?;
        self.peers[pe].out.extend_from_slice(bytes);
        Ok(())
    }

    /// Puts a record into the message for `pe`.
    #[inline]
    pub(in crate::far) fn emit(&mut self, pe: usize, record: &Record<'_>) -> Result<()> {
        self.room(pe, record.encoded())?;
        record.encode(&mut self.peers[pe].out);
        Ok(())
    }

    /// The message for `pe` has room for so many bytes more.
    #[inline]
    pub(in crate::far) fn room(&mut self, pe: usize, bytes: usize) -> Result<()> {
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
    pub(in crate::far) fn note_busy(&mut self, pe: usize) {
        if !std::mem::replace(&mut self.is_busy[pe], true) {
            self.busy.push(pe);
        }
    }

    /// Sends the message for `pe`, if there is one.
    pub(in crate::far) fn post(&mut self, pe: usize) -> Result<()> {
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
