//! Contexts: what a quiet of one waits for, and what it does not; on a slow network that reorders, and as the
//! way of the tests has it.

use super::calls;
use super::job::{alloc, barrier, job, BOUNDED};
use crate::error::code;
use crate::exec::{self, context, order, Form};
use crate::fake::{rounds, worlds_with};
use crate::op::signal::SignalOp;
use crate::op::Op;
use crate::testing::random::Random;
use crate::world::World;
use rushmem_abi::c::*;

fn put_nbi(w: &World, at: usize, source: &[u8], pe: i32) {
    let op = Op::put(at, source.as_ptr() as usize, source.len());
    // SAFETY: the source lives until the context's quiet.
    unsafe { exec::run(w, op, pe, Form::Nbi) }.unwrap();
}

/// Many pieces that take up to 40 ms each in one context; a word there and back, of the other context's, is
/// faster nearly always, and its quiet does not wait.
#[test]
fn a_quiet_does_not_wait_for_another_contexts_slow_copy() {
    const BYTES: usize = 1 << 20;
    let slow =
        [("RUSHMEM_TRANSPORT", "fake"), ("RUSHMEM_PES_PER_NODE", "1"), ("RUSHMEM_FAKE_DELAY", "10000")];
    let early = worlds_with(3, &[&BOUNDED[..], &slow[..]].concat(), |w| {
        let (inbox, word) = (alloc(w, BYTES), alloc(w, 64));
        barrier(w);
        let mut early = 0;
        if w.my_pe() == 0 {
            let (a, b) = (context::create(w), context::create(w));
            let mut random = Random::new("slow copies");
            for round in 1..=10u64 {
                let source = random.bytes(BYTES);
                context::enter(w, a).unwrap();
                put_nbi(w, inbox, &source, 1);
                // To the PE of the copy, and to another one.
                let pe = 1 + (round % 2) as i32;
                for by in [b, RUSHMEM_CONTEXT_DEFAULT] {
                    context::enter(w, by).unwrap();
                    calls::p(w, word, round, 8, pe).unwrap();
                    context::fence(w, by).unwrap();
                    calls::signal_op(w, word + 8, SignalOp::Add(1), pe).unwrap();
                    context::quiet(w, by).unwrap();
                    context::enter(w, b).unwrap();
                    assert_eq!(calls::g(w, word, 8, pe).unwrap(), round);
                    assert_eq!(
                        calls::g(w, word + 8, 8, pe).unwrap(),
                        round.div_ceil(2) * 2 - u64::from(by == b)
                    );
                }
                early += usize::from(!w.far().unwrap().is_quiet(a));
                context::quiet(w, a).unwrap();
                let mut back = vec![0; BYTES];
                context::enter(w, RUSHMEM_CONTEXT_DEFAULT).unwrap();
                // SAFETY: the array is as long.
                unsafe { calls::get(w, back.as_mut_ptr(), inbox, BYTES, 1) }.unwrap();
                assert!(back == source, "round {round}: the context's quiet is over before its copy");
            }
            context::destroy(w, a).unwrap();
            context::destroy(w, b).unwrap();
        }
        barrier(w);
        w.finalize().unwrap();
        early
    });
    assert!(early[0] > 0, "every quiet waited for another context's copy");
}

/// Random operations of several contexts and threads; each context's quiet completes all of its own.
#[test]
fn each_context_completes_its_own() {
    const ROOM: usize = 4096;
    let seed = Random::new("contexts").next();
    job(3, |w| {
        let (me, n) = (w.my_pe(), w.n_pes());
        let heap = alloc(w, 4 * n as usize * ROOM);
        std::thread::scope(|scope| {
            for thread in 0..4usize {
                scope.spawn(move || {
                    let mut random = Random::seeded(seed ^ (4 * me as u64 + thread as u64));
                    let own = context::create(w);
                    context::enter(w, own).unwrap();
                    for round in 0..rounds(40) {
                        let pe = random.below(n as usize) as i32;
                        let at = heap + (thread * n as usize + me as usize) * ROOM;
                        let bytes = [1, 8, 511, 512, 513, 2000, ROOM][random.below(7)];
                        let (first, last) = (random.bytes(bytes), random.bytes(bytes));
                        put_nbi(w, at, &first, pe);
                        context::fence(w, own).unwrap();
                        put_nbi(w, at, &last, pe);
                        if random.below(4) == 0 {
                            order::quiet(w).unwrap();
                        } else {
                            context::quiet(w, own).unwrap();
                        }
                        let mut back = vec![0; bytes];
                        // SAFETY: the array is as long.
                        unsafe { calls::get(w, back.as_mut_ptr(), at, bytes, pe) }.unwrap();
                        assert!(back == last, "round {round}, {bytes} bytes, PE {pe}");
                    }
                    context::destroy(w, own).unwrap();
                });
            }
        });
        barrier(w);
        w.free(Some(heap)).unwrap();
    });
}

#[test]
fn a_context_that_is_none_is_an_error() {
    job(2, |w| {
        let gone = context::create(w);
        context::destroy(w, gone).unwrap();
        for e in [
            context::enter(w, gone).unwrap_err(),
            context::fence(w, gone).unwrap_err(),
            context::quiet(w, gone).unwrap_err(),
            context::destroy(w, gone).unwrap_err(),
            context::destroy(w, RUSHMEM_CONTEXT_DEFAULT).unwrap_err(),
            context::enter(w, u64::MAX).unwrap_err(),
        ] {
            assert_eq!(e.code, code::BAD_HANDLE, "{e}");
        }
        assert_ne!(context::create(w), gone);
        barrier(w);
    });
}
