//! Copies to and from a peer's memory: by the transport, one-sided, where it reaches both sides, and in
//! records otherwise. These copies have started already. GPU memory that the transport does not reach goes
//! through [`crate::net::gpu`] instead.

use super::core::Core;
use super::in_flight::Flight;
use super::INLINE;
use crate::error::{err, Error, Result};
use crate::net::memory::segments::Part;
use crate::net::memory::span::Span;
use crate::net::ordering::Lane;
use crate::net::request::{Rows, Transfer};
use crate::net::wire::message::Record;
use crate::net::wire::RECORD;

impl Core {
    /// Whether one-sided copies reach all of a range of `pe`.
    pub(super) fn reaches(&self, pe: usize, offset: u64, bytes: usize) -> bool {
        let mut at = 0;
        while at < bytes {
            match self.segments.part(offset + at as u64, bytes - at, pe) {
                Some(part) if part.reachable => at += part.bytes,
                _ => return false,
            }
        }
        true
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

    fn nowhere(&self, offset: u64, bytes: usize, pe: usize) -> Error {
        let who = self.failures.name(pe);
        err!(INTERNAL, "{bytes} bytes at offset {offset:#x} of {who} belong to no memory that was registered")
    }

    /// What is longer than a message takes goes to the transport wherever that reaches, however little of it
    /// lies in one segment: its source may be GPU memory, which the host cannot read into a message.
    pub(super) fn put(&mut self, lane: Lane, copy: Transfer) -> Result<()> {
        let Transfer { near: src, offset, bytes, done } = copy;
        let parts = self.parts(lane.pe, offset, bytes)?;
        let done = self.completions.split(parts.len(), done);
        if parts.is_empty() {
            self.complete(done);
        }
        for (at, part) in parts {
            if !part.reachable || bytes <= INLINE {
                self.put_records(lane, offset + at as u64, src + at, part.bytes)?;
                self.complete(done);
                continue;
            }
            let token = self.in_flight.begin(Flight::Copy { lane, op: None, done });
            self.ordering.lane(lane).copying();
            // SAFETY: the put's caller keeps the source valid until it completes.
            let free =
                unsafe { self.transport.put(part.remote, (src + at) as *const u8, part.bytes, token) }?;
            if free {
                self.end_flight(token)?;
            }
        }
        Ok(())
    }

    /// Bytes in messages. The source is free on return.
    pub(in crate::net) fn put_records(
        &mut self,
        lane: Lane,
        offset: u64,
        src: usize,
        bytes: usize,
    ) -> Result<()> {
        let mut at = 0;
        while at < bytes {
            let piece = RECORD.min(bytes - at);
            // SAFETY: the put's caller keeps the source valid until it completes.
            let data = unsafe { std::slice::from_raw_parts((src + at) as *const u8, piece) };
            self.ordering.lane(lane).changed();
            self.emit(lane.pe, &Record::Data { offset: offset + at as u64, data })?;
            at += piece;
        }
        Ok(())
    }

    /// `gpu`: the host cannot write at the destination.
    pub(super) fn get(&mut self, lane: Lane, copy: Transfer, gpu: bool) -> Result<()> {
        let Transfer { near: dst, offset, bytes, done } = copy;
        let parts = self.parts(lane.pe, offset, bytes)?;
        let done = self.completions.split(parts.len(), done);
        if parts.is_empty() {
            self.complete(done);
        }
        for (at, part) in parts {
            if !part.reachable || part.bytes <= INLINE {
                let to = Span::contiguous(dst + at, part.bytes);
                let reply = self.in_flight.await_data(lane, to, gpu, done);
                self.open_awaited(lane, reply);
                let record = Record::Fetch { offset: offset + at as u64, bytes: part.bytes as u64, reply };
                self.emit(lane.pe, &record)?;
                continue;
            }
            let op = Some(self.ordering.lane(lane).begin());
            let token = self.in_flight.begin(Flight::Copy { lane, op, done });
            // SAFETY: the get's caller keeps the destination valid until it completes.
            let here = unsafe { self.transport.get(part.remote, (dst + at) as *mut u8, part.bytes, token) }?;
            if here {
                self.end_flight(token)?;
            }
        }
        Ok(())
    }

    /// A strided put, in records. The source is free on return.
    pub(super) fn put_rows(&mut self, lane: Lane, offset: u64, src: usize, rows: Rows) -> Result<()> {
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
                // SAFETY: an element of the source, which the put's caller keeps valid until it completes.
                let element = unsafe { std::slice::from_raw_parts(from, elem) };
                packed.extend_from_slice(element);
            }
            if elem > RECORD {
                // One element, in pieces.
                for (i, piece) in packed.chunks(RECORD).enumerate() {
                    self.emit_counted(
                        lane,
                        &Record::Data { offset: far + (i * RECORD) as u64, data: piece },
                    )?;
                }
            } else {
                let record =
                    Record::Rows { offset: far, stride: far_stride as u64, elem: elem as u64, data: &packed };
                self.emit_counted(lane, &record)?;
            }
            first += count;
        }
        Ok(())
    }
}
