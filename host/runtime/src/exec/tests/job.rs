//! The operations between PEs, each a thread of this process, over the fake bootstrap. Every wait is bounded.
//! (Waits and tests: wait_tests.rs.)

use std::collections::HashSet;

use super::calls::{self, atomic};
use crate::error::{code, Result};
use crate::exec::order;
use crate::exec::wait::Watched;
use crate::fake::{rounds, worlds_with};
use crate::node::control::Call;
use crate::op::atomic::AtomicOp;
use crate::op::signal::SignalOp;
use crate::op::strided::Strides;
use crate::op::wait::Words;
use crate::op::waitset::Expected;
use crate::testing::random::Random;
use crate::word::Update;
use crate::world::World;
use rushmem_abi::c::*;

/// These bound everything, so that a defect fails instead of hanging.
pub(super) const BOUNDED: [(&str, &str); 3] =
    [("RUSHMEM_WAIT_TIMEOUT", "90"), ("RUSHMEM_TIMEOUT", "90"), ("RUSHMEM_STALL_REPORT", "0")];

pub(super) fn job(n: u32, f: impl Fn(&World) + Sync) {
    worlds_with(n, &BOUNDED, |w| {
        f(w);
        w.finalize().unwrap();
    });
}

pub(super) fn barrier(w: &World) {
    order::quiet(w).unwrap();
    w.sync_all(Call::BarrierAll).unwrap();
}

pub(super) fn alloc(w: &World, bytes: usize) -> usize {
    w.alloc(bytes, 0).unwrap().unwrap()
}

fn own(p: usize, bytes: usize) -> Vec<u8> {
    // SAFETY: the tests ask for live allocations that a barrier has made quiet.
    unsafe { std::slice::from_raw_parts(p as *const u8, bytes) }.to_vec()
}

pub(super) fn op(code: i32) -> AtomicOp {
    AtomicOp::from_code(code).unwrap()
}

#[test]
fn puts_and_gets_move_every_size_and_touch_nothing_beside() {
    const SIZES: [usize; 20] =
        [0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 63, 64, 65, 4095, 4096, 4097, 1 << 20, (1 << 20) + 3];
    job(3, |w| {
        let (me, n) = (w.my_pe(), w.n_pes());
        let next = (me + 1) % n;
        let p = alloc(w, (1 << 20) + 128);
        let mut random = Random::new(&format!("sizes, PE {me}"));
        for bytes in SIZES {
            // The part that this size uses, with some room on both sides.
            let room = bytes + 64;
            for skew in [0, 1, 5] {
                let (front, data) = (16 + skew, random.bytes(bytes + 1));
                // SAFETY: the source holds `bytes` bytes behind its own skew of one.
                unsafe { calls::put(w, p + front, data.as_ptr().add(1), bytes, next) }.unwrap();
                barrier(w);
                let here = own(p, room);
                assert!(here[..front].iter().chain(&here[front + bytes..]).all(|b| *b == 0), "{bytes}");
                let mut back = vec![0xee; bytes + 2];
                // SAFETY: the destination holds `bytes` bytes behind the first.
                unsafe { calls::get(w, back.as_mut_ptr().add(1), p + front, bytes, next) }.unwrap();
                assert!(back[1..1 + bytes] == data[1..], "{bytes} bytes at {skew}");
                assert_eq!((back[0], back[1 + bytes]), (0xee, 0xee));
                // SAFETY: the destination holds `bytes` bytes behind the first.
                unsafe { calls::get(w, back.as_mut_ptr().add(1), p + front, bytes, me) }.unwrap();
                assert!(back[1..1 + bytes] == here[front..front + bytes], "{bytes} bytes at {skew}");
                barrier(w);
                // SAFETY: a source of `room` bytes; wipes what the left neighbour wrote here.
                unsafe { calls::put(w, p, vec![0u8; room].as_ptr(), room, me) }.unwrap();
                barrier(w);
            }
        }
        w.free(Some(p)).unwrap();
    });
}

#[test]
fn single_values_and_strides() {
    job(2, |w| {
        let (me, other) = (w.my_pe(), 1 - w.my_pe());
        let p = alloc(w, 4096);
        let mut random = Random::new(&format!("values and strides, PE {me}"));
        for bytes in [1usize, 2, 4, 8] {
            for skew in [0, 3] {
                let value = random.next();
                calls::p(w, p + 64 + skew, value, bytes, other).unwrap();
                barrier(w);
                let mask = u64::MAX >> (64 - 8 * bytes);
                assert_eq!(calls::g(w, p + 64 + skew, bytes, other).unwrap(), value & mask);
                let got = own(p, 4096);
                assert!(got[..64 + skew].iter().chain(&got[64 + skew + bytes..]).all(|b| *b == 0));
                barrier(w);
                calls::p(w, p + 64 + skew, 0, bytes, other).unwrap();
                barrier(w);
            }
        }
        for elem in [1usize, 2, 3, 4, 8, 12, 16, 24] {
            let data = random.bytes(elem * 10);
            let shape = Strides { dst_stride: 3, src_stride: 2, elem, n: 5 };
            // SAFETY: the source holds ten elements.
            unsafe { calls::iput(w, p, data.as_ptr(), shape, other) }.unwrap();
            let mut back = vec![0u8; elem * 5];
            let shape = Strides { dst_stride: 1, src_stride: 3, elem, n: 5 };
            // SAFETY: the destination holds five elements.
            unsafe { calls::iget(w, back.as_mut_ptr(), p, shape, other) }.unwrap();
            for i in 0..5 {
                assert_eq!(
                    back[i * elem..][..elem],
                    data[2 * i * elem..][..elem],
                    "element {i} of {elem} bytes"
                );
            }
            barrier(w);
        }
        w.free(Some(p)).unwrap();
    });
}

#[test]
fn bad_input_is_its_error_writes_nothing_and_the_job_goes_on() {
    job(2, |w| {
        let p = alloc(w, 256);
        let freed = alloc(w, 64);
        w.free(Some(freed)).unwrap();
        let mut private = [7u8; 256];
        let buf = private.as_mut_ptr();
        let stack = buf as usize;
        let unit = Strides { dst_stride: 1, src_stride: 1, elem: 8, n: 4 };
        let words = |ivars, n, kind, cmp| {
            let w_ = Words { kind, ivars, n, status: std::ptr::null(), cmp, expected: Expected::One(0) };
            // SAFETY: there are no arrays but the words, which `check` is to refuse.
            unsafe { Watched::new(w, &w_) }.map(|_| ())
        };
        let add = op(RUSHMEM_ATOMIC_FETCH_ADD);
        let set = SignalOp::Set(1);
        use code::*;
        // SAFETY: `buf` holds 256 bytes, and whatever is larger or null is to be refused.
        let cases: Vec<(&str, i32, Result<()>)> = unsafe {
            vec![
                ("put to PE -1", BAD_PE, calls::put(w, p, buf, 8, -1)),
                ("put to PE n", BAD_PE, calls::put(w, p, buf, 8, 2)),
                ("put of nothing to PE n", BAD_PE, calls::put(w, p, buf, 0, 2)),
                ("put outside", BAD_ADDRESS, calls::put(w, stack, buf, 8, 0)),
                ("put to null", BAD_ADDRESS, calls::put(w, 0, buf, 8, 0)),
                ("put to freed", BAD_ADDRESS, calls::put(w, freed, buf, 8, 0)),
                ("put past the end", OUT_OF_BOUNDS, calls::put(w, p + 200, buf, 100, 0)),
                ("put of everything", OUT_OF_BOUNDS, calls::put(w, p, buf, usize::MAX, 0)),
                ("put from null", INVALID_ARGUMENT, calls::put(w, p, std::ptr::null(), 8, 0)),
                ("get to null", INVALID_ARGUMENT, calls::get(w, std::ptr::null_mut(), p, 8, 0)),
                ("get from freed", BAD_ADDRESS, calls::get(w, buf, freed, 8, 1)),
                ("get past the end", OUT_OF_BOUNDS, calls::get(w, buf, p + 255, 2, 1)),
                ("p of 3 bytes", INVALID_ARGUMENT, calls::p(w, p, 1, 3, 0)),
                ("p past the end", OUT_OF_BOUNDS, calls::p(w, p + 252, 1, 8, 0)),
                ("g of 16 bytes", INVALID_ARGUMENT, calls::g(w, p, 16, 0).map(|_| ())),
                (
                    "iput, stride 0",
                    INVALID_ARGUMENT,
                    calls::iput(w, p, buf, Strides { dst_stride: 0, ..unit }, 0),
                ),
                (
                    "iput, stride -1",
                    INVALID_ARGUMENT,
                    calls::iput(w, p, buf, Strides { src_stride: -1, ..unit }, 0),
                ),
                (
                    "iput past the end",
                    OUT_OF_BOUNDS,
                    calls::iput(w, p, buf, Strides { dst_stride: 11, ..unit }, 0),
                ),
                (
                    "iput, no element",
                    INVALID_ARGUMENT,
                    calls::iput(w, p, buf, Strides { elem: 0, ..unit }, 0),
                ),
                (
                    "iput, too many",
                    INVALID_ARGUMENT,
                    calls::iput(w, p, buf, Strides { n: usize::MAX, ..unit }, 0),
                ),
                (
                    "iget, stride 0",
                    INVALID_ARGUMENT,
                    calls::iget(w, buf, p, Strides { dst_stride: 0, ..unit }, 0),
                ),
                (
                    "iget past the end",
                    OUT_OF_BOUNDS,
                    calls::iget(w, buf, p, Strides { src_stride: 11, ..unit }, 0),
                ),
                (
                    "atomic, unaligned",
                    INVALID_ARGUMENT,
                    atomic(w, add, RUSHMEM_INT64, p + 4, 1, 0, 0).map(|_| ()),
                ),
                ("atomic, type", INVALID_ARGUMENT, atomic(w, add, 6, p, 1, 0, 0).map(|_| ())),
                (
                    "atomic add of floats",
                    INVALID_ARGUMENT,
                    atomic(w, add, RUSHMEM_FLOAT, p, 1, 0, 0).map(|_| ()),
                ),
                ("atomic outside", BAD_ADDRESS, atomic(w, add, RUSHMEM_INT64, 64, 1, 0, 0).map(|_| ())),
                ("signal, unaligned", INVALID_ARGUMENT, calls::signal_op(w, p + 1, set, 0)),
                ("signal past", BAD_ADDRESS, calls::signal_op(w, p + (1 << 40), set, 0)),
                ("put_signal, bad data", OUT_OF_BOUNDS, calls::put_signal(w, p + 8, buf, 256, p, set, 0)),
                ("put_signal, bad signal", BAD_ADDRESS, calls::put_signal(w, p, buf, 8, freed, set, 0)),
                ("signal fetch", INVALID_ARGUMENT, crate::exec::wait::fetch(w, p + 2).map(|_| ())),
                ("wait, comparison", INVALID_ARGUMENT, calls::signal_wait_until(w, p, 6, 0).map(|_| ())),
                ("wait outside", BAD_ADDRESS, calls::signal_wait_until(w, 8, RUSHMEM_CMP_EQ, 0).map(|_| ())),
                ("words of floats", INVALID_ARGUMENT, words(p, 1, RUSHMEM_DOUBLE, 0)),
                ("words, null", INVALID_ARGUMENT, words(0, 1, RUSHMEM_INT32, 0)),
                ("words, unaligned", INVALID_ARGUMENT, words(p + 2, 1, RUSHMEM_INT32, 0)),
                ("words past the end", OUT_OF_BOUNDS, words(p, 65, RUSHMEM_INT32, 0)),
                ("words, far too many", INVALID_ARGUMENT, words(p, usize::MAX / 2, RUSHMEM_INT64, 0)),
                ("words, comparison", INVALID_ARGUMENT, words(p, 1, RUSHMEM_INT32, -1)),
            ]
        };
        for (what, want, got) in cases {
            let e = got.expect_err(what);
            assert_eq!(e.code, want, "{what}: {e}");
            assert!(e.message.len() > 10, "{what}: {e}");
        }
        assert_eq!(words(0, 0, RUSHMEM_INT32, 0), Ok(()), "no words may be anywhere");
        barrier(w);
        assert!(own(p, 256).iter().all(|b| *b == 0), "nothing was written");
        assert_eq!(private, [7; 256]);
        w.free(Some(p)).unwrap();
    });
}

#[test]
fn the_source_of_a_put_is_free_when_it_returns_behind_a_fence_too() {
    job(2, |w| {
        let (data, word, signal) = (alloc(w, 4096), alloc(w, 512), alloc(w, 8));
        let other = 1 - w.my_pe();
        for round in 1..=20u64 {
            let bulk = [round; 512];
            // SAFETY: what the array holds.
            unsafe { calls::put(w, data, bulk.as_ptr().cast(), 4096, other) }.unwrap();
            for bytes in [8, 512] {
                let mut source = [round; 64];
                order::fence(w, RUSHMEM_CONTEXT_DEFAULT).unwrap();
                // SAFETY: no more than the array holds.
                unsafe { calls::put(w, word, source.as_ptr().cast(), bytes, other) }.unwrap();
                std::hint::black_box(&mut source).fill(u64::MAX);
                order::fence(w, RUSHMEM_CONTEXT_DEFAULT).unwrap();
                let mut source = [round; 64];
                // SAFETY: no more than the array holds.
                unsafe {
                    calls::put_signal(w, word, source.as_ptr().cast(), bytes, signal, SignalOp::Add(1), other)
                }
                .unwrap();
                std::hint::black_box(&mut source).fill(u64::MAX);
            }
            barrier(w);
            assert!(own(word, 512).chunks_exact(8).all(|seen| *seen == round.to_le_bytes()), "round {round}");
            assert_eq!(calls::g(w, signal, 8, w.my_pe()).unwrap(), 2 * round);
            barrier(w);
        }
        for p in [data, word, signal] {
            w.free(Some(p)).unwrap();
        }
    });
}

#[test]
fn atomics_of_all_pes_are_atomic() {
    let rounds = (rounds(3000) as u64).max(300);
    job(4, |w| {
        let (me, n) = (w.my_pe() as u64, w.n_pes() as u64);
        let p = alloc(w, 256);
        let target = (n - 1) as i32;
        let mut tickets = Vec::new();
        for i in 0..rounds {
            tickets.push(atomic(w, op(RUSHMEM_ATOMIC_FETCH_ADD), RUSHMEM_UINT64, p, 1, 0, target).unwrap());
            atomic(w, op(RUSHMEM_ATOMIC_ADD), RUSHMEM_INT32, p + 8, u64::MAX, 0, target).unwrap();
            let bit = 1 << (me * 8 + i % 8);
            atomic(w, op(RUSHMEM_ATOMIC_XOR), RUSHMEM_UINT64, p + 16, bit, 0, target).unwrap();
            let old =
                atomic(w, op(RUSHMEM_ATOMIC_FETCH_OR), RUSHMEM_UINT32, p + 24, 1 << me, 0, target).unwrap();
            assert!(i == 0 || old & (1 << me) != 0);
            // A lock: test and set by compare-and-swap, a plain counter inside, unlock by set.
            let lock = || {
                atomic(w, op(RUSHMEM_ATOMIC_COMPARE_SWAP), RUSHMEM_INT32, p + 32, me + 1, 0, target).unwrap()
            };
            while lock() != 0 {
                std::thread::yield_now();
            }
            let count = calls::g(w, p + 40, 8, target).unwrap();
            calls::p(w, p + 40, count + 1, 8, target).unwrap();
            order::fence(w, RUSHMEM_CONTEXT_DEFAULT).unwrap();
            atomic(w, op(RUSHMEM_ATOMIC_SET), RUSHMEM_INT32, p + 32, 0, 0, target).unwrap();
        }
        assert!(tickets.windows(2).all(|t| t[0] < t[1]));
        barrier(w);
        let word = |at: usize, kind| atomic(w, op(RUSHMEM_ATOMIC_FETCH), kind, p + at, 0, 0, target).unwrap();
        assert_eq!(word(0, RUSHMEM_UINT64), n * rounds);
        assert_eq!(word(8, RUSHMEM_INT32), (n * rounds).wrapping_neg() & 0xffff_ffff, "32 bits and no more");
        assert_eq!(word(12, RUSHMEM_INT32), 0, "the neighbour is untouched");
        let flips: u64 = (0..8 * n).filter(|b| (rounds + 7 - b % 8) / 8 % 2 == 1).map(|b| 1 << b).sum();
        assert_eq!(word(16, RUSHMEM_UINT64), flips);
        assert_eq!(word(24, RUSHMEM_UINT32), (1 << n) - 1);
        assert_eq!(word(40, RUSHMEM_UINT64), n * rounds, "the lock excludes");
        barrier(w);
        w.free(Some(p)).unwrap();
    });
}

#[test]
fn every_fetched_ticket_is_given_once() {
    let rounds = rounds(5000);
    let tickets = worlds_with(3, &BOUNDED, |w| {
        let p = alloc(w, 8);
        let kind = [RUSHMEM_INT64, RUSHMEM_UINT64][w.my_pe() as usize % 2];
        let fetch = || atomic(w, op(RUSHMEM_ATOMIC_FETCH_ADD), kind, p, 1, 0, 0).unwrap();
        let tickets: Vec<u64> = (0..rounds).map(|_| fetch()).collect();
        barrier(w);
        w.finalize().unwrap();
        tickets
    });
    let all: HashSet<u64> = tickets.into_iter().flatten().collect();
    assert_eq!(all, (0..3 * rounds as u64).collect());
}

#[test]
fn floating_point_words_are_fetched_set_and_swapped() {
    job(2, |w| {
        let other = 1 - w.my_pe();
        let p = alloc(w, 16);
        let pi = u64::from(std::f32::consts::PI.to_bits());
        let e = std::f64::consts::E.to_bits();
        atomic(w, op(RUSHMEM_ATOMIC_SET), RUSHMEM_FLOAT, p, pi, 0, other).unwrap();
        atomic(w, op(RUSHMEM_ATOMIC_SET), RUSHMEM_DOUBLE, p + 8, e, 0, other).unwrap();
        assert_eq!(atomic(w, op(RUSHMEM_ATOMIC_FETCH), RUSHMEM_FLOAT, p, 0, 0, other).unwrap(), pi);
        let nan = f64::NAN.to_bits() | 5;
        assert_eq!(atomic(w, op(RUSHMEM_ATOMIC_SWAP), RUSHMEM_DOUBLE, p + 8, nan, 0, other).unwrap(), e);
        assert_eq!(atomic(w, op(RUSHMEM_ATOMIC_FETCH), RUSHMEM_DOUBLE, p + 8, 0, 0, other).unwrap(), nan);
        for bad in
            [RUSHMEM_ATOMIC_COMPARE_SWAP, RUSHMEM_ATOMIC_ADD, RUSHMEM_ATOMIC_FETCH_XOR, RUSHMEM_ATOMIC_AND]
        {
            let got = atomic(w, op(bad), RUSHMEM_DOUBLE, p + 8, 0, 0, other).unwrap_err();
            assert!(got.message.contains("double"), "{got}");
            assert_ne!(op(bad).update(), Update::Fetch);
        }
        barrier(w);
    });
}
