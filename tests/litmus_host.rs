//! Litmus tests of the host's operations through the Rust API, whose near path is inline code of its own: in
//! what order one PE may see what another one does. PEs are processes (threads, where processes would take
//! turns on a GPU); each round has new values, so that a stale one is recognised. (The same of the C ABI:
//! host/runtime/src/exec/tests/litmus.rs.)

use rushmem::{Cmp, SignalOp, World};
use rushmem_test_support::api_common::apart;
use rushmem_test_support::api_common::place::{host_rounds, pes};

/// Ways to announce a message, after its data.
#[derive(Clone, Copy, Debug)]
enum Announce {
    PutSignal(SignalOp),
    FenceSignal,
    FenceP,
    FenceAtomicSet,
    FenceAtomicAdd,
    QuietPut,
    /// Data and flag in one context, whose fence is between them.
    ContextFenceSignal,
    /// Data in a context, which is completed, and the flag in the default one.
    ContextQuietP,
}

/// Message passing, both ways at once: a PE that sees the flag sees all of the data.
fn message_passing(world: &World, announce: Announce, words: usize, rounds: usize) {
    let rounds = host_rounds(rounds) as u64;
    let other = world.right();
    let data = world.alloc_aligned::<u64>(words, 4096).unwrap();
    let flag = world.signal().unwrap();
    let taken = world.signal().unwrap();
    let context = world.context().unwrap();
    let mut seen = vec![0; words];
    for round in 1..=rounds {
        let message: Vec<u64> = (0..words as u64).map(|i| round << 24 | i).collect();
        match announce {
            Announce::PutSignal(SignalOp::Add) => {
                data.put_signal(&message, &flag, SignalOp::Add, 1, other).unwrap();
            }
            Announce::PutSignal(op) => data.put_signal(&message, &flag, op, round, other).unwrap(),
            Announce::QuietPut => {
                data.put(&message, other).unwrap();
                world.quiet().unwrap();
                flag.word().put(&[round], other).unwrap();
            }
            Announce::ContextFenceSignal => {
                let _entered = context.enter().unwrap();
                data.put(&message, other).unwrap();
                context.fence().unwrap();
                flag.set(round, other).unwrap();
            }
            Announce::ContextQuietP => {
                let entered = context.enter().unwrap();
                data.put(&message, other).unwrap();
                drop(entered);
                context.quiet().unwrap();
                flag.word().p(0, round, other).unwrap();
            }
            _ => {
                data.put(&message, other).unwrap();
                world.fence().unwrap();
                match announce {
                    Announce::FenceP => flag.word().p(0, round, other).unwrap(),
                    Announce::FenceAtomicSet => flag.word().at(0, other).set(round).unwrap(),
                    Announce::FenceAtomicAdd => flag.word().at(0, other).add(1).unwrap(),
                    _ => flag.set(round, other).unwrap(),
                }
            }
        }
        assert_eq!(flag.wait_until(Cmp::Ge, round).unwrap(), round);
        data.read(&mut seen).unwrap();
        // The bytes sent last are the likeliest to be late.
        if let Some(i) = (0..words).rev().find(|i| seen[*i] != round << 24 | *i as u64) {
            panic!("{announce:?}, round {round}: word {i} of {words} is {:#x}, stale", seen[i]);
        }
        taken.set(round, other).unwrap();
        taken.wait_until(Cmp::Ge, round).unwrap();
    }
    world.barrier_all().unwrap();
    data.free().unwrap();
    flag.free().unwrap();
    taken.free().unwrap();
}

const EVERY: [Announce; 9] = [
    Announce::PutSignal(SignalOp::Set),
    Announce::PutSignal(SignalOp::Add),
    Announce::FenceSignal,
    Announce::FenceP,
    Announce::FenceAtomicSet,
    Announce::FenceAtomicAdd,
    Announce::QuietPut,
    Announce::ContextFenceSignal,
    Announce::ContextQuietP,
];

#[test]
fn message_passing_of_a_few_words() {
    apart(2, |world| {
        for announce in EVERY {
            for words in [1, 3, 8, 40] {
                message_passing(world, announce, words, 1000);
            }
        }
    });
}

#[test]
fn message_passing_of_bulk() {
    // Past the caches the C library's copy uses non-temporal stores, which nothing orders but its own fence.
    apart(2, |world| {
        for announce in EVERY {
            for (words, rounds) in [(1 << 10, 200), (1 << 17, 20), (1 << 21, 2)] {
                message_passing(world, announce, words, rounds);
            }
        }
    });
}

#[test]
fn store_buffering_with_quiet() {
    // Each PE writes the other's cell, then reads its own: with a quiet in between, one of the two sees the
    // new value.
    const CELLS: usize = 256;
    const STRIDE: usize = 16; // words: a line each
    apart(2, |world| {
        let (me, other) = (world.my_pe(), world.right());
        let cells = world.alloc_aligned::<u64>(CELLS * STRIDE, 128).unwrap();
        let seen = world.alloc::<u8>(CELLS).unwrap();
        for batch in 1..=host_rounds(100) as u64 {
            let mut mine = [0u8; CELLS];
            world.sync_all().unwrap();
            for (i, mine) in mine.iter_mut().enumerate() {
                cells.p(i * STRIDE, batch, other).unwrap();
                world.quiet().unwrap();
                *mine = (cells.g(i * STRIDE, me).unwrap() == batch).into();
            }
            seen.put(&mine, other).unwrap();
            world.barrier_all().unwrap();
            let theirs = seen.to_vec().unwrap();
            let both_old = (0..CELLS).filter(|i| mine[*i] == 0 && theirs[*i] == 0).count();
            assert_eq!(
                both_old, 0,
                "batch {batch}: both PEs read old values in {both_old} of {CELLS} rounds"
            );
            world.barrier_all().unwrap();
        }
        cells.free().unwrap();
        seen.free().unwrap();
    });
}

#[test]
fn threads_of_one_process_are_pes_like_others() {
    pes(2).threads(|world| {
        for announce in EVERY {
            message_passing(world, announce, 40, 500);
        }
    });
}
