//! PEs whose memory is not mapped, on other hosts or without the right: how they are reached.
//!
//! [`Far`] is this PE's way to all of them: one [`Engine`] on one transport, behind one lock. A thread that
//! waits for something turns it ([`Far::wait`], and every wait of the host through
//! [`crate::health::Health`]); when none does, the [`proxy`] thread. So a host call costs no change of
//! thread, and a PE that never calls rushmem still answers.
//!
//! The rooms, from the bottom up:
//!
//! - [`transport`]: messages and one-sided copies, in no order: [UCX](transport::ucx), or the
//!   [fake one](transport::fake) for tests.
//! - [`wire`]: numbered messages to and from each peer, handed out in their order.
//! - [`ordering`]: what waits for what; the argument for fence and quiet.
//! - [`completion`]: what happens when an operation is over here.
//! - [`memory`] and [`gpu`]: this PE's own memory, as other PEs read and write it.
//! - [`engine`]: joins these, starts operations and serves those of other PEs.
//! - [`queue`]: queues of a network card that kernels write themselves.
//! - [`proxy`]: kernels' posts, the thread that turns the engine, and submissions to it.
//! - [`start`], [`meeting`], [`remote`], [`ops`]: how it starts, how memory becomes known, what the host
//!   calls.

mod completion;
pub(crate) mod engine;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
pub(crate) mod gpu;
#[cfg(test)]
mod let_go_tests;
mod meeting;
pub(crate) mod memory;
mod ops;
mod ordering;
pub(crate) mod proxy;
mod queue;
mod remote;
mod request;
mod start;
pub(crate) mod transport;
pub(crate) mod wire;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rushmem_bootstrap_abi::Bootstrap;

use crate::error::{err, Result};
use crate::gpu::device::Current;
use crate::gpu::Cuda;
use crate::health::Health;
use crate::node::control::Arrival;
use engine::{Engine, PATIENCE};
use gpu::gate::{Gate, Gates};
use proxy::doorbell::Doorbell;
use proxy::submissions::Submissions;

pub(crate) use ordering::Lane;
pub(crate) use start::{Detached, Joined, Meeting};
pub(crate) use wire::message;

/// How long the end of the process waits for a thread that turns the engine.
const HALT: Duration = Duration::from_millis(200);

/// What threads share.
struct Shared {
    engine: Mutex<Engine>,
    health: Arc<Health>,
    /// Counts the turns that waiting threads made: while it moves, the proxy thread need not.
    driven: AtomicU64,
    doorbell: Doorbell,
    submissions: Submissions,
    /// The GPU whose context the network's calls may need.
    cuda: Option<Arc<Cuda>>,
    /// Where its streams wait.
    gates: OnceLock<Arc<Gates>>,
    stop: AtomicBool,
    /// By PE: operations that found too much under way, and were tried again.
    retries: Arc<[AtomicU64]>,
    /// Kernels reach PEs and memory by the proxy where the network card does not.
    may_lack_queues: bool,
}

/// This PE's way to PEs whose memory is not mapped.
pub(crate) struct Far {
    shared: Arc<Shared>,
    boot: Arc<dyn Bootstrap>,
    proxy: Option<JoinHandle<()>>,
    name: &'static str,
    about: String,
    /// Why this PE has no queues, where that is to be said.
    without_queues: String,
    gpu: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Engine> {
        self.engine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One turn, unless another thread is at it.
    fn help(&self) {
        let mut engine = match self.engine.try_lock() {
            Ok(engine) => engine,
            Err(TryLockError::Poisoned(engine)) => engine.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        self.driven.fetch_add(1, Ordering::Relaxed);
        self.turn(&mut engine);
    }

    /// Makes the GPU's context this thread's for a while.
    fn current(&self) -> Result<Option<Current<'_>>> {
        self.cuda.as_ref().map(|cuda| cuda.current()).transpose()
    }

    /// Lets everything go on. True where something happened.
    fn turn(&self, engine: &mut Engine) -> bool {
        let _current = match self.current() {
            Ok(current) => current,
            Err(e) => {
                engine.fail(e);
                return true;
            }
        };
        self.submissions.begin(engine);
        let worked = engine.turn();
        engine.fail_callbacks_if_broken();
        worked
    }
}

impl Far {
    /// By PE: how many operations found too much under way, and were tried again.
    pub(crate) fn retries(&self) -> &Arc<[AtomicU64]> {
        &self.shared.retries
    }

    /// The way to `pe`: its name, and more about it for people.
    pub(crate) fn way_to(&self, pe: usize) -> (&'static str, String) {
        let mut engine = self.shared.lock();
        match engine.queues() {
            Some(queues) if queues.leads_to(pe) => {
                let words = if queues.cards_update_words() { ", and cards update card_words" } else { "" };
                (queues.name(), format!("{}{words}; the rest goes by {}", queues.about(), self.name))
            }
            other => {
                let why = other.map_or(self.without_queues.as_str(), |queues| {
                    queues.why_left_out(pe).unwrap_or_default()
                });
                let why = if why.is_empty() {
                    String::new()
                } else {
                    format!("; no card's queue leads there: {why}")
                };
                (self.name, format!("{}{why}", self.about))
            }
        }
    }

    /// Where a stream may wait for an operation; `None` where it has to wait in a call.
    pub(crate) fn gate(&self) -> Option<Gate> {
        self.shared.gates.get()?.take()
    }

    /// A launch on the CPU device has failed, and no kernel runs or begins meanwhile: frees the slots of the
    /// device ring that its threads held, but for those with an answer still to come. True where none has.
    pub(crate) fn reclaim(&self) -> bool {
        self.shared.lock().reclaim()
    }

    /// An error where a kernel that has ended asked for what is not there; once.
    pub(crate) fn check_posts(&self) -> Result<()> {
        let mut engine = self.shared.lock();
        engine.start_posts();
        engine.take_refused().map_or(Ok(()), Err)
    }

    /// The process ends: from here on no thread of it calls the network's library or the driver for far PEs,
    /// so that their exit handlers find nobody inside. A thread that is at it for long is not waited for.
    pub(crate) fn halt(&self) {
        self.shared.stop.store(true, Ordering::Release);
        self.shared.doorbell.ring();
        let until = Instant::now() + HALT;
        loop {
            match self.shared.engine.try_lock() {
                Ok(mut engine) => return engine.halt(),
                Err(TryLockError::Poisoned(engine)) => return engine.into_inner().halt(),
                Err(TryLockError::WouldBlock) if Instant::now() > until => return,
                Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_micros(50)),
            }
        }
    }

    /// Whether heaps are in GPU memory.
    pub(crate) fn on_gpu(&self) -> bool {
        self.gpu
    }

    /// This PE has entered a collective call, which carries `data`, within its slot or not: the leaders of
    /// other nodes are sent records of both.
    pub(crate) fn arrive(&self, leaders: &[usize], arrival: Arrival, data: (&[u8], bool)) -> Result<()> {
        if leaders.is_empty() {
            return Ok(());
        }
        self.shared.lock().arrive(leaders, arrival, data)
    }

    /// Waits for what was started under `waiter`.
    fn wait(&self, waiter: usize, report: &dyn Fn() -> String) -> Result<u64> {
        let mut came = None;
        let waited = self.shared.health.wait(None, report, &mut || {
            self.shared.driven.fetch_add(1, Ordering::Relaxed);
            let mut engine = self.shared.lock();
            came = engine.take(waiter);
            if came.is_none() {
                self.shared.turn(&mut engine);
                came = engine.take(waiter);
            }
            came.is_some()
        });
        match (waited, came) {
            (_, Some(came)) => came,
            (Err(e), None) => {
                self.let_go_of_callers_memory();
                Err(e)
            }
            (Ok(()), None) => Err(err!(INTERNAL, "a wait ended with nothing")),
        }
    }

    /// A caller that gave up may free the memory that it gave: the network must not touch it later.
    fn let_go_of_callers_memory(&self) {
        let start = Instant::now();
        self.shared.lock().let_go();
        while start.elapsed() < PATIENCE {
            let mut engine = self.shared.lock();
            if !engine.uses_memory_of_callers() {
                return;
            }
            self.shared.turn(&mut engine);
        }
        log::warn!("{}: the network still holds memory of operations that failed", self.shared.health.who());
    }
}

impl Drop for Far {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        self.shared.doorbell.ring();
        if let Some(proxy) = self.proxy.take() {
            let _ = proxy.join();
        }
        // Streams may still wait.
        self.shared.submissions.close();
        self.shared
            .lock()
            .fail_callbacks(&err!(INTERNAL, "the network was closed before the operation was over"));
    }
}
