//! A world: one PE's membership of one job. Worlds are values; a process may hold several.

use std::ffi::{CStr, CString};
use std::sync::Arc;
use std::time::Duration;

use rushmem_bootstrap_abi::Bootstrap;

use crate::capi::types::{rushmem_heap_info_t, rushmem_view_t, RUSHMEM_DEVICE_CPU, RUSHMEM_DEVICE_CUDA};
use crate::collective::{Collective, Entered};
use crate::config::Config;
use crate::device::{Device, Kind};
use crate::device_state::{DeviceFacts, DeviceState};
use crate::error::{code, err, Error, Result};
use crate::health::Health;
use crate::heap::backing::{Backing, GpuBacking};
use crate::heap::window::{heap_limit, Window};
use crate::kernel::service::Service;
use crate::kernel::Kernels;
use crate::memory::Reservation;
use crate::node::card::{self, Card};
use crate::node::control::{Call, Control};
use crate::node::links::Links;
use crate::node::message::Socket;
use crate::ops::engine::Engine;
use crate::symmetric::Symmetric;

/// One line for each PE at the front of the heap, for the kernels' sync, then one for this PE's own count.
const SYNC_LINE: usize = 128;

/// Where a range of a PE's symmetric memory is for this process.
#[derive(Clone, Copy)]
pub(crate) enum Route<'a> {
    /// Host memory, mapped here: ordinary loads and stores reach it.
    Host(*mut u8),
    /// GPU memory, mapped for this PE's GPU: the engine reaches it.
    Gpu(usize, &'a Engine),
}

impl std::fmt::Debug for Route<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = if matches!(self, Route::Host(_)) { "Host" } else { "Gpu" };
        write!(f, "{kind}({:#x})", self.address())
    }
}

impl Route<'_> {
    /// The mapped address, whoever may use it.
    pub(crate) fn address(&self) -> usize {
        match *self {
            Route::Host(at) => at as usize,
            Route::Gpu(at, _) => at,
        }
    }
}

/// How a PE is reached, for people.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) pid: u32,
    pub(crate) host: CString,
    pub(crate) transport: CString,
    pub(crate) reason: CString,
}

/// One PE's membership of one job.
pub(crate) struct World {
    // Fields drop in this order: first whatever runs threads that look at the rest.
    kernels: Kernels,
    links: Links,
    engine: Option<Engine>,
    symmetric: Symmetric,
    collective: Collective,
    health: Arc<Health>,
    boot: Arc<dyn Bootstrap>,
    cards: Arc<Vec<Card>>,
    peers: Vec<Peer>,
    config: Config,
    device: Device,
    device_name: CString,
    me: i32,
    n: i32,
    /// The run of mapped PEs around this one: first and length.
    near: (i32, i32),
}

impl World {
    /// Joins the job that `boot` describes. Collective over all its ranks.
    pub(crate) fn start(boot: Box<dyn Bootstrap>, config: Config) -> Result<World> {
        let boot: Arc<dyn Bootstrap> = Arc::from(boot);
        let world = World::try_start(&boot, config).map_err(|e| first_cause(e, &*boot));
        world.inspect_err(|e| boot.abort(&e.message))
    }

    fn try_start(boot: &Arc<dyn Bootstrap>, mut config: Config) -> Result<World> {
        let (me, n) = (boot.rank(), boot.n_ranks());
        let kind = Kind::choose(config.device)?;
        let mine = Card::mine(&config, me, kind)?;
        // Listening before the cards travel: whoever reads this card can connect at once.
        let listener =
            Socket::listen(&mine.link).map_err(|e| err!(IO, "listening for this host's PEs: {e}"))?;
        let cards = Arc::new(card::exchange(&**boot, &mine)?);
        if let Some(far) = cards.iter().find(|c| c.node != mine.node) {
            return Err(err!(
                UNSUPPORTED,
                "{} cannot map the memory of {}: they are on different hosts (or network namespaces), and this build \
                 of rushmem has no network transport; start all PEs on one host",
                mine.who(),
                far.who()
            ));
        }
        let (slots, slot) = (n as usize, me as usize);
        let cores = std::thread::available_parallelism().map_or(1, |c| c.get());
        let health = Arc::new(Health::new(mine.who(), slots > cores, config.stall_report));
        config.heap_max = heap_limit(&cards, config.heap_max, config.heap_max_given)?;

        let limit = config.init_timeout;
        let links =
            Links::connect(slot, Arc::clone(&cards), listener, Arc::clone(&health), Arc::clone(boot), limit)?;
        // Whoever sees this PE end must have been told why before.
        let device = Device::open(kind, config.device, slot);
        let memory = share_memory(&links, &health, &cards, slot, &config, device);
        let Parts { collective, symmetric, device, sharing, trap_delay } =
            memory.inspect_err(|e| links.abort(&e.message))?;

        let near = symmetric.window().near();
        let near = (near.0 as i32, near.1 as i32);
        let base = symmetric.base();
        let facts = DeviceFacts {
            my_pe: me as i32,
            n_pes: n as i32,
            near,
            heap_base: base,
            stride: symmetric.stride(),
            // The first lines of the heap, as `SYNC_LINE` says.
            sync_lines: base,
            sync_epoch: base + slots * SYNC_LINE,
            stall_report: config.stall_report,
            wait_limit: config.wait_timeout,
            trap_delay,
        };
        let start_device = || {
            let state = DeviceState::new(&facts, &health, device.gpu())?;
            let engine = device
                .gpu()
                .map(|cuda| Engine::new(cuda, &health, Service::load(cuda, &config, state.raw())?));
            let engine = engine.transpose()?;
            let kernels = Kernels::new(state, Arc::clone(&health), config.clone(), &device, sharing)?;
            Ok((engine, kernels))
        };
        let started = start_device().map_err(|e: Error| e.context(&device));
        let (engine, kernels) = {
            let mut call = collective.enter(&health, &cards)?;
            call.all_well(started, "starting the device").inspect_err(|e| links.abort(&e.message))?
        };
        let peers: Vec<Peer> = cards.iter().map(|c| describe(c, me, near, symmetric.window())).collect();
        for (card, peer) in cards.iter().zip(&peers).filter(|(_, peer)| peer.transport.as_c_str() == c"none")
        {
            log::info!("{}: {} is not mapped: {}", mine.who(), card.who(), peer.reason.to_string_lossy());
        }
        log::info!(
            "{}: one of {n} PEs on this host, {} of them mapped directly; its device is {device}; heap at {base:#x}, up to \
             {} bytes",
            mine.who(),
            near.1,
            config.heap_max
        );
        links.every_tick(kernels.monitor());
        Ok(World {
            kernels,
            links,
            engine,
            symmetric,
            collective,
            health,
            boot: Arc::clone(boot),
            cards,
            peers,
            config,
            device_name: CString::new(device.to_string()).unwrap_or_default(),
            device,
            me: me as i32,
            n: n as i32,
            near,
        })
    }

    /// This PE's number.
    #[inline]
    pub(crate) fn my_pe(&self) -> i32 {
        self.me
    }

    /// Number of PEs.
    #[inline]
    pub(crate) fn n_pes(&self) -> i32 {
        self.n
    }

    /// The settings in force.
    pub(crate) fn config(&self) -> &Config {
        &self.config
    }

    /// Whether the job is whole.
    pub(crate) fn health(&self) -> &Arc<Health> {
        &self.health
    }

    /// Its kernels.
    pub(crate) fn kernels(&self) -> &Kernels {
        &self.kernels
    }

    /// Its device, for people.
    pub(crate) fn device_name(&self) -> &CStr {
        &self.device_name
    }

    /// What carries out operations on GPU memory, where the heap is some.
    pub(crate) fn engine(&self) -> Option<&Engine> {
        self.engine.as_ref()
    }

    /// What the fast path of a client needs: nobody is near to a host that cannot touch the memory.
    pub(crate) fn view(&self) -> rushmem_view_t {
        let (near_first, near_count) = if self.engine.is_some() { (self.me, 0) } else { self.near };
        rushmem_view_t {
            my_pe: self.me,
            n_pes: self.n,
            near_first,
            near_count,
            heap_base: self.symmetric.base() as u64,
            stride: self.symmetric.stride() as u64,
            broken: self.health.broken_word().as_ptr(),
            device: if self.device.gpu().is_some() { RUSHMEM_DEVICE_CUDA } else { RUSHMEM_DEVICE_CPU },
            gpu: self.device.gpu().map_or(-1, |cuda| cuda.facts().ordinal as i32),
        }
    }

    /// `Ok` where `pe` is one.
    #[inline]
    pub(crate) fn check_pe(&self, pe: i32) -> Result<()> {
        if (pe as u32) < self.n as u32 {
            return Ok(());
        }
        Err(err!(BAD_PE, "PE {pe} does not exist: this job has PEs 0 to {}", self.n - 1))
    }

    /// How `pe` is reached.
    pub(crate) fn peer(&self, pe: i32) -> Result<&Peer> {
        self.check_pe(pe)?;
        Ok(&self.peers[pe as usize])
    }

    /// Where this PE itself has `[ptr, ptr + bytes)`, which must lie in one live allocation (or registered region) of its.
    /// Zero bytes may be anywhere.
    #[inline]
    pub(crate) fn check_local(&self, ptr: usize, bytes: usize) -> Result<usize> {
        if bytes == 0 {
            return Ok(ptr);
        }
        self.symmetric.find(ptr, bytes)
    }

    /// Where PE `pe`'s copy of `[ptr, ptr + bytes)` is; checks the PE, the range, and that the job is whole.
    #[inline]
    pub(crate) fn route(&self, ptr: usize, bytes: usize, pe: i32) -> Result<Route<'_>> {
        self.check_near(pe)?;
        self.health.check()?;
        let own = self.check_local(ptr, bytes)?;
        let far = (i64::from(pe) - i64::from(self.me)) * self.symmetric.stride() as i64;
        let at = own.wrapping_add_signed(far as isize);
        Ok(match &self.engine {
            None => Route::Host(at as *mut u8),
            Some(engine) => Route::Gpu(self.symmetric.elsewhere(own, pe as usize).unwrap_or(at), engine),
        })
    }

    /// Whether `pe` is one whose memory is mapped here.
    #[inline]
    pub(crate) fn is_near(&self, pe: i32) -> bool {
        (pe.wrapping_sub(self.near.0) as u32) < self.near.1 as u32
    }

    #[inline]
    fn check_near(&self, pe: i32) -> Result<()> {
        if self.is_near(pe) {
            return Ok(());
        }
        self.check_pe(pe)?;
        let (card, peer) = (&self.cards[pe as usize], &self.peers[pe as usize]);
        Err(err!(
            UNSUPPORTED,
            "{} cannot be reached: its memory is not mapped here ({}), and this build of rushmem has no network transport",
            card.who(),
            peer.reason.to_string_lossy()
        ))
    }

    /// The offset of `ptr` in this PE's heap (or its alias', for registered memory), for texts.
    pub(crate) fn offset_of(&self, ptr: usize) -> Option<usize> {
        self.symmetric.offset_of(ptr)
    }

    fn enter(&self) -> Result<Entered<'_>> {
        self.health.check()?;
        self.collective.enter(&self.health, &self.cards)
    }

    /// Collective: every PE has entered. `call` is `BarrierAll` or `SyncAll`, so that mixing them is seen.
    #[inline]
    pub(crate) fn sync_all(&self, call: Call) -> Result<()> {
        self.enter()?.round(call, [0; 4])
    }

    /// Collective: zeroed symmetric memory; `None` for zero bytes.
    pub(crate) fn alloc(&self, bytes: usize, align: usize) -> Result<Option<usize>> {
        self.symmetric.alloc(bytes, align, &mut self.enter()?, &self.links)
    }

    /// Collective: gives an allocation back.
    pub(crate) fn free(&self, at: Option<usize>) -> Result<()> {
        self.symmetric.free(at, &mut self.enter()?)
    }

    /// Collective: user memory becomes symmetric; its alias.
    ///
    /// # Safety
    /// Nobody else touches the range during the call.
    pub(crate) unsafe fn register(&self, addr: usize, bytes: usize) -> Result<usize> {
        // SAFETY: passed on to our caller.
        unsafe { self.symmetric.register(addr, bytes, &mut self.enter()?, &self.links, &self.cards) }
    }

    /// Collective: the opposite of [`World::register`].
    pub(crate) fn unregister(&self, addr: usize) -> Result<()> {
        // What is in flight must not meet addresses where nothing is mapped any more.
        let done = self.engine.as_ref().map_or(Ok(()), Engine::quiet);
        self.symmetric.unregister(addr, done, &mut self.enter()?)
    }

    /// The heap in numbers.
    pub(crate) fn heap_info(&self) -> rushmem_heap_info_t {
        self.symmetric.info()
    }

    /// Collective: leaves in good order. On an error the world is as before.
    pub(crate) fn finalize(&self) -> Result<()> {
        self.kernels.check_idle()?;
        // What was not waited for ends well before the heap goes.
        self.engine.as_ref().map_or(Ok(()), Engine::quiet)?;
        let mut call = self.enter()?;
        call.round(Call::Finalize, [0; 4])?;
        self.symmetric.let_go(&mut call)?;
        drop(call);
        // From here on everybody leaves; whoever is faster than we are is not dead.
        self.health.leave();
        let left = self.boot.finalize();
        self.links.goodbye();
        if let Err(e) = left {
            log::warn!("{}: leaving the bootstrap: {e}", self.health.who());
        }
        Ok(())
    }

    /// The end of a world that has been finalised or aborted.
    pub(crate) fn end(self: Box<Self>) {
        if !self.kernels.close() {
            log::error!("{}: its memory stays until the process ends", self.health.who());
            Box::leak(self);
        }
    }

    /// Local: tells the others that this PE leaves because of `why`; its own waits and kernels end.
    pub(crate) fn abort(&self, why: &str) {
        self.health.abandon(why);
        self.boot.abort(&format!("{} left the job: {why}", self.health.who()));
        self.links.abort(why);
    }
}

/// During start-up a PE may see that another one ended before it hears why that one did: the bootstrap's first death is
/// the cause, and comes soon.
fn first_cause(e: Error, boot: &dyn Bootstrap) -> Error {
    if e.code != code::PEER_DEAD {
        return e;
    }
    for _ in 0..20 {
        match boot.death() {
            Some(death) if e.message.contains(&death.what) => return e,
            Some(death) => return Error::new(e.code, format!("{}; before that, {}", e.message, death.what)),
            None => std::thread::sleep(Duration::from_millis(10)),
        }
    }
    e
}

/// What a world is built on.
struct Parts {
    collective: Collective,
    symmetric: Symmetric,
    device: Device,
    /// PEs that run their kernels on this PE's GPU at the same time, this one included.
    sharing: usize,
    /// How long its kernels go on once the job is broken.
    trap_delay: Duration,
}

/// Collective: the control segment and the symmetric memory of a node whose PEs are connected, on `device`.
fn share_memory(
    links: &Links,
    health: &Arc<Health>,
    cards: &[Card],
    slot: usize,
    config: &Config,
    device: Result<Device>,
) -> Result<Parts> {
    let (slots, limit) = (cards.len(), config.init_timeout);
    let control = if slot == 0 {
        let control = Control::create(slots)?;
        links.receive_from_leader(0, Some(control.fd()), limit)?;
        control
    } else {
        Control::open(links.receive_from_leader(0, None, limit)?, slots, slot)?
    };
    let collective = Collective::new(control, slots, config.timeout);
    let mut call = collective.enter(health, cards)?;
    call.round(Call::Start, [0; 4])?;
    let device = call.all_well(device, "opening the device")?;
    let reserve = |bytes| match device.gpu() {
        None => Reservation::new(bytes).map(Backing::Host),
        Some(cuda) => GpuBacking::reserve(cuda, bytes).map(Backing::Gpu),
    };
    let window = Window::reserve(slots, slot, config.heap_max, config.transport, reserve);
    let window = call.all_well(window, "reserving address space for the heaps")?;
    let symmetric = Symmetric::new(window, (slots + 1) * SYNC_LINE, limit, &mut call, links)?;
    // PEs of one process share its context on a GPU, and so the processors at one time; processes take turns.
    let uuid = u128::from_le_bytes(device.gpu().map_or([0; 16], |cuda| cuda.facts().uuid));
    let place = [uuid as u64, (uuid >> 64) as u64, cards[slot].process, 0];
    call.round(Call::Step, place)?;
    let sharing = (0..slots).filter(|i| call.words(*i) == place).count();
    let mut processes: Vec<u64> =
        (0..slots).map(|i| call.words(i)).filter(|other| other[..2] == place[..2]).map(|w| w[2]).collect();
    processes.sort_unstable();
    processes.dedup();
    let trap_delay = trap_delay(&device, processes.len(), processes.iter().position(|p| *p == place[2]));
    drop(call);
    Ok(Parts { collective, symmetric, device, sharing, trap_delay })
}

/// Processes that take turns on one GPU trap one after another, and not while the driver still clears up after the one that
/// died: of traps at one moment it tells only some (driver 580), and a kernel that has trapped unheard never ends.
fn trap_delay(device: &Device, processes: usize, mine: Option<usize>) -> Duration {
    const APART: Duration = Duration::from_millis(200);
    const MOST: Duration = Duration::from_secs(3);
    if device.gpu().is_none() || processes < 2 {
        return Duration::ZERO;
    }
    (APART * (mine.unwrap_or(0) as u32 + 1)).min(MOST)
}

fn describe(card: &Card, me: u32, (first, count): (i32, i32), window: &Window) -> Peer {
    let text = |s: &str| CString::new(s.replace('\0', "")).unwrap_or_default();
    let slot = card.pe as usize;
    let near = (first..first + count).contains(&(card.pe as i32));
    let (transport, reason) = match window.why_unmapped(slot) {
        _ if card.pe == me => ("direct", "itself"),
        None if near => ("direct", "same host: its memory is mapped here"),
        None => ("none", "its memory could be mapped here, but that of a PE between could not"),
        Some(why) => ("none", why),
    };
    Peer { pid: card.pid, host: text(&card.host), transport: text(transport), reason: text(reason) }
}
