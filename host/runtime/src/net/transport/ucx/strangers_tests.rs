//! Strangers at a PE's port, who have no key: what they send is dropped and counted, and the PEs go on. And
//! what honest PEs may have on their way, which is bounded and never refused. Each test in a process of its
//! own, over TCP.

use std::net::Ipv4Addr;
use std::time::Duration;

use super::guard::{Dropped, TRAILER};
use super::listen::Listen;
use super::listening::listening;
use super::meeting_tests::apart;
use super::stranger::Stranger;
use super::tests::{at, both, data, pair, Pe, LIMIT, SEGMENT};
use super::window::AHEAD;
use super::wire::{Head, HEAD, SEALED};
use super::{Carrier, Ucx, AM_ID, COPY_ID};
use crate::config::FarGpu;
use crate::net::transport::{Event, Memory, Transport, MESSAGE};
use crate::net::wire::message::{self, Record, PRELUDE};
use crate::topology::card::random;

/// A message of an engine, as PE 0 would make it.
fn message(number: u64, bytes: usize) -> Vec<u8> {
    let mut message = Vec::new();
    message::begin(&mut message, 0);
    message::number(&mut message, number);
    Record::Data { offset: 0, data: &vec![0xEE; bytes] }.encode(&mut message);
    message
}

fn dropped(pes: &mut [Pe; 2]) -> Dropped {
    let [a, b] = pes.each_mut().map(|pe| pe.ucx.inbox().guards.dropped);
    Dropped { forged: a.forged + b.forged, replayed: a.replayed + b.replayed, too_far: a.too_far + b.too_far }
}

/// A put of PE 0's, and a look whether it is there.
fn put(pes: &mut [Pe; 2], address: u64, bytes: usize, token: u64) {
    let source = data(bytes);
    // SAFETY: the source lives until the tokens are done.
    unsafe {
        if pes[0].ucx.put(at(address), source.as_ptr(), bytes, token).unwrap() {
            pes[0].done.push(token);
        }
        if pes[0].ucx.flush(1, token + 1).unwrap() {
            pes[0].done.push(token + 1);
        }
    }
    both(pes, "put", |pes| [token, token + 1].iter().all(|t| pes[0].done.contains(t)));
    let offset = (address - pes[1].memory.as_ptr() as u64) as usize;
    assert!(pes[1].memory[offset..][..bytes] == source, "{bytes} bytes at {offset}");
}

/// Lets everybody go on until it is so.
fn all(pes: &mut [Pe; 2], stranger: &mut Stranger, what: &str, so: impl Fn(&mut [Pe; 2]) -> bool) {
    let start = std::time::Instant::now();
    while !so(pes) {
        stranger.progress();
        pes.iter_mut().for_each(Pe::progress);
        assert!(start.elapsed() < LIMIT, "{what}: {:?}", dropped(pes));
    }
}

/// A stranger that knows PE 1's port and nothing else.
fn stranger_at(pes: &[Pe; 2], before: &std::collections::BTreeSet<(Ipv4Addr, u16)>) -> Stranger {
    let address = pes[1].ucx.address().unwrap();
    let ports = listening(std::process::id());
    let named = |(_, port): &&(Ipv4Addr, u16)| address.windows(2).any(|two| two == port.to_be_bytes());
    let (_, port) = ports.difference(before).find(named).expect("a port at which PE 1 listens");
    Stranger::at_port(pes[1].ucx.ucp, *port)
}

#[test]
fn what_strangers_send_is_dropped_and_counted() {
    let name = "what_strangers_send_is_dropped_and_counted";
    if !apart("strangers_tests", name) {
        return;
    }
    let before = listening(std::process::id());
    let Some(mut pes) = pair(name, Carrier::Messages) else { return };
    let there = pes[1].memory.as_ptr() as u64;
    put(&mut pes, there + 100, 10_000, 0);
    let untouched = pes[1].memory[..100].to_vec();
    let mut stranger = stranger_at(&pes, &before);
    let seed: [u8; 8] = random().unwrap();
    println!("seed {seed:x?}");
    let mut state = u64::from_le_bytes(seed);
    let mut below = |n: u64| {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (state >> 33) % n
    };

    let mut sent = 0;
    let mut say = |stranger: &mut Stranger, id, header: &[u8], data: &[u8], eager| {
        stranger.send(id, header, data, eager);
        sent += 1;
    };
    // A well-formed put, as it was before there were tags, and with tags that are none; from any sender
    // or is not.
    for sender in [0, 1, 2, usize::MAX] {
        for number in [0, 1, 1 << 20, u64::MAX] {
            let head = Head::Put { number, segment: SEGMENT, address: there }.encode(sender);
            say(&mut stranger, COPY_ID, &head, &[0xEE; 8], true);
            let tag: [u8; SEALED - HEAD - 8] = random().unwrap();
            let sealed = [&head[..], &number.to_le_bytes(), &tag].concat();
            say(&mut stranger, COPY_ID, &sealed, &[0xEE; 8], true);
            // Data that the receiver is to fetch.
            say(&mut stranger, COPY_ID, &sealed, &vec![0xEE; 1 << 18], false);
            say(&mut stranger, AM_ID, &sealed, &vec![0xEE; 1 << 18], false);
            say(&mut stranger, AM_ID, &sealed, &[0xEE; 8], true);
            let mut plain = message(number, 8);
            plain[..4].copy_from_slice(&(sender as u32).to_le_bytes());
            say(&mut stranger, AM_ID, &[], &plain, true);
            plain.extend_from_slice(&[0xEE; TRAILER]);
            say(&mut stranger, AM_ID, &[], &plain, true);
        }
    }
    for head in [Head::Hello, Head::Open, Head::Seen { count: 1 }, Head::Seen { count: u64::MAX }] {
        let sealed = [&head.encode(0)[..], &[0; SEALED - HEAD]].concat();
        say(&mut stranger, COPY_ID, &sealed, &[], true);
    }
    // Anything, of any length.
    for _ in 0..300 {
        let (header, bytes) = (data(below(100) as usize), data(below(MESSAGE as u64 + 100) as usize));
        let id = if below(2) == 0 { AM_ID } else { COPY_ID };
        say(&mut stranger, id, &header, &bytes, true);
        if below(10) == 0 {
            let token = u64::from(below(1 << 30) as u32) << 8 | 2;
            put(&mut pes, there + 100, 70_000, token);
        }
    }
    all(&mut pes, &mut stranger, "forgeries", |pes| dropped(pes).forged >= sent);
    put(&mut pes, there + 100, 1 << 20, 1 << 40);
    assert_eq!(dropped(&mut pes), Dropped { forged: sent, ..Dropped::default() });
    assert!(pes[1].memory[..100] == untouched, "a stranger has written to memory");
    assert!(pes.iter().all(|pe| pe.failed.is_empty() && pe.messages.is_empty() && !pe.lost));

    // A copied message counts once, whatever process sends it.
    let mut overheard = message(0, 8);
    let plain = overheard.clone();
    pes[0].ucx.inbox().guards.seal_message(1, &mut overheard).unwrap();
    let word = Head::Flushed { token: 77 }.encode(0);
    let word = pes[0].ucx.inbox().guards.seal_copy(1, &word, &[], true).unwrap();
    for _ in 0..3 {
        stranger.send(AM_ID, &[], &overheard, true);
        stranger.send(COPY_ID, &word, &[], true);
    }
    all(&mut pes, &mut stranger, "replays", |pes| dropped(pes).replayed == 4);
    assert_eq!(pes[1].messages, [plain]);
    // Nor does a part of it with something else, nor the same for another: PE 0 itself.
    let mut changed = overheard.clone();
    changed[PRELUDE + 16] ^= 1;
    stranger.send(AM_ID, &[], &changed, true);
    stranger.send(AM_ID, &overheard[..SEALED.min(overheard.len())], &[], true);
    let back = pes[1].ucx.inbox().guards.seal_copy(0, &Head::Hello.encode(1), &[], true).unwrap();
    stranger.send(COPY_ID, &back, &[], true);
    all(&mut pes, &mut stranger, "changes", |pes| dropped(pes).forged == sent + 3);
    // A number that no honest PE can have reached.
    for _ in 0..AHEAD {
        pes[0].ucx.inbox().guards.seal_message(1, &mut message(1, 8)).unwrap();
    }
    let mut far = message(2, 8);
    pes[0].ucx.inbox().guards.seal_message(1, &mut far).unwrap();
    stranger.send(AM_ID, &[], &far, true);
    all(&mut pes, &mut stranger, "too far", |pes| dropped(pes).too_far == 1);
    assert!(pes.iter().all(|pe| pe.messages.len() < 2 && !pe.lost), "nothing of it is a reason to end");
}

/// UCX's one-sided copies name any address, and no rushmem looks at them: a PE that needs none takes none.
#[test]
fn ucx_copies_of_strangers_are_not_taken() {
    let name = "ucx_copies_of_strangers_are_not_taken";
    if !apart("strangers_tests", name) {
        return;
    }
    let before = listening(std::process::id());
    let Some(mut pes) = pair(name, Carrier::Messages) else { return };
    let there = pes[1].memory.as_ptr() as u64;
    put(&mut pes, there + 100, 10_000, 0);
    let old = pes[1].memory[..8].to_vec();
    let mut stranger = stranger_at(&pes, &before);
    let start = std::time::Instant::now();
    while start.elapsed() < Duration::from_millis(300) {
        stranger.put(there, &[0xEE; 8]);
        pes.iter_mut().for_each(Pe::progress);
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(pes[1].memory[..8] == old, "a stranger has written to memory");
    put(&mut pes, there + 100, 100_000, 1 << 40);
    assert!(pes.iter().all(|pe| pe.failed.is_empty() && !pe.lost));
}

/// What has the key and makes no sense is an error: then the PEs do not speak the same language.
#[test]
fn what_is_sealed_and_makes_no_sense_is_an_error() {
    let name = "what_is_sealed_and_makes_no_sense_is_an_error";
    if !apart("strangers_tests", name) {
        return;
    }
    let nowhere = Head::Put { number: 0, segment: SEGMENT + 1, address: 0 }.encode(0);
    let late = Head::Put { number: AHEAD, segment: SEGMENT, address: 0 }.encode(0);
    let mut unknown = Head::Hello.encode(0);
    unknown[0] = 99;
    let seen = Head::Seen { count: 1000 }.encode(0);
    for (what, head, counts) in
        [("nowhere", nowhere, true), ("late", late, true), ("unknown", unknown, true), ("seen", seen, false)]
    {
        let Some(mut pes) = pair(name, Carrier::Messages) else { return };
        let sealed = pes[0].ucx.inbox().guards.seal_copy(1, &head, &[1], counts).unwrap();
        // SAFETY: nothing but the segment is there.
        unsafe { pes[1].ucx.inbox().take_copy(&sealed, &[1]) };
        both(&mut pes, what, |pes| pes[1].lost);
        assert_eq!(dropped(&mut pes).total(), 0, "{what}");
    }
}

/// More messages than there are numbers, while the other PE does nothing; both ways at once, with copies
/// behind them.
#[test]
fn honest_pes_wait_for_numbers_and_lose_nothing() {
    let name = "honest_pes_wait_for_numbers_and_lose_nothing";
    if !apart("strangers_tests", name) {
        return;
    }
    let Some(mut pes) = pair(name, Carrier::Messages) else { return };
    let there = pes[1].memory.as_ptr() as u64;
    put(&mut pes, there, 1000, 0);
    let count = 3 * AHEAD + 7;
    for me in [0, 1] {
        for number in 0..count {
            let mut message = message(number, 8 + (number % 1000) as usize);
            message[..4].copy_from_slice(&(me as u32).to_le_bytes());
            pes[me].ucx.send(1 - me, message).unwrap();
        }
        assert!(pes[me].ucx.congested());
        assert!(pes[me].ucx.peers[1 - me].held.len() as u64 >= count - AHEAD, "so many are held back");
    }
    put(&mut pes, there + 7, 1 << 20, 2);
    both(&mut pes, "messages", |pes| pes.iter().all(|pe| pe.messages.len() as u64 == count));
    for (me, pe) in pes.iter().enumerate() {
        for (number, got) in pe.messages.iter().enumerate() {
            assert_eq!(message::prelude(got).unwrap(), (1 - me, number as u64));
            assert_eq!(got.len(), message(0, 8 + number % 1000).len());
        }
        assert!(!pe.lost && pe.failed.is_empty());
    }
    both(&mut pes, "calm", |pes| pes.iter().all(|pe| !pe.ucx.congested()));
    assert_eq!(dropped(&mut pes).total(), 0);
}

/// What waits for a number of a PE that goes fails.
#[test]
fn what_waits_for_a_number_ends_with_its_pe() {
    let name = "what_waits_for_a_number_ends_with_its_pe";
    if !apart("strangers_tests", name) {
        return;
    }
    let Some(mut pes) = pair(name, Carrier::Messages) else { return };
    let there = pes[1].memory.as_ptr() as u64;
    put(&mut pes, there, 1000, 0);
    for number in 0..2 * AHEAD {
        pes[0].ucx.send(1, message(number, 8)).unwrap();
    }
    let source = data(1 << 20);
    // SAFETY: the source lives until the token is done.
    unsafe {
        assert!(!pes[0].ucx.put(at(there), source.as_ptr(), source.len(), 5).unwrap());
        assert!(!pes[0].ucx.flush(1, 6).unwrap());
        assert!(!pes[0].ucx.send_bulk(1, [0; 32], source.as_ptr(), source.len(), 7).unwrap());
    }
    let [mut pe, other] = pes;
    drop(other.ucx);
    pe.ucx.cut();
    let start = std::time::Instant::now();
    while pe.failed.len() < 3 || pe.ucx.congested() {
        pe.progress();
        assert!(start.elapsed() < LIMIT, "{:?}", pe.failed);
    }
    pe.failed.sort_unstable();
    assert_eq!(pe.failed, [5, 6, 7]);
}

/// Where UCX listens, told so.
fn ports(listen: &Listen) -> Vec<Ipv4Addr> {
    let before = listening(std::process::id());
    let _ucx = Ucx::new(0, 2, Carrier::Auto, FarGpu::Bounce, listen).unwrap();
    let after = listening(std::process::id());
    after.difference(&before).map(|(address, _)| *address).collect()
}

/// PEs of one host are reached by nobody on the network.
#[test]
fn pes_of_one_host_listen_on_loopback_alone() {
    let name = "pes_of_one_host_listen_on_loopback_alone";
    if !apart("strangers_tests", name) {
        return;
    }
    if let Err(why) = ucx_sys::Ucp::load() {
        return eprintln!("SKIP {name}: {why}");
    }
    assert_eq!(ports(&Listen::Loopback), [Ipv4Addr::LOCALHOST]);
    if ports(&Listen::Anywhere) == [Ipv4Addr::LOCALHOST] {
        eprintln!("SKIP {name}: this host has no other interface, so that half of it shows nothing");
    }
}

#[test]
fn devices_that_the_user_names_are_used() {
    let name = "devices_that_the_user_names_are_used";
    if !apart("strangers_tests", name) {
        return;
    }
    if let Err(why) = ucx_sys::Ucp::load() {
        return eprintln!("SKIP {name}: {why}");
    }
    let entries = std::fs::read_dir("/sys/class/net").into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let others = Listen::Interfaces(names.filter(|name| name != "lo").collect());
    let listens = ports(&others);
    if listens.is_empty() || listens.contains(&Ipv4Addr::LOCALHOST) {
        return eprintln!("SKIP {name}: this host has no interface but loopback");
    }
    #[allow(
        clippy::disallowed_methods,
        reason = "this process is the test's own, and UCX has no thread yet"
    )]
    std::env::set_var("UCX_NET_DEVICES", "lo");
    assert_eq!(ports(&others), [Ipv4Addr::LOCALHOST]);
}

/// UCX, which takes one-sided copies apart before rushmem sees them, is not asked to where messages do all.
#[test]
fn ucx_copies_only_where_it_has_to() {
    if ucx_sys::Ucp::load().is_err() {
        return eprintln!("SKIP ucx_copies_only_where_it_has_to: no UCX");
    }
    for (carrier, way, copies) in [
        (Carrier::Messages, FarGpu::Bounce, false),
        (Carrier::Messages, FarGpu::Ucx, true),
        (Carrier::Auto, FarGpu::Auto, super::listen::has_rdma()),
        (Carrier::Ucx, FarGpu::Auto, true),
    ] {
        let mut bytes = vec![0u8; 4096];
        let memory =
            Memory { address: bytes.as_mut_ptr() as usize, bytes: bytes.len(), gpu: false, single: true };
        let mut ucx = Ucx::new(0, 1, carrier, way, &Listen::Loopback).unwrap();
        assert_eq!(ucx.rma, copies, "{carrier:?}, {way:?}");
        // Without, nobody is given a key.
        // SAFETY: the memory outlives the transport.
        let key = unsafe { ucx.register(SEGMENT, memory) }.unwrap();
        assert_eq!(key.len() > 1, copies);
        let mut events: Vec<Event> = Vec::new();
        ucx.progress(&mut events);
        assert!(events.is_empty());
    }
}
