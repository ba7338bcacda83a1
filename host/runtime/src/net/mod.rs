//! PEs whose memory is not mapped, on other hosts or without the right: how they are reached.
//!
//! [`Far`] is this PE's way to all of them: one [`Engine`] on one [`Transport`], behind one lock. Whoever waits for something
//! drives it ([`Far::wait`], and every wait of the host through [`crate::health::Health`]); when nobody does, the [`proxy`]
//! thread. A host call so costs no change of thread, and a PE that never calls rushmem still answers.

pub(crate) mod engine;
mod errand;
mod fake;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
pub(crate) mod gpu;
mod meeting;
pub(crate) mod message;
mod ops;
mod order;
mod peer;
mod posts;
mod proxy;
mod remote;
pub(crate) mod ring;
mod segments;
pub(crate) mod span;
mod target;
pub(crate) mod transport;
pub(crate) mod ucx;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::thread::JoinHandle;
use std::time::Duration;

use rushmem_bootstrap_abi::Bootstrap;

use crate::config::{Config, TransportWish};
use crate::error::{err, Result};
use crate::gpu::device::Current;
use crate::gpu::Cuda;
use crate::health::Health;
use crate::kernel::service::Service;
use crate::node::control::{Arrival, Control};
use crate::topology::card::Card;
use engine::Engine;
use errand::Errands;
use gpu::gate::{Gate, Gates};
use gpu::mailbox::Mailbox;
use gpu::traffic::Traffic;
use proxy::Bell;
use ring::DeviceRing;
use transport::Transport;

pub(crate) use engine::Rows;
pub(crate) use ops::Place;

/// Operations with memory of a caller in flight end within this, when the job is broken.
const PATIENCE: Duration = Duration::from_secs(2);

/// What threads share.
struct Shared {
    engine: Mutex<Engine>,
    health: Arc<Health>,
    /// Counts the turns that waiting threads made: while it moves, the proxy thread need not.
    driven: AtomicU64,
    bell: Bell,
    errands: Errands,
    /// The GPU whose context the network's calls may need.
    cuda: Option<Arc<Cuda>>,
    /// Where its streams wait.
    gates: OnceLock<Arc<Gates>>,
    stop: AtomicBool,
}

/// This PE's way to PEs whose memory is not mapped.
pub(crate) struct Far {
    shared: Arc<Shared>,
    boot: Arc<dyn Bootstrap>,
    proxy: Option<JoinHandle<()>>,
    name: &'static str,
    about: String,
    gpu: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Engine> {
        self.engine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One turn, unless somebody else is at it.
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
        self.errands.run(engine);
        let worked = engine.turn();
        self.let_errands_go(engine);
        worked
    }
}

impl Far {
    /// Collective over the job: opens the transport, learns everybody's address, and starts the proxy thread. `leaders`: the
    /// first PEs of the other nodes.
    pub(crate) fn start(
        me: usize,
        cards: &[Card],
        leaders: Vec<usize>,
        config: &Config,
        cuda: Option<&Arc<Cuda>>,
        health: &Arc<Health>,
        boot: &Arc<dyn Bootstrap>,
    ) -> Result<Far> {
        let opened = match config.transport {
            TransportWish::Fake => fake::Fake::new(config.fake_seed, config.fake_delay)
                .map(|t| Box::new(t) as Box<dyn Transport>),
            _ => {
                let listen = meeting::where_to_listen(cards, &**boot);
                ucx::Ucx::new(me, cards.len(), config.far_copies, config.far_gpu, &listen)
                    .map(|t| Box::new(t) as Box<dyn Transport>)
            }
        };
        let mut transport = meeting::introduce(opened, &**boot, cards)?;
        let (name, about) = (transport.name(), transport.about());
        log::info!("{}: far PEs are reached by {name}: {about}", health.who());
        log::debug!(
            "{}: to far PEs up to {} bytes travel in a message, more in copies; kernels post to a ring of {} descriptors \
             (RUSHMEM_RING_SLOTS)",
            health.who(),
            engine::INLINE,
            config.ring_slots
        );
        let names = cards.iter().map(Card::who).collect();
        let fd = transport.fd();
        transport.arm();
        let engine = Engine::new(me, transport, names, leaders, Arc::clone(health));
        let shared = Arc::new(Shared {
            engine: Mutex::new(engine),
            health: Arc::clone(health),
            driven: AtomicU64::new(0),
            bell: Bell::new(fd)?,
            errands: Errands::default(),
            cuda: cuda.cloned(),
            gates: OnceLock::new(),
            stop: AtomicBool::new(false),
        });
        let weak = Arc::downgrade(&shared);
        health.let_help(Box::new(move || {
            if let Some(shared) = weak.upgrade() {
                shared.help();
            }
        }));
        let driven = Arc::clone(&shared);
        let proxy = std::thread::Builder::new()
            .name("rushmem-proxy".into())
            .spawn(move || proxy::run(&driven))
            .map_err(|e| err!(IO, "starting the proxy thread: {e}"))?;
        Ok(Far { shared, boot: Arc::clone(boot), proxy: Some(proxy), name, about, gpu: cuda.is_some() })
    }

    /// The transport's name.
    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    /// The transport, for people.
    pub(crate) fn about(&self) -> &str {
        &self.about
    }

    /// Where arrivals of other nodes' PEs are noted.
    pub(crate) fn set_control(&self, control: Arc<Control>) {
        self.shared.lock().set_control(control);
    }

    /// Kernels post to `ring` from now on; this PE's heap starts at `base`, and its stride is that long.
    pub(crate) fn set_ring(&self, ring: DeviceRing, base: usize, stride: usize) {
        self.shared.lock().set_ring(ring, base, stride);
    }

    /// What is to be called when there are kernels: from then on the proxy thread looks at their ring now and then, for which it
    /// sleeps no more as long as it otherwise would.
    pub(crate) fn expects_posts(&self) -> impl Fn() + Send + Sync {
        let shared = Arc::downgrade(&self.shared);
        move || {
            if let Some(shared) = shared.upgrade() {
                shared.lock().expect_posts();
                shared.bell.ring();
            }
        }
    }

    /// This PE's heap is in the memory of `cuda`'s GPU, of which `service` knows the state.
    pub(crate) fn set_gpu(&self, cuda: &Arc<Cuda>, mailbox: Mailbox, service: Arc<Service>) -> Result<()> {
        let mut engine = self.shared.lock();
        let traffic = Traffic::new(cuda, engine.n_pes(), mailbox, service)?;
        engine.set_traffic(traffic);
        drop(engine);
        if cuda.facts().stream_words {
            let gates = Arc::new(Gates::new(cuda)?);
            self.shared.gates.get_or_init(|| gates);
        }
        Ok(())
    }

    /// Where a stream may wait for an operation; `None` where it has to wait in a call.
    pub(crate) fn gate(&self) -> Option<Gate> {
        self.shared.gates.get()?.take()
    }

    /// A launch on the CPU device has failed, and no kernel runs or begins meanwhile: what its threads had of the device ring is free
    /// again, but for what is still to be answered. True where that is nothing.
    pub(crate) fn reclaim(&self) -> bool {
        self.shared.lock().reclaim()
    }

    /// An error where a kernel that has ended asked for what is not there; once.
    pub(crate) fn check_posts(&self) -> Result<()> {
        let mut engine = self.shared.lock();
        engine.start_posts();
        engine.take_refused().map_or(Ok(()), Err)
    }

    /// Whether heaps are in GPU memory.
    fn gpu(&self) -> bool {
        self.gpu
    }

    /// This PE has entered a collective call: the other nodes hear of it.
    pub(crate) fn arrive(&self, arrival: Arrival) -> Result<()> {
        self.shared.lock().arrive(arrival)
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

    /// Whoever gave up may free the memory that it gave: nothing of the network's may come there later.
    fn let_go_of_callers_memory(&self) {
        let start = std::time::Instant::now();
        self.shared.lock().transport().cut();
        while start.elapsed() < PATIENCE {
            let mut engine = self.shared.lock();
            self.shared.turn(&mut engine);
            if !engine.in_flight() {
                return;
            }
        }
        log::warn!("{}: the network still holds memory of operations that failed", self.shared.health.who());
    }
}

impl Drop for Far {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        self.shared.bell.ring();
        if let Some(proxy) = self.proxy.take() {
            let _ = proxy.join();
        }
        // Nobody else would: streams may still wait.
        self.shared.errands.close();
        self.shared
            .lock()
            .answer_letters(&err!(INTERNAL, "the network was closed before the operation was over"));
    }
}
