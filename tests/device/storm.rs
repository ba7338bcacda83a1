//! Many blocks and full warps that post to a device ring which is far too small for them, with near PEs and
//! far ones in the job: slots are reused at once, posters wait for room, reply slots are fewer than threads.

use rushmem::testing::Pes;

use crate::api_common::place::{hosts, in_turns, on_gpus, pes, rounds};
use crate::api_common::{seed, seeded};
use crate::*;
use rushmem_test_support::arguments::Warps;

const STORM: &str = kernels!("storm.cu");
/// As in storm.cu.
const SLOTS: usize = 8;
const SOURCES: usize = 64;
/// Enough PEs for near and far ones: two hosts of two.
const N: u32 = 4;

/// `mix(x)` of check.h.
fn mix1(x: u64) -> u64 {
    let mut z = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// `mix(a, b)`.
fn mix(a: u64, b: u64) -> u64 {
    mix1(mix1(a) ^ b)
}

/// What must be on `me` when every thread of every PE has gone its rounds: rows, and the three sums.
fn model(me: u64, n: u64, threads: usize, rounds: usize, seed: u64) -> (Vec<u64>, [u64; 3]) {
    let (mut rows, mut sums) = (vec![0; n as usize * threads * SLOTS], [0u64; 3]);
    for of in 0..n * threads as u64 {
        let start = mix(seed, of);
        for round in 0..rounds {
            let value = mix(start, round as u64);
            if value % n != me {
                continue;
            }
            match value >> 32 & 7 {
                4 => sums[0] = sums[0].wrapping_add(value >> 40),
                5 => sums[1] += 1,
                kind => {
                    rows[of as usize * SLOTS + round % SLOTS] = value;
                    sums[2] += u64::from(kind == 3);
                }
            }
        }
    }
    (rows, sums)
}

/// Blocks and threads of each: on the CPU device a block is a thread of the host's, of which there are few.
fn grid() -> Launch {
    if on_gpus() && !is_brief() {
        Launch::new(8, 128)
    } else {
        Launch::new(4, 64)
    }
}

fn storm(world: &World, seed: u64) {
    let bench = Bench::new(world, STORM);
    let launch = grid();
    let threads = if on_gpus() && !is_brief() { 8 * 128 } else { 4 * 64 };
    let (me, n) = (u64::from(world.my_pe().number()), u64::from(world.n_pes()));
    let rounds = rounds(if on_gpus() { 40 } else { 60 });
    let rows = world.alloc::<u64>(n as usize * threads * SLOTS).unwrap();
    let sources = world.alloc::<u64>(threads * SOURCES).unwrap();
    let sums = world.alloc::<u64>(3).unwrap();
    bench.run("storm", launch, (&bench.report, &rows, &sources, &sums, rounds as i32, seed));
    let (want, want_sums) = model(me, n, threads, rounds, seed);
    let seen = rows.to_vec().unwrap();
    let wrong = seen.iter().zip(&want).position(|(seen, want)| seen != want);
    assert_eq!(wrong, None, "word of PE {me}: {:x?}", wrong.map(|at| (seen[at], want[at])));
    assert_eq!(sums.to_vec().unwrap(), want_sums, "sums of PE {me}");
    world.barrier_all().unwrap();

    // 700 words are a copy of their own, 7 are a message.
    for words in [7usize, 700] {
        let warps = threads / 32;
        let rounds = rounds.div_ceil(10);
        let rows = world.alloc::<u64>(n as usize * warps * words).unwrap();
        let source = world.alloc::<u64>(warps * words).unwrap();
        let signals = world.alloc::<u64>(n as usize).unwrap();
        let of_warps = Warps { words: words as u64, rounds: rounds as i32, seed };
        let args = (&bench.report, &rows, &source, &signals, ByValue(of_warps));
        bench.run("storm_of_warps", launch, args);
        let last = seed.wrapping_add(rounds as u64 - 1);
        let wrong =
            rows.to_vec().unwrap().iter().enumerate().position(|(i, word)| *word != mix(last, i as u64));
        assert_eq!(wrong, None, "{words} words of each warp");
        assert_eq!(signals.to_vec().unwrap(), vec![(warps * rounds) as u64; n as usize]);
        world.barrier_all().unwrap();
    }
}

fn run(pes: Pes, threads: bool) {
    let pes = seeded(pes).env("RUSHMEM_RING_SLOTS", "64");
    let storm = |world: &World| storm(world, seed());
    if threads {
        pes.threads(storm);
    } else {
        pes.run(storm);
    }
}

/// One network after the other: side by side they take ten times as long on two cores. The fake one carries
/// no GPU's memory.
#[test]
fn a_tiny_ring_carries_a_storm() {
    if !on_gpus() {
        let fake =
            pes(N).env("RUSHMEM_TRANSPORT", "fake").env("RUSHMEM_PES_PER_NODE", "2").env("RUSHMEM_NODES", "");
        run(fake.env("RUSHMEM_FAKE_DELAY", "20"), true);
    }
    for each in [1, 2] {
        let Some(pes) = hosts("a_tiny_ring_carries_a_storm over ucx", N, each) else { return };
        run(pes, in_turns(N));
    }
}
