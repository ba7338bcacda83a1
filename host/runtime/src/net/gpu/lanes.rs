//! What other PEs ask of this PE's GPU memory, in the order in which each of them asked: one lane for each. What goes in by
//! copy engines and stream words keeps its order by itself; an atomic, which a thread of the GPU carries out, starts when
//! what its PE asked before has arrived, and what that PE asks next waits for it.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::chunks::{Chunk, Course};
use super::mailbox::{Mailbox, Request};
use super::staging::{Staging, Ticket};
use crate::error::Result;
use crate::gpu::Cuda;
use crate::kernel::service::Service;
use crate::net::span::Span;

/// Whom an answer goes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) pe: usize,
    pub(crate) reply: u64,
}

/// One thing to be done.
#[derive(Debug)]
pub(crate) enum Job {
    /// Bytes of a message.
    Write { span: Span, data: Vec<u8> },
    /// A word, whole where it is aligned; a signal that is set.
    Store { at: usize, bits: u64, bytes: usize },
    /// An atomic.
    Update { request: Request, answer: Option<Answer> },
    /// A word is asked for.
    Load { at: usize, width: usize, answer: Answer },
    /// Bytes are asked for; so many are on their way.
    Fetch { span: Span, sent: usize, answer: Answer },
    /// The data of a large message belongs here.
    Bulk { number: u64, span: Span },
    /// All before is to be done.
    Settle(Answer),
}

/// What becomes of jobs, for the engine.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// An answer of one word.
    Word(Answer, u64),
    /// A piece of what was asked for, its place in the whole.
    Data { answer: Answer, at: usize, chunk: Chunk, bytes: usize },
    /// The data of this large message goes into the chunk next; [`Lanes::landed`] tells that it has.
    Receive { from: usize, number: u64, chunk: Chunk },
}

#[derive(Debug, Default)]
struct Lane {
    todo: VecDeque<Job>,
    /// The last thing that went in.
    written: Option<Ticket>,
    /// Atomics that are not carried out yet.
    updates: usize,
    /// Large messages whose data is here, or on its way into a chunk.
    arrived: HashMap<u64, Option<Chunk>>,
}

/// A copy out of the GPU, and what it is for.
#[derive(Debug)]
enum Out {
    Word(Answer, usize),
    Data(Answer, usize),
}

/// The lanes, with what they use.
pub(crate) struct Lanes {
    lanes: Vec<Lane>,
    pub(crate) staging: Staging,
    mailbox: Mailbox,
    service: Arc<Service>,
    /// Whose atomic each request of the mailbox is.
    updates: HashMap<u64, (usize, Option<Answer>)>,
    /// Copies into the GPU whose chunks are in use.
    ins: VecDeque<(Ticket, Chunk)>,
    outs: VecDeque<(Ticket, Chunk, usize, Out)>,
    /// Lanes with something to do.
    busy: Vec<usize>,
    /// The oldest copy, and since when it is that.
    oldest: Option<(Ticket, Instant)>,
}

/// Bulk of one PE that may be under way at a time.
const BULK_AHEAD: usize = 4;
/// A copy takes microseconds once it runs. One that has not for so long is held up by streams that wait.
const HELD_UP: Duration = Duration::from_secs(2);

impl Lanes {
    pub(crate) fn new(cuda: &Arc<Cuda>, n: usize, mailbox: Mailbox, service: Arc<Service>) -> Result<Lanes> {
        Ok(Lanes {
            lanes: (0..n).map(|_| Lane::default()).collect(),
            staging: Staging::new(cuda)?,
            mailbox,
            service,
            updates: HashMap::new(),
            ins: VecDeque::new(),
            outs: VecDeque::new(),
            busy: Vec::new(),
            oldest: None,
        })
    }

    /// Adds what `from` asks for. Its addresses are this PE's GPU memory, checked.
    pub(crate) fn add(&mut self, from: usize, job: Job) {
        self.lanes[from].todo.push_back(job);
        if !self.busy.contains(&from) {
            self.busy.push(from);
        }
    }

    /// The data of a large message is in the chunk that it was given.
    pub(crate) fn landed(&mut self, from: usize, number: u64, chunk: Chunk) {
        self.lanes[from].arrived.insert(number, Some(chunk));
    }

    /// True where something is under way, so that it is worth looking again soon.
    pub(crate) fn is_busy(&self) -> bool {
        !(self.busy.is_empty() && self.outs.is_empty() && self.ins.is_empty() && self.updates.is_empty())
    }

    /// Starts what can be started, and tells what has ended. `known(from, number)`: that large message has been announced.
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
            let ran = self.run_lane(*from, known, outcomes, &mut posted);
            failed = std::mem::replace(&mut failed, Ok(())).and(ran);
            !self.lanes[*from].todo.is_empty()
        });
        self.busy = busy;
        failed?;
        if posted {
            self.mailbox.ring(&self.service)?;
        }
        Ok(())
    }

    /// What has ended since the last look.
    fn collect(&mut self, outcomes: &mut Vec<Outcome>) -> Result<()> {
        while let Some((ticket, _)) = self.ins.front() {
            if !self.staging.done(*ticket)? {
                break;
            }
            if let Some((_, chunk)) = self.ins.pop_front() {
                self.staging.give_back(chunk);
            }
        }
        while let Some((ticket, ..)) = self.outs.front() {
            if !self.staging.done(*ticket)? {
                break;
            }
            let Some((_, chunk, bytes, out)) = self.outs.pop_front() else { break };
            match out {
                Out::Word(answer, width) => {
                    let mut word = [0u8; 8];
                    // SAFETY: the chunk holds the word, and nobody else uses it.
                    unsafe { std::ptr::copy_nonoverlapping(chunk.as_ptr(), word.as_mut_ptr(), width) };
                    self.staging.give_back(chunk);
                    outcomes.push(Outcome::Word(answer, u64::from_le_bytes(word)));
                }
                Out::Data(answer, at) => outcomes.push(Outcome::Data { answer, at, chunk, bytes }),
            }
        }
        self.watch();
        if self.updates.is_empty() {
            return Ok(());
        }
        let (lanes, updates) = (&mut self.lanes, &mut self.updates);
        self.mailbox.completed(&self.service, &mut |id, old| {
            let Some((from, answer)) = updates.remove(&id) else { return };
            lanes[from].updates -= 1;
            if let Some(answer) = answer {
                outcomes.push(Outcome::Word(answer, old));
            }
        })
    }

    /// Says so, once, where a copy has not run for long: nobody else could tell why nothing goes on.
    fn watch(&mut self) {
        let oldest = self.ins.front().map(|entry| entry.0).or(self.outs.front().map(|entry| entry.0));
        match (self.oldest, oldest) {
            (Some((known, since)), Some(ticket)) if known == ticket => {
                if since.elapsed() > HELD_UP {
                    log::warn!(
                        "a copy of {} has not run for {HELD_UP:?}: streams that wait seem to hold all of this process' queues to the GPU ({}); let it have 32, the most (export CUDA_DEVICE_MAX_CONNECTIONS=32), or let fewer streams wait at a time",
                        self.staging.whose(),
                        queues()
                    );
                    // Again for another copy only.
                    self.oldest = Some((ticket, Instant::now() + Duration::from_secs(3600)));
                }
            }
            (_, ticket) => self.oldest = ticket.map(|ticket| (ticket, Instant::now())),
        }
    }

    /// Whether all that the lane's PE has asked is in memory.
    fn settled(&mut self, from: usize) -> Result<bool> {
        let lane = &mut self.lanes[from];
        if lane.updates > 0 {
            return Ok(false);
        }
        if let Some(ticket) = lane.written {
            if !self.staging.done(ticket)? {
                return Ok(false);
            }
            lane.written = None;
        }
        Ok(true)
    }

    fn run_lane(
        &mut self,
        from: usize,
        known: &dyn Fn(usize, u64) -> bool,
        outcomes: &mut Vec<Outcome>,
        posted: &mut bool,
    ) -> Result<()> {
        self.receive_ahead(from, known, outcomes)?;
        while let Some(job) = self.lanes[from].todo.front() {
            let in_order = self.lanes[from].updates == 0;
            match job {
                Job::Write { span, data } => {
                    if !in_order {
                        return Ok(());
                    }
                    let Some(chunk) = self.staging.try_chunk(data.len(), Course::Arriving) else {
                        return Ok(());
                    };
                    // SAFETY: a message is shorter than any chunk, which nobody else uses; the engine has checked the span.
                    let ticket = unsafe {
                        std::ptr::copy_nonoverlapping(data.as_ptr(), chunk.as_ptr(), data.len());
                        self.staging.copy_in(span, 0, &chunk, data.len())?
                    };
                    self.ins.push_back((ticket, chunk));
                    self.lanes[from].written = Some(ticket);
                }
                Job::Store { at, bits, bytes } => {
                    if !in_order {
                        return Ok(());
                    }
                    // SAFETY: the engine has checked the address.
                    let stored = unsafe { self.staging.store(*at, *bits, *bytes) }?;
                    let Some(ticket) = stored else { return Ok(()) };
                    self.lanes[from].written = Some(ticket);
                }
                Job::Update { request, answer } => {
                    let (request, answer) = (*request, *answer);
                    if let Some(ticket) = self.lanes[from].written {
                        if !self.staging.done(ticket)? {
                            return Ok(());
                        }
                        self.lanes[from].written = None;
                    }
                    // SAFETY: the engine has checked the address.
                    let id = unsafe { self.mailbox.post(&request) };
                    *posted = true;
                    self.updates.insert(id, (from, answer));
                    self.lanes[from].updates += 1;
                }
                Job::Load { at, width, answer } => {
                    let (span, width, answer) = (Span::contiguous(*at, *width), *width, *answer);
                    if !self.settled(from)? {
                        return Ok(());
                    }
                    let Some(chunk) = self.staging.try_chunk(width, Course::Answering) else { return Ok(()) };
                    // SAFETY: as above.
                    let ticket = unsafe { self.staging.copy_out(&chunk, &span, 0, width)? };
                    self.outs.push_back((ticket, chunk, width, Out::Word(answer, width)));
                }
                Job::Fetch { span, sent, answer } => {
                    let (span, sent, answer) = (*span, *sent, *answer);
                    if sent == 0 && !self.settled(from)? {
                        return Ok(());
                    }
                    let left = span.bytes() - sent;
                    let Some(chunk) = self.staging.try_chunk(left, Course::Answering) else { return Ok(()) };
                    let bytes = left.min(chunk.bytes());
                    // SAFETY: as above.
                    let ticket = unsafe { self.staging.copy_out(&chunk, &span, sent, bytes)? };
                    self.outs.push_back((ticket, chunk, bytes, Out::Data(answer, sent)));
                    if bytes < left {
                        self.lanes[from].todo[0] = Job::Fetch { span, sent: sent + bytes, answer };
                        continue;
                    }
                }
                Job::Bulk { number, span } => {
                    let (number, span) = (*number, *span);
                    if !in_order || !matches!(self.lanes[from].arrived.get(&number), Some(Some(_))) {
                        return Ok(());
                    }
                    let Some(Some(chunk)) = self.lanes[from].arrived.remove(&number) else { return Ok(()) };
                    // SAFETY: as above; the chunk holds the message's data.
                    let ticket = unsafe { self.staging.copy_in(&span, 0, &chunk, span.bytes())? };
                    self.ins.push_back((ticket, chunk));
                    self.lanes[from].written = Some(ticket);
                }
                Job::Settle(answer) => {
                    let answer = *answer;
                    if !self.settled(from)? {
                        return Ok(());
                    }
                    outcomes.push(Outcome::Word(answer, 0));
                }
            }
            self.lanes[from].todo.pop_front();
            self.receive_ahead(from, known, outcomes)?;
        }
        Ok(())
    }

    /// Gives chunks to the large messages that come next, so that the network and the copy engines work at the same time.
    fn receive_ahead(
        &mut self,
        from: usize,
        known: &dyn Fn(usize, u64) -> bool,
        outcomes: &mut Vec<Outcome>,
    ) -> Result<()> {
        let next: Vec<(usize, u64, usize)> = self.lanes[from]
            .todo
            .iter()
            .take(BULK_AHEAD)
            .enumerate()
            .filter_map(|(place, job)| match job {
                Job::Bulk { number, span } => Some((place, *number, span.bytes())),
                _ => None,
            })
            .filter(|(_, number, _)| !self.lanes[from].arrived.contains_key(number) && known(from, *number))
            .collect();
        for (place, number, bytes) in next {
            // Those that come later hold their chunks until what is before them is done, which may take another PE.
            let course = if place == 0 { Course::Arriving } else { Course::Leaving };
            let Some(chunk) = self.staging.try_chunk(bytes, course) else { return Ok(()) };
            self.lanes[from].arrived.insert(number, None);
            outcomes.push(Outcome::Receive { from, number, chunk });
        }
        Ok(())
    }
}

/// How many queues CUDA was told to use, for texts.
fn queues() -> String {
    match std::env::var("CUDA_DEVICE_MAX_CONNECTIONS") {
        Ok(n) => format!("CUDA_DEVICE_MAX_CONNECTIONS is {n}"),
        Err(_) => "CUDA_DEVICE_MAX_CONNECTIONS is not set, which means 8".into(),
    }
}
