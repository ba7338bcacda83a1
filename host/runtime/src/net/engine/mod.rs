//! The progress engine: what is asked of PEs whose memory is not mapped, by this PE's host, streams and
//! kernels alike, and what they ask of this one. It never blocks; a thread that waits [turns](Engine::turn)
//! it. Small things are records in numbered messages, bulk is the transport's one-sided copies.
//!
//! Three layers, each of which holds the one below and calls nothing above:
//!
//! - [`Core`]: the parts side by side ([`crate::net::wire`], [`crate::net::ordering`], [`in_flight`],
//!   [`crate::net::completion`], [`failures`], the segments, the transport), and what takes several of them.
//! - [`Operations`]: the core and GPU memory. It starts operations or holds them back, and carries out those
//!   of other PEs.
//! - [`Engine`]: the operations, and the kernels that ask for some.

mod arrivals;
pub(in crate::net) mod core;
mod failures;
pub(in crate::net) mod in_flight;
pub(in crate::net) mod operations;
#[cfg(test)]
mod order_tests;
mod serve;
mod transfers;

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

use self::core::Core;
use crate::error::{Error, Result};
use crate::health::Health;
use crate::net::completion::Callback;
use crate::net::gpu::traffic::Traffic;
use crate::net::memory::segments::Segments;
use crate::net::ordering::Lane;
use crate::net::proxy::posts::Posts;
use crate::net::queue::probes::Probe;
use crate::net::queue::{Queues, UsedQueue};
use crate::net::transport::{Event, Token, Transport};
use crate::net::wire::message::Record;
use crate::net::wire::RECORD;
use crate::node::control::{Arrival, Carried};
use failures::Failures;
use in_flight::Flight;

pub(crate) use crate::net::completion::Done;
pub(crate) use crate::net::request::Rows;
pub(in crate::net) use arrivals::Note;
use operations::Operations;

/// Operations with memory of a caller in flight end within this, when the job is broken.
pub(in crate::net) const PATIENCE: Duration = Duration::from_secs(2);

/// Up to so many bytes travel in a message rather than by a one-sided copy.
pub(crate) const INLINE: usize = 512;

/// The engine of one PE.
pub(crate) struct Engine {
    pub(in crate::net) operations: Operations,
    /// What kernels post, once there is a ring.
    posts: Option<Box<Posts>>,
    /// The queues that kernels write themselves, where there are any.
    queues: Option<Box<Queues>>,
    /// Operations that are open in the order of their PE for what kernels have in these queues.
    in_queues: Vec<InQueue>,
    /// For `turn`.
    events: Vec<Event>,
    /// The process ends: nothing goes on.
    halted: bool,
}

impl Engine {
    /// For PE `me` of as many as have `names`; `note` notes arrivals.
    pub(in crate::net) fn new(
        me: usize,
        transport: Box<dyn Transport>,
        names: Vec<String>,
        note: Note,
        health: Arc<Health>,
    ) -> Engine {
        let n = names.len();
        let core = Core::new(me, n, transport, Failures::new(me, names, health));
        let operations = Operations { core, gpu: None, note, let_go: false };
        Engine {
            operations,
            posts: None,
            queues: None,
            in_queues: Vec::new(),
            events: Vec::new(),
            halted: false,
        }
    }

    /// Kernels may post from now on.
    pub(in crate::net) fn attach_posts(&mut self, posts: Posts) {
        self.posts = Some(Box::new(posts));
    }

    /// Kernels write queues of a card.
    pub(in crate::net) fn attach_queues(&mut self, queues: Queues) {
        self.queues = Some(Box::new(queues));
    }

    pub(in crate::net) fn queues(&mut self) -> Option<&mut Queues> {
        self.queues.as_deref_mut()
    }

    /// Heaps are in GPU memory.
    pub(in crate::net) fn attach_gpu(&mut self, traffic: Traffic) {
        self.operations.gpu = Some(Box::new(traffic));
    }

    // ---- turning ----

    /// Lets everything go on. True where something happened.
    pub(crate) fn turn(&mut self) -> bool {
        if self.halted {
            return false;
        }
        self.try_turn().unwrap_or_else(|e| {
            self.fail(e);
            true
        })
    }

    fn try_turn(&mut self) -> Result<bool> {
        self.operations.end_lost();
        let mut worked = self.serve_kernels()?;
        worked |= self.look_at_queues();
        worked |= self.operations.push_out()?;
        self.operations.core.transport.progress(&mut self.events);
        worked |= !self.events.is_empty();
        for event in self.events.drain(..) {
            self.operations.event(event)?;
        }
        worked |= self.operations.run_gpu()?;
        let core = &mut self.operations.core;
        if core.ordering.has_quiets() {
            for quiet in core.ordering.quiets() {
                core.advance_quiet(quiet)?;
            }
        }
        worked |= self.operations.push_out()?;
        self.answer_kernels();
        Ok(worked)
    }

    /// The process ends, and the exit handlers of the network's library and of the driver are about to run:
    /// neither is called from here on.
    pub(in crate::net) fn halt(&mut self) {
        self.halted = true;
        if let Some(queues) = &self.queues {
            queues.halt();
        }
    }

    /// The engine itself cannot go on: everything that waits ends.
    pub(in crate::net) fn fail(&mut self, e: Error) {
        self.operations.core.failures.fail(&e);
    }

    // ---- order and completion ----

    /// What is asked in the context from here on happens after what was asked in it before, on each PE. What
    /// kernels that have ended have posted counts as asked before, in the default one.
    pub(crate) fn fence(&mut self, context: u64) {
        self.start_posts();
        self.operations.fence(context);
    }

    /// `done` when all that was asked so far, in the context or in all, has been carried out everywhere; by
    /// kernels that have ended, too.
    pub(crate) fn quiet(&mut self, context: Option<u64>, done: Done) -> Result<()> {
        self.start_posts();
        self.operations.quiet(context, done)
    }

    /// Nothing that was asked so far, in the context or in all, is under way.
    pub(in crate::net) fn is_quiet(&self, context: Option<u64>) -> bool {
        self.operations.core.ordering.is_quiet(context)
    }

    /// A context has ended, and nothing of it is under way.
    pub(in crate::net) fn forget_context(&mut self, context: u64) {
        self.operations.core.ordering.forget(context);
    }

    /// True where so much is under way or held back that more had better wait.
    pub(in crate::net) fn congested(&self) -> bool {
        self.operations.core.congested()
    }

    /// A number under which a host thread waits.
    pub(in crate::net) fn waiter(&mut self) -> usize {
        self.operations.core.completions.waiter()
    }

    /// What came for a waiter, once; the number is free then.
    pub(in crate::net) fn take(&mut self, waiter: usize) -> Option<Result<u64>> {
        self.operations.core.completions.take(waiter)
    }

    /// Begins `what`, which completes with the callback.
    pub(in crate::net) fn begin(
        &mut self,
        what: impl FnOnce(&mut Engine, Done) -> Result<()>,
        callback: Callback,
    ) {
        let done = self.operations.core.completions.callback(callback);
        if let Err(e) = what(self, done) {
            self.fail(e.clone());
            self.operations.core.completions.complete(done, Err(e));
        }
    }

    /// All callbacks run, with that error.
    pub(in crate::net) fn fail_callbacks(&mut self, e: &Error) {
        self.operations.core.completions.fail_callbacks(e);
    }

    /// In a broken job nothing is certain to end: callbacks run with its error. The caller may free
    /// its memory then, so the transport gives that back first, or has had the time for it.
    pub(in crate::net) fn fail_callbacks_if_broken(&mut self) {
        let core = &self.operations.core;
        let Err(e) = core.failures.check() else { return };
        if !core.completions.has_callbacks() {
            return;
        }
        let late = core.failures.broken_for().is_some_and(|time| time > PATIENCE);
        if !self.operations.let_go {
            self.let_go();
        }
        if late || !self.uses_memory_of_callers() {
            self.fail_callbacks(&e);
        }
    }

    /// The job is broken, and callers get its error: all connections are cut, so that what is in flight fails
    /// instead of lasting. What is held back does not start any more, and nothing that comes in is laid down:
    /// callers may free their memory as soon as [`Engine::uses_memory_of_callers`] says so.
    pub(in crate::net) fn let_go(&mut self) {
        self.operations.let_go = true;
        self.operations.core.transport.cut();
    }

    /// True while the transport may still touch memory of callers.
    pub(in crate::net) fn uses_memory_of_callers(&self) -> bool {
        self.operations.core.in_flight.uses_memory_of_callers()
    }

    // ---- memory and PEs ----

    pub(in crate::net) fn n_pes(&self) -> usize {
        self.operations.core.ordering.n_pes()
    }

    pub(in crate::net) fn segments(&mut self) -> &mut Segments {
        &mut self.operations.core.segments
    }

    pub(in crate::net) fn transport(&mut self) -> &mut dyn Transport {
        &mut *self.operations.core.transport
    }

    /// This PE has entered a collective call, which carries `data`: the leaders of other nodes are sent
    /// records of both.
    pub(in crate::net) fn arrive(
        &mut self,
        leaders: &[usize],
        arrival: Arrival,
        (data, within): (&[u8], bool),
    ) -> Result<()> {
        let core = &mut self.operations.core;
        leaders.iter().try_for_each(|pe| {
            for (i, part) in data.chunks(RECORD).enumerate() {
                let Arrival { board, number, .. } = arrival;
                let carried = Carried { board, number, at: (i * RECORD) as u64, within, data: part };
                core.emit(*pe, &Record::Carried(carried))?;
            }
            core.emit(*pe, &Record::Arrive(arrival))?;
            core.send(*pe).map(drop)
        })
    }

    // ---- kernels ----

    /// Takes what kernels have posted, and answers them. True where there was anything.
    fn serve_kernels(&mut self) -> Result<bool> {
        let Some(posts) = &mut self.posts else { return Ok(false) };
        let core = &self.operations.core;
        let taken = if core.congested() {
            let lasted = posts.are_of_gpu().then(|| posts.full_for(core.failures.stall_report())).flatten();
            if let Some(lasted) = lasted {
                core.failures.report_full_ring(lasted, core.ordering.busy(None).iter().map(|lane| lane.pe));
            }
            Ok(false)
        } else {
            posts.take(&mut self.operations)
        };
        posts.answer(&mut self.operations.core.completions.replies);
        taken
    }

    fn answer_kernels(&mut self) {
        let replies = &mut self.operations.core.completions.replies;
        if let (false, Some(posts)) = (replies.is_empty(), &mut self.posts) {
            posts.answer(replies);
        }
    }

    /// Starts what kernels have posted by now. A fence or quiet of the host covers kernels that have ended,
    /// as it does where PEs are mapped.
    pub(in crate::net) fn start_posts(&mut self) {
        if self.halted {
            return;
        }
        let Some(posts) = &mut self.posts else { return };
        if let Err(e) = posts.take_present(&mut self.operations) {
            self.fail(e);
        }
        self.open_queues();
    }

    /// What kernels have in their queues counts as operations that have started, and are open until it is in
    /// the peers' memory: so fence and quiet of the host wait for it.
    fn open_queues(&mut self) {
        let Some(queues) = &self.queues else { return };
        for used in queues.used() {
            let (lane, until) = (Lane::to(used.pe), Until::Complete(used));
            if !self.in_queues.iter().any(|open| open.until == until) {
                let op = self.operations.core.ordering.lane(lane).begin();
                self.in_queues.push(InQueue { lane, op, until });
            }
        }
    }

    /// Rings for kernels, closes what has arrived, and reports what has failed. True where something
    /// happened.
    fn look_at_queues(&mut self) -> bool {
        let Some(queues) = &mut self.queues else { return false };
        let mut worked = queues.ring_for_kernels();
        if !self.in_queues.is_empty() {
            let core = &mut self.operations.core;
            for open in &mut self.in_queues {
                if let Until::Complete(used) = open.until {
                    if queues.reached(used) {
                        open.until = Until::Probed(queues.ask_for_probe(open.lane.pe));
                    }
                }
            }
            queues.turn_probes();
            self.in_queues.retain(|InQueue { lane, op, until }| {
                let over = matches!(until, Until::Probed(probe) if queues.probed(lane.pe, *probe));
                if over {
                    core.ordering.lane(*lane).close(*op);
                    core.wire.activate(lane.pe);
                    worked = true;
                }
                !over
            });
        }
        if let Some((pe, e)) = queues.failure() {
            self.operations.core.failures.suspect(pe, &e);
        }
        worked
    }

    /// There are kernels from now on: they post without ringing a doorbell.
    pub(in crate::net) fn expect_posts(&mut self) {
        if let Some(posts) = &mut self.posts {
            posts.expected = true;
        }
    }

    /// Whether there may be posts for which no doorbell rings.
    pub(in crate::net) fn expects_posts(&self) -> bool {
        self.posts.as_ref().is_some_and(|posts| posts.expected)
    }

    /// No kernel runs: frees the slots of the ring that threads held. True once all their posts are answered.
    pub(in crate::net) fn reclaim(&mut self) -> bool {
        let back = self.queues.as_mut().is_none_or(|queues| queues.reclaim());
        let Some(posts) = &mut self.posts else { return back };
        posts.answer(&mut self.operations.core.completions.replies);
        let posts = posts.reclaim(&mut self.operations).unwrap_or_else(|e| {
            self.fail(e);
            true
        });
        posts && back
    }

    /// What kernels have posted and could not be done, once.
    pub(in crate::net) fn take_refused(&mut self) -> Option<Error> {
        self.posts.as_mut().and_then(|posts| posts.refused.take())
    }
}

/// What kernels had in a queue to a PE at a fence or quiet of the host.
struct InQueue {
    lane: Lane,
    op: u64,
    until: Until,
}

/// How far that is.
#[derive(PartialEq, Eq)]
enum Until {
    /// The card has completed what was in that queue.
    Complete(UsedQueue),
    /// A read behind them has come back.
    Probed(Probe),
}

/// What may be asked of the engine is what its operations offer; fence and quiet, which cover kernels, too,
/// are its own.
impl Deref for Engine {
    type Target = Operations;

    fn deref(&self) -> &Operations {
        &self.operations
    }
}

impl DerefMut for Engine {
    fn deref_mut(&mut self) -> &mut Operations {
        &mut self.operations
    }
}

impl Operations {
    /// Acts on an event of the transport.
    fn event(&mut self, event: Event) -> Result<()> {
        match event {
            Event::Message(_) | Event::Bulk { .. } if self.let_go => Ok(()),
            Event::Message(message) => self.receive(message),
            Event::Done(token) => self.landed(token, Ok(())),
            Event::Failed(token, e) => self.landed(token, Err(e)),
            Event::Lost(pe, e) => {
                self.core.failures.suspect(pe, &e);
                Ok(())
            }
            Event::Bulk { head, bytes, data } => match &mut self.gpu {
                Some(gpu) => gpu.announce(&head, bytes, data),
                None => Err(crate::error::err!(
                    INTERNAL,
                    "a large message, which is for GPU memory, to a PE whose heap is in host memory"
                )),
            },
        }
    }

    /// What the transport had is over.
    fn landed(&mut self, token: Token, result: Result<()>) -> Result<()> {
        let flight = self.core.in_flight.end(token);
        if let Err(e) = &result {
            let pe = self.core.in_flight.peer_of(&flight).unwrap_or(self.core.me);
            self.core.failures.suspect(pe, e);
        }
        match (&mut self.gpu, flight) {
            (_, Flight::Straight { .. } | Flight::Answer { .. }) if self.let_go => Ok(()),
            (Some(gpu), flight @ (Flight::Chunk { .. } | Flight::Receive { .. } | Flight::Answer { .. })) => {
                // What was on its way is lost with its PE.
                result.map_or(Ok(()), |()| gpu.chunk_landed(&mut self.core, flight))
            }
            (_, flight) => self.core.landed(flight, result),
        }
    }

    /// Lets everything about GPU memory go on. True where only looking again brings it forward.
    fn run_gpu(&mut self) -> Result<bool> {
        let Some(gpu) = self.gpu.as_mut().filter(|_| !self.let_go) else { return Ok(false) };
        if gpu.is_busy() {
            gpu.run(&mut self.core)?;
        }
        Ok(gpu.is_busy())
    }

    /// Ends what waits for a PE that is lost, once the reason is known.
    fn end_lost(&mut self) {
        if let Some((failed, e)) = self.core.failures.decide() {
            for done in failed {
                self.core.completions.complete(done, Err(e.clone()));
            }
        }
    }
}
