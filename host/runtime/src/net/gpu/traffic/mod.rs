//! Far operations where heaps are in GPU memory and the network cannot reach it: bulk goes through pinned
//! chunks, a copy engine on either side and the network between, piece behind piece, so that all three work
//! at the same time.
//!
//! A large message travels apart from the numbered ones, and its place in their order is a record,
//! [`Record::Bulk`]: what is asked behind it happens behind it. Sources and destinations of this PE may be
//! GPU memory of any kind, or the host's.

mod outgoing;

use std::collections::{BTreeMap, VecDeque};

use crate::error::{err, Result};
use crate::net::engine::core::Core;
use crate::net::engine::in_flight::{not_awaited, too_much, Flight};
use crate::net::gpu::chunks::{Chunk, Course, SMALL};
use crate::net::gpu::mailbox::{AtomicRequest, WordKind};
use crate::net::gpu::mover::Mover;
use crate::net::gpu::peer_queues::{Answer, Outcome, PeerQueues, PeerRequest};
use crate::net::gpu::staging::Ticket;
use crate::net::memory::span::Span;
use crate::net::transport::{BulkId, BULK_HEAD};
use crate::net::wire::message::{Record, FLOAT_ADD, NO_REPLY};
use crate::net::wire::RECORD;
use crate::word::Update;
use outgoing::OutgoingPut;

/// AnswerPart of an answer, on its way to its place.
#[derive(Debug)]
enum AnswerPart {
    /// Came with a message.
    Small(Vec<u8>),
    /// To be received.
    Large(BulkId, usize),
}

/// What the engine keeps for GPU memory.
pub(crate) struct Traffic {
    queues: PeerQueues,
    outcomes: Vec<Outcome>,
    /// Large messages that have been announced, by sender and number.
    announced: BTreeMap<(usize, u64), (BulkId, usize)>,
    outgoing: VecDeque<OutgoingPut>,
    /// Parts of answers: which answer, and its place there.
    parts: VecDeque<(usize, usize, AnswerPart)>,
    landings: VecDeque<(Ticket, Chunk, usize, usize)>,
    /// Number of the next large message to each PE.
    next: Vec<u64>,
}

/// For tests: all that decides what may still happen.
#[cfg(test)]
impl std::fmt::Debug for Traffic {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Traffic { queues, announced, outgoing, parts, landings, next, .. } = self;
        write!(f, "{queues:?}{announced:?}{outgoing:?}{parts:?}{landings:?}{next:?}")
    }
}

/// What a large message is.
const PUT: u64 = 1;
const ANSWER: u64 = 2;

/// A large message's head: what it is, its sender, its number or the answer that it is part of, and its place
/// there.
fn head(kind: u64, sender: usize, number: u64, at: u64) -> [u8; BULK_HEAD] {
    let mut head = [0; BULK_HEAD];
    for (to, word) in head.chunks_exact_mut(8).zip([kind, sender as u64, number, at]) {
        to.copy_from_slice(&word.to_le_bytes());
    }
    head
}

impl Traffic {
    /// For a job of `n` PEs; `mover` is this PE's GPU.
    pub(crate) fn new(n: usize, mover: Box<dyn Mover>) -> Traffic {
        Traffic {
            queues: PeerQueues::new(n, mover),
            outcomes: Vec::new(),
            announced: BTreeMap::new(),
            outgoing: VecDeque::new(),
            parts: VecDeque::new(),
            landings: VecDeque::new(),
            next: vec![0; n],
        }
    }

    /// Whether the host cannot touch `at`.
    pub(crate) fn on_gpu(&self, at: usize) -> Result<bool> {
        self.queues.mover.on_gpu(at)
    }

    /// Whether there is something that only looking again brings forward.
    pub(crate) fn is_busy(&self) -> bool {
        self.queues.is_busy()
            || !(self.outgoing.is_empty() && self.parts.is_empty() && self.landings.is_empty())
    }

    fn number(&mut self, pe: usize) -> u64 {
        let number = self.next[pe];
        self.next[pe] += 1;
        number
    }

    /// A large message has been announced.
    pub(crate) fn announce(&mut self, header: &[u8], bytes: usize, data: BulkId) -> Result<()> {
        if header.len() != BULK_HEAD {
            return Err(err!(INTERNAL, "a large message with a head of {} bytes", header.len()));
        }
        let word = |i: usize| u64::from_le_bytes(header[i * 8..][..8].try_into().expect("eight bytes"));
        if word(0) == PUT {
            self.announced.insert((word(1) as usize, word(2)), (data, bytes));
        } else {
            self.parts.push_back((word(2) as usize, word(3) as usize, AnswerPart::Large(data, bytes)));
        }
        Ok(())
    }

    /// What `from` asks of this PE's GPU memory; `own` gives the checked address of an offset.
    pub(crate) fn serve(
        &mut self,
        from: usize,
        record: &Record<'_>,
        own: &dyn Fn(u64, usize) -> Result<usize>,
    ) -> Result<()> {
        let request = match *record {
            Record::Word { width, offset, value } => {
                PeerRequest::Store { at: own(offset, width.into())?, bits: value, bytes: width.into() }
            }
            Record::Data { offset, data } => {
                let span = Span::contiguous(own(offset, data.len())?, data.len());
                PeerRequest::Write { span, data: data.to_vec() }
            }
            Record::Rows { offset, stride, elem, data } => {
                let (stride, elem) = (stride as i64, elem.max(1) as usize);
                let count = data.len() / elem;
                let at = own_rows(own, offset, stride, elem, count)?;
                let span = Span { at, stride: stride as isize, elem, count };
                PeerRequest::Write { span, data: data[..elem * count].to_vec() }
            }
            Record::Atomic { op, width, offset, value, compare, reply } => {
                let at = own(offset, width.into())?;
                if at % usize::from(width.max(1)) != 0 || !matches!(width, 4 | 8) {
                    return Err(err!(INVALID_ARGUMENT, "an atomic on {width} bytes at {at:#x}"));
                }
                let answer = (reply != NO_REPLY).then_some(Answer { pe: from, reply });
                match (Update::from_number(op), answer) {
                    (Some(Update::Set), None) => PeerRequest::Store { at, bits: value, bytes: width.into() },
                    (Some(Update::Fetch), Some(answer)) => {
                        PeerRequest::Load { at, width: width.into(), answer }
                    }
                    _ => PeerRequest::Update { request: atomic(op, width, at, value, compare)?, answer },
                }
            }
            Record::Signal { add, offset, value } => {
                let at = own(offset, 8)?;
                if add {
                    PeerRequest::Update { request: atomic(Update::Add as u8, 8, at, value, 0)?, answer: None }
                } else {
                    PeerRequest::Store { at, bits: value, bytes: 8 }
                }
            }
            Record::Load { width, offset, reply } => PeerRequest::Load {
                at: own(offset, width.into())?,
                width: usize::from(width).min(8),
                answer: Answer { pe: from, reply },
            },
            Record::Fetch { offset, bytes, reply } => {
                let span = Span::contiguous(own(offset, bytes as usize)?, bytes as usize);
                PeerRequest::Fetch { span, sent: 0, answer: Answer { pe: from, reply } }
            }
            Record::FetchRows { offset, stride, elem, n, reply } => {
                let (stride, elem, count) = (stride as i64, elem as usize, n as usize);
                let at = own_rows(own, offset, stride, elem, count)?;
                let span = Span { at, stride: stride as isize, elem, count };
                PeerRequest::Fetch { span, sent: 0, answer: Answer { pe: from, reply } }
            }
            Record::Flush { reply } => PeerRequest::Settle(Answer { pe: from, reply }),
            Record::Bulk { number, offset, bytes } => {
                let span = Span::contiguous(own(offset, bytes as usize)?, bytes as usize);
                PeerRequest::Bulk { number, span }
            }
            Record::Reply { .. } | Record::ReplyData { .. } | Record::Arrive(_) | Record::Carried(_) => {
                return Err(err!(INTERNAL, "a record that asks for nothing"))
            }
        };
        self.queues.add(from, request);
        Ok(())
    }
}

/// The checked address of the first of `count` elements, `stride` bytes apart: all are memory of one piece.
fn own_rows(
    own: &dyn Fn(u64, usize) -> Result<usize>,
    offset: u64,
    stride: i64,
    elem: usize,
    count: usize,
) -> Result<usize> {
    let at = own(offset, elem)?;
    let way = stride.saturating_mul((count as i64 - 1).max(0));
    if own(offset.wrapping_add_signed(way), elem)? != at.wrapping_add_signed(way as isize) {
        return Err(err!(
            BAD_ADDRESS,
            "{count} elements at distances of {stride} bytes are not in one piece of memory"
        ));
    }
    Ok(at)
}

/// The request of the update with that number, or of [`FLOAT_ADD`].
fn atomic(number: u8, width: u8, at: usize, value: u64, compare: u64) -> Result<AtomicRequest> {
    let (update, kind) = match number {
        FLOAT_ADD => (Some(Update::Add), WordKind::Float),
        _ => (Update::from_number(number), WordKind::Bits),
    };
    let update = update.ok_or_else(|| err!(INTERNAL, "another PE asked for atomic {number}"))?;
    Ok(AtomicRequest { op: update.code(), kind, bytes: width.into(), at, value, compare })
}

impl Traffic {
    /// Lets everything about GPU memory go on.
    pub(in crate::net) fn run(&mut self, core: &mut Core) -> Result<()> {
        self.send_outgoing(core)?;
        let mut outcomes = std::mem::take(&mut self.outcomes);
        let announced = &self.announced;
        self.queues.run(&|from, number| announced.contains_key(&(from, number)), &mut outcomes)?;
        for outcome in outcomes.drain(..) {
            self.outcome(core, outcome)?;
        }
        self.outcomes = outcomes;
        self.lay_down(core)
    }

    fn outcome(&mut self, core: &mut Core, outcome: Outcome) -> Result<()> {
        match outcome {
            Outcome::Word(Answer { pe, reply }, value) => core.emit(pe, &Record::Reply { reply, value }),
            Outcome::Data { answer: Answer { pe, reply }, at, chunk, bytes } => {
                if bytes > SMALL {
                    let header = head(ANSWER, core.me, reply, at as u64);
                    return self.send_chunk(core, pe, header, chunk, bytes);
                }
                // SAFETY: the chunk holds so many bytes, and nobody else uses it.
                let data = unsafe { std::slice::from_raw_parts(chunk.as_ptr(), bytes) };
                for (i, piece) in data.chunks(RECORD).enumerate() {
                    core.emit(pe, &Record::ReplyData { reply, at: (at + i * RECORD) as u64, data: piece })?;
                }
                self.queues.mover.give_back(chunk);
                Ok(())
            }
            Outcome::Receive { from, number, chunk } => {
                let known = self.announced.remove(&(from, number));
                let (data, _) =
                    known.ok_or_else(|| err!(INTERNAL, "a large message that was not announced"))?;
                let to = chunk.as_ptr();
                self.fill_chunk(core, data, to, Flight::Receive { from, number, chunk })
            }
        }
    }

    /// Sends a large message out of a chunk.
    fn send_chunk(
        &mut self,
        core: &mut Core,
        pe: usize,
        header: [u8; BULK_HEAD],
        chunk: Chunk,
        bytes: usize,
    ) -> Result<()> {
        let data = chunk.as_ptr();
        let token = core.in_flight.begin(Flight::Chunk { pe, chunk });
        // SAFETY: the chunk holds so many bytes, and stays with the flight until the token is done.
        if unsafe { core.transport.send_bulk(pe, header, data, bytes, token) }? {
            let flight = core.in_flight.end(token);
            self.chunk_landed(core, flight)?;
        }
        Ok(())
    }

    /// Has a large message's data laid down in the flight's chunk, which begins at `to`.
    fn fill_chunk(&mut self, core: &mut Core, data: BulkId, to: *mut u8, flight: Flight) -> Result<()> {
        let token = core.in_flight.begin(flight);
        // SAFETY: the chunk is as large as the message, and stays with the flight.
        if unsafe { core.transport.receive(data, to, token) }? {
            let flight = core.in_flight.end(token);
            self.chunk_landed(core, flight)?;
        }
        Ok(())
    }

    /// What follows when a chunk has been sent or filled.
    pub(in crate::net) fn chunk_landed(&mut self, core: &mut Core, flight: Flight) -> Result<()> {
        match flight {
            Flight::Chunk { chunk, .. } => self.queues.mover.give_back(chunk),
            Flight::Receive { from, number, chunk } => self.queues.landed(from, number, chunk),
            Flight::Answer { reply, at, bytes, chunk } => {
                let destination = core.in_flight.destination(reply);
                if !matches!(destination, Some((_, true))) {
                    // SAFETY: the chunk holds so many bytes, and nobody else uses it.
                    let data = unsafe { std::slice::from_raw_parts(chunk.as_ptr(), bytes) };
                    let laid = core.answered_data(reply as u64, at, data);
                    self.queues.mover.give_back(chunk);
                    return laid;
                }
                let Some((span, _)) = destination else { return Ok(()) };
                // SAFETY: the caller of `get` vouches for its destination; the chunk holds so many bytes.
                let ticket = unsafe { self.queues.mover.copy_in(&span, at, &chunk, bytes)? };
                self.landings.push_back((ticket, chunk, reply, bytes));
            }
            _ => return Err(err!(INTERNAL, "something without a chunk is said to have filled one")),
        }
        Ok(())
    }

    /// A part of an answer that goes to GPU memory has come with a message.
    pub(crate) fn keep_part(&mut self, reply: usize, at: usize, data: &[u8]) {
        self.parts.push_back((reply, at, AnswerPart::Small(data.to_vec())));
    }

    /// Parts of answers go to their places, as there are chunks for them.
    fn lay_down(&mut self, core: &mut Core) -> Result<()> {
        while let Some((ticket, ..)) = self.landings.front() {
            if !self.queues.mover.done(*ticket)? {
                break;
            }
            let Some((_, chunk, reply, bytes)) = self.landings.pop_front() else { break };
            self.queues.mover.give_back(chunk);
            core.answered_bytes(reply, bytes)?;
        }
        while let Some((reply, at, part)) = self.parts.pop_front() {
            let (span, on_gpu) = core.in_flight.destination(reply).ok_or_else(not_awaited)?;
            let bytes = match &part {
                AnswerPart::Small(data) => data.len(),
                AnswerPart::Large(_, bytes) => *bytes,
            };
            if at + bytes > span.bytes() {
                return Err(too_much());
            }
            // Messages put elements packed; a destination in the host's memory takes them straight only if
            // it is packed too.
            let straight = span.is_packed() && !on_gpu;
            if let (AnswerPart::Large(data, _), true) = (&part, straight) {
                let token = core.in_flight.begin(Flight::Straight { reply, bytes });
                // SAFETY: the caller of `get` vouches for its destination.
                if unsafe { core.transport.receive(*data, (span.at + at) as *mut u8, token) }? {
                    core.in_flight.end(token);
                    core.answered_bytes(reply, bytes)?;
                }
                continue;
            }
            let Some(chunk) = self.queues.mover.try_chunk(bytes, Course::Arriving) else {
                self.parts.push_front((reply, at, part));
                return Ok(());
            };
            match part {
                AnswerPart::Small(data) => {
                    // SAFETY: the chunk has room; the caller of `get` vouches for its destination.
                    let ticket = unsafe {
                        std::ptr::copy_nonoverlapping(data.as_ptr(), chunk.as_ptr(), bytes);
                        self.queues.mover.copy_in(&span, at, &chunk, bytes)?
                    };
                    self.landings.push_back((ticket, chunk, reply, bytes));
                }
                AnswerPart::Large(data, _) => {
                    let to = chunk.as_ptr();
                    self.fill_chunk(core, data, to, Flight::Answer { reply, at, bytes, chunk })?;
                }
            }
        }
        Ok(())
    }
}
