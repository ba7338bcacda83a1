//! The steps by which a world starts: what its node shares, how the other PEs are reached, and what the log
//! says of it.

use std::ffi::CString;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rushmem_bootstrap_abi::Bootstrap;
use rushmem_device_cpu::check;

use super::front::{slots_offset, sync_bytes, table_bytes, team_memory, teams_offset, SYNC_LINE};
use super::timeline::align;
use super::{Peer, World};
use crate::collective::{Announce, Collective, Entered, Rounds};
use crate::config::{Config, TransportWish};
use crate::crash::CrashTexts;
use crate::device::{Device, DeviceKind};
use crate::device_state::{DeviceFacts, DeviceState};
use crate::error::{code, err, Error, Result};
use crate::exec::context::Contexts;
use crate::exec::gpu::GpuEngine;
use crate::fork::{self, Member};
use crate::health::Health;
use crate::kernel::service::Service;
use crate::kernel::{GpuShare, Kernels};
use crate::memory::backing::{Backing, GpuBacking};
use crate::memory::symmetric::Symmetric;
use crate::memory::window::{heap_limit, heaps_of_a_process, Window};
use crate::net::{Detached, Far, Joined, Meeting};
use crate::node::control::{Call, Control, RoundWords};
use crate::node::links::Links;
use crate::node::message::Socket;
use crate::op::Reached;
use crate::os::Reservation;
use crate::team::books::{TeamBooks, TeamPlace};
use crate::team::slots::Slots;
use crate::team::Team;
use crate::topology::card::{self, Card};
use crate::topology::members::Members;
use crate::topology::near::{Near, NearForm};
use crate::topology::nodes::Nodes;
use crate::trace::{clock, Trace};
use rushmem_abi::device::RawTeam;

/// Bytes behind each allocation that belong to nobody, in a run that checks bounds.
const CHECKED_GAP: usize = 256;
impl World {
    /// Joins the job, step by step, each of them collective over its PEs or their node's.
    pub(super) fn try_start(boot: &Arc<dyn Bootstrap>, mut config: Config) -> Result<World> {
        let (me, n) = (boot.rank() as usize, boot.n_ranks() as usize);
        let kind = DeviceKind::choose(config.device)?;
        let mine = Card::mine(&config, boot.rank(), kind)?;
        let member = Member::new()?;
        fork::prepare_text(&mine.who());
        kind.warn_of_checks(&config, mine.pe);
        let (path, counters) = (config.trace.as_deref(), config.counters);
        let trace = Trace::create(path, counters, mine.pe as i32, &mine.who(), config.stall_report)?;
        let timeline = trace.as_ref().and_then(|trace| trace.timeline());
        // Listens before the cards travel: a PE that reads this card can connect at once.
        let listener =
            Socket::listen(&mine.link).map_err(|e| Error::io("listening for this host's PEs", &e))?;
        let cards = Arc::new(card::exchange(&**boot, &mine)?);
        let nodes = Nodes::new(&cards);
        let members = nodes.members(me);
        let cores = std::thread::available_parallelism().map_or(1, |c| c.get());
        let on_host = cards.iter().filter(|card| card.host == mine.host).count();
        let health = Arc::new(Health::new(mine.who(), on_host > cores, config.stall_report));
        config.heap_max = heap_limit(&cards, &nodes, config.heap_max, config.heap_max_given)?;
        check_mapping(&config, &mine, &cards)?;

        let mates = Arc::new(members.iter().map(|pe| cards[*pe].clone()).collect());
        let (slot, limit) = (nodes.slot(me), config.init_timeout);
        let links = Links::connect(slot, mates, listener, Arc::clone(&health), Arc::clone(boot), limit)?;
        // A PE that sees this one end must know the reason before.
        let tell = |e: &Error| links.abort(&e.message);
        let device = Device::open(kind, config.device, card::host_index(&cards, me));
        let cuda = device.as_ref().ok().and_then(Device::gpu).cloned();
        let meet = || Meeting::hold(me, &cards, &config, cuda.as_ref(), &health, boot);
        let meeting = if nodes.count() > 1 { Some(meet().inspect_err(tell)?) } else { None };
        let memory = share_memory(&links, &health, &cards, (me, &nodes), &config, device, meeting);
        let Parts {
            mut rounds,
            joined,
            collective,
            symmetric,
            slots,
            books,
            device,
            sharing,
            trap_delay,
            wide_packets,
            checker,
        } = memory.inspect_err(tell)?;
        let meet = || meet().and_then(|meeting| meeting.join(&rounds.control));
        let clock = if timeline.is_some() { clock::identity() } else { 0 };
        let own = (clock, wide_packets);
        let (joined, clocks, wide_packets) =
            reach_all(joined, meet, collective.enter(&rounds)?, &symmetric, own).inspect_err(tell)?;
        let (far, detached) = joined.map(|joined| (joined.net, joined.kernels)).unzip();

        let mapped: Vec<(usize, usize)> =
            symmetric.window().mapped().map(|slot| (members[slot], slot)).collect();
        let near = Arc::new(Near::new(me, n, &mapped, symmetric.stride() as u64));
        let base = symmetric.base();
        let all_near = near.count() == n;
        let facts = DeviceFacts {
            my_pe: me as i32,
            n_pes: n as i32,
            near: &near,
            near_table: base + sync_bytes(n),
            heap_base: base,
            stride: symmetric.stride(),
            // The first lines of the heap, as `SYNC_LINE` says.
            sync_lines: base,
            sync_epoch: base + n * SYNC_LINE,
            stall_report: config.stall_report,
            wait_limit: config.wait_timeout,
            ring: 0,
            mailbox: 0,
            trap_delay,
            world: RawTeam {
                wide: if wide_packets { slots.wide as u32 } else { 0 },
                packed_rows: (wide_packets && all_near).into(),
                ..slots.world_team(me as i32, base + slots_offset(n), base, all_near.then(|| near.apart()))
            },
            teams: base + teams_offset(n),
            queues: 0,
        };
        let world = facts.world;
        let started = start_device(facts, detached, &device, &symmetric, (&health, &trace), &config, sharing)
            .map_err(|e| e.context(&device));
        let (engine, kernels) = {
            let mut call = collective.enter(&rounds)?;
            call.all_well(started, "starting the device").inspect_err(tell)?
        };
        let ahead = align(collective.enter(&rounds)?, &clocks, me)?;
        if let Some(timeline) = timeline {
            timeline.set_clock(clocks[me], ahead);
            if let Some(far) = &far {
                timeline.count_retries(far.retries());
            }
        }
        rounds.trace = trace.clone();
        let check = checker.map(|memory| {
            let (own, first) = (0..symmetric.reserved(), base - nodes.slot(me) * symmetric.stride());
            let pes = members.iter().map(|pe| *pe as i32).collect();
            let windows = check::Windows { first, stride: symmetric.stride(), pes, own };
            check::World::new(me as i32, windows, memory, config.check)
        });
        if let Some(check) = &check {
            kernels.check(check);
            rounds.check = Some(Arc::clone(check));
        }
        let describe = |card| describe(card, &mine, &nodes, &near, symmetric.window(), far.as_deref());
        let peers: Vec<Peer> = cards.iter().map(describe).collect();
        for (card, peer) in
            cards.iter().zip(&peers).filter(|(_, peer)| peer.transport.as_c_str() != c"direct")
        {
            let (way, why) = (peer.transport.to_string_lossy(), peer.reason.to_string_lossy());
            log::info!("{}: {} is reached by {way}: {why}", mine.who(), card.who());
        }
        log::info!(
            "{}: one of {n} PEs, {} of them mapped directly ({near}); its device is {device}; heap at {base:#x}, up to {} bytes",
            mine.who(),
            near.count(),
            config.heap_max
        );
        links.every_tick(kernels.monitor());
        Ok(World {
            _crash_texts: CrashTexts::about(&mine.who(), symmetric.map()),
            kernels,
            links,
            reached: match &engine {
                Some(_) => Reached::Gpu,
                None if check.is_some() || trace.is_some() => Reached::Noted,
                None => Reached::Host,
            },
            trace,
            check,
            apart: engine.is_some() || config.apart,
            call_streams: Mutex::default(),
            engine,
            far,
            contexts: Contexts::new(),
            rounds,
            team: Team::new(collective, world, TeamPlace::of_world(&slots)),
            books: Mutex::new(books),
            meetings: Mutex::default(),
            team_memory: slots_offset(n),
            nodes,
            symmetric,
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
            wide_packets,
            _member: member,
            abandoned: AtomicBool::new(false),
        })
    }
}

/// An error where all memory is to be mapped and cannot be, as some PE is on another host.
fn check_mapping(config: &Config, mine: &Card, cards: &[Card]) -> Result<()> {
    let other = cards.iter().find(|c| c.node != mine.node);
    let (TransportWish::Direct, Some(other)) = (config.transport, other) else { return Ok(()) };
    Err(err!(
        UNSUPPORTED,
        "RUSHMEM_TRANSPORT=direct, but {} cannot map the memory of {}: they are on different hosts (or network \
         namespaces); start all PEs on one host, or leave the choice to rushmem",
        mine.who(),
        other.who()
    ))
}

/// During start-up a PE may see that another one ended before it learns why: the bootstrap's
/// first death is the cause, and comes soon.
pub(super) fn first_cause(e: Error, boot: &dyn Bootstrap) -> Error {
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
    rounds: Rounds,
    /// Where there are other nodes.
    joined: Option<Joined>,
    /// Of all PEs.
    collective: Collective,
    symmetric: Symmetric,
    slots: Slots,
    books: TeamBooks,
    device: Device,
    sharing: GpuShare,
    /// How long its kernels go on once the job is broken.
    trap_delay: Duration,
    /// Whether this PE's stores to the PEs of its node may be wide packets.
    wide_packets: bool,
    /// Of a run that is checked.
    checker: Option<check::Memory>,
}

/// Collective: the control segment and the symmetric memory of PE `me`'s node, whose PEs are connected, on
/// `device`.
fn share_memory(
    links: &Links,
    health: &Arc<Health>,
    cards: &Arc<Vec<Card>>,
    (me, nodes): (usize, &Nodes),
    config: &Config,
    device: Result<Device>,
    meeting: Option<Meeting>,
) -> Result<Parts> {
    let (n, limit, members) = (cards.len(), config.init_timeout, nodes.members(me));
    let slot = members.iter().position(|pe| *pe == me).expect("a PE is of its own node");
    let control = if slot == 0 {
        let control = Control::create(n, me)?;
        links.receive_from_leader(0, Some(control.fd()), limit)?;
        control
    } else {
        Control::open(links.receive_from_leader(0, None, limit)?, n, me)?
    };
    let control = Arc::new(control);
    let joined = meeting.map(|meeting| meeting.join(&control)).transpose()?;
    let far = joined.as_ref().map(|joined| Arc::clone(&joined.net));
    let announce = far.map(|far| {
        Box::new(move |leaders: &[usize], arrival, data: (&[u8], bool)| far.arrive(leaders, arrival, data))
            as Announce
    });
    let (health, cards) = (Arc::clone(health), Arc::clone(cards));
    let rounds = Rounds { control, announce, health, cards, check: None, trace: None, limit: config.timeout };
    let leaders = nodes.leaders().filter(|pe| *pe != nodes.leader(me)).collect();
    let collective = Collective::new(0, Members::all(n), leaders, 0);
    let mut call = collective.enter(&rounds)?;
    let own = config.check.is_on().then(check::Memory::create).transpose();
    let own = own.map_err(|e| Error::io("the checker's memory", &e));
    let place = own.as_ref().ok().and_then(Option::as_ref).map_or((0, 0), check::Memory::place);
    let place = u64::from(place.0) << 32 | u64::from(place.1);
    call.round(
        Call::Start,
        [config.team_memory, config.team_memory_given.into(), place, config.check.bits()],
    )?;
    call.agree(0, "RUSHMEM_TEAM_MEMORY, in bytes,")?;
    call.agree(1, "whether RUSHMEM_TEAM_MEMORY is set")?;
    call.agree(3, "RUSHMEM_CHECK")?;
    let checker = own.and_then(|own| own.map(|own| join_checker(own, me, &rounds.cards, &call)).transpose());
    let checker = call.all_well(checker, "joining the checker")?;
    let device = call.all_well(device, "opening the device")?;
    let reserve = |bytes| match device.gpu() {
        None => Reservation::new(bytes).map(Backing::Host),
        Some(cuda) => GpuBacking::reserve(cuda, bytes).map(Backing::Gpu),
    };
    let (heap, heaps) = (config.heap_max, heaps_of_a_process(&rounds.cards, nodes));
    let window = Window::reserve(members.len(), slot, heap, heaps, config.mapping(), reserve);
    let window = call.all_well(window, "reserving address space for the heaps")?;
    let (team_memory, slots) = team_memory(n, config, window.half(), config.apart || device.gpu().is_some())?;
    let books = TeamBooks::new(team_memory, &TeamPlace::of_world(&slots), slots.extra());
    let reserved = slots_offset(n) + team_memory;
    let symmetric = Symmetric::new(window, members, reserved, config.heap_min, limit, &mut call, links)?;
    if config.check.memory {
        symmetric.keep_apart(CHECKED_GAP);
    }
    // PEs of one process share its context on a GPU, and so the processors at one time; processes take turns.
    let uuid = u128::from_le_bytes(device.gpu().map_or([0; 16], |cuda| cuda.facts().uuid));
    let sms = device.gpu().map_or(0, |cuda| u64::from(cuda.facts().sms));
    let place = [uuid as u64, (uuid >> 64) as u64, rounds.cards[me].process, sms];
    call.round(Call::Step, place)?;
    let places: Vec<RoundWords> = (0..n).map(|i| call.words(i)).collect();
    let sharing = GpuShare::of(&places, &place);
    let mut processes: Vec<u64> =
        places.iter().filter(|other| other[..2] == place[..2]).map(|w| w[2]).collect();
    processes.sort_unstable();
    processes.dedup();
    let wide_packets =
        config.wide_packets && members.iter().all(|pe| device.has_wide_packets_to(&uuid_in(&places[*pe])));
    let trap_delay = trap_delay(&device, processes.len(), processes.iter().position(|p| *p == place[2]));
    drop(call);
    Ok(Parts {
        rounds,
        joined,
        collective,
        symmetric,
        slots,
        books,
        device,
        sharing,
        trap_delay,
        wide_packets,
        checker,
    })
}

/// The checker's memory of this host: that of its PE with the lowest number. PEs of other hosts have another,
/// and races with them are not seen.
fn join_checker(own: check::Memory, me: usize, cards: &[Card], call: &Entered<'_>) -> Result<check::Memory> {
    let host = cards[me].real_host();
    let first = cards.iter().position(|card| card.real_host() == host).unwrap_or(me);
    if first == me {
        return Ok(own);
    }
    let place = call.words(first)[2];
    check::Memory::open(((place >> 32) as u32, place as u32)).map_err(|e| {
        Error::io(format!("RUSHMEM_CHECK: the checker's memory of {}, in /proc", cards[first].who()), &e)
    })
}

/// The UUID of a PE's GPU, as it goes round.
fn uuid_in(words: &RoundWords) -> [u8; 16] {
    (u128::from(words[0]) | u128::from(words[1]) << 64).to_le_bytes()
}

/// Processes that take turns on one GPU trap one after another, and not while the driver still clears up
/// after the one that died: of traps at one moment it tells only some (driver 580), and a kernel that has
/// trapped unheard never ends.
fn trap_delay(device: &Device, processes: usize, mine: Option<usize>) -> Duration {
    const APART: Duration = Duration::from_millis(200);
    const MOST: Duration = Duration::from_secs(3);
    if device.gpu().is_none() || processes < 2 {
        return Duration::ZERO;
    }
    (APART * (mine.unwrap_or(0) as u32 + 1)).min(MOST)
}

/// Collective: where any PE has one that it cannot map, everybody joins the network, and all memory is made
/// known to it. What PEs call their clocks, and whether all of them may have wide packets, goes round with
/// that.
fn reach_all(
    joined: Option<Joined>,
    meet: impl FnOnce() -> Result<Joined>,
    mut call: Entered<'_>,
    symmetric: &Symmetric,
    (clock, wide_packets): (u64, bool),
) -> Result<(Option<Joined>, Vec<u64>, bool)> {
    let window = symmetric.window();
    let needed = joined.is_some() || window.mapped().count() < window.slots();
    call.round(Call::Step, [needed.into(), clock, wide_packets.into(), 0])?;
    let clocks = (0..call.n()).map(|pe| call.words(pe)[1]).collect();
    let wide_packets = (0..call.n()).all(|pe| call.words(pe)[2] != 0);
    if (0..call.n()).all(|pe| call.words(pe)[0] == 0) {
        return Ok((None, clocks, wide_packets));
    }
    let joined = joined.map_or_else(meet, Ok)?;
    symmetric.let_reach(joined.net.clone())?;
    // Nobody asks anything of a PE that does not know its own memory yet.
    call.round(Call::Step, [0; 4])?;
    Ok((Some(joined), clocks, wide_packets))
}

/// What kernels need, and the way from them to far PEs where there are any: `facts` name it, too.
fn start_device(
    facts: DeviceFacts<'_>,
    net: Option<Detached>,
    device: &Device,
    symmetric: &Symmetric,
    (health, trace): (&Arc<Health>, &Option<Arc<Trace>>),
    config: &Config,
    sharing: GpuShare,
) -> Result<(Option<GpuEngine>, Kernels)> {
    let mut facts = facts;
    if let NearForm::Table(table) = facts.near.shape() {
        let words: Vec<u8> = table.iter().flat_map(|distance| distance.to_ne_bytes()).collect();
        // SAFETY: memory of the heap that is reserved for it, and nobody's else.
        unsafe { symmetric.window().backing().write(facts.near_table, &words) }?;
    }
    let n = facts.n_pes as usize;
    let counters = facts.heap_base + sync_bytes(n) + table_bytes(n);
    let prepare = |net: Detached| {
        // SAFETY: memory of the heap that is reserved for it, and lives until kernels have ended.
        unsafe { net.prepare(device.gpu(), counters, config.ring_slots) }
    };
    let net = net.map(prepare).transpose()?;
    if let Some(net) = &net {
        (facts.ring, facts.mailbox) = (net.ring_address(), net.mailbox_address());
        facts.queues = net.queues_address();
    }
    let state = DeviceState::new(&facts, health, device.gpu())?;
    let mut engine = None;
    let mut gpu = None;
    if let Some(cuda) = device.gpu() {
        let service = Arc::new(Service::load(cuda, config, state.raw())?);
        gpu = Some((cuda, Arc::clone(&service)));
        engine = Some(GpuEngine::new(cuda, health, service)?);
    }
    let announce: Box<dyn Fn() + Send + Sync> = match net {
        Some(net) => Box::new(net.attach(facts.heap_base, facts.stride, gpu)?),
        None => Box::new(|| ()),
    };
    let kernels =
        Kernels::new(state, (Arc::clone(health), trace.clone()), config.clone(), device, sharing, announce)?;
    Ok((engine, kernels))
}

/// How `card`'s PE is reached, and why so.
fn describe(
    card: &Card,
    mine: &Card,
    nodes: &Nodes,
    near: &Near,
    window: &Window,
    far: Option<&Far>,
) -> Peer {
    let text = |s: &str| CString::new(s.replace('\0', "")).unwrap_or_default();
    let (pe, me) = (card.pe as usize, mine.pe as usize);
    let (network, about) = far.map_or_else(|| ("none", String::new()), |far| far.way_to(pe));
    let (transport, reason) = if pe == me {
        ("direct", "itself".to_owned())
    } else if near.contains(card.pe as i32) {
        ("direct", "same host: its memory is mapped here".to_owned())
    } else if nodes.leader(pe) != nodes.leader(me) {
        (network, format!("{}; {about}", card::why_apart(mine, card)))
    } else {
        let why = window.why_unmapped(nodes.slot(pe)).unwrap_or("its memory is not mapped here");
        (network, format!("{why}; {about}"))
    };
    Peer { pid: card.pid, host: text(&card.host), transport: text(transport), reason: text(&reason) }
}
