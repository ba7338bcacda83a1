//! Far operations where heaps are in GPU memory and the network cannot reach it: bulk goes through pinned chunks, a copy engine on
//! either side and the network between, piece behind piece, so that all three work at the same time.
//!
//! A large message travels apart from the numbered ones, and its place in their order is a record, [`Record::Bulk`]: what is asked behind
//! it happens behind it. Sources and destinations of this PE may be GPU memory of any kind, or the host's.

mod carry;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use crate::error::{err, Result};
use crate::gpu::pointer::Place;
use crate::gpu::Cuda;
use crate::kernel::service::Service;
use crate::net::engine::{Engine, Flight, RECORD};
use crate::net::gpu::chunks::{Chunk, Course, SMALL};
use crate::net::gpu::lanes::{Answer, Job, Lanes, Outcome};
use crate::net::gpu::mailbox::{Kind, Mailbox, Request};
use crate::net::gpu::staging::Ticket;
use crate::net::message::{Record, FLOAT_ADD, NO_REPLY};
use crate::net::span::Span;
use crate::net::transport::{BulkId, BULK_HEAD};
use crate::word::Update;
use carry::Carry;

/// Part of an answer, on its way to its place.
#[derive(Debug)]
enum Part {
    /// Came with a message.
    Small(Vec<u8>),
    /// To be received.
    Large(BulkId, usize),
}

/// What the engine keeps for GPU memory.
pub(crate) struct Traffic {
    cuda: Arc<Cuda>,
    lanes: Lanes,
    outcomes: Vec<Outcome>,
    /// Large messages that have been announced, by sender and number.
    announced: HashMap<(usize, u64), (BulkId, usize)>,
    carries: VecDeque<Carry>,
    /// Parts of answers: which answer, and its place there.
    parts: VecDeque<(usize, usize, Part)>,
    landings: VecDeque<(Ticket, Chunk, usize, usize)>,
    /// Number of the next large message to each PE.
    next: Vec<u64>,
}

/// What a large message is.
const PUT: u64 = 1;
const ANSWER: u64 = 2;

/// A large message's head: what it is, its sender, its number or the answer that it is part of, and its place there.
fn head(kind: u64, sender: usize, number: u64, at: u64) -> [u8; BULK_HEAD] {
    let mut head = [0; BULK_HEAD];
    for (to, word) in head.chunks_exact_mut(8).zip([kind, sender as u64, number, at]) {
        to.copy_from_slice(&word.to_le_bytes());
    }
    head
}

impl Traffic {
    pub(crate) fn new(
        cuda: &Arc<Cuda>,
        n: usize,
        mailbox: Mailbox,
        service: Arc<Service>,
    ) -> Result<Traffic> {
        Ok(Traffic {
            cuda: Arc::clone(cuda),
            lanes: Lanes::new(cuda, n, mailbox, service)?,
            outcomes: Vec::new(),
            announced: HashMap::new(),
            carries: VecDeque::new(),
            parts: VecDeque::new(),
            landings: VecDeque::new(),
            next: vec![0; n],
        })
    }

    /// Whether the host cannot touch `at`.
    fn on_gpu(&self, at: usize) -> Result<bool> {
        Ok(matches!(self.cuda.place_of(at)?, Some(Place::Gpu(_) | Place::Managed)))
    }

    /// Whether there is something that only looking again brings forward.
    pub(crate) fn is_busy(&self) -> bool {
        self.lanes.is_busy()
            || !(self.carries.is_empty() && self.parts.is_empty() && self.landings.is_empty())
    }

    fn number(&mut self, pe: usize) -> u64 {
        let number = self.next[pe];
        self.next[pe] += 1;
        number
    }

    /// A large message has been announced.
    pub(crate) fn announce(&mut self, told: &[u8], bytes: usize, data: BulkId) -> Result<()> {
        if told.len() != BULK_HEAD {
            return Err(err!(INTERNAL, "a large message with a head of {} bytes", told.len()));
        }
        let word = |i: usize| u64::from_le_bytes(told[i * 8..][..8].try_into().expect("eight bytes"));
        if word(0) == PUT {
            self.announced.insert((word(1) as usize, word(2)), (data, bytes));
        } else {
            self.parts.push_back((word(2) as usize, word(3) as usize, Part::Large(data, bytes)));
        }
        Ok(())
    }

    /// What `from` asks of this PE's GPU memory; `own` gives the checked address of an offset.
    pub(crate) fn obey(
        &mut self,
        from: usize,
        record: &Record<'_>,
        own: &dyn Fn(u64, usize) -> Result<usize>,
    ) -> Result<()> {
        let job = match *record {
            Record::Word { width, offset, value } => {
                Job::Store { at: own(offset, width.into())?, bits: value, bytes: width.into() }
            }
            Record::Data { offset, data } => {
                let span = Span::contiguous(own(offset, data.len())?, data.len());
                Job::Write { span, data: data.to_vec() }
            }
            Record::Rows { offset, stride, elem, data } => {
                let (stride, elem) = (stride as i64, elem.max(1) as usize);
                let count = data.len() / elem;
                let at = own_rows(own, offset, stride, elem, count)?;
                let span = Span { at, stride: stride as isize, elem, count };
                Job::Write { span, data: data[..elem * count].to_vec() }
            }
            Record::Atomic { op, width, offset, value, compare, reply } => {
                let at = own(offset, width.into())?;
                if at % usize::from(width.max(1)) != 0 || !matches!(width, 4 | 8) {
                    return Err(err!(INVALID_ARGUMENT, "an atomic on {width} bytes at {at:#x}"));
                }
                let answer = (reply != NO_REPLY).then_some(Answer { pe: from, reply });
                match (Update::from_number(op), answer) {
                    (Some(Update::Set), None) => Job::Store { at, bits: value, bytes: width.into() },
                    (Some(Update::Fetch), Some(answer)) => Job::Load { at, width: width.into(), answer },
                    _ => Job::Update { request: atomic(op, width, at, value, compare)?, answer },
                }
            }
            Record::Signal { add, offset, value } => {
                let at = own(offset, 8)?;
                if add {
                    Job::Update { request: atomic(Update::Add as u8, 8, at, value, 0)?, answer: None }
                } else {
                    Job::Store { at, bits: value, bytes: 8 }
                }
            }
            Record::Load { width, offset, reply } => Job::Load {
                at: own(offset, width.into())?,
                width: usize::from(width).min(8),
                answer: Answer { pe: from, reply },
            },
            Record::Fetch { offset, bytes, reply } => {
                let span = Span::contiguous(own(offset, bytes as usize)?, bytes as usize);
                Job::Fetch { span, sent: 0, answer: Answer { pe: from, reply } }
            }
            Record::FetchRows { offset, stride, elem, n, reply } => {
                let (stride, elem, count) = (stride as i64, elem as usize, n as usize);
                let at = own_rows(own, offset, stride, elem, count)?;
                let span = Span { at, stride: stride as isize, elem, count };
                Job::Fetch { span, sent: 0, answer: Answer { pe: from, reply } }
            }
            Record::Flush { reply } => Job::Settle(Answer { pe: from, reply }),
            Record::Bulk { number, offset, bytes } => {
                let span = Span::contiguous(own(offset, bytes as usize)?, bytes as usize);
                Job::Bulk { number, span }
            }
            Record::Reply { .. } | Record::ReplyData { .. } | Record::Arrive(_) => {
                return Err(err!(INTERNAL, "a record that asks for nothing"))
            }
        };
        self.lanes.add(from, job);
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
fn atomic(number: u8, width: u8, at: usize, value: u64, compare: u64) -> Result<Request> {
    let (update, kind) = match number {
        FLOAT_ADD => (Some(Update::Add), Kind::Float),
        _ => (Update::from_number(number), Kind::Bits),
    };
    let update = update.ok_or_else(|| err!(INTERNAL, "another PE asked for atomic {number}"))?;
    Ok(Request { op: update.code(), kind, bytes: width.into(), at, value, compare })
}

impl Engine {
    /// Whether answers that are to be laid down at `at` go to a GPU.
    pub(crate) fn lands_on_gpu(&self, at: usize) -> Result<bool> {
        self.traffic.as_ref().map_or(Ok(false), |traffic| traffic.on_gpu(at))
    }

    /// Does something that takes both, where heaps are in GPU memory.
    pub(in crate::net) fn with_traffic<T>(
        &mut self,
        then: impl FnOnce(&mut Engine, &mut Traffic) -> Result<T>,
    ) -> Result<T> {
        let Some(mut traffic) = self.traffic.take() else {
            return Err(err!(INTERNAL, "something of GPU memory, of which there is none"));
        };
        let result = then(self, &mut traffic);
        self.traffic = Some(traffic);
        result
    }

    /// Lets everything about GPU memory go on.
    pub(crate) fn run_traffic(&mut self) -> Result<()> {
        if self.traffic.as_ref().is_some_and(|traffic| traffic.is_busy()) {
            self.with_traffic(Engine::move_on)?;
        }
        Ok(())
    }

    fn move_on(&mut self, traffic: &mut Traffic) -> Result<()> {
        self.carry(traffic)?;
        let mut outcomes = std::mem::take(&mut traffic.outcomes);
        let announced = &traffic.announced;
        traffic.lanes.run(&|from, number| announced.contains_key(&(from, number)), &mut outcomes)?;
        for outcome in outcomes.drain(..) {
            self.outcome(traffic, outcome)?;
        }
        traffic.outcomes = outcomes;
        self.lay_down(traffic)
    }

    fn outcome(&mut self, traffic: &mut Traffic, outcome: Outcome) -> Result<()> {
        match outcome {
            Outcome::Word(Answer { pe, reply }, value) => {
                self.record_now(pe, &Record::Reply { reply, value })
            }
            Outcome::Data { answer: Answer { pe, reply }, at, chunk, bytes } => {
                if bytes > SMALL {
                    let told = head(ANSWER, self.me(), reply, at as u64);
                    return self.send_chunk(traffic, pe, told, chunk, bytes);
                }
                // SAFETY: the chunk holds so many bytes, and nobody else uses it.
                let data = unsafe { std::slice::from_raw_parts(chunk.as_ptr(), bytes) };
                for (i, piece) in data.chunks(RECORD).enumerate() {
                    self.record_now(
                        pe,
                        &Record::ReplyData { reply, at: (at + i * RECORD) as u64, data: piece },
                    )?;
                }
                traffic.lanes.staging.give_back(chunk);
                Ok(())
            }
            Outcome::Receive { from, number, chunk } => {
                let known = traffic.announced.remove(&(from, number));
                let (data, _) =
                    known.ok_or_else(|| err!(INTERNAL, "a large message that was not announced"))?;
                let to = chunk.as_ptr();
                self.fill_chunk(traffic, data, to, Flight::Receive { from, number, chunk })
            }
        }
    }

    /// Sends a large message out of a chunk.
    fn send_chunk(
        &mut self,
        traffic: &mut Traffic,
        pe: usize,
        told: [u8; BULK_HEAD],
        chunk: Chunk,
        bytes: usize,
    ) -> Result<()> {
        let data = chunk.as_ptr();
        let token = self.fly(Flight::Chunk { pe, chunk });
        // SAFETY: the chunk holds so many bytes, and stays with the flight until the token is done.
        if unsafe { self.transport().send_bulk(pe, told, data, bytes, token) }? {
            let flight = self.end_flight(token);
            self.chunk_done(traffic, flight)?;
        }
        Ok(())
    }

    /// Has a large message's data laid down in the flight's chunk, which begins at `to`.
    fn fill_chunk(&mut self, traffic: &mut Traffic, data: BulkId, to: *mut u8, flight: Flight) -> Result<()> {
        let token = self.fly(flight);
        // SAFETY: the chunk is as large as the message, and stays with the flight.
        if unsafe { self.transport().receive(data, to, token) }? {
            let flight = self.end_flight(token);
            self.chunk_done(traffic, flight)?;
        }
        Ok(())
    }

    /// What follows when a chunk has been sent or filled.
    fn chunk_done(&mut self, traffic: &mut Traffic, flight: Flight) -> Result<()> {
        match flight {
            Flight::Chunk { chunk, .. } => traffic.lanes.staging.give_back(chunk),
            Flight::Receive { from, number, chunk } => traffic.lanes.landed(from, number, chunk),
            Flight::Answer { reply, at, bytes, chunk } => {
                if !self.awaited_on_gpu(reply) {
                    // SAFETY: the chunk holds so many bytes, and nobody else uses it.
                    let data = unsafe { std::slice::from_raw_parts(chunk.as_ptr(), bytes) };
                    let laid = self.answered_data(reply as u64, at, data);
                    traffic.lanes.staging.give_back(chunk);
                    return laid;
                }
                let Some(span) = self.awaited_span(reply) else { return Ok(()) };
                // SAFETY: the caller of `get` vouches for its destination; the chunk holds so many bytes.
                let ticket = unsafe { traffic.lanes.staging.copy_in(&span, at, &chunk, bytes)? };
                traffic.landings.push_back((ticket, chunk, reply, bytes));
            }
            _ => return Err(err!(INTERNAL, "something without a chunk is said to have filled one")),
        }
        Ok(())
    }

    /// The same from the transport's events.
    pub(in crate::net) fn chunk_landed(&mut self, flight: Flight) -> Result<()> {
        self.with_traffic(|engine, traffic| engine.chunk_done(traffic, flight))
    }

    /// A part of an answer that goes to GPU memory has come with a message.
    pub(crate) fn keep_part(&mut self, reply: usize, at: usize, data: &[u8]) {
        if let Some(traffic) = &mut self.traffic {
            traffic.parts.push_back((reply, at, Part::Small(data.to_vec())));
        }
    }

    /// Parts of answers go to their places, as there are chunks for them.
    fn lay_down(&mut self, traffic: &mut Traffic) -> Result<()> {
        while let Some((ticket, ..)) = traffic.landings.front() {
            if !traffic.lanes.staging.done(*ticket)? {
                break;
            }
            let Some((_, chunk, reply, bytes)) = traffic.landings.pop_front() else { break };
            traffic.lanes.staging.give_back(chunk);
            self.answered_bytes(reply, bytes)?;
        }
        while let Some((reply, at, part)) = traffic.parts.pop_front() {
            let Some(span) = self.awaited_span(reply) else {
                return Err(err!(INTERNAL, "data that nobody waits for"));
            };
            let bytes = match &part {
                Part::Small(data) => data.len(),
                Part::Large(_, bytes) => *bytes,
            };
            if at + bytes > span.bytes() {
                return Err(err!(INTERNAL, "more data than was asked for"));
            }
            // Messages carry elements packed; a destination in the host's memory takes them straight only if it is packed too.
            let straight = span.is_packed() && !self.awaited_on_gpu(reply);
            if let (Part::Large(data, _), true) = (&part, straight) {
                let token = self.fly(Flight::Straight { reply, bytes });
                // SAFETY: the caller of `get` vouches for its destination.
                if unsafe { self.transport().receive(*data, (span.at + at) as *mut u8, token) }? {
                    self.end_flight(token);
                    self.answered_bytes(reply, bytes)?;
                }
                continue;
            }
            let Some(chunk) = traffic.lanes.staging.try_chunk(bytes, Course::Arriving) else {
                traffic.parts.push_front((reply, at, part));
                return Ok(());
            };
            match part {
                Part::Small(data) => {
                    // SAFETY: the chunk has room; the caller of `get` vouches for its destination.
                    let ticket = unsafe {
                        std::ptr::copy_nonoverlapping(data.as_ptr(), chunk.as_ptr(), bytes);
                        traffic.lanes.staging.copy_in(&span, at, &chunk, bytes)?
                    };
                    traffic.landings.push_back((ticket, chunk, reply, bytes));
                }
                Part::Large(data, _) => {
                    let to = chunk.as_ptr();
                    self.fill_chunk(traffic, data, to, Flight::Answer { reply, at, bytes, chunk })?;
                }
            }
        }
        Ok(())
    }
}
