//! A queue pair of the software card: it takes the requests of one send queue, has the peer's card carry them
//! out, writes completions, and carries out what the peer's queue pair asks for.
//!
//! Adverse where a card may be: requests wait before they are taken and completions before they are written,
//! so that queues overtake each other; parts of a WRITE arrive in either direction, and after it was
//! acknowledged ([`super::arrivals`]); a READ is answered behind WRITEs that came after it, unless they have
//! the fence ([`responder`]). A slot that was taken is poisoned.

mod responder;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::arrivals::Arrivals;
use super::chance::Chance;
use super::memory::{Access, CardPlace, Regions};
use super::packets::{Frame, Link, PacketKind, LAST, PART};
use super::requests::{syndrome, written, Body, LocalBytes, Mistake, WorkRequest, BLOCK};
use crate::net::queue::card::QueueMemory;

/// Requests on their way at a time.
const WINDOW: usize = 16;
/// How long a peer's card may be silent, when the connection is gone.
const RETRIES: Duration = Duration::from_millis(30);
/// When the rest of a queue is flushed after a failure.
const FLUSH: Duration = Duration::from_millis(5);
/// What a slot holds once it was taken.
const POISON: u64 = 0xdbdb_dbdb_dbdb_dbdb;

/// What several pairs share.
pub(super) struct Rest {
    pub(super) regions: Regions,
    pub(super) arrivals: Arrivals,
    pub(super) chance: Chance,
    /// What was wrong with requests, for people and tests.
    pub(super) told: Vec<String>,
}

/// What goes out for a request.
enum Sending {
    Nothing,
    One(Frame),
    /// Bytes of local memory, in parts.
    Parts {
        from: CardPlace,
        bytes: usize,
        sent: usize,
        backwards: bool,
        remote: u64,
        key: u32,
    },
}

/// A request on its way.
struct Underway {
    index: u64,
    completes: bool,
    fenced: bool,
    /// It awaits data, and where that goes.
    awaits: Option<(CardPlace, usize)>,
    sending: Sending,
    over: Option<Result<(), u8>>,
    /// Its completion is written no sooner.
    ready: Instant,
}

pub(super) struct Pair {
    memory: QueueMemory,
    number: u32,
    /// Its place among this card's queues.
    queue: usize,
    link: Option<Link>,
    lost: Option<Instant>,
    /// Requests that the doorbell told of, that were taken, and that are complete.
    known: u64,
    taken: u64,
    done: u64,
    window: VecDeque<Underway>,
    /// Requests are taken no sooner.
    due: Instant,
    /// READs of the peer that are answered later.
    late: VecDeque<(Instant, Frame)>,
    failed: bool,
    flush: Option<Instant>,
    /// Requests until the link is lost.
    left: Option<u64>,
}

impl Pair {
    pub(super) fn new(memory: QueueMemory, number: u32, queue: usize, left: Option<u64>) -> Pair {
        Pair {
            memory,
            number,
            queue,
            link: None,
            lost: None,
            known: 0,
            taken: 0,
            done: 0,
            window: VecDeque::new(),
            due: Instant::now(),
            late: VecDeque::new(),
            failed: false,
            flush: None,
            left,
        }
    }

    pub(super) fn attach(&mut self, link: Link) {
        if self.lost.is_none() {
            self.link = Some(link);
        }
    }

    pub(super) fn link(&self) -> Option<&Link> {
        self.link.as_ref()
    }

    /// Takes a step. True where something happened, or will soon.
    pub(super) fn step(&mut self, rest: &mut Rest, now: Instant) -> bool {
        let mut worked = self.hear_bell(rest);
        worked |= self.take(rest, now);
        worked |= self.send(rest);
        worked |= self.progress(rest, now);
        worked |= self.answer_late(rest, now, false);
        worked |= self.complete(now);
        self.flush(now);
        worked || self.taken < self.known || !self.window.is_empty() || !self.late.is_empty()
    }

    fn tell(&self, rest: &mut Rest, what: &str) {
        let text = format!("the software card, queue {} (pair {:#x}): {what}", self.queue, self.number);
        log::warn!("{text}");
        if rest.told.len() < 64 {
            rest.told.push(text);
        }
    }

    fn refuse(&mut self, rest: &mut Rest, index: u64, mistake: &Mistake) {
        self.tell(rest, &format!("request {index}: {} (syndrome {:#04x})", mistake.why, mistake.syndrome));
        self.window.push_back(Underway {
            index,
            completes: true,
            fenced: false,
            awaits: None,
            sending: Sending::Nothing,
            over: Some(Err(mistake.syndrome)),
            ready: Instant::now(),
        });
        self.failed = true;
    }

    // ---- this side's requests ----

    fn hear_bell(&mut self, rest: &mut Rest) -> bool {
        // SAFETY: the register of this pair, atomic to all.
        let bell = unsafe { AtomicU64::from_ptr(self.memory.bell) };
        if bell.load(Ordering::Relaxed) == 0 {
            return false;
        }
        let rung = bell.swap(0, Ordering::Acquire);
        // SAFETY: the record of this pair, atomic to all; the second word is the send queue's.
        let record = unsafe { AtomicU32::from_ptr(self.memory.record.add(1)) }.load(Ordering::Acquire);
        match written(rung, record, self.number, self.known, self.done, self.memory.count) {
            Ok(known) => {
                if self.known == self.taken {
                    self.due = rest.chance.due();
                }
                self.known = known;
            }
            Err(mistake) if !self.failed => self.refuse(rest, self.taken, &mistake),
            Err(_) => {}
        }
        true
    }

    /// The slot of the next request, which is poisoned then.
    fn slot(&self) -> [u8; BLOCK] {
        let at = self.taken as usize % self.memory.count * BLOCK;
        // SAFETY: a slot of this pair's, of whole words.
        let slot = unsafe { self.memory.slots.add(at) }.cast::<AtomicU64>();
        // SAFETY: the slot has `BLOCK` bytes, atomic words here, as kernels may write it against the rules.
        let words = unsafe { std::slice::from_raw_parts(slot, BLOCK / 8) };
        let mut block = [0; BLOCK];
        for (word, to) in words.iter().zip(block.chunks_exact_mut(8)) {
            to.copy_from_slice(&word.swap(POISON, Ordering::Relaxed).to_le_bytes());
        }
        block
    }

    fn take(&mut self, rest: &mut Rest, now: Instant) -> bool {
        if now < self.due || self.failed {
            return false;
        }
        let before = self.taken;
        while self.taken < self.known && self.window.len() < WINDOW && !self.failed {
            let index = self.taken;
            let block = self.slot();
            self.taken += 1;
            if let Some(left) = &mut self.left {
                *left = left.saturating_sub(1);
                if *left == 0 && self.link.take().is_some() {
                    self.tell(rest, "the link is lost, as RUSHMEM_QUEUE_LOSE asks");
                    self.lost = Some(now);
                }
            }
            let begun = WorkRequest::parse(&block, index as u16, self.number)
                .and_then(|request| self.begin(rest, index, &request));
            match begun {
                Ok(flight) => self.window.push_back(flight),
                Err(mistake) => self.refuse(rest, index, &mistake),
            }
        }
        if self.taken == self.known && self.taken != before && rest.chance.one_in(4) {
            self.due = rest.chance.due();
        }
        self.taken != before
    }

    fn begin(&mut self, rest: &mut Rest, index: u64, request: &WorkRequest) -> Result<Underway, Mistake> {
        let here = |local: &LocalBytes, access| {
            let found = rest.regions.find(local.key, local.address, local.bytes, access);
            found.map_err(|why| Mistake {
                syndrome: syndrome::LOCAL_PROTECTION,
                why: format!("local memory: {why}"),
            })
        };
        let frame = |kind, a, b, data| Frame {
            kind,
            more: LAST,
            key: request.key,
            index,
            address: request.remote,
            a,
            b,
            data,
        };
        let (sending, awaits) = match &request.body {
            Body::Nothing => (Sending::Nothing, None),
            Body::WriteInline(data) => (Sending::One(frame(PacketKind::Write, 0, 0, data.clone())), None),
            Body::Write(local) => {
                let (from, bytes) = (here(local, Access::LocalRead)?, local.bytes);
                let backwards = rest.chance.one_in(2);
                let (remote, key) = (request.remote, request.key);
                (Sending::Parts { from, bytes, sent: 0, backwards, remote, key }, None)
            }
            Body::Read(local) => {
                let to = here(local, Access::LocalWrite)?;
                let frame = frame(PacketKind::Read, local.bytes as u64, 0, Vec::new());
                (Sending::One(frame), Some((to, local.bytes)))
            }
            Body::FetchAdd { add, answer } => {
                let to = here(answer, Access::LocalWrite)?;
                (Sending::One(frame(PacketKind::FetchAdd, *add, 0, Vec::new())), Some((to, 8)))
            }
            Body::CompareSwap { swap, compare, answer } => {
                let to = here(answer, Access::LocalWrite)?;
                (Sending::One(frame(PacketKind::CompareSwap, *swap, *compare, Vec::new())), Some((to, 8)))
            }
        };
        let over = matches!(sending, Sending::Nothing).then_some(Ok(()));
        let (completes, fenced) = (request.completes, request.fenced);
        Ok(Underway { index, completes, fenced, awaits, sending, over, ready: Instant::now() })
    }

    /// Sends requests in their order.
    fn send(&mut self, rest: &mut Rest) -> bool {
        let Some(link) = &mut self.link else { return false };
        let (mut reads, mut sent) = (false, false);
        for flight in &mut self.window {
            if (flight.fenced && reads) || link.is_full() {
                break;
            }
            reads |= flight.awaits.is_some() && flight.over.is_none();
            match std::mem::replace(&mut flight.sending, Sending::Nothing) {
                Sending::Nothing => {}
                Sending::One(frame) => {
                    link.send(&frame);
                    sent = true;
                }
                Sending::Parts { from, bytes, sent: mut gone, backwards, remote, key } => {
                    while gone < bytes && !link.is_full() {
                        // Whole parts, counted from either end.
                        let parts = bytes.div_ceil(PART);
                        let number = gone.div_ceil(PART);
                        let at = if backwards { parts - 1 - number } else { number } * PART;
                        let size = PART.min(bytes - at);
                        let mut data = vec![0; size];
                        if let Err(e) = rest.regions.read(from.offset(at), &mut data) {
                            rest.told.push(e.message);
                        }
                        let more = if number + 1 == parts { LAST } else { 0 };
                        let (index, address) = (flight.index, remote + at as u64);
                        link.send(&Frame {
                            kind: PacketKind::Write,
                            more,
                            key,
                            index,
                            address,
                            a: 0,
                            b: 0,
                            data,
                        });
                        gone = if more == LAST { bytes } else { (number + 1) * PART };
                        sent = true;
                    }
                    if gone < bytes {
                        flight.sending = Sending::Parts { from, bytes, sent: gone, backwards, remote, key };
                        break;
                    }
                }
            }
        }
        sent
    }

    fn over(&mut self, index: u64, how: Result<(), u8>, ready: Instant) {
        if let Some(flight) = self.window.iter_mut().find(|flight| flight.index == index) {
            (flight.over, flight.ready) = (Some(how), ready);
        }
    }

    fn complete(&mut self, now: Instant) -> bool {
        if let (Some(since), Some(front)) = (self.lost, self.window.front_mut()) {
            if front.over.is_none() && now > since + RETRIES {
                front.over = Some(Err(syndrome::RETRIES_EXCEEDED));
                front.ready = now;
            }
        }
        let mut worked = false;
        while let Some(front) = self.window.front() {
            let Some(over) = front.over.filter(|_| now >= front.ready) else { break };
            let (index, completes) = (front.index, front.completes);
            worked = true;
            match over {
                Ok(()) => {
                    self.window.pop_front();
                    self.done = index + 1;
                    if completes {
                        self.completion(index, None);
                    }
                }
                Err(syndrome) => {
                    self.window.clear();
                    self.failed = true;
                    self.completion(index, Some(syndrome));
                    self.taken = index + 1;
                    self.flush = Some(now + FLUSH);
                }
            }
        }
        worked
    }

    /// After a failure each request that is left fails, too.
    fn flush(&mut self, now: Instant) {
        if self.flush.is_some_and(|at| now >= at) && self.taken < self.known {
            self.taken = self.known;
            self.completion(self.known - 1, Some(syndrome::FLUSHED));
        }
    }

    /// Writes the one entry of the completion queue.
    fn completion(&self, index: u64, failed: Option<u8>) {
        let mut sixth = [0; 8];
        sixth[7] = failed.unwrap_or(0);
        let mut last = [0; 8];
        last[..4].copy_from_slice(&self.number.to_be_bytes());
        last[4..6].copy_from_slice(&(index as u16).to_be_bytes());
        let lap = ((index / self.memory.count as u64) & 1) as u8;
        let kind = if failed.is_some() { 0xd0 } else { 0 };
        last[7] = kind | lap;
        // SAFETY: words of this pair's entry, atomic to all.
        unsafe {
            AtomicU64::from_ptr(self.memory.completion.add(6))
                .store(u64::from_le_bytes(sixth), Ordering::Relaxed);
            AtomicU64::from_ptr(self.memory.completion.add(7))
                .store(u64::from_le_bytes(last), Ordering::Release);
        }
    }

    // ---- the link ----

    fn progress(&mut self, rest: &mut Rest, now: Instant) -> bool {
        let Some(link) = &mut self.link else { return false };
        let moved = link.progress();
        let frames = link.frames();
        let mut worked = moved == Ok(true);
        for frame in frames.iter().flatten() {
            self.serve(rest, frame.clone(), now);
            worked = true;
        }
        if moved.is_err() || frames.is_err() {
            self.link = None;
            self.lost = Some(now);
        }
        worked
    }

    fn serve(&mut self, rest: &mut Rest, frame: Frame, now: Instant) {
        let (index, kind) = (frame.index, frame.kind);
        match kind {
            PacketKind::Done => {
                let ready = if rest.chance.one_in(4) { rest.chance.due() } else { now };
                self.over(index, Ok(()), ready);
            }
            PacketKind::Refused => {
                self.tell(
                    rest,
                    &format!("request {index} was refused by the peer (syndrome {:#04x})", frame.more),
                );
                self.over(index, Err(frame.more), now);
            }
            PacketKind::Data => self.take_data(rest, &frame, now),
            PacketKind::Read if rest.chance.one_in(4) => self.late.push_back((rest.chance.due(), frame)),
            // READs keep their order among themselves, and an atomic waits for those before it.
            PacketKind::Read | PacketKind::FetchAdd | PacketKind::CompareSwap => {
                self.answer_late(rest, now, true);
                self.carry_out(rest, &frame);
            }
            PacketKind::Write => self.carry_out(rest, &frame),
        }
    }

    fn take_data(&mut self, rest: &mut Rest, frame: &Frame, now: Instant) {
        let flight = self.window.iter_mut().find(|flight| flight.index == frame.index);
        let Some((flight, (to, left))) = flight.and_then(|f| f.awaits.map(|awaits| (f, awaits))) else {
            return;
        };
        let n = frame.data.len().min(left);
        if let Err(e) = rest.regions.write(to, &frame.data[..n]) {
            rest.told.push(e.message);
        }
        flight.awaits = Some((to.offset(n), left - n));
        if n == left {
            flight.over = Some(Ok(()));
            flight.ready = if rest.chance.one_in(4) { rest.chance.due() } else { now };
        }
    }
}
