//! Puts whose source is GPU memory that the network cannot read: copied out by pieces, and sent as the pieces come.

use std::collections::VecDeque;

use super::{head, Traffic, PUT};
use crate::error::Result;
use crate::net::engine::{Done, Engine, Flight, Rows, RECORD};
use crate::net::gpu::chunks::{Chunk, Course, LARGE, SMALL};
use crate::net::gpu::staging::Ticket;
use crate::net::message::Record;
use crate::net::peer::Transfer;
use crate::net::span::Span;

/// A put whose source the network cannot read.
#[derive(Debug)]
pub(super) struct Carry {
    pe: usize,
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

impl Carry {
    fn new(pe: usize, op: u64, source: Span, target: Target, signal: Option<Vec<u8>>, done: Done) -> Carry {
        Carry { pe, op, source, started: 0, pieces: VecDeque::new(), target, signal, done }
    }
}

impl Engine {
    /// A put where the network does not reach GPU memory, with a signal behind it if there is one.
    pub(crate) fn put_from_gpu(&mut self, pe: usize, copy: Transfer, signal: Option<Vec<u8>>) -> Result<()> {
        self.with_traffic(|engine, traffic| engine.start_from_gpu(traffic, pe, copy, signal))
    }

    fn start_from_gpu(
        &mut self,
        traffic: &mut Traffic,
        pe: usize,
        copy: Transfer,
        signal: Option<Vec<u8>>,
    ) -> Result<()> {
        let Transfer { near: src, offset, bytes, done } = copy;
        if bytes > 0 && traffic.on_gpu(src)? {
            let (op, source) = (self.begin_op(pe), Span::contiguous(src, bytes));
            let carry = Carry::new(pe, op, source, Target::Range { offset }, signal, done);
            traffic.carries.push_back(carry);
            return Ok(());
        }
        if bytes <= SMALL {
            self.put_records(pe, offset, src, bytes)?;
            self.tell(done);
        } else {
            // The host's memory needs no chunk on this side.
            let done = self.join(bytes.div_ceil(LARGE), done);
            let mut at = 0;
            while at < bytes {
                let piece = LARGE.min(bytes - at);
                let number = traffic.number(pe);
                let told = head(PUT, self.me(), number, 0);
                let token = self.fly(Flight::Copy { pe, op: None, done });
                let data = (src + at) as *const u8;
                // SAFETY: the caller of the put vouches for its source until it is done.
                if unsafe { self.transport().send_bulk(pe, told, data, piece, token) }? {
                    self.landed(token, Ok(()))?;
                }
                self.place_bulk(pe, number, offset + at as u64, piece)?;
                at += piece;
            }
        }
        match signal {
            Some(signal) => self.encoded(pe, &signal),
            None => Ok(()),
        }
    }

    /// Tells the place of a large message in the order, and in memory.
    fn place_bulk(&mut self, pe: usize, number: u64, offset: u64, bytes: usize) -> Result<()> {
        self.record_now(pe, &Record::Bulk { number, offset, bytes: bytes as u64 })
    }

    /// A strided put, if it is from GPU memory.
    pub(crate) fn put_rows_from_gpu(
        &mut self,
        pe: usize,
        offset: u64,
        src: usize,
        rows: Rows,
        done: Done,
    ) -> Result<bool> {
        let Some(traffic) = &self.traffic else { return Ok(false) };
        if rows.n == 0 || !traffic.on_gpu(src)? {
            return Ok(false);
        }
        let source = Span { at: src, stride: rows.near_stride, elem: rows.elem, count: rows.n };
        let target = Target::Rows { offset, stride: rows.far_stride as i64, elem: rows.elem };
        let op = self.begin_op(pe);
        self.with_traffic(|_, traffic| {
            traffic.carries.push_back(Carry::new(pe, op, source, target, None, done));
            Ok(true)
        })
    }

    /// Puts from GPU memory: copies out are started while there are chunks, and what has come out is sent, in order.
    pub(super) fn carry(&mut self, traffic: &mut Traffic) -> Result<()> {
        let mut carries = std::mem::take(&mut traffic.carries);
        let mut result = Ok(());
        // Each by itself in order; later ones begin while earlier ones are still on their way.
        carries.retain_mut(|carry| {
            let over = if result.is_ok() { self.carry_one(traffic, carry) } else { Ok(false) };
            !over.unwrap_or_else(|e| {
                result = Err(e);
                false
            })
        });
        traffic.carries = carries;
        result
    }

    /// True once it is over.
    pub(super) fn carry_one(&mut self, traffic: &mut Traffic, carry: &mut Carry) -> Result<bool> {
        let total = carry.source.bytes();
        while carry.started < total {
            let left = total - carry.started;
            let Some(chunk) = traffic.lanes.staging.try_chunk(left, Course::Leaving) else { break };
            let mut bytes = left.min(chunk.bytes());
            if matches!(carry.target, Target::Rows { .. }) && bytes < left {
                // Whole elements, unless one is longer than a chunk.
                let elem = carry.source.elem;
                bytes = if bytes >= elem { bytes / elem * elem } else { bytes };
            }
            let staging = &mut traffic.lanes.staging;
            // SAFETY: the caller of the put vouches for its source until it is done.
            let ticket = unsafe { staging.copy_out(&chunk, &carry.source, carry.started, bytes)? };
            carry.pieces.push_back((ticket, chunk, carry.started, bytes));
            carry.started += bytes;
        }
        while let Some((ticket, ..)) = carry.pieces.front() {
            if !traffic.lanes.staging.done(*ticket)? {
                return Ok(false);
            }
            let Some((_, chunk, at, bytes)) = carry.pieces.pop_front() else { break };
            self.send_carried(traffic, carry, chunk, at, bytes)?;
        }
        if carry.started < total {
            return Ok(false);
        }
        // All has been read.
        self.tell(carry.done);
        if let Some(signal) = carry.signal.take() {
            self.encoded(carry.pe, &signal)?;
        }
        self.end_op(carry.pe, carry.op);
        Ok(true)
    }

    pub(super) fn send_carried(
        &mut self,
        traffic: &mut Traffic,
        carry: &Carry,
        chunk: Chunk,
        at: usize,
        bytes: usize,
    ) -> Result<()> {
        let pe = carry.pe;
        let data = chunk.as_ptr() as usize;
        match carry.target {
            Target::Range { offset } if bytes > SMALL => {
                let number = traffic.number(pe);
                let told = head(PUT, self.me(), number, 0);
                self.send_chunk(traffic, pe, told, chunk, bytes)?;
                return self.place_bulk(pe, number, offset + at as u64, bytes);
            }
            Target::Range { offset } => self.put_records(pe, offset + at as u64, data, bytes)?,
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
                        self.record_now(pe, &record)?;
                    } else {
                        self.record_now(pe, &Record::Data { offset: far, data: packed })?;
                    }
                    sent += take;
                }
            }
        }
        traffic.lanes.staging.give_back(chunk);
        Ok(())
    }
}
