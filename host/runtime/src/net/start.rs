//! How the network starts, in phases that follow from one another: each takes the one before, so none can be
//! left out, made twice, or made too early.
//!
//! 1. [`Meeting::hold`]: a transport is open, and all PEs know each other's addresses. Nothing is carried out
//!    yet.
//! 2. [`Meeting::join`]: the engine turns, with its proxy thread. Arrivals are noted in the node's control
//!    segment, so that comes before; symmetric memory comes after, for its PEs meet over the network.
//! 3. [`Detached::prepare`]: memory through which kernels ask exists. The device state names it, so the
//!    device starts after this.
//! 4. [`Prepared::attach`]: the engine serves kernels, and has what moves GPU memory.

use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, OnceLock};

use rushmem_bootstrap_abi::Bootstrap;

use super::engine::{self, Engine};
use super::gpu::gate::Gates;
use super::gpu::mailbox::Mailbox;
use super::gpu::mover::CudaMover;
use super::gpu::traffic::Traffic;
use super::proxy::doorbell::Doorbell;
use super::proxy::posts::Posts;
use super::proxy::ring::DeviceRing;
use super::proxy::submissions::Submissions;
use super::queue::card::NetworkCard;
use super::queue::emulated::SoftwareCard;
use super::queue::mlx5::{DmaBufs, Mlx5Card};
use super::queue::Queues;
use super::transport::{fake, ucx, Transport};
use super::{meeting, proxy, Far, Shared};
use crate::config::{Config, TransportWish};
use crate::error::{Error, Result};
use crate::gpu::Cuda;
use crate::health::Health;
use crate::kernel::service::Service;
use crate::node::control::{Control, FromAfar};
use crate::topology::card::Card;
use crate::verbs;

/// The first phase: PEs know how to reach each other.
pub(crate) struct Meeting {
    me: usize,
    transport: Box<dyn Transport>,
    queues: Option<Queues>,
    /// Why this PE has no queues.
    without_queues: String,
    may_lack_queues: bool,
    names: Vec<String>,
    cuda: Option<Arc<Cuda>>,
    health: Arc<Health>,
    boot: Arc<dyn Bootstrap>,
}

/// The second phase: the network, and the right to attach kernels to it, once.
pub(crate) struct Joined {
    pub(crate) net: Arc<Far>,
    pub(crate) kernels: Detached,
}

/// A network that kernels cannot reach yet.
pub(crate) struct Detached {
    net: Arc<Far>,
}

/// The third phase: what kernels are to post to exists, and the engine does not know of it.
pub(crate) struct Prepared {
    net: Arc<Far>,
    ring: DeviceRing,
    mailbox: Option<Mailbox>,
}

impl Meeting {
    /// Collective over the job: opens the transport and learns every PE's address.
    pub(crate) fn hold(
        me: usize,
        cards: &[Card],
        config: &Config,
        cuda: Option<&Arc<Cuda>>,
        health: &Arc<Health>,
        boot: &Arc<dyn Bootstrap>,
    ) -> Result<Meeting> {
        // The fake network carries host memory between threads.
        let by_fake = cuda.is_none() && cards.iter().all(|card| card.process == cards[0].process);
        let opened = match config.transport {
            // What kernels leave to the proxy, and the host's operations, go by a network of the usual kind.
            TransportWish::QueueEmulated | TransportWish::Queue if by_fake => {
                fake::Fake::new(config.fake_seed, config.fake_delay)
                    .map(|t| Box::new(t) as Box<dyn Transport>)
            }
            TransportWish::Fake => fake::Fake::new(config.fake_seed, config.fake_delay)
                .map(|t| Box::new(t) as Box<dyn Transport>),
            _ => {
                let listen = meeting::where_to_listen(cards, &**boot);
                ucx::Ucx::new(me, cards.len(), config.far_copies, config.far_gpu, &listen)
                    .map(|t| Box::new(t) as Box<dyn Transport>)
            }
        };
        let transport = meeting::introduce(opened, &**boot, cards)?;
        let (name, about) = (transport.name(), transport.about());
        log::info!("{}: far PEs are reached by {name}: {about}", health.who());
        log::debug!(
            "{}: to far PEs up to {} bytes travel in a message, more in copies; kernels post to a ring of \
             {} descriptors (RUSHMEM_RING_SLOTS)",
            health.who(),
            engine::INLINE,
            config.ring_slots
        );
        let open = || {
            let card: Box<dyn NetworkCard> = if config.transport == TransportWish::QueueEmulated {
                let lose = config.queue_lose;
                Box::new(SoftwareCard::new(me, cuda, config.fake_seed, config.fake_delay, lose)?)
            } else {
                let gpu = cuda.map(|cuda| cuda.facts().pci_bus_id.as_str());
                let order = |names: &[String]| verbs::nearest_first(gpu, names);
                let dma_bufs = cuda.map(|cuda| {
                    let cuda = Arc::clone(cuda);
                    Box::new(move |at, bytes| cuda.dma_buf(at, bytes)) as DmaBufs
                });
                let (verbs, wish) = (config.verbs.as_deref(), config.card.as_deref());
                Box::new(Mlx5Card::new(me, verbs, wish, &order, dma_bufs, config.packet_class)?)
            };
            let each = (config.queue_contexts, config.queue_slots);
            Queues::new(me, cards.len(), each, cuda, card, config.doorbell)
        };
        if config.transport.has_queues() {
            meeting::agree_on_contexts(config.queue_contexts, &**boot, cards)?;
        }
        let may_lack_queues = config.transport.may_lack_queues();
        let mut queues = if may_lack_queues {
            meeting::connect_cards_that_there_are(open(), &**boot, me)?
        } else if config.transport.has_queues() {
            Ok(meeting::connect_cards(open(), &**boot, me)?)
        } else if log::log_enabled!(log::Level::Info) {
            Err(verbs::why_not(config.verbs.as_deref()))
        } else {
            Err(String::new())
        };
        match &queues {
            Ok(queues) => log::info!("{}: {}", health.who(), queues.summary(|pe| cards[pe].who())),
            Err(why) => log::info!(
                "{}: kernels reach far PEs by the proxy, and not by queues of a network card: {why}",
                health.who()
            ),
        }
        if config.transport.has_queues() {
            match meeting::agree_on_words(&mut queues, &**boot, cards)? {
                None => log::info!("{}: network cards update the card_words of kernels", health.who()),
                Some(why) => log::info!(
                    "{}: targets update the card_words of kernels, and not network cards: {why}",
                    health.who()
                ),
            }
        }
        let without_queues = queues.as_ref().err().filter(|_| may_lack_queues).cloned().unwrap_or_default();
        Ok(Meeting {
            me,
            transport,
            queues: queues.ok(),
            without_queues,
            may_lack_queues,
            names: cards.iter().map(Card::who).collect(),
            cuda: cuda.cloned(),
            health: Arc::clone(health),
            boot: Arc::clone(boot),
        })
    }

    /// The engine turns from now on, with its proxy thread. `control` is where arrivals of other nodes' PEs
    /// are noted.
    pub(crate) fn join(self, control: &Arc<Control>) -> Result<Joined> {
        let Meeting { me, mut transport, queues, without_queues, may_lack_queues, names, cuda, health, boot } =
            self;
        let (name, about) = (transport.name(), transport.about());
        let gpu = cuda.is_some();
        let doorbell = Doorbell::new(transport.fd())?;
        transport.arm();
        let control = Arc::clone(control);
        let note = Box::new(move |from, what: &FromAfar<'_>| control.note(from, what));
        let retries = names.iter().map(|_| AtomicU64::new(0)).collect();
        let mut engine = Engine::new(me, transport, names, note, Arc::clone(&health));
        if let Some(queues) = queues {
            engine.attach_queues(queues);
        }
        let shared = Arc::new(Shared {
            engine: Mutex::new(engine),
            health: Arc::clone(&health),
            driven: AtomicU64::new(0),
            doorbell,
            submissions: Submissions::default(),
            cuda,
            gates: OnceLock::new(),
            stop: AtomicBool::new(false),
            retries,
            may_lack_queues,
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
            .map_err(|e| Error::thread("the proxy thread", &e))?;
        let net = Arc::new(Far { shared, boot, proxy: Some(proxy), name, about, without_queues, gpu });
        Ok(Joined { kernels: Detached { net: Arc::clone(&net) }, net })
    }
}

impl Detached {
    /// Makes a ring of `slots` for kernels on the CPU or on `gpu`, and a mailbox where there is a GPU.
    ///
    /// # Safety
    /// As for [`DeviceRing::new`].
    pub(crate) unsafe fn prepare(
        self,
        gpu: Option<&Arc<Cuda>>,
        counters: usize,
        slots: usize,
    ) -> Result<Prepared> {
        // SAFETY: the caller's counters are device memory that is nobody else's; all kernels end before the
        // ring.
        let ring = unsafe { DeviceRing::new(gpu, counters, slots) }?;
        Ok(Prepared { net: self.net, ring, mailbox: gpu.map(Mailbox::new).transpose()? })
    }
}

impl Prepared {
    /// What the device state's `ring` is to be.
    pub(crate) fn ring_address(&self) -> usize {
        self.ring.raw_address()
    }

    /// What the device state's `queues` is to be.
    pub(crate) fn queues_address(&self) -> usize {
        let mut engine = self.net.shared.lock();
        let queues = engine.queues().filter(|queues| queues.lead_anywhere());
        queues.map_or(0, |queues| queues.device_address())
    }

    /// What the device state's `mailbox` is to be.
    pub(crate) fn mailbox_address(&self) -> usize {
        self.mailbox.as_ref().map_or(0, Mailbox::device_address)
    }

    /// The engine takes kernels' posts from now on; this PE's heap starts at `base`, and its stride is that
    /// long. `service` knows the state of the GPU whose memory the heap is in.
    ///
    /// What comes back is to be called when there are kernels: from then on the proxy thread looks at their
    /// ring now and then, for which it sleeps no more as long as it otherwise would.
    pub(crate) fn attach(
        self,
        base: usize,
        stride: usize,
        gpu: Option<(&Arc<Cuda>, Arc<Service>)>,
    ) -> Result<impl Fn() + Send + Sync> {
        let shared = &self.net.shared;
        let mut engine = shared.lock();
        engine.attach_posts(Posts::new(self.ring, base, stride));
        if let (Some((cuda, service)), Some(mailbox)) = (gpu, self.mailbox) {
            let mover = CudaMover::new(cuda, mailbox, service)?;
            let traffic = Traffic::new(engine.n_pes(), Box::new(mover));
            engine.attach_gpu(traffic);
            if cuda.facts().stream_words {
                let gates = Arc::new(Gates::new(cuda)?);
                shared.gates.get_or_init(|| gates);
            }
        }
        drop(engine);
        let shared = Arc::downgrade(shared);
        Ok(move || {
            if let Some(shared) = shared.upgrade() {
                shared.lock().expect_posts();
                shared.doorbell.ring();
            }
        })
    }
}
