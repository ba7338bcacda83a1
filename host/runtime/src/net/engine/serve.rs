//! What comes in: messages of other PEs, carried out in their order, and answers to this PE's own.

use super::{Awaited, Engine, Rows, RECORD};
use crate::error::{err, Result};
use crate::net::message::{self, Record, NO_REPLY, PRELUDE};
use crate::net::target;

/// More messages than any transport lets come ahead of their turn.
const MOST_AHEAD: u64 = 1 << 20;

impl Engine {
    /// A message has come in: it is carried out when its turn has come.
    pub(in crate::net) fn incoming(&mut self, message: Vec<u8>) -> Result<()> {
        #[cfg(any(test, feature = "fuzzing"))]
        crate::seeds::record("far_messages", message.get(PRELUDE).copied().unwrap_or(0).into(), &message);
        let (from, number) = message::prelude(&message)?;
        let Some(peer) = self.peers.get_mut(from) else {
            return Err(err!(INTERNAL, "a message of PE {from}, which does not exist"));
        };
        // The transport lets PEs alone speak, each message once and few ahead of their turn: here it is a
        // mistake of a PE's.
        let ahead = number.checked_sub(peer.next_in).filter(|ahead| *ahead < MOST_AHEAD);
        if ahead.is_none() || peer.early.contains_key(&number) {
            let next = peer.next_in;
            return Err(err!(INTERNAL, "message {number} of {} where {next} comes next", self.names[from]));
        }
        if number != peer.next_in {
            peer.early.insert(number, message);
            return Ok(());
        }
        let mut next = Some(message);
        while let Some(message) = next {
            self.peers[from].next_in += 1;
            self.carry_out(from, &message)?;
            self.transport.recycle(message);
            let peer = &mut self.peers[from];
            next = peer.early.remove(&peer.next_in);
        }
        Ok(())
    }

    pub(in crate::net) fn carry_out(&mut self, from: usize, message: &[u8]) -> Result<()> {
        let mut at = PRELUDE;
        while let Some(record) = Record::decode(message, &mut at)? {
            self.obey(from, &record).map_err(|e| e.context(format_args!("asked by {}", self.names[from])))?;
        }
        Ok(())
    }

    /// This PE's own memory at an offset that another PE named.
    pub(in crate::net) fn own(&self, offset: u64, bytes: usize) -> Result<usize> {
        self.segments.own(offset, bytes).ok_or_else(|| {
            err!(BAD_ADDRESS, "{bytes} bytes at offset {offset:#x} are not in this PE's symmetric memory")
        })
    }

    pub(in crate::net) fn obey(&mut self, from: usize, record: &Record<'_>) -> Result<()> {
        // Rows do not overlap, so an answer is no longer than this PE's memory; what is asked for without end is not begun.
        if let Record::FetchRows { stride, elem, n, .. } = *record {
            if elem == 0 || (n > 1 && (stride as i64).unsigned_abs() < elem) {
                return Err(err!(INVALID_ARGUMENT, "{n} rows of {elem} bytes, {} apart", stride as i64));
            }
        }
        let asks = !matches!(record, Record::Reply { .. } | Record::ReplyData { .. } | Record::Arrive(_));
        if asks && self.traffic.is_some() {
            return self.with_traffic(|engine, traffic| {
                traffic.obey(from, record, &|offset, bytes| engine.own(offset, bytes))
            });
        }
        match *record {
            Record::Word { width, offset, value } => {
                let at = self.own(offset, width.into())?;
                // SAFETY: `own` has found it in this PE's segments, which stay as long as any PE uses them.
                unsafe { target::store(at, width, value) }?;
            }
            Record::Data { offset, data } => {
                let at = self.own(offset, data.len())?;
                // SAFETY: `own` has found it in this PE's segments, which stay as long as any PE uses them.
                unsafe { target::copy(at, data.as_ptr() as usize, data.len()) };
            }
            Record::Rows { offset, stride, elem, data } => {
                let (stride, elem) = (stride as i64, elem as usize);
                for (i, row) in data.chunks_exact(elem.max(1)).enumerate() {
                    let at = self.own(offset.wrapping_add_signed(i as i64 * stride), elem)?;
                    // SAFETY: as for data.
                    unsafe { target::copy(at, row.as_ptr() as usize, elem) };
                }
            }
            Record::Atomic { op, width, offset, value, compare, reply } => {
                let at = self.own(offset, width.into())?;
                // SAFETY: `own` has found it in this PE's segments, which stay as long as any PE uses them.
                let old = unsafe { target::atomic(at, width, op, value, compare) }?;
                if reply != NO_REPLY {
                    self.emit(from, &Record::Reply { reply, value: old })?;
                }
            }
            Record::Signal { add, offset, value } => {
                let at = self.own(offset, 8)?;
                // SAFETY: `own` has found it in this PE's segments, which stay as long as any PE uses them.
                unsafe { target::signal(at, add, value) }?;
            }
            Record::Load { width, offset, reply } => {
                let at = self.own(offset, width.into())?;
                // SAFETY: `own` has found it in this PE's segments, which stay as long as any PE uses them.
                let value = unsafe { target::load(at, width) }?;
                self.emit(from, &Record::Reply { reply, value })?;
            }
            Record::Fetch { offset, bytes, reply } => {
                self.answer_rows(
                    from,
                    offset,
                    Rows { elem: bytes as usize, near_stride: 0, far_stride: 0, n: 1 },
                    reply,
                )?;
            }
            Record::FetchRows { offset, stride, elem, n, reply } => {
                let rows =
                    Rows { elem: elem as usize, near_stride: 0, far_stride: stride as isize, n: n as usize };
                self.answer_rows(from, offset, rows, reply)?;
            }
            Record::Reply { reply, value } => self.answered(reply, value)?,
            Record::ReplyData { reply, at, data } => self.answered_data(reply, at as usize, data)?,
            // Records are carried out in their order, so all before it are.
            Record::Flush { reply } => self.emit(from, &Record::Reply { reply, value: 0 })?,
            Record::Arrive(arrival) => match &self.control {
                Some(control) => control.arrive_for(from, &arrival),
                None => self.early.push((from, arrival)),
            },
            Record::Bulk { .. } => return Err(err!(INTERNAL, "a large message that nobody has asked for")),
        }
        Ok(())
    }

    /// Sends what was asked for, packed, in pieces.
    pub(in crate::net) fn answer_rows(
        &mut self,
        to: usize,
        offset: u64,
        rows: Rows,
        reply: u64,
    ) -> Result<()> {
        let Rows { elem, far_stride, n, .. } = rows;
        let each = (RECORD / elem.max(1)).max(1);
        let mut packed = Vec::with_capacity(RECORD);
        let (mut first, mut sent) = (0, 0);
        while first < n {
            let count = if elem > RECORD { 1 } else { each.min(n - first) };
            packed.clear();
            for i in first..first + count {
                let at = self.own(offset.wrapping_add_signed((i as isize * far_stride) as i64), elem)?;
                // SAFETY: `own` has found it in this PE's segments, which stay as long as any PE uses them.
                unsafe { target::read(at, elem, &mut packed) };
            }
            for piece in packed.chunks(RECORD) {
                self.emit(to, &Record::ReplyData { reply, at: sent as u64, data: piece })?;
                sent += piece.len();
            }
            first += count;
        }
        Ok(())
    }

    /// The answer to an operation has come.
    fn close(&mut self, pe: usize, op: Option<u64>) {
        if let Some(op) = op {
            self.end_op(pe, op);
        }
    }

    pub(in crate::net) fn answered(&mut self, reply: u64, value: u64) -> Result<()> {
        let awaited = self.awaited.try_remove(reply as usize);
        match awaited.ok_or_else(|| err!(INTERNAL, "an answer that nobody waits for"))? {
            Awaited::Word { pe, op, done } => {
                self.close(pe, op);
                self.fire(done, Ok(value));
            }
            Awaited::Ack { pe, changes } => {
                self.peers[pe].order.acked(changes);
            }
            Awaited::Data { .. } => return Err(err!(INTERNAL, "a word as the answer to a get")),
        }
        Ok(())
    }

    pub(in crate::net) fn answered_data(&mut self, reply: u64, at: usize, data: &[u8]) -> Result<()> {
        let key = reply as usize;
        let Some(&Awaited::Data { dst, gpu, .. }) = self.awaited.get(key) else {
            return Err(err!(INTERNAL, "data that nobody waits for"));
        };
        if at.checked_add(data.len()).is_none_or(|end| end > dst.bytes()) {
            return Err(err!(INTERNAL, "more data than was asked for"));
        }
        if gpu {
            self.keep_part(key, at, data);
            return Ok(());
        }
        // Pieces may begin and end inside an element.
        let mut laid = 0;
        while laid < data.len() {
            let (to, room) = dst.place(at + laid);
            let bytes = room.min(data.len() - laid);
            // SAFETY: an element of the destination, for which the caller of the get vouches until it is told.
            unsafe { target::copy(to, data[laid..].as_ptr() as usize, bytes) };
            laid += bytes;
        }
        self.answered_bytes(key, data.len())
    }

    /// So many bytes of an answer are in their place.
    pub(in crate::net) fn answered_bytes(&mut self, key: usize, bytes: usize) -> Result<()> {
        let Some(Awaited::Data { pe, op, left, done, .. }) = self.awaited.get_mut(key) else {
            return Err(err!(INTERNAL, "data that nobody waits for"));
        };
        *left = left.checked_sub(bytes).ok_or_else(|| err!(INTERNAL, "more data than was asked for"))?;
        if *left == 0 {
            let (pe, op, done) = (*pe, *op, *done);
            self.awaited.remove(key);
            self.close(pe, op);
            self.tell(done);
        }
        Ok(())
    }
}
