//! What other PEs ask for: their messages, carried out in their order. Requests for host memory are carried
//! out at once; those for GPU memory wait in a queue of their PE ([`crate::net::gpu::peer_queues`]). An
//! answer ends what this PE has asked for.

use super::operations::Operations;
use crate::error::{err, Result};
use crate::net::engine::core::Core;
use crate::net::engine::in_flight::{not_awaited, too_much};
use crate::net::memory::host;
use crate::net::wire::message::{Record, NO_REPLY, PRELUDE};
use crate::net::wire::RECORD;
use crate::node::control::FromAfar;

impl Operations {
    /// A message has come in: it is carried out when its turn has come.
    pub(in crate::net) fn receive(&mut self, message: Vec<u8>) -> Result<()> {
        let Some((from, message)) = self.core.wire.accept(message)? else { return Ok(()) };
        let mut next = Some(message);
        while let Some(message) = next {
            self.carry_out(from, &message)?;
            self.core.transport.recycle(message);
            next = self.core.wire.next_early(from);
        }
        Ok(())
    }

    fn carry_out(&mut self, from: usize, message: &[u8]) -> Result<()> {
        let mut at = PRELUDE;
        while let Some(record) = Record::decode(message, &mut at)? {
            self.serve(from, &record)
                .map_err(|e| e.context(format_args!("asked by {}", self.core.failures.name(from))))?;
        }
        Ok(())
    }

    /// Carries out one record of `from`.
    fn serve(&mut self, from: usize, record: &Record<'_>) -> Result<()> {
        match *record {
            Record::Reply { reply, value } => return self.core.answered(reply, value),
            Record::ReplyData { reply, at, data } => return self.take_data(reply, at as usize, data),
            Record::Arrive(arrival) => {
                return (self.note)(from, &FromAfar::Arrival(arrival));
            }
            Record::Carried(carried) => return (self.note)(from, &FromAfar::Carried(carried)),
            // Rows do not overlap, so an answer is no longer than this PE's memory; what is asked for without
            // end is not begun.
            Record::FetchRows { stride, elem, n, .. }
                if elem == 0 || (n > 1 && (stride as i64).unsigned_abs() < elem) =>
            {
                return Err(err!(INVALID_ARGUMENT, "{n} rows of {elem} bytes, {} apart", stride as i64));
            }
            _ => {}
        }
        match &mut self.gpu {
            Some(gpu) => gpu.serve(from, record, &|offset, bytes| self.core.own(offset, bytes)),
            None => self.core.serve(from, record),
        }
    }

    /// Part of an answer has come with a message.
    fn take_data(&mut self, reply: u64, at: usize, data: &[u8]) -> Result<()> {
        let (dst, on_gpu) = self.core.in_flight.destination(reply as usize).ok_or_else(not_awaited)?;
        match &mut self.gpu {
            Some(gpu) if on_gpu => {
                if at.checked_add(data.len()).is_none_or(|end| end > dst.bytes()) {
                    return Err(too_much());
                }
                gpu.keep_part(reply as usize, at, data);
                Ok(())
            }
            _ => self.core.answered_data(reply, at, data),
        }
    }
}

impl Core {
    /// This PE's own memory at an offset that another PE named.
    pub(in crate::net) fn own(&self, offset: u64, bytes: usize) -> Result<usize> {
        self.segments.own(offset, bytes).ok_or_else(|| {
            err!(BAD_ADDRESS, "{bytes} bytes at offset {offset:#x} are not in this PE's symmetric memory")
        })
    }

    /// Carries out a request of `from` on this PE's host memory.
    fn serve(&mut self, from: usize, record: &Record<'_>) -> Result<()> {
        match *record {
            Record::Word { width, offset, value } => {
                let at = self.own(offset, width.into())?;
                // SAFETY: `own` has found it in this PE's segments, which stay as long as any PE uses them.
                unsafe { host::store(at, width, value) }?;
            }
            Record::Data { offset, data } => {
                let at = self.own(offset, data.len())?;
                // SAFETY: `own` has found it in this PE's segments, which stay as long as any PE uses them.
                unsafe { host::copy(at, data.as_ptr() as usize, data.len()) };
            }
            Record::Rows { offset, stride, elem, data } => {
                let (stride, elem) = (stride as i64, elem as usize);
                for (i, row) in data.chunks_exact(elem.max(1)).enumerate() {
                    let at = self.own(offset.wrapping_add_signed(i as i64 * stride), elem)?;
                    // SAFETY: `own` has found it in this PE's segments, which stay as long as any PE uses
                    // them.
                    unsafe { host::copy(at, row.as_ptr() as usize, elem) };
                }
            }
            Record::Atomic { op, width, offset, value, compare, reply } => {
                let at = self.own(offset, width.into())?;
                // SAFETY: `own` has found it in this PE's segments, which stay as long as any PE uses them.
                let old = unsafe { host::atomic(at, width, op, value, compare) }?;
                if reply != NO_REPLY {
                    self.emit(from, &Record::Reply { reply, value: old })?;
                }
            }
            Record::Signal { add, offset, value } => {
                let at = self.own(offset, 8)?;
                // SAFETY: `own` has found it in this PE's segments, which stay as long as any PE uses them.
                unsafe { host::signal(at, add, value) }?;
            }
            Record::Load { width, offset, reply } => {
                let at = self.own(offset, width.into())?;
                // SAFETY: `own` has found it in this PE's segments, which stay as long as any PE uses them.
                let value = unsafe { host::load(at, width) }?;
                self.emit(from, &Record::Reply { reply, value })?;
            }
            Record::Fetch { offset, bytes, reply } => {
                self.answer(from, reply, offset, 0, bytes as usize, 1)?;
            }
            Record::FetchRows { offset, stride, elem, n, reply } => {
                self.answer(from, reply, offset, stride as isize, elem as usize, n as usize)?;
            }
            // Records are carried out in their order, so all before it are.
            Record::Flush { reply } => self.emit(from, &Record::Reply { reply, value: 0 })?,
            Record::Bulk { .. } => {
                return Err(err!(
                    INTERNAL,
                    "a large message, which is for GPU memory, to a PE whose heap is in host memory"
                ))
            }
            Record::Reply { .. } | Record::ReplyData { .. } | Record::Arrive(_) | Record::Carried(_) => {
                return Err(err!(INTERNAL, "a record that asks for nothing"))
            }
        }
        Ok(())
    }

    /// Sends `n` elements that were asked for, packed, in pieces.
    fn answer(
        &mut self,
        to: usize,
        reply: u64,
        offset: u64,
        stride: isize,
        elem: usize,
        n: usize,
    ) -> Result<()> {
        let each = (RECORD / elem.max(1)).max(1);
        let mut packed = Vec::with_capacity(RECORD);
        let (mut first, mut sent) = (0, 0);
        while first < n {
            let count = if elem > RECORD { 1 } else { each.min(n - first) };
            packed.clear();
            for i in first..first + count {
                let at = self.own(offset.wrapping_add_signed((i as isize * stride) as i64), elem)?;
                // SAFETY: `own` has found it in this PE's segments, which stay as long as any PE uses them.
                unsafe { host::read(at, elem, &mut packed) };
            }
            for piece in packed.chunks(RECORD) {
                self.emit(to, &Record::ReplyData { reply, at: sent as u64, data: piece })?;
                sent += piece.len();
            }
            first += count;
        }
        Ok(())
    }
}
