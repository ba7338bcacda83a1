//! Puts whose source is GPU memory that the network cannot read: copied out by pieces, and sent as the pieces
//! come.

use std::collections::VecDeque;

use super::{head, Traffic, PUT};
use crate::error::Result;
use crate::net::completion::Done;
use crate::net::engine::core::Core;
use crate::net::engine::in_flight::Flight;
use crate::net::gpu::chunks::{Chunk, Course, LARGE, SMALL};
use crate::net::gpu::staging::Ticket;
use crate::net::memory::span::Span;
use crate::net::ordering::Lane;
use crate::net::request::{Rows, Transfer};
use crate::net::wire::message::Record;
use crate::net::wire::RECORD;

/// A put whose source the network cannot read.
#[derive(Debug)]
pub(super) struct OutgoingPut {
    lane: Lane,
    op: u64,
    source: Span,
    /// Bytes whose copy out of the GPU has been started.
    started: usize,
    /// Copies on their way: their place in the whole, and length.
    pieces: VecDeque<(Ticket, Chunk, usize, usize)>,
    target: Target,
    /// An encoded signal that comes behind it.
    signal: Option<Vec<u8>>,
    done: Done,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Target {
    Range { offset: u64 },
    Rows { offset: u64, stride: i64, elem: usize },
}

impl OutgoingPut {
    fn new(
        lane: Lane,
        op: u64,
        source: Span,
        target: Target,
        signal: Option<Vec<u8>>,
        done: Done,
    ) -> OutgoingPut {
        OutgoingPut { lane, op, source, started: 0, pieces: VecDeque::new(), target, signal, done }
    }
}

impl Traffic {
    /// A put where the network does not reach GPU memory, with a signal behind it if there is one.
    pub(in crate::net) fn put(
        &mut self,
        core: &mut Core,
        lane: Lane,
        copy: Transfer,
        signal: Option<Vec<u8>>,
    ) -> Result<()> {
        let Transfer { near: src, offset, bytes, done } = copy;
        if bytes > 0 && self.on_gpu(src)? {
            let (op, source) = (core.ordering.lane(lane).begin(), Span::contiguous(src, bytes));
            let put = OutgoingPut::new(lane, op, source, Target::Range { offset }, signal, done);
            self.outgoing.push_back(put);
            return Ok(());
        }
        if bytes <= SMALL {
            core.put_records(lane, offset, src, bytes)?;
            core.complete(done);
        } else {
            // The host's memory needs no chunk on this side.
            let done = core.completions.split(bytes.div_ceil(LARGE), done);
            let mut at = 0;
            while at < bytes {
                let piece = LARGE.min(bytes - at);
                let number = self.number(lane.pe);
                let header = head(PUT, core.me, number, 0);
                let token = core.in_flight.begin(Flight::Copy { lane, op: None, done });
                let data = (src + at) as *const u8;
                // SAFETY: the caller of the put vouches for its source until it is done.
                if unsafe { core.transport.send_bulk(lane.pe, header, data, piece, token) }? {
                    core.end_flight(token)?;
                }
                Self::place_bulk(core, lane, number, offset + at as u64, piece)?;
                at += piece;
            }
        }
        match signal {
            Some(signal) => core.append_counted(lane, &signal),
            None => Ok(()),
        }
    }

    /// Sends the place of a large message in the order, and in memory.
    fn place_bulk(core: &mut Core, lane: Lane, number: u64, offset: u64, bytes: usize) -> Result<()> {
        core.emit_counted(lane, &Record::Bulk { number, offset, bytes: bytes as u64 })
    }

    /// A strided put, if it is from GPU memory.
    pub(in crate::net) fn put_rows(
        &mut self,
        core: &mut Core,
        lane: Lane,
        offset: u64,
        src: usize,
        rows: Rows,
        done: Done,
    ) -> Result<bool> {
        if rows.n == 0 || !self.on_gpu(src)? {
            return Ok(false);
        }
        let source = Span { at: src, stride: rows.near_stride, elem: rows.elem, count: rows.n };
        let target = Target::Rows { offset, stride: rows.far_stride as i64, elem: rows.elem };
        let op = core.ordering.lane(lane).begin();
        self.outgoing.push_back(OutgoingPut::new(lane, op, source, target, None, done));
        Ok(true)
    }

    /// Puts from GPU memory: copies out are started while there are chunks, and what has come out is sent, in
    /// order.
    pub(super) fn send_outgoing(&mut self, core: &mut Core) -> Result<()> {
        let mut outgoing = std::mem::take(&mut self.outgoing);
        let mut result = Ok(());
        // Each by itself in order; later ones begin while earlier ones are still on their way.
        outgoing.retain_mut(|put| {
            let over = if result.is_ok() { self.advance_put(core, put) } else { Ok(false) };
            !over.unwrap_or_else(|e| {
                result = Err(e);
                false
            })
        });
        self.outgoing = outgoing;
        result
    }

    /// True once it is over.
    pub(super) fn advance_put(&mut self, core: &mut Core, put: &mut OutgoingPut) -> Result<bool> {
        let total = put.source.bytes();
        while put.started < total {
            let left = total - put.started;
            let Some(chunk) = self.queues.mover.try_chunk(left, Course::Leaving) else { break };
            let mut bytes = left.min(chunk.bytes());
            if matches!(put.target, Target::Rows { .. }) && bytes < left {
                // Whole elements, unless one is longer than a chunk.
                let elem = put.source.elem;
                bytes = if bytes >= elem { bytes / elem * elem } else { bytes };
            }
            let mover = &mut self.queues.mover;
            // SAFETY: the caller of the put vouches for its source until it is done.
            let ticket = unsafe { mover.copy_out(&chunk, &put.source, put.started, bytes)? };
            put.pieces.push_back((ticket, chunk, put.started, bytes));
            put.started += bytes;
        }
        while let Some((ticket, ..)) = put.pieces.front() {
            if !self.queues.mover.done(*ticket)? {
                return Ok(false);
            }
            let Some((_, chunk, at, bytes)) = put.pieces.pop_front() else { break };
            self.send_part(core, put, chunk, at, bytes)?;
        }
        if put.started < total {
            return Ok(false);
        }
        // All has been read.
        core.complete(put.done);
        if let Some(signal) = put.signal.take() {
            core.append_counted(put.lane, &signal)?;
        }
        core.ordering.lane(put.lane).close(put.op);
        Ok(true)
    }

    pub(super) fn send_part(
        &mut self,
        core: &mut Core,
        put: &OutgoingPut,
        chunk: Chunk,
        at: usize,
        bytes: usize,
    ) -> Result<()> {
        let lane = put.lane;
        let data = chunk.as_ptr() as usize;
        match put.target {
            Target::Range { offset } if bytes > SMALL => {
                let number = self.number(lane.pe);
                let header = head(PUT, core.me, number, 0);
                self.send_chunk(core, lane.pe, header, chunk, bytes)?;
                return Self::place_bulk(core, lane, number, offset + at as u64, bytes);
            }
            Target::Range { offset } => core.put_records(lane, offset + at as u64, data, bytes)?,
            Target::Rows { offset, stride, elem } => {
                let mut sent = 0;
                while sent < bytes {
                    let (row, inside) = ((at + sent) / elem, (at + sent) % elem);
                    let far = offset.wrapping_add_signed(row as i64 * stride) + inside as u64;
                    let whole = (bytes - sent) / elem * elem;
                    let take = if inside == 0 && whole > 0 && elem <= RECORD {
                        whole.min(RECORD / elem * elem)
                    } else {
                        (elem - inside).min(bytes - sent).min(RECORD)
                    };
                    // SAFETY: inside the chunk's bytes.
                    let packed = unsafe { std::slice::from_raw_parts((data + sent) as *const u8, take) };
                    if inside == 0 && take >= elem {
                        let record = Record::Rows {
                            offset: far,
                            stride: stride as u64,
                            elem: elem as u64,
                            data: packed,
                        };
                        core.emit_counted(lane, &record)?;
                    } else {
                        core.emit_counted(lane, &Record::Data { offset: far, data: packed })?;
                    }
                    sent += take;
                }
            }
        }
        self.queues.mover.give_back(chunk);
        Ok(())
    }
}
