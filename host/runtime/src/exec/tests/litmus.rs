//! Litmus tests: the order in which another PE may see what this one does. Two PEs, each a thread with its
//! own mapping of the heaps, many rounds; a forbidden outcome fails at once. Each round's values are new, so
//! a stale one is recognised.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::calls::{self, atomic};
use crate::error::Result;
use crate::exec::order;
use crate::fake::{rounds, worlds_with};
use crate::op::atomic::AtomicOp;
use crate::op::signal::SignalOp;
use crate::world::World;
use rushmem_abi::c::*;

const BOUNDED: [(&str, &str); 3] =
    [("RUSHMEM_WAIT_TIMEOUT", "60"), ("RUSHMEM_TIMEOUT", "60"), ("RUSHMEM_STALL_REPORT", "0")];

/// How the flag of a message goes out after its data.
#[derive(Clone, Copy, Debug)]
enum Announce {
    PutSignalSet,
    PutSignalAdd,
    FencePutSignalOp,
    FenceP,
    FenceAtomicSet,
    FenceAtomicAdd,
    QuietPut,
}

/// Message passing: `flag` seen means that all of `data` is seen. Both PEs send and receive at once.
fn message_passing(announce: Announce, bytes: usize, rounds: u64) {
    worlds_with(2, &BOUNDED, |w| {
        let other = 1 - w.my_pe();
        // Data, flag and acknowledgement on lines of their own.
        let data = w.alloc(bytes, 4096).unwrap().unwrap();
        let flag = w.alloc(8, 128).unwrap().unwrap();
        let ack = w.alloc(8, 128).unwrap().unwrap();
        let words = bytes / 8;
        for round in 1..=rounds {
            let message: Vec<u64> = (0..words as u64).map(|i| round << 20 | i).collect();
            let (src, value) = (message.as_ptr().cast(), round);
            // SAFETY: `message` holds `bytes` bytes.
            unsafe {
                match announce {
                    Announce::PutSignalSet => {
                        calls::put_signal(w, data, src, bytes, flag, SignalOp::Set(value), other).unwrap();
                    }
                    Announce::PutSignalAdd => {
                        calls::put_signal(w, data, src, bytes, flag, SignalOp::Add(1), other).unwrap();
                    }
                    _ => calls::put(w, data, src, bytes, other).unwrap(),
                }
            }
            let code = |c| AtomicOp::from_code(c).unwrap();
            match announce {
                Announce::PutSignalSet | Announce::PutSignalAdd => {}
                Announce::QuietPut => {
                    order::quiet(w).unwrap();
                    // SAFETY: eight bytes of a local.
                    unsafe { calls::put(w, flag, (&raw const value).cast(), 8, other) }.unwrap();
                }
                _ => {
                    order::fence(w, RUSHMEM_CONTEXT_DEFAULT).unwrap();
                    match announce {
                        Announce::FenceP => calls::p(w, flag, value, 8, other).unwrap(),
                        Announce::FenceAtomicSet => {
                            atomic(w, code(RUSHMEM_ATOMIC_SET), RUSHMEM_UINT64, flag, value, 0, other)
                                .unwrap();
                        }
                        Announce::FenceAtomicAdd => {
                            atomic(w, code(RUSHMEM_ATOMIC_ADD), RUSHMEM_UINT64, flag, 1, 0, other).unwrap();
                        }
                        _ => calls::signal_op(w, flag, SignalOp::Set(value), other).unwrap(),
                    }
                }
            }
            let seen = calls::signal_wait_until(w, flag, RUSHMEM_CMP_GE, round).unwrap();
            assert_eq!(seen, round, "the sender waits for our acknowledgement");
            // Backwards: what was written last is looked at first.
            for i in (0..words).rev() {
                // SAFETY: our own live memory; the peer writes again only after our acknowledgement.
                let got = unsafe { (data as *const u64).add(i).read_volatile() };
                assert_eq!(got, round << 20 | i as u64, "{announce:?}, round {round}, word {i}: stale data");
            }
            calls::signal_op(w, ack, SignalOp::Set(round), other).unwrap();
            calls::signal_wait_until(w, ack, RUSHMEM_CMP_GE, round).unwrap();
        }
        w.finalize().unwrap();
    });
}

#[test]
fn message_passing_small() {
    for announce in [
        Announce::PutSignalSet,
        Announce::PutSignalAdd,
        Announce::FencePutSignalOp,
        Announce::FenceP,
        Announce::FenceAtomicSet,
        Announce::FenceAtomicAdd,
        Announce::QuietPut,
    ] {
        message_passing(announce, 64, rounds(1500) as u64);
    }
}

#[test]
fn message_passing_bulk() {
    // Past the caches the copy uses non-temporal stores, which ordinary fences on x86 do not order by
    // themselves.
    for bytes in [4096, 1 << 20, 16 << 20] {
        let count = rounds(((64 << 20) / bytes).min(500)).max(3) as u64;
        for announce in [Announce::PutSignalSet, Announce::FenceP] {
            message_passing(announce, bytes, count);
        }
    }
}

/// Store buffering: each PE puts to the other one's cell, then reads its own. With `between` a quiet, at
/// least one of the two sees the new value. Returns how many rounds saw two old ones.
fn store_buffering(between: fn(&World) -> Result<()>) -> usize {
    const CELLS: usize = 256;
    let batches = rounds(200);
    let early = AtomicUsize::new(0);
    let results = worlds_with(2, &BOUNDED, |w| {
        let (me, other) = (w.my_pe(), 1 - w.my_pe());
        let cells = w.alloc(CELLS * 128, 128).unwrap().unwrap();
        let mut seen = Vec::with_capacity(CELLS * batches);
        for batch in 1..=batches {
            // Both start a batch together and run through the cells side by side, drifting past one another.
            early.fetch_add(1, Ordering::AcqRel);
            let mut spins = 0;
            while early.load(Ordering::Acquire) < 2 * batch {
                spins += 1;
                // Rarely: two threads that yield to one another settle on one core, where nothing is
                // reordered.
                if spins % 1_000_000 == 0 {
                    std::thread::yield_now();
                }
            }
            for i in 0..CELLS {
                let cell = cells + i * 128;
                calls::p(w, cell, batch as u64, 8, other).unwrap();
                between(w).unwrap();
                seen.push(calls::g(w, cell, 8, me).unwrap() == batch as u64);
            }
        }
        w.finalize().unwrap();
        seen
    });
    results[0].iter().zip(&results[1]).filter(|(a, b)| !**a && !**b).count()
}

#[test]
fn store_buffering_with_quiet_never_reads_two_old_values() {
    // Without quiet the processor may do it; how often it did says how sharp the test is on this machine.
    eprintln!(
        "with fence alone, {} rounds read two old values",
        store_buffering(|w| order::fence(w, RUSHMEM_CONTEXT_DEFAULT))
    );
    assert_eq!(store_buffering(order::quiet), 0);
}

#[test]
fn a_word_put_is_never_seen_torn() {
    let rounds = rounds(100_000) as u64;
    worlds_with(2, &BOUNDED, |w| {
        let word = w.alloc(16, 128).unwrap().unwrap();
        let done = w.alloc(8, 128).unwrap().unwrap();
        if w.my_pe() == 0 {
            for i in 0..rounds {
                let value = i << 32 | i;
                match i % 2 {
                    0 => calls::p(w, word, value, 8, 1).unwrap(),
                    // SAFETY: eight bytes of a local.
                    _ => unsafe { calls::put(w, word, (&raw const value).cast(), 8, 1) }.unwrap(),
                }
            }
            calls::signal_op(w, done, SignalOp::Set(1), 1).unwrap();
        } else {
            while crate::exec::wait::fetch(w, done).unwrap() == 0 {
                let v = calls::g(w, word, 8, 1).unwrap();
                assert_eq!(v >> 32, v & 0xffff_ffff, "torn: {v:#x}");
            }
        }
        w.finalize().unwrap();
    });
}
