//! Operations that find the network full: they are tried again, counted by peer, and nothing is lost.

use super::calls;
use super::job::{alloc, barrier, BOUNDED};
use crate::exec::{self, order, Form};
use crate::fake::worlds_with;
use crate::op::Op;
use crate::testing::random::Random;

/// More copies than the fake network takes at once go to PE 1, one at a time to PE 2.
#[test]
fn retries_are_counted_by_peer() {
    const BYTES: usize = 4096;
    const COPIES: usize = 200;
    let slow = [("RUSHMEM_TRANSPORT", "fake"), ("RUSHMEM_PES_PER_NODE", "1"), ("RUSHMEM_FAKE_DELAY", "2000")];
    worlds_with(3, &[&BOUNDED[..], &slow[..]].concat(), |w| {
        let inbox = alloc(w, COPIES * BYTES);
        barrier(w);
        if w.my_pe() == 0 {
            let source = Random::new("retries").bytes(COPIES * BYTES);
            let put = |i: usize, pe| {
                let op = Op::put(inbox + i * BYTES, source[i * BYTES..].as_ptr() as usize, BYTES);
                // SAFETY: the source lives until the quiet.
                unsafe { exec::run(w, op, pe, Form::Nbi) }.unwrap();
            };
            for i in 0..3 {
                put(i, 2);
                order::quiet(w).unwrap();
            }
            assert_eq!(w.counters(2).unwrap().retries, 0);
            (0..COPIES).for_each(|i| put(i, 1));
            order::quiet(w).unwrap();
            let retries = w.counters(1).unwrap().retries;
            assert!((1..=COPIES as u64).contains(&retries), "{retries}");
            assert_eq!(w.counters(2).unwrap().retries, 0);
            let mut back = vec![0; COPIES * BYTES];
            // SAFETY: the array is as long.
            unsafe { calls::get(w, back.as_mut_ptr(), inbox, COPIES * BYTES, 1) }.unwrap();
            assert!(back == source);
            assert!(w.counters(3).unwrap_err().message.contains("PE 3"));
        } else {
            for pe in 0..3 {
                assert_eq!(w.counters(pe).unwrap().retries, 0);
            }
        }
        barrier(w);
        w.finalize().unwrap();
    });
}
