//! The ring's host side against the protocol's model.

use std::cell::UnsafeCell;
use std::time::Duration;

use rushmem_ring::model::{Counters, Producer, Tickets};

use super::*;
use crate::net::proxy::posts::Posts;
use rushmem_abi::device::RUSHMEM_RING_REPLY;

/// Memory for a ring's counters, as a device's own.
fn counters() -> Box<[UnsafeCell<Line>]> {
    (0..DeviceRing::MOST_DEVICE_BYTES.div_ceil(128)).map(|_| UnsafeCell::new(Line::ZERO)).collect()
}

#[test]
fn what_was_posted_is_taken_and_answered() {
    const POSTS: u64 = if cfg!(miri) { 20 } else { 2000 };
    for slots in [1, 4, 16] {
        let device = counters();
        // SAFETY: dropped before `device`.
        let mut ring = unsafe { DeviceRing::new(None, device.as_ptr() as usize, slots) }.unwrap();
        let model = Counters::new(slots);
        let view = {
            let view = ring.view();
            // SAFETY: the memory stays where it is, and the threads end before the ring.
            unsafe { std::mem::transmute::<View<'_>, View<'static>>(view) }
        };
        std::thread::scope(|scope| {
            for who in 0..3u64 {
                let producer = Producer { ring: view, counters: &model, tickets: Tickets::Swap };
                scope.spawn(move || {
                    for i in 0..POSTS {
                        let (answer, pe) = (i % 3 == 0, -(who as i32) - 1);
                        let head = u64::from(answer) << 24 | u64::from(pe as u32) << 32 | 0x3_0207;
                        let words = [head, i, !i, 3, 4, 5, 6];
                        let (_, value) = producer.post(words, answer, std::thread::yield_now);
                        assert_eq!(value, answer.then_some(i * 7 + who));
                    }
                });
            }
            let (mut out, mut next) = (Vec::new(), [0; 3]);
            while next != [POSTS; 3] {
                if ring.take(&mut out, 5) == 0 {
                    std::thread::yield_now();
                }
                assert!(out.len() <= 5);
                for d in out.drain(..) {
                    let who = (-d.pe - 1) as usize;
                    assert_eq!(
                        (d.op(), d.sub, d.width, d.dst, d.src),
                        (Some(Op::Atomic), 2, 3, next[who], !next[who])
                    );
                    assert_eq!((d.bytes, d.sig, d.value), (3, 4, 5));
                    assert_eq!(d.reply_to().is_some(), next[who] % 3 == 0);
                    if let Some(to) = d.reply_to() {
                        ring.reply(to, next[who] * 7 + who as u64);
                    }
                    next[who] += 1;
                }
            }
        });
    }
}

#[test]
fn what_makes_no_ring_or_no_descriptor_is_refused() {
    let device = counters();
    let at = device.as_ptr() as usize;
    for (at, slots) in [(0, 4), (at + 8, 4), (at, 0), (at, 3)] {
        // SAFETY: refused.
        assert!(unsafe { DeviceRing::new(None, at, slots) }.is_err());
    }
    // SAFETY: dropped before `device`.
    let mut ring = unsafe { DeviceRing::new(None, at, 4) }.unwrap();
    let model = Counters::new(4);
    let producer = Producer { ring: ring.view(), counters: &model, tickets: Tickets::Swap };
    // A reply slot that is none, an operation that is none.
    producer.post([u64::from(RUSHMEM_RING_REPLY) << 24 | Op::Get as u64, 0, 0, 0, 0, 0, 99], false, || {});
    producer.post([0xff, 0, 0, 0, 0, 0, 0], false, || {});
    let mut out = Vec::new();
    assert_eq!(ring.take(&mut out, 9), 2);
    assert!(out.iter().all(|d| d.op().is_none() && d.reply_to().is_none()));
}

#[test]
fn inline_data_comes_out_as_it_went_in() {
    let words = std::array::from_fn(|i| u64::from_le_bytes(std::array::from_fn(|j| (8 * i + j) as u8)));
    let data = Descriptor::new(words, 0).inline();
    assert_eq!(data[..8], std::array::from_fn::<u8, 8, _>(|i| 16 + i as u8));
    assert_eq!(data[8..], std::array::from_fn::<u8, 24, _>(|i| 24 + i as u8));
}

#[test]
fn a_ring_that_stays_full_is_told_at_its_time_and_then_twice_as_late() {
    let device = counters();
    // SAFETY: dropped before `device`.
    let mut ring = unsafe { DeviceRing::new(None, device.as_ptr() as usize, 4) }.unwrap();
    let model = Counters::new(4);
    let mut out = Vec::new();
    // Not only in its first lap.
    for lap in 0..3 {
        for posted in 0..4 {
            assert!(!ring.is_full(), "{posted} in lap {lap}");
            let producer = Producer { ring: ring.view(), counters: &model, tickets: Tickets::Swap };
            producer.post([Op::Signal as u64, 0, 0, 0, 0, 0, 0], false, || {});
        }
        assert!(ring.is_full());
        if lap < 2 {
            assert_eq!(ring.take(&mut out, 1), 1);
            assert!(!ring.is_full());
            assert_eq!(ring.take(&mut out, 9), 3);
        }
    }
    let first = Duration::from_millis(40);
    let mut posts = Posts::new(ring, 0, 0);
    assert_eq!(posts.full_for(None), None);
    let mut told = Vec::new();
    while told.len() < 3 {
        told.extend(posts.full_for(Some(first)));
    }
    assert!(told[0] >= first && told[1] >= told[0] * 2 && told[2] >= told[1] * 2, "{told:?}");
}
