//! Operations: each starts now, or is held back by a fence.

use super::outbox::encode;
use super::{Awaited, Done, Engine, Flight, Rows, INLINE, RECORD};
use crate::error::{err, Error, Result};
use crate::net::memory::segments::Part;
use crate::net::memory::span::Span;
use crate::net::peer::{Op, Transfer};
use crate::net::transport::Token;
use crate::net::wire::message::{Record, NO_REPLY};

impl Engine {
    /// Whether a put's bytes may be GPU memory that goes through chunks.
    fn bounces(&self, pe: usize, offset: u64, bytes: usize) -> bool {
        self.traffic.is_some() && (bytes <= INLINE || !self.reaches(pe, offset, bytes))
    }

    /// Whether one-sided copies reach all of a range of `pe`.
    fn reaches(&self, pe: usize, offset: u64, bytes: usize) -> bool {
        let mut at = 0;
        while at < bytes {
            match self.segments.part(offset + at as u64, bytes - at, pe) {
                Some(part) if part.reachable => at += part.bytes,
                _ => return false,
            }
        }
        true
    }

    /// Copies `bytes` at `src` to `offset` on `pe`; `done` when the source is free.
    ///
    /// # Safety
    /// The source is valid until then.
    pub(crate) unsafe fn put(
        &mut self,
        pe: usize,
        offset: u64,
        src: usize,
        bytes: usize,
        done: Done,
    ) -> Result<()> {
        let copy = Transfer { near: src, offset, bytes, done };
        self.submit(pe, Op::Put { copy, signal: None })
    }

    /// The same, with a signal behind it.
    ///
    /// # Safety
    /// As for [`Engine::put`].
    pub(crate) unsafe fn put_signal(
        &mut self,
        pe: usize,
        offset: u64,
        src: usize,
        bytes: usize,
        signal: &Record<'_>,
        done: Done,
    ) -> Result<()> {
        let copy = Transfer { near: src, offset, bytes, done };
        self.submit(pe, Op::Put { copy, signal: Some(encode(signal)) })
    }

    /// Copies `bytes` from `offset` on `pe` to `dst`.
    ///
    /// # Safety
    /// The destination is valid until then.
    pub(crate) unsafe fn get(
        &mut self,
        pe: usize,
        offset: u64,
        dst: usize,
        bytes: usize,
        done: Done,
    ) -> Result<()> {
        self.submit(pe, Op::Get(Transfer { near: dst, offset, bytes, done }))
    }

    /// An atomic update; `done` hears the old value, if it is anybody. `op` is a number of `word::Update`, or
    /// [`FLOAT_ADD`](crate::net::wire::message::FLOAT_ADD).
    #[allow(clippy::too_many_arguments, reason = "the operation has that many")]
    pub(crate) fn atomic(
        &mut self,
        pe: usize,
        op: u8,
        width: u8,
        offset: u64,
        value: u64,
        compare: u64,
        done: Done,
    ) -> Result<()> {
        if done == Done::Nothing {
            return self.record(pe, &Record::Atomic { op, width, offset, value, compare, reply: NO_REPLY });
        }
        let reply = self.await_word(pe, done);
        self.ask_by(pe, &Record::Atomic { op, width, offset, value, compare, reply }, reply)
    }

    /// Reads a word of `pe`.
    pub(crate) fn load(&mut self, pe: usize, width: u8, offset: u64, done: Done) -> Result<()> {
        let reply = self.await_word(pe, done);
        self.ask_by(pe, &Record::Load { width, offset, reply }, reply)
    }

    fn await_word(&mut self, pe: usize, done: Done) -> u64 {
        self.awaited.insert(Awaited::Word { pe, op: None, done }) as u64
    }

    /// The operation whose answer is awaited under that number has started.
    pub(super) fn open_awaited(&mut self, pe: usize, reply: u64) {
        let number = self.peers[pe].order.begin();
        match &mut self.awaited[reply as usize] {
            Awaited::Word { op, .. } | Awaited::Data { op, .. } => *op = Some(number),
            Awaited::Ack { .. } => {}
        }
    }

    /// Strided put: elements `near_stride` bytes apart to elements `far_stride` bytes apart; `done` when the source is free.
    ///
    /// # Safety
    /// Every element of the source is valid until then.
    pub(crate) unsafe fn put_rows(
        &mut self,
        pe: usize,
        offset: u64,
        src: usize,
        rows: Rows,
        done: Done,
    ) -> Result<()> {
        self.submit(pe, Op::PutRows { offset, src, rows, done })
    }

    fn start_rows(&mut self, pe: usize, offset: u64, src: usize, rows: Rows) -> Result<()> {
        let Rows { elem, near_stride, far_stride, n } = rows;
        let each = (RECORD / elem).max(1);
        let mut packed = Vec::with_capacity(each.min(n) * elem);
        let mut first = 0;
        while first < n {
            let count = each.min(n - first);
            let far = offset.wrapping_add_signed((first as isize * far_stride) as i64);
            packed.clear();
            for i in first..first + count {
                let from = src.wrapping_add_signed(i as isize * near_stride) as *const u8;
                // SAFETY: an element of the source, for which the caller of `put_rows` vouches.
                let element = unsafe { std::slice::from_raw_parts(from, elem) };
                packed.extend_from_slice(element);
            }
            if elem > RECORD {
                // One element, in pieces.
                for (i, piece) in packed.chunks(RECORD).enumerate() {
                    self.record_now(pe, &Record::Data { offset: far + (i * RECORD) as u64, data: piece })?;
                }
            } else {
                let record =
                    Record::Rows { offset: far, stride: far_stride as u64, elem: elem as u64, data: &packed };
                self.record_now(pe, &record)?;
            }
            first += count;
        }
        Ok(())
    }

    /// Strided get.
    ///
    /// # Safety
    /// Every element of the destination is valid host memory until it is done.
    pub(crate) unsafe fn get_rows(
        &mut self,
        pe: usize,
        offset: u64,
        dst: usize,
        rows: Rows,
        done: Done,
    ) -> Result<()> {
        let Rows { elem, near_stride, far_stride, n } = rows;
        let dst = Span { at: dst, stride: near_stride, elem, count: n };
        let gpu = self.lands_on_gpu(dst.at)?;
        let reply = self.await_data(pe, dst, gpu, done);
        let record =
            Record::FetchRows { offset, stride: far_stride as u64, elem: elem as u64, n: n as u64, reply };
        self.ask_by(pe, &record, reply)
    }

    fn await_data(&mut self, pe: usize, dst: Span, gpu: bool, done: Done) -> u64 {
        self.awaited.insert(Awaited::Data { pe, op: None, dst, left: dst.bytes(), gpu, done }) as u64
    }

    pub(in crate::net) fn submit(&mut self, pe: usize, op: Op) -> Result<()> {
        // Little goes by messages, whatever the network is.
        let copies = matches!(&op, Op::Put { copy, .. } if copy.bytes > INLINE);
        let before = self.peers[pe].order.held();
        if self.peers[pe].order.may_start(copies) {
            return self.start(pe, op);
        }
        self.held += self.peers[pe].order.held() - before;
        let op = if self.traffic.is_none() { self.copied(op) } else { op };
        self.hold(pe, op);
        Ok(())
    }

    /// Puts an operation behind what is held back already.
    pub(super) fn hold(&mut self, pe: usize, op: Op) {
        self.peers[pe].order.hold(op);
        self.held += 1;
        self.note_busy(pe);
    }

    /// What is held back of so little that nobody waits until its source is free: it is copied now.
    fn copied(&mut self, op: Op) -> Op {
        let (copy, signal) = match op {
            Op::Put { copy, signal } if (1..=INLINE).contains(&copy.bytes) => (copy, signal),
            other => return other,
        };
        let signal = signal.unwrap_or_default();
        // SAFETY: the caller of `put` vouches for the source.
        let data = unsafe { std::slice::from_raw_parts(copy.near as *const u8, copy.bytes) };
        let record = Record::Data { offset: copy.offset, data };
        let mut records = Vec::with_capacity(record.encoded() + signal.len());
        record.encode(&mut records);
        records.extend_from_slice(&signal);
        self.tell(copy.done);
        Op::Records(records)
    }

    pub(in crate::net) fn start(&mut self, pe: usize, op: Op) -> Result<()> {
        match op {
            Op::Records(records) => self.encoded(pe, &records),
            Op::Ask { record, reply } => {
                self.open_awaited(pe, reply);
                self.append(pe, &record)
            }
            Op::PutRows { offset, src, rows, done } => {
                if self.put_rows_from_gpu(pe, offset, src, rows, done)? {
                    return Ok(());
                }
                self.start_rows(pe, offset, src, rows)?;
                self.tell(done);
                Ok(())
            }
            Op::Put { copy, signal } if self.bounces(pe, copy.offset, copy.bytes) => {
                self.put_from_gpu(pe, copy, signal)
            }
            Op::Put { copy, signal: None } => self.start_put(pe, copy),
            Op::Put { copy, signal: Some(signal) } => {
                let copies = self.peers[pe].order.copies();
                self.start_put(pe, copy)?;
                if self.peers[pe].order.copies() == copies {
                    // All of it went by messages, which keep their order.
                    return self.encoded(pe, &signal);
                }
                let op = self.peers[pe].order.begin();
                self.flush(pe, Flight::Announce { pe, op, signal })
            }
            Op::Get(copy) => self.start_get(pe, copy),
        }
    }

    /// Starts a flush of the copies so far.
    pub(in crate::net) fn flush(&mut self, pe: usize, flight: Flight) -> Result<()> {
        let token = self.flights.insert(flight) as Token;
        if self.transport.flush(pe, token)? {
            self.landed(token, Ok(()))?;
        }
        Ok(())
    }

    /// A range of `pe`, cut where its segments are: where each part begins in the range, and what it is.
    fn parts(&self, pe: usize, offset: u64, bytes: usize) -> Result<Vec<(usize, Part)>> {
        let (mut at, mut parts) = (0, Vec::new());
        while at < bytes {
            let part = self.segments.part(offset + at as u64, bytes - at, pe);
            let part = part.ok_or_else(|| self.nowhere(offset, bytes, pe))?;
            let begin = at;
            at += part.bytes;
            parts.push((begin, part));
        }
        Ok(parts)
    }

    fn start_put(&mut self, pe: usize, copy: Transfer) -> Result<()> {
        let Transfer { near: src, offset, bytes, done } = copy;
        let parts = self.parts(pe, offset, bytes)?;
        let done = self.join(parts.len(), done);
        if parts.is_empty() {
            self.tell(done);
        }
        for (at, part) in parts {
            if !part.reachable || part.bytes <= INLINE {
                self.put_records(pe, offset + at as u64, src + at, part.bytes)?;
                self.tell(done);
                continue;
            }
            let token = self.flights.insert(Flight::Copy { pe, op: None, done }) as Token;
            self.peers[pe].order.copying();
            // SAFETY: the caller of `put` vouches for the source.
            let free =
                unsafe { self.transport.put(part.remote, (src + at) as *const u8, part.bytes, token) }?;
            if free {
                self.landed(token, Ok(()))?;
            }
        }
        Ok(())
    }

    /// Bytes in messages. The source is free on return.
    pub(in crate::net) fn put_records(
        &mut self,
        pe: usize,
        offset: u64,
        src: usize,
        bytes: usize,
    ) -> Result<()> {
        let mut at = 0;
        while at < bytes {
            let piece = RECORD.min(bytes - at);
            // SAFETY: the caller of `put` vouches for the source.
            let data = unsafe { std::slice::from_raw_parts((src + at) as *const u8, piece) };
            self.peers[pe].order.changed();
            self.emit(pe, &Record::Data { offset: offset + at as u64, data })?;
            at += piece;
        }
        Ok(())
    }

    fn start_get(&mut self, pe: usize, copy: Transfer) -> Result<()> {
        let Transfer { near: dst, offset, bytes, done } = copy;
        let (parts, gpu) = (self.parts(pe, offset, bytes)?, self.lands_on_gpu(dst)?);
        let done = self.join(parts.len(), done);
        if parts.is_empty() {
            self.tell(done);
        }
        for (at, part) in parts {
            if !part.reachable || part.bytes <= INLINE {
                let reply = self.await_data(pe, Span::contiguous(dst + at, part.bytes), gpu, done);
                self.open_awaited(pe, reply);
                let record = Record::Fetch { offset: offset + at as u64, bytes: part.bytes as u64, reply };
                self.emit(pe, &record)?;
                continue;
            }
            let op = Some(self.peers[pe].order.begin());
            let token = self.flights.insert(Flight::Copy { pe, op, done }) as Token;
            // SAFETY: the caller of `get` vouches for the destination.
            let here = unsafe { self.transport.get(part.remote, (dst + at) as *mut u8, part.bytes, token) }?;
            if here {
                self.landed(token, Ok(()))?;
            }
        }
        Ok(())
    }

    pub(in crate::net) fn nowhere(&self, offset: u64, bytes: usize, pe: usize) -> Error {
        err!(
            INTERNAL,
            "{bytes} bytes at offset {offset:#x} of {} belong to no memory that was registered",
            self.names[pe]
        )
    }
}
