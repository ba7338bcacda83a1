//! Two PEs' transports in one thread, without engines: copies and large messages by UCX and by rushmem's own
//! messages, and what a PE that goes leaves behind.

use std::collections::HashMap;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use super::listen::Listen;
use super::pieces::WINDOW;
use super::{Carrier, Ucx};
use crate::config::FarGpu;
use crate::memory::region::Region;
use crate::net::transport::{Event, Memory, Remote, Transport, BULK_HEAD};
use crate::os::Reservation;
use crate::topology::card::random;

pub(super) const LIMIT: Duration = Duration::from_secs(60);
pub(super) const BYTES: usize = 4 << 20;
pub(super) const SEGMENT: u32 = 5;

pub(super) struct Pe {
    pub(super) ucx: Ucx,
    pub(super) memory: Vec<u8>,
    pub(super) done: Vec<u64>,
    pub(super) failed: Vec<u64>,
    /// Large messages that have come: head, bytes, what names the data.
    bulk: HashMap<Vec<u8>, (usize, crate::net::transport::BulkId)>,
    /// Messages that have come.
    pub(super) messages: Vec<Vec<u8>>,
    pub(super) lost: bool,
}

impl Pe {
    pub(super) fn progress(&mut self) {
        let mut events = Vec::new();
        self.ucx.progress(&mut events);
        for event in events {
            match event {
                Event::Done(token) => self.done.push(token),
                Event::Failed(token, _) => self.failed.push(token),
                Event::Bulk { head, bytes, data } => drop(self.bulk.insert(head, (bytes, data))),
                Event::Lost(..) => self.lost = true,
                Event::Message(message) => self.messages.push(message),
            }
        }
    }
}

/// `None`, aloud: there is no UCX.
pub(super) fn pair(test: &str, carrier: Carrier) -> Option<[Pe; 2]> {
    if let Err(why) = ucx_sys::Ucp::load() {
        eprintln!("SKIP {test}: {why}");
        return None;
    }
    let pe = |me| {
        let memory = data(BYTES);
        let ucx = Ucx::new(me, 2, carrier, FarGpu::Bounce, &Listen::Loopback).unwrap();
        let (done, failed, bulk, messages) = (Vec::new(), Vec::new(), HashMap::new(), Vec::new());
        Pe { ucx, memory, done, failed, bulk, messages, lost: false }
    };
    let mut pes = [pe(0), pe(1)];
    let addresses: Vec<_> = pes.iter().map(|pe| pe.ucx.address().unwrap()).collect();
    let keys: Vec<_> = pes
        .iter_mut()
        .map(|pe| {
            let memory =
                Memory { address: pe.memory.as_mut_ptr() as usize, bytes: BYTES, gpu: false, single: true };
            // SAFETY: the vector is neither moved nor freed while its transport lives.
            unsafe { pe.ucx.register(SEGMENT, memory) }.unwrap()
        })
        .collect();
    for pe in &mut pes {
        pe.ucx.learn_addresses(addresses.clone());
        pe.ucx.learn_keys(SEGMENT, keys.clone());
    }
    Some(pes)
}

pub(super) fn data(bytes: usize) -> Vec<u8> {
    let mut state = u64::from_le_bytes(random().unwrap()) | 1;
    std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    })
    .flatten()
    .take(bytes)
    .collect()
}

/// An address in PE 1's segment.
pub(super) fn at(address: u64) -> Remote {
    Remote { pe: 1, segment: SEGMENT, address }
}

/// As every UCX does, in its own way.
#[test]
fn a_connection_tells_its_transports() {
    let Some(mut pes) = pair("a_connection_tells_its_transports", Carrier::Auto) else { return };
    let ep = pes[0].ucx.endpoint(1).unwrap();
    // SAFETY: the endpoint lives.
    let names = unsafe { super::carrier::transports(pes[0].ucx.ucp, ep) };
    let known =
        ["posix", "sysv", "cma", "knem", "xpmem", "tcp", "self", "rc_", "dc_", "ud_", "cuda_", "rdmacm"];
    assert!(!names.is_empty(), "none");
    assert!(names.iter().all(|name| known.iter().any(|known| name.starts_with(known))), "{names:?}");
}

/// Until it is so.
pub(super) fn both(pes: &mut [Pe; 2], what: &str, so: impl Fn(&[Pe; 2]) -> bool) {
    let start = Instant::now();
    while !so(pes) {
        pes.iter_mut().for_each(Pe::progress);
        assert!(start.elapsed() < LIMIT, "{what}: {:?}, {:?}", pes[0].done, pes[1].done);
    }
}

#[test]
fn copies_arrive_by_either_carrier() {
    for carrier in [Carrier::Messages, Carrier::Ucx] {
        let Some(mut pes) = pair("copies_arrive_by_either_carrier", carrier) else { return };
        let there = at(pes[1].memory.as_ptr() as u64 + 7);
        let mut token = 0;
        let piece = pes[0].ucx.pieces.each();
        let edges = [piece, 2 * piece, WINDOW].map(|edge| [edge - 1, edge, edge + 1]);
        for bytes in [1, 513].into_iter().chain(edges.into_iter().flatten()).chain([300_001, BYTES - 7]) {
            let (source, mut got) = (data(bytes), vec![0; bytes]);
            // SAFETY: source and destination live until the tokens are done.
            unsafe {
                if pes[0].ucx.put(there, source.as_ptr(), bytes, token).unwrap() {
                    pes[0].done.push(token);
                }
                if pes[0].ucx.flush(1, token + 1).unwrap() {
                    pes[0].done.push(token + 1);
                }
            }
            both(&mut pes, "put", |pes| [token, token + 1].iter().all(|t| pes[0].done.contains(t)));
            assert!(pes[1].memory[7..7 + bytes] == source, "a put of {bytes} bytes by {carrier:?}");
            // SAFETY: source and destination live until the tokens are done.
            if unsafe { pes[0].ucx.get(there, got.as_mut_ptr(), bytes, token + 2) }.unwrap() {
                pes[0].done.push(token + 2);
            }
            both(&mut pes, "get", |pes| pes[0].done.contains(&(token + 2)));
            assert!(got == source, "a get of {bytes} bytes by {carrier:?}");
            token += 3;
        }
        assert!(pes[0].ucx.flush(1, token).unwrap() || carrier == Carrier::Ucx, "nothing is on its way");
        assert!(pes.iter().all(|pe| pe.failed.is_empty() && !pe.lost));
    }
}

#[test]
fn large_messages_arrive_by_either_carrier() {
    for carrier in [Carrier::Messages, Carrier::Ucx] {
        let Some(mut pes) = pair("large_messages_arrive_by_either_carrier", carrier) else { return };
        // Both ways at once, and taken in another order than sent.
        let piece = pes[0].ucx.pieces.each();
        let sizes = [0, 1, 5000, piece - 1, piece, piece + 1, 524_288, WINDOW - 1, WINDOW, WINDOW + 1];
        let sources: Vec<Vec<u8>> = sizes.iter().map(|bytes| data(*bytes)).collect();
        for me in [0, 1] {
            for (i, source) in sources.iter().enumerate() {
                let head = [i as u8; BULK_HEAD];
                // SAFETY: the sources outlive the test.
                let sent = unsafe {
                    pes[me].ucx.send_bulk(1 - me, head, source.as_ptr(), source.len(), 100 + i as u64)
                };
                if sent.unwrap() {
                    pes[me].done.push(100 + i as u64);
                }
            }
        }
        both(&mut pes, "announcing", |pes| pes.iter().all(|pe| pe.bulk.len() == sizes.len()));
        let mut got: Vec<Vec<u8>> = (0..2).flat_map(|_| sizes.map(|bytes| vec![0; bytes])).collect();
        for (i, slot) in got.iter_mut().enumerate().rev() {
            let (me, message) = (i / sizes.len(), i % sizes.len());
            let (bytes, data) = pes[me].bulk[&[message as u8; BULK_HEAD][..]];
            assert_eq!(bytes, sizes[message]);
            // SAFETY: as long as was announced, and outlives the test.
            if unsafe { pes[me].ucx.receive(data, slot.as_mut_ptr(), message as u64) }.unwrap() {
                pes[me].done.push(message as u64);
            }
        }
        both(&mut pes, "receiving", |pes| pes.iter().all(|pe| pe.done.len() == 2 * sizes.len()));
        for (i, got) in got.iter().enumerate() {
            assert!(*got == sources[i % sizes.len()], "{} bytes by {carrier:?}", got.len());
        }
    }
}

/// A get, a put, a flush and a large message to a PE that goes: each ends, with a failure unless it was done
/// before.
#[test]
fn what_waits_for_a_pe_that_goes_fails() {
    let Some([mut pe, mut other]) = pair("what_waits_for_a_pe_that_goes_fails", Carrier::Messages) else {
        return;
    };
    let there = at(other.memory.as_ptr() as u64);
    let (source, mut got) = (data(BYTES), vec![0; BYTES]);
    // SAFETY: both live until the tokens are done.
    unsafe {
        // They meet first.
        assert!(!pe.ucx.get(there, got.as_mut_ptr(), 1000, 0).unwrap());
        let start = Instant::now();
        while pe.done.is_empty() && start.elapsed() < LIMIT {
            pe.progress();
            other.progress();
        }
        assert_eq!(pe.done, [0]);
        assert!(!pe.ucx.get(there, got.as_mut_ptr(), BYTES, 1).unwrap());
        if pe.ucx.put(there, source.as_ptr(), BYTES, 2).unwrap() {
            pe.done.push(2);
        }
        assert!(!pe.ucx.flush(1, 3).unwrap());
        assert!(!pe.ucx.send_bulk(1, [7; BULK_HEAD], source.as_ptr(), BYTES, 4).unwrap());
    }
    drop(other.ucx);
    pe.ucx.cut();
    let start = Instant::now();
    while pe.done.len() + pe.failed.len() < 5 && start.elapsed() < LIMIT {
        pe.progress();
    }
    pe.failed.sort_unstable();
    assert!(pe.failed == [1, 2, 3, 4] || pe.failed == [1, 3, 4], "{:?}", pe.failed);
}

/// Whatever is asked after the cut, here or by the other PE: the other PE would answer a new connection, and
/// UCX 1.13 ends it where this one goes before the answer is out. Before the PEs have met, too.
#[test]
fn a_connection_that_was_cut_is_not_made_anew() {
    for (met, carrier) in [(true, Carrier::Messages), (false, Carrier::Messages), (true, Carrier::Ucx)] {
        let Some(mut pes) = pair("a_connection_that_was_cut_is_not_made_anew", carrier) else { return };
        let there = at(pes[1].memory.as_ptr() as u64);
        let here = Remote { pe: 0, ..at(pes[0].memory.as_ptr() as u64) };
        let (source, mut got) = (data(BYTES), vec![0; BYTES]);
        let message = |from: u32| [&from.to_le_bytes()[..], &[0; 60]].concat();
        let to = got.as_mut_ptr();
        // SAFETY: source and destination live until the tokens are done.
        unsafe {
            if met {
                if pes[0].ucx.put(there, source.as_ptr(), 1000, 9).unwrap() {
                    pes[0].done.push(9);
                }
                both(&mut pes, "meeting", |pes| pes[0].done == [9]);
                pes[0].done.clear();
                assert!(pes[0].ucx.peers[1].ep.is_some());
            }
            pes[0].ucx.cut();
            // The other asks, and greets.
            pes[1].ucx.get(here, to, 1000, 0).unwrap();
            pes[1].ucx.put(here, source.as_ptr(), 1000, 1).unwrap();
            pes[1].ucx.send(0, message(1)).unwrap();
            pes[0].ucx.send(1, message(0)).unwrap();
            assert!(!pes[0].ucx.put(there, source.as_ptr(), BYTES, 0).unwrap());
            assert!(!pes[0].ucx.get(there, to, BYTES, 1).unwrap());
            assert!(!pes[0].ucx.send_bulk(1, [7; BULK_HEAD], source.as_ptr(), BYTES, 2).unwrap());
            if pes[0].ucx.flush(1, 3).unwrap() {
                pes[0].failed.push(3);
            }
        }
        let start = Instant::now();
        let ended = |pe: &Pe| pe.done.len() + pe.failed.len() >= 4 || start.elapsed() > LIMIT;
        while start.elapsed() < Duration::from_millis(30) || !ended(&pes[0]) {
            pes.iter_mut().for_each(Pe::progress);
            assert!(pes[0].ucx.peers[1].ep.is_none(), "met {met}, {carrier:?}");
        }
        pes[0].failed.sort_unstable();
        assert_eq!((&pes[0].done[..], &pes[0].failed[..]), (&[][..], &[0, 1, 2, 3][..]), "{carrier:?}");
        assert!(pes[0].lost);
        drop(pes);
    }
}

/// UCX puts functions of its own in the place of some of libc's, `mremap` among them, which leaves an
/// argument out in 1.13.
#[test]
fn registered_memory_is_given_back_with_ucx_in_the_process() {
    let Some(_pes) = pair("registered_memory_is_given_back_with_ucx_in_the_process", Carrier::Auto) else {
        return;
    };
    let bytes = 5 * crate::os::page_size();
    for round in 0..20u8 {
        // SAFETY: a fresh mapping of this test's, looked at by nobody else.
        unsafe {
            let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
            let user = libc::mmap(std::ptr::null_mut(), bytes, prot, flags, -1, 0);
            assert_ne!(user, libc::MAP_FAILED);
            let region = Region::share(user as usize, bytes).unwrap();
            let shared = Reservation::new(bytes).unwrap();
            shared.map(0, bytes, region.chunk().fd().as_fd()).unwrap();
            let (user, alias) = (user.cast::<u8>(), shared.base() as *mut u8);
            alias.add(bytes - 1).write_volatile(round + 1);
            drop(region);
            assert_eq!(user.add(bytes - 1).read_volatile(), round + 1, "the last contents stay");
            alias.add(bytes - 1).write_volatile(0);
            assert_eq!(user.add(bytes - 1).read_volatile(), round + 1, "private again");
            libc::munmap(user.cast(), bytes);
        }
    }
}
