//! Waits and tests between PEs, each a thread of this process, over the fake bootstrap. Every wait is
//! bounded.

use std::time::{Duration, Instant};

use super::calls::{self, atomic};
use super::job::{alloc, barrier, job, op, BOUNDED};
use crate::error::code;
use crate::exec::wait::{self, Watched};
use crate::fake::worlds_with;
use crate::op::signal::SignalOp;
use crate::op::wait::Words;
use crate::op::waitset::Expected;
use crate::world::World;
use rushmem_abi::c::*;

/// The set that the tests below wait on: `n` words of `kind` at `p`.
fn set_of<'a>(
    w: &'a World,
    kind: i32,
    p: usize,
    n: usize,
    status: &[i32],
    cmp: i32,
    value: u64,
) -> Watched<'a> {
    let status = if status.is_empty() { std::ptr::null() } else { status.as_ptr() };
    // SAFETY: the callers keep `status` alive and as long as the set.
    unsafe { Watched::new(w, &Words { kind, ivars: p, n, status, cmp, expected: Expected::One(value) }) }
        .unwrap()
}

#[test]
fn waits_end_when_a_peer_makes_them_true() {
    job(2, |w| {
        let (me, other) = (w.my_pe(), 1 - w.my_pe());
        let p = alloc(w, 64);
        let status = [0, 0, 9, 0];
        for round in 1..200u64 {
            if me == 0 {
                // One word, by each way of writing it.
                calls::p(w, p, round, 4, other).unwrap();
                atomic(w, op(RUSHMEM_ATOMIC_SET), RUSHMEM_INT32, p + 4, round, 0, other).unwrap();
                // The excluded third word stays behind.
                atomic(w, op(RUSHMEM_ATOMIC_SET), RUSHMEM_INT32, p + 12, round, 0, other).unwrap();
                calls::signal_wait_until(w, p + 32, RUSHMEM_CMP_EQ, round).unwrap();
            } else {
                let ge = |value| set_of(w, RUSHMEM_INT32, p, 4, &status, RUSHMEM_CMP_GE, value);
                match round % 3 {
                    0 => wait::until_all(w, &ge(round), 0).unwrap(),
                    1 => {
                        let i = wait::until_any(w, &ge(round), 0).unwrap();
                        assert!(matches!(i, Some(0 | 1 | 3)), "{i:?}");
                    }
                    _ => {
                        let mut some = Vec::new();
                        wait::until_some(w, &ge(round), 0, &mut |i| some.push(i)).unwrap();
                        assert!(!some.is_empty() && some.iter().all(|i| [0, 1, 3].contains(i)), "{some:?}");
                    }
                }
                // All of them, with a value for each.
                let values = [round as i32, round as i32, 77, round as i32];
                let each = Words {
                    kind: RUSHMEM_INT32,
                    ivars: p,
                    n: 4,
                    status: status.as_ptr(),
                    cmp: RUSHMEM_CMP_EQ,
                    expected: Expected::Each(values.as_ptr().cast()),
                };
                // SAFETY: all arrays hold four elements and live long enough.
                let each = unsafe { Watched::new(w, &each) }.unwrap();
                wait::until_all(w, &each, 0).unwrap();
                assert!(wait::test_all(w, &each).unwrap());
                calls::signal_op(w, p + 32, SignalOp::Add(1), other).unwrap();
            }
        }
        barrier(w);
    });
}

#[test]
fn nothing_to_wait_for_returns_at_once() {
    job(1, |w| {
        let p = alloc(w, 64);
        let excluded = [1, -1, i32::MIN, 5];
        for (n, status) in [(0, &[][..]), (4, &excluded[..])] {
            let set = set_of(w, RUSHMEM_UINT64, p, n, status, RUSHMEM_CMP_NE, 0);
            wait::until_all(w, &set, 0).unwrap();
            assert_eq!(wait::until_any(w, &set, 0).unwrap(), None);
            wait::until_some(w, &set, 0, &mut |i| panic!("found {i}")).unwrap();
            assert!(wait::test_all(w, &set).unwrap());
            assert_eq!(wait::test_any(w, &set).unwrap(), None);
            wait::test_some(w, &set, &mut |i| panic!("found {i}")).unwrap();
        }
    });
}

#[test]
fn any_favours_no_word_for_ever() {
    job(1, |w| {
        let p = alloc(w, 1024);
        for n in [2usize, 3, 7, 16, 64] {
            let all = set_of(w, RUSHMEM_UINT64, p, n, &[], RUSHMEM_CMP_EQ, 0);
            let pair = set_of(w, RUSHMEM_UINT64, p, 2, &[], RUSHMEM_CMP_EQ, 0);
            let mut seen = vec![0u32; n];
            let mut seen_pair = [0u32; 2];
            for _ in 0..20 * n {
                seen[wait::until_any(w, &all, 0).unwrap().unwrap()] += 1;
                // Another set in between, as a loop over two queues would have it.
                seen_pair[wait::test_any(w, &pair).unwrap().unwrap()] += 1;
            }
            assert!(seen.iter().chain(&seen_pair).all(|c| *c > 0), "{n}: {seen:?} {seen_pair:?}");
        }
    });
}

#[test]
fn a_wait_that_times_out_says_where_and_for_what() {
    job(1, |w| {
        let p = alloc(w, 64);
        let limit = 30_000_000;
        calls::p(w, p + 8, -5i32 as u32 as u64, 4, 0).unwrap();
        let started = Instant::now();
        let one = set_of(w, RUSHMEM_INT32, p + 8, 1, &[], RUSHMEM_CMP_GT, 3);
        let e = wait::until_all(w, &one, limit).unwrap_err();
        assert_eq!(e.code, code::TIMEOUT);
        assert!(started.elapsed() >= Duration::from_nanos(limit));
        let offset = p + 8 - w.view().heap_base as usize;
        for part in ["PE 0", "int32 > 3", "seen -5", &format!("{offset:#x}"), &format!("{:#x}", p + 8)] {
            assert!(e.message.contains(part), "{part} is missing in: {e}");
        }
        let many = set_of(w, RUSHMEM_UINT64, p + 16, 3, &[0, 1, 0], RUSHMEM_CMP_NE, 0);
        calls::p(w, p + 16, 1, 8, 0).unwrap();
        let e = wait::until_all(w, &many, limit).unwrap_err();
        for part in ["all of 2 words", "1 excluded", "1 satisfied", "[2] uint64 != 0"] {
            assert!(e.message.contains(part), "{part} is missing in: {e}");
        }
    });
}

#[test]
fn a_death_ends_waits_and_loops_around_tests() {
    let started = Instant::now();
    worlds_with(3, &BOUNDED, |w| {
        let p = alloc(w, 64);
        let never = set_of(w, RUSHMEM_UINT64, p, 2, &[], RUSHMEM_CMP_EQ, 1);
        let e = match w.my_pe() {
            0 => wait::until_any(w, &never, 0).unwrap_err(),
            1 => loop {
                if let Err(e) = wait::test_any(w, &never).map(|found| assert_eq!(found, None)) {
                    break e;
                }
                std::thread::yield_now();
            },
            _ => {
                std::thread::sleep(Duration::from_millis(50));
                return w.abort("the test says so");
            }
        };
        assert_eq!(e.code, code::PEER_DEAD, "{e}");
        assert!(e.message.contains("PE 2"), "{e}");
    });
    assert!(started.elapsed() < Duration::from_secs(60));
}
