//! What other PEs ask of this PE's GPU memory, in the order in which each of them asked: one queue for each.
//! What goes in by copy engines and stream words keeps its order by itself; an atomic, which a thread of the
//! GPU carries out, starts when what its PE asked before has arrived, and what that PE asks next waits for
//! it.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use super::chunks::{Chunk, Course};
use super::mailbox::AtomicRequest;
use super::mover::Mover;
use super::staging::Ticket;
use crate::error::Result;
use crate::gpu::stream::hardware_queues;
use crate::net::memory::span::Span;

/// Where an answer goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) pe: usize,
    pub(crate) reply: u64,
}

/// One thing to be done.
#[derive(Debug)]
pub(crate) enum PeerRequest {
    /// Bytes of a message.
    Write { span: Span, data: Vec<u8> },
    /// A word, whole where it is aligned; a signal that is set.
    Store { at: usize, bits: u64, bytes: usize },
    /// An atomic.
    Update { request: AtomicRequest, answer: Option<Answer> },
    /// A word is asked for.
    Load { at: usize, width: usize, answer: Answer },
    /// Bytes are asked for; so many are on their way.
    Fetch { span: Span, sent: usize, answer: Answer },
    /// The data of a large message belongs here.
    Bulk { number: u64, span: Span },
    /// All before is to be done.
    Settle(Answer),
}

/// What becomes of requests, for the engine.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// An answer of one word.
    Word(Answer, u64),
    /// A piece of what was asked for, its place in the whole.
    Data { answer: Answer, at: usize, chunk: Chunk, bytes: usize },
    /// The data of this large message goes into the chunk next; then it is [`PeerQueues::landed`].
    Receive { from: usize, number: u64, chunk: Chunk },
}

#[derive(Debug, Default)]
struct PeerQueue {
    todo: VecDeque<PeerRequest>,
    /// The last thing that went in.
    written: Option<Ticket>,
    /// Atomics that are not carried out yet.
    updates: usize,
    /// Large messages whose data is here, or on its way into a chunk.
    arrived: BTreeMap<u64, Option<Chunk>>,
}

/// A copy out of the GPU, and what it is for.
#[derive(Debug)]
enum Out {
    Word(Answer, usize),
    Data(Answer, usize),
}

/// The queues, with what they use.
pub(crate) struct PeerQueues {
    queues: Vec<PeerQueue>,
    pub(crate) mover: Box<dyn Mover>,
    /// The PE and the answer of each update that is posted.
    updates: BTreeMap<u64, (usize, Option<Answer>)>,
    /// Copies into the GPU whose chunks are in use.
    ins: VecDeque<(Ticket, Chunk)>,
    outs: VecDeque<(Ticket, Chunk, usize, Out)>,
    /// PeerQueues with something to do.
    busy: Vec<usize>,
    /// The oldest copy, and since when it is that.
    oldest: Option<(Ticket, Instant)>,
}

/// For tests: all that decides what may still happen.
#[cfg(test)]
impl std::fmt::Debug for PeerQueues {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let PeerQueues { queues, updates, ins, outs, busy, .. } = self;
        write!(f, "{queues:?}{updates:?}{ins:?}{outs:?}{busy:?}")
    }
}

/// Bulk of one PE that may be under way at a time.
const BULK_AHEAD: usize = 4;
/// A copy takes microseconds once it runs. One that has not for so long is held up by streams that wait.
const HELD_UP: Duration = Duration::from_secs(2);

impl PeerQueues {
    /// For `n` PEs that ask for this PE's memory.
    pub(crate) fn new(n: usize, mover: Box<dyn Mover>) -> PeerQueues {
        PeerQueues {
            queues: (0..n).map(|_| PeerQueue::default()).collect(),
            mover,
            updates: BTreeMap::new(),
            ins: VecDeque::new(),
            outs: VecDeque::new(),
            busy: Vec::new(),
            oldest: None,
        }
    }

    /// Adds what `from` asks for. Its addresses are this PE's GPU memory, checked.
    pub(crate) fn add(&mut self, from: usize, request: PeerRequest) {
        self.queues[from].todo.push_back(request);
        if !self.busy.contains(&from) {
            self.busy.push(from);
        }
    }

    /// The data of a large message is in the chunk that it was given.
    pub(crate) fn landed(&mut self, from: usize, number: u64, chunk: Chunk) {
        self.queues[from].arrived.insert(number, Some(chunk));
    }

    /// True where something is under way, so that it is worth looking again soon.
    pub(crate) fn is_busy(&self) -> bool {
        !(self.busy.is_empty() && self.outs.is_empty() && self.ins.is_empty() && self.updates.is_empty())
    }

    /// Starts what can be started, and reports what has ended. `known(from, number)`: that large message has
    /// been announced.
    pub(crate) fn run(
        &mut self,
        known: &dyn Fn(usize, u64) -> bool,
        outcomes: &mut Vec<Outcome>,
    ) -> Result<()> {
        self.collect(outcomes)?;
        let mut posted = false;
        let mut busy = std::mem::take(&mut self.busy);
        let mut failed = Ok(());
        busy.retain(|from| {
            let ran = self.run_queue(*from, known, outcomes, &mut posted);
            failed = std::mem::replace(&mut failed, Ok(())).and(ran);
            !self.queues[*from].todo.is_empty()
        });
        self.busy = busy;
        failed?;
        if posted {
            self.mover.ring()?;
        }
        Ok(())
    }

    /// What has ended since the last look.
    fn collect(&mut self, outcomes: &mut Vec<Outcome>) -> Result<()> {
        while let Some((ticket, _)) = self.ins.front() {
            if !self.mover.done(*ticket)? {
                break;
            }
            if let Some((_, chunk)) = self.ins.pop_front() {
                self.mover.give_back(chunk);
            }
        }
        while let Some((ticket, ..)) = self.outs.front() {
            if !self.mover.done(*ticket)? {
                break;
            }
            let Some((_, chunk, bytes, out)) = self.outs.pop_front() else { break };
            match out {
                Out::Word(answer, width) => {
                    let mut word = [0u8; 8];
                    // SAFETY: the chunk holds the word, and nobody else uses it.
                    unsafe { std::ptr::copy_nonoverlapping(chunk.as_ptr(), word.as_mut_ptr(), width) };
                    self.mover.give_back(chunk);
                    outcomes.push(Outcome::Word(answer, u64::from_le_bytes(word)));
                }
                Out::Data(answer, at) => outcomes.push(Outcome::Data { answer, at, chunk, bytes }),
            }
        }
        self.watch();
        if self.updates.is_empty() {
            return Ok(());
        }
        let (queues, updates) = (&mut self.queues, &mut self.updates);
        self.mover.completed(&mut |id, old| {
            let Some((from, answer)) = updates.remove(&id) else { return };
            queues[from].updates -= 1;
            if let Some(answer) = answer {
                outcomes.push(Outcome::Word(answer, old));
            }
        })
    }

    /// Says so, once, where a copy has not run for long: nothing else shows why the transfers stand still.
    fn watch(&mut self) {
        let oldest = self.ins.front().map(|entry| entry.0).or(self.outs.front().map(|entry| entry.0));
        match (self.oldest, oldest) {
            (Some((known, since)), Some(ticket)) if known == ticket => {
                if since.elapsed() > HELD_UP {
                    log::warn!(
                        "a copy of {} has not run for {HELD_UP:?}: streams that wait seem to hold all of this \
                         process' queues to the GPU ({}); let it have 32, the most (export \
                         CUDA_DEVICE_MAX_CONNECTIONS=32), or let fewer streams wait at a time",
                        self.mover.subject(),
                        hardware_queues()
                    );
                    // Again for another copy only.
                    self.oldest = Some((ticket, Instant::now() + Duration::from_secs(3600)));
                }
            }
            (_, ticket) => self.oldest = ticket.map(|ticket| (ticket, Instant::now())),
        }
    }

    /// Whether all that the queue's PE has asked is in memory.
    fn settled(&mut self, from: usize) -> Result<bool> {
        let queue = &mut self.queues[from];
        if queue.updates > 0 {
            return Ok(false);
        }
        if let Some(ticket) = queue.written {
            if !self.mover.done(ticket)? {
                return Ok(false);
            }
            queue.written = None;
        }
        Ok(true)
    }

    fn run_queue(
        &mut self,
        from: usize,
        known: &dyn Fn(usize, u64) -> bool,
        outcomes: &mut Vec<Outcome>,
        posted: &mut bool,
    ) -> Result<()> {
        self.receive_ahead(from, known, outcomes)?;
        while let Some(request) = self.queues[from].todo.front() {
            let in_order = self.queues[from].updates == 0;
            match request {
                PeerRequest::Write { span, data } => {
                    if !in_order {
                        return Ok(());
                    }
                    let Some(chunk) = self.mover.try_chunk(data.len(), Course::Arriving) else {
                        return Ok(());
                    };
                    // SAFETY: a message is shorter than any chunk, which nobody else uses; the engine has
                    // checked the span.
                    let ticket = unsafe {
                        std::ptr::copy_nonoverlapping(data.as_ptr(), chunk.as_ptr(), data.len());
                        self.mover.copy_in(span, 0, &chunk, data.len())?
                    };
                    self.ins.push_back((ticket, chunk));
                    self.queues[from].written = Some(ticket);
                }
                PeerRequest::Store { at, bits, bytes } => {
                    if !in_order {
                        return Ok(());
                    }
                    // SAFETY: the engine has checked the address.
                    let stored = unsafe { self.mover.store(*at, *bits, *bytes) }?;
                    let Some(ticket) = stored else { return Ok(()) };
                    self.queues[from].written = Some(ticket);
                }
                PeerRequest::Update { request, answer } => {
                    let (request, answer) = (*request, *answer);
                    if let Some(ticket) = self.queues[from].written {
                        if !self.mover.done(ticket)? {
                            return Ok(());
                        }
                        self.queues[from].written = None;
                    }
                    // SAFETY: the engine has checked the address.
                    let id = unsafe { self.mover.post(&request) };
                    *posted = true;
                    self.updates.insert(id, (from, answer));
                    self.queues[from].updates += 1;
                }
                PeerRequest::Load { at, width, answer } => {
                    let (span, width, answer) = (Span::contiguous(*at, *width), *width, *answer);
                    if !self.settled(from)? {
                        return Ok(());
                    }
                    let Some(chunk) = self.mover.try_chunk(width, Course::Answering) else { return Ok(()) };
                    // SAFETY: the engine has checked the span, and nobody else uses the chunk.
                    let ticket = unsafe { self.mover.copy_out(&chunk, &span, 0, width)? };
                    self.outs.push_back((ticket, chunk, width, Out::Word(answer, width)));
                }
                PeerRequest::Fetch { span, sent, answer } => {
                    let (span, sent, answer) = (*span, *sent, *answer);
                    if sent == 0 && !self.settled(from)? {
                        return Ok(());
                    }
                    let left = span.bytes() - sent;
                    let Some(chunk) = self.mover.try_chunk(left, Course::Answering) else { return Ok(()) };
                    let bytes = left.min(chunk.bytes());
                    // SAFETY: the engine has checked the span, and nobody else uses the chunk.
                    let ticket = unsafe { self.mover.copy_out(&chunk, &span, sent, bytes)? };
                    self.outs.push_back((ticket, chunk, bytes, Out::Data(answer, sent)));
                    if bytes < left {
                        self.queues[from].todo[0] = PeerRequest::Fetch { span, sent: sent + bytes, answer };
                        continue;
                    }
                }
                PeerRequest::Bulk { number, span } => {
                    let (number, span) = (*number, *span);
                    if !in_order || !matches!(self.queues[from].arrived.get(&number), Some(Some(_))) {
                        return Ok(());
                    }
                    let Some(Some(chunk)) = self.queues[from].arrived.remove(&number) else { return Ok(()) };
                    // SAFETY: the engine has checked the span; the chunk holds the message's data.
                    let ticket = unsafe { self.mover.copy_in(&span, 0, &chunk, span.bytes())? };
                    self.ins.push_back((ticket, chunk));
                    self.queues[from].written = Some(ticket);
                }
                PeerRequest::Settle(answer) => {
                    let answer = *answer;
                    if !self.settled(from)? {
                        return Ok(());
                    }
                    outcomes.push(Outcome::Word(answer, 0));
                }
            }
            self.queues[from].todo.pop_front();
            self.receive_ahead(from, known, outcomes)?;
        }
        Ok(())
    }

    /// Gives chunks to the large messages that come next, so that the network and the copy engines work at
    /// the same time.
    fn receive_ahead(
        &mut self,
        from: usize,
        known: &dyn Fn(usize, u64) -> bool,
        outcomes: &mut Vec<Outcome>,
    ) -> Result<()> {
        let next: Vec<(usize, u64, usize)> = self.queues[from]
            .todo
            .iter()
            .take(BULK_AHEAD)
            .enumerate()
            .filter_map(|(place, request)| match request {
                PeerRequest::Bulk { number, span } => Some((place, *number, span.bytes())),
                _ => None,
            })
            .filter(|(_, number, _)| !self.queues[from].arrived.contains_key(number) && known(from, *number))
            .collect();
        for (place, number, bytes) in next {
            // Those that come later hold their chunks until what is before them is done, which may take
            // another PE.
            let course = if place == 0 { Course::Arriving } else { Course::Leaving };
            let Some(chunk) = self.mover.try_chunk(bytes, course) else { return Ok(()) };
            self.queues[from].arrived.insert(number, None);
            outcomes.push(Outcome::Receive { from, number, chunk });
        }
        Ok(())
    }
}
