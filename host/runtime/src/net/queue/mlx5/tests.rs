//! The card's path over the stand-in (`host/runtime/tests/verbs`), which checks each call and command: cards
//! that can be opened and cards that cannot, all that is made and freed, and refusals.

mod opening;

use std::os::fd::OwnedFd;
use std::path::{Path as FilePath, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rushmem_abi::device::RawQueue;

use super::commands::{self, Path, QueueParts};
use super::device::{Address, OpenCard, Wish};
use super::Mlx5Card;
use crate::config::{PacketClass, Ringer};
use crate::net::queue::card::{AccessRights, NetworkCard};
use crate::net::queue::links::all_connected;
use crate::net::queue::Queues;
use crate::net::transport::Memory;
use crate::os::Memfd;
use crate::verbs;

/// The stand-in counts for the whole process, so that one test at a time uses it.
struct StandIn {
    folder: PathBuf,
    library: libloading::Library,
    _alone: MutexGuard<'static, ()>,
}

fn stand_in(test: &str) -> Option<StandIn> {
    static ALONE: Mutex<()> = Mutex::new(());
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let build = FilePath::new(env!("CARGO_MANIFEST_DIR")).join("tests/verbs/build");
    let built = Command::new(build).output().expect("the tests need bash");
    let said = String::from_utf8_lossy(&built.stdout).trim().to_owned();
    if built.status.code() == Some(3) {
        eprintln!("SKIP {test}: {said}");
        return None;
    }
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let folder = PathBuf::from(said);
    // SAFETY: the stand-in, whose initialisers do nothing.
    let library = unsafe { libloading::Library::new(folder.join("libibverbs.so.1")) }.unwrap();
    let stand_in = StandIn { folder, library, _alone: alone };
    stand_in.told();
    Some(stand_in)
}

impl StandIn {
    /// What was wrong since the last call.
    fn told(&self) -> String {
        let mut text = vec![0u8; 1 << 16];
        // SAFETY: its signature; writes no more than it is given room for.
        let n = unsafe {
            let told = self.library.get::<unsafe extern "C" fn(*mut u8, usize) -> usize>(b"stand_in_told\0");
            told.unwrap()(text.as_mut_ptr(), text.len())
        };
        String::from_utf8_lossy(&text[..n]).into_owned()
    }

    fn objects(&self) -> usize {
        // SAFETY: its signature.
        unsafe { self.library.get::<unsafe extern "C" fn() -> usize>(b"stand_in_objects\0").unwrap()() }
    }

    /// The last path's traffic class, DSCP, Ethernet priority and service level.
    fn classes(&self) -> [u8; 4] {
        // SAFETY: its signature.
        let classes =
            unsafe { self.library.get::<unsafe extern "C" fn() -> u32>(b"stand_in_classes\0").unwrap()() };
        classes.to_be_bytes()
    }

    fn device(&self, name: &str) -> OpenCard {
        OpenCard::open(Some(&self.folder), Some(&Wish::parse(name).unwrap()), &as_listed).unwrap()
    }

    fn card(&self, me: usize, name: Option<&str>) -> crate::error::Result<Mlx5Card> {
        Mlx5Card::new(me, Some(&self.folder), name, &as_listed, None, PacketClass::default())
    }
}

fn as_listed(names: &[String]) -> Vec<usize> {
    (0..names.len()).collect()
}

/// Atomics are asked for of a card that has them, and of no other.
#[test]
fn a_card_without_atomics_updates_no_words() {
    let Some(stand_in) = stand_in("a_card_without_atomics_updates_no_words") else { return };
    let pages = vec![0u8; 3 * 4096];
    let address = (pages.as_ptr() as usize).next_multiple_of(4096);
    let memory = Memory { address, bytes: 4096, gpu: false, single: true };
    for (name, has) in [("mlx5_1", true), ("mlx5_2", true), ("mlx5_5", false)] {
        let mut queues = connected(&stand_in, name, 64);
        let why = queues[0].why_no_words();
        assert_eq!(why.is_none(), has, "{name}: {why:?}");
        assert!(has || why.unwrap().contains("this card has no atomics"));
        if has {
            queues[0].let_cards_update_words().unwrap();
        }
        // SAFETY: the memory outlives the queues.
        unsafe { queues[0].register(1, 1 << 20, memory) }.unwrap();
        drop(queues);
        assert_eq!((stand_in.objects(), stand_in.told()), (0, String::new()), "{name}");
    }
}

/// Two PEs of one process, with one queue to each of so many slots.
fn connected(stand_in: &StandIn, name: &str, slots: usize) -> [Queues; 2] {
    connected_by(stand_in, name, (1, slots), PacketClass::default())
}

fn connected_by(stand_in: &StandIn, name: &str, each: (usize, usize), class: PacketClass) -> [Queues; 2] {
    let mut both = [0, 1].map(|me| {
        let card = Mlx5Card::new(me, Some(&stand_in.folder), Some(name), &as_listed, None, class).unwrap();
        let card = Box::new(card);
        Queues::new(me, 2, each, None, card, Default::default()).unwrap()
    });
    let addresses: Vec<Option<Vec<u8>>> = both.iter().map(|queues| Some(queues.card_address())).collect();
    both.iter_mut().for_each(|queues| all_connected(queues.connect(&addresses).unwrap()).unwrap());
    both
}

#[test]
fn queues_are_made_connected_and_freed_in_order() {
    let Some(stand_in) = stand_in("queues_are_made_connected_and_freed_in_order") else { return };
    // Ethernet by both versions, InfiniBand; the fewest and the most slots; several contexts.
    for (name, contexts, slots) in [
        ("mlx5_1", 1, 64),
        ("mlx5_1", 1, 16384),
        ("mlx5_2", 1, 1024),
        ("mlx5_5", 1, 64),
        ("mlx5_1", 3, 256),
        ("mlx5_2", 64, 64),
    ] {
        let mut both = connected_by(&stand_in, name, (contexts, slots), PacketClass::default());
        // For kernels and for the host, to each other and to itself: a completion queue and a pair each.
        assert_eq!(stand_in.objects(), 2 * 2 * 2 * (contexts + 1));
        let pages = vec![0u8; 3 * 4096];
        let address = (pages.as_ptr() as usize).next_multiple_of(4096);
        let memory = Memory { address, bytes: 4096, gpu: false, single: true };
        // SAFETY: the memory outlives the queues.
        unsafe { both[0].register(1, 1 << 20, memory) }.unwrap();
        both[0].forget(1);
        // SAFETY: the memory outlives the queues; this one stays registered to the end.
        unsafe { both[1].register(2, 1 << 21, memory) }.unwrap();
        drop(both);
        assert_eq!((stand_in.objects(), stand_in.told()), (0, String::new()), "{name}");
    }
}

/// Kernels have the register, or memory of ours from which it is carried to the register, once.
#[test]
fn doorbells_are_the_cards_or_the_proxy_threads() {
    let Some(stand_in) = stand_in("doorbells_are_the_cards_or_the_proxy_threads") else { return };
    for (ringer, forwarded) in [(Ringer::Auto, false), (Ringer::Kernels, false), (Ringer::Proxy, true)] {
        let card = Box::new(stand_in.card(0, Some("mlx5_1")).unwrap());
        let queues = Queues::new(0, 2, (1, 64), None, card, ringer).unwrap();
        assert_eq!(queues.about().contains("the proxy thread rings for them"), forwarded, "{ringer:?}");
        // SAFETY: the header of the kernels' queue to PE 1, which nobody writes now.
        let raw = unsafe { (queues.kernels_header() as *const RawQueue).add(1).read() };
        assert_eq!(raw.bell != queues.register_of(1) as u64, forwarded, "{ringer:?}");
        assert!(!queues.ring_for_kernels());
        if forwarded {
            // SAFETY: the word that kernels write; the pair is not connected, and hears no doorbell.
            unsafe { AtomicU64::from_ptr(raw.bell as *mut u64) }.store(0x1234, Ordering::Release);
            assert!(queues.ring_for_kernels() && !queues.ring_for_kernels());
        }
    }
}

/// More of them than there are slots, each of which comes back; and one to a PE that is not reached.
#[test]
fn probes_come_back_from_each_pe() {
    let Some(stand_in) = stand_in("probes_come_back_from_each_pe") else { return };
    let mut both = connected(&stand_in, "mlx5_1", 64);
    let pages = vec![0u8; 3 * 4096];
    let address = (pages.as_ptr() as usize).next_multiple_of(4096);
    let memory = Memory { address, bytes: 4096, gpu: false, single: true };
    let early = both[0].ask_for_probe(1);
    both[0].turn_probes();
    assert!(both[0].probed(1, early), "no kernel could have written where no memory is known");
    // SAFETY: the memory outlives the queues.
    let keys = [0, 1].map(|pe| unsafe { both[pe].register(1, 0, memory) }.unwrap());
    both.iter_mut().for_each(|queues| queues.insert(1, 0, 4096, &keys).unwrap());
    for round in 0..150 {
        for pe in 0..2 {
            let probe = both[0].ask_for_probe(pe);
            assert!(!both[0].probed(pe, probe), "round {round}");
            let since = Instant::now();
            while !both[0].probed(pe, probe) {
                both[0].turn_probes();
                let failure = both[0].failure();
                assert!(
                    failure.is_none() && since.elapsed() < Duration::from_secs(60),
                    "round {round}: {failure:?}"
                );
            }
        }
    }
    let why = Some("no cable".to_owned());
    both[0].leave_out(&[None, why]).unwrap();
    let probe = both[0].ask_for_probe(1);
    both[0].turn_probes();
    assert!(both[0].probed(1, probe));
    assert!(both[0].failure().is_none());
    drop(both);
    assert_eq!((stand_in.objects(), stand_in.told()), (0, String::new()));
}

#[test]
fn what_a_firmware_refuses_is_told_with_what_to_do() {
    let Some(stand_in) = stand_in("what_a_firmware_refuses_is_told_with_what_to_do") else { return };
    // Two pairs are all that it has.
    let card = Box::new(stand_in.card(0, Some("mlx5_3")).unwrap());
    let error = Queues::new(0, 3, (1, 64), None, card, Default::default()).err().unwrap().message;
    assert!(
        error.contains(
            "mlx5_3, port 1: CREATE_QP for the queue to PE 2 was refused: status 0x0f, syndrome 0x00000225: \
             the device has no more of it; fewer PEs for each device"
        ),
        "{error}"
    );
    // What was made before is freed in order.
    assert_eq!(stand_in.objects(), 0);
    assert_eq!(stand_in.told(), "CREATE_QP: this firmware has no more pairs\n");
}

#[test]
fn ends_that_do_not_fit_say_so() {
    let Some(stand_in) = stand_in("ends_that_do_not_fit_say_so") else { return };
    let (ethernet, infiniband) = (stand_in.device("mlx5_1"), stand_in.device("mlx5_2"));
    let fails = |device: &OpenCard, peer: &Address, why: &str| {
        let error = device.path_to(peer).unwrap_err().message;
        assert!(error.contains(why) && error.contains(&device.who()), "{error}");
    };
    fails(&ethernet, &infiniband.address, "it is Ethernet, and the peer's card is InfiniBand");
    fails(&ethernet, &stand_in.device("mlx5_5").address, "RoCE v2");
    let mut other = infiniband.address;
    other.gid[7] ^= 1;
    fails(&infiniband, &other, "another InfiniBand subnet");
    let nowhere = Address { gid: [0; 16], ..ethernet.address };
    fails(&ethernet, &nowhere, "finding the way to the peer's address failed");
    // An address of another version.
    let mut card = connected(&stand_in, "mlx5_1", 64);
    let failures = card[0].connect(&[None, Some(vec![9; 60])]).unwrap();
    assert!(failures[0].is_none());
    let error = all_connected(failures).unwrap_err().message;
    assert!(error.contains("PE 1: ") && error.contains("both need one version"), "{error}");
    drop(card);
    stand_in.told();
}

#[test]
fn memory_that_cannot_be_registered_is_an_error() {
    let Some(stand_in) = stand_in("memory_that_cannot_be_registered_is_an_error") else { return };
    let mut card = stand_in.card(0, None).unwrap();
    let memory = |address: usize, gpu: bool| Memory { address, bytes: 4096, gpu, single: true };
    // SAFETY: nothing is registered.
    let error =
        unsafe { card.register(memory(4096, false), 0, AccessRights::symmetric(true)) }.unwrap_err().message;
    assert!(
        error.contains("mlx5_1, port 2: registering 4096 bytes at 0x1000 failed")
            && error.contains("ulimit -l"),
        "{error}"
    );
    drop(card);
    assert!(stand_in.told().contains("not mapped"));
}

/// What stands for a GPU's memory here is a memfd of `PAGES` pages, whose descriptor is a dma-buf to the
/// stand-in: of the address `AT` alone.
const PAGES: usize = 3;
const AT: usize = 0x7000_0000;

fn gpu_card(stand_in: &StandIn, says: &'static str) -> Mlx5Card {
    let dma_bufs = move |at: usize, bytes: usize| {
        if !says.is_empty() {
            return Err(crate::error::err!(UNSUPPORTED, "{says}"));
        }
        assert_eq!((at, bytes), (AT, PAGES * 4096), "whole pages around it");
        Memfd::create("a GPU", bytes).map(OwnedFd::from)
    };
    Mlx5Card::new(
        0,
        Some(&stand_in.folder),
        Some("mlx5_1"),
        &as_listed,
        Some(Box::new(dma_bufs)),
        PacketClass::default(),
    )
    .unwrap()
}

#[test]
fn gpu_memory_is_registered_as_a_dma_buf() {
    let Some(stand_in) = stand_in("gpu_memory_is_registered_as_a_dma_buf") else { return };
    let mut card = gpu_card(&stand_in, "");
    // Whole pages; and what begins and ends within one, under a name that does so alike.
    for (start, bytes) in [(0, PAGES * 4096), (40, PAGES * 4096 - 100)] {
        let memory = Memory { address: AT + start, bytes, gpu: true, single: true };
        // SAFETY: no memory of this process: the stand-in maps the descriptor.
        let keys = unsafe { card.register(memory, (1 << 20) + start as u64, AccessRights::symmetric(true)) }
            .unwrap();
        assert!(keys.local != 0 && keys.remote != 0);
        card.forget(keys);
    }
    assert_eq!(stand_in.told(), "");
    // A name that lies elsewhere in its page; then there is no nvidia-peermem, as nothing is mapped there.
    let memory = Memory { address: AT + 40, bytes: PAGES * 4096 - 100, gpu: true, single: true };
    // SAFETY: nothing is registered.
    let error =
        unsafe { card.register(memory, 1 << 20, AccessRights::symmetric(false)) }.unwrap_err().message;
    for part in
        ["mlx5_1, port 2", "12188 bytes of GPU memory", "As a dma-buf: giving it", "By nvidia-peermem: Inv"]
    {
        assert!(error.contains(part), "{part:?} is not in {error}");
    }
    drop(card);
    let told = stand_in.told();
    assert!(told.contains("ibv_reg_dmabuf_mr: an offset of another place"), "{told}");
}

/// A driver that gives no descriptor may still tell the card's driver of its pages.
#[test]
fn gpu_memory_is_registered_by_its_address_where_there_is_no_dma_buf() {
    let Some(stand_in) = stand_in("gpu_memory_is_registered_by_its_address_where_there_is_no_dma_buf") else {
        return;
    };
    let mut card = gpu_card(&stand_in, "an older driver");
    let pages = vec![0u8; 3 * 4096];
    let address = (pages.as_ptr() as usize).next_multiple_of(4096);
    let memory = Memory { address, bytes: 4096, gpu: true, single: true };
    // SAFETY: the memory outlives the card.
    let keys = unsafe { card.register(memory, 0, AccessRights::symmetric(true)) }.unwrap();
    card.forget(keys);
    assert_eq!(stand_in.told(), "");
    let nowhere = Memory { address: 4096, ..memory };
    // SAFETY: nothing is registered.
    let error = unsafe { card.register(nowhere, 0, AccessRights::symmetric(true)) }.unwrap_err().message;
    for part in ["As a dma-buf: an older driver", "By nvidia-peermem: Invalid", "modprobe nvidia-peermem"] {
        assert!(error.contains(part), "{part:?} is not in {error}");
    }
    drop(card);
    assert!(stand_in.told().contains("not mapped"));
}

/// Each of these the firmware would refuse: with which status, and what the stand-in says was wrong.
#[test]
fn wrong_commands_are_refused_precisely() {
    let Some(stand_in) = stand_in("wrong_commands_are_refused_precisely") else { return };
    let device = std::sync::Arc::new(stand_in.device("mlx5_1"));
    let mut pages = vec![0u8; 16 * 4096];
    let start = (pages.as_mut_ptr() as usize).next_multiple_of(4096) as *mut u8;
    // SAFETY: the memory outlives it, and has more than twelve pages behind its first.
    let umem = unsafe { super::pair::Umem::new(&device, start, 12 * 4096) }.unwrap();
    // SAFETY: an open device; the register is freed below.
    let uar = unsafe { (device.verbs.mlx5dv_devx_alloc_uar)(device.context, 1) };
    let right = QueueParts {
        umem: umem.number(),
        slots: 0,
        log_slots: 6,
        completions: 4096,
        record: 8192,
        cq_record: 8192 + 64,
        // SAFETY: the register that was allocated.
        uar: unsafe { (*uar).page },
    };
    let refused = |command: &commands::Command, status: &str, why: &str| {
        let error = device.create(command, "a test").unwrap_err().message;
        let told = stand_in.told();
        assert!(error.contains(status) && error.contains("mlx5_1, port 2: CREATE"), "{error}");
        assert!(told.contains(why), "{told:?} does not say {why:?}");
    };
    let eq = device.eq;
    let cq = |parts: QueueParts| commands::create_cq(&parts, eq);
    refused(&cq(QueueParts { umem: 1, ..right }), "status 0x05", "its memory is none that was registered");
    refused(&cq(QueueParts { completions: 64, ..right }), "status 0x03", "in the middle of a page");
    refused(&cq(QueueParts { log_slots: 10, ..right }), "status 0x03", "reaches past");
    refused(&cq(QueueParts { cq_record: 8196, ..right }), "status 0x03", "not aligned");
    refused(&cq(QueueParts { cq_record: 12 * 4096, ..right }), "status 0x03", "not within the memory");
    refused(&cq(QueueParts { uar: 7, ..right }), "status 0x05", "page 7 is no register's");
    refused(&commands::create_cq(&right, 6), "status 0x05", "queue of events 6");
    let mut stray = cq(right);
    stray.bytes[100] = 1;
    refused(&stray, "status 0x03", "bit 807 is set");
    refused(&commands::create_qp(&right, device.pdn, 3), "status 0x05", "completion queues 3 and 3");

    let (queue, number) = device.create(&cq(right), "a test").unwrap();
    refused(&commands::create_qp(&right, 0x99, number), "status 0x05", "protection domain 153");
    let qp = commands::create_qp(&right, device.pdn, number);
    let (pair, number) = device.create(&qp, "a test").unwrap();
    let refused = |command: &commands::Command, status: &str, why: &str| {
        // SAFETY: the pair that was made.
        let error = unsafe { device.modify(pair, command, "a test") }.unwrap_err().message;
        let told = stand_in.told();
        assert!(error.contains(status) && error.contains(command.name), "{error}");
        assert!(told.contains(why), "{told:?} does not say {why:?}");
    };
    let path = device.path_to(&device.address).unwrap();
    refused(&commands::rts(number, 1), "status 0x10", "is in state 0, not 2");
    refused(&commands::init(number + 1, 2, true), "status 0x05", "not the one that is to change");
    refused(&commands::init(number, 1, true), "status 0x03", "port 1 is not active");
    let mut in_no_mode = commands::init(number, 2, true);
    in_no_mode.bytes[(0xc0 + 0x48c) / 8] &= 0xf0;
    refused(&in_no_mode, "status 0x03", "atomics 1 in mode 0");
    // SAFETY: the pair that was made.
    unsafe { device.modify(pair, &commands::init(number, 2, true), "a test") }.unwrap();
    refused(
        &commands::rtr(number, 2, 5, (&path, PacketClass::default()), number, 1),
        "status 0x03",
        "MTU 5 is more than the port's",
    );
    refused(
        &commands::rtr(number, 2, 3, (&path, PacketClass::default()), 0, 1),
        "status 0x03",
        "no pair of the peer's",
    );
    refused(
        &commands::rtr(number, 2, 3, (&Path::Lid(7), PacketClass::default()), number, 1),
        "status 0x03",
        "without a GID",
    );
    let Path::Ethernet { gid, mut mac, source, v2 } = path else { panic!("{path:?}") };
    mac[5] ^= 1;
    let wrong = Path::Ethernet { gid, mac, source, v2 };
    refused(
        &commands::rtr(number, 2, 3, (&wrong, PacketClass::default()), number, 1),
        "status 0x03",
        "a MAC that is not that GID's",
    );
    // SAFETY: objects that were made here, the pair before its completion queue.
    unsafe {
        assert_ne!((device.verbs.mlx5dv_devx_obj_destroy)(queue), 0, "a pair uses it");
        assert_eq!((device.verbs.mlx5dv_devx_obj_destroy)(pair), 0);
        assert_eq!((device.verbs.mlx5dv_devx_obj_destroy)(queue), 0);
        (device.verbs.mlx5dv_devx_free_uar)(uar);
    }
    drop(umem);
    assert_eq!(stand_in.told(), "a completion queue is destroyed that a pair uses\n");
}
