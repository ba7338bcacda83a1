//! `<cooperative_groups.h>`: tiles and partitions beside a serial model, on either device; blocks that meet
//! as a grid on the CPU device, where every launch may.

use crate::api_common::at_counts;
use crate::*;
use rushmem::Source;

const GROUPS: &str = kernels!("groups.cu");
/// Words that a thread leaves.
const WORDS: usize = 24;

/// The kernels; `None`, aloud, on a GPU host where CUDA's headers are not where NVRTC could find them.
fn bench(world: &World) -> Option<Bench<'_>> {
    if on_gpus() {
        let headers = std::path::Path::new("/usr/local/cuda/include");
        if !headers.join("cooperative_groups.h").exists() {
            skip("tiles_and_partitions", "no CUDA headers for NVRTC in /usr/local/cuda");
            return None;
        }
        let include =
            [headers.to_owned(), headers.join("cccl")].map(|folder| format!("-I{}", folder.display()));
        let source = include.into_iter().fold(Source::text(GROUPS), Source::option);
        return Some(Bench::of(world, source));
    }
    Some(Bench::new(world, GROUPS))
}

/// What the threads of one tile leave, from what they have.
fn of_tile(values: &[u32], meta: (u32, u32), out: &mut Vec<[u32; WORDS]>) {
    let n = values.len();
    let bits = |of: &dyn Fn(u32) -> bool| {
        values.iter().enumerate().fold(0, |bits, (i, v)| bits | u32::from(of(*v)) << i)
    };
    let sum = |values: &[u32]| values.iter().fold(0u32, |sum, v| sum.wrapping_add(*v));
    for (i, &v) in values.iter().enumerate() {
        let like: Vec<usize> = (0..n).filter(|j| values[*j] % 3 == v % 3).collect();
        let odd = *values.iter().find(|other| *other % 2 == v % 2).expect("its own at the least");
        let same = values.iter().all(|other| other / 256 == v / 256);
        let first = values[0];
        out.push([
            i as u32,
            n as u32,
            meta.0,
            meta.1,
            values[v as usize % n],
            values[i.saturating_sub(1)],
            if i + n / 2 < n { values[i + n / 2] } else { v },
            values[i ^ (n - 1)],
            bits(&|v| v & 1 != 0),
            values.iter().any(|v| v & 7 == 7).into(),
            values.iter().all(|v| v & 31 != 0).into(),
            bits(&|other| other % 3 == v % 3),
            if same { bits(&|_| true) } else { 0 },
            same.into(),
            sum(values),
            *values.iter().max().expect("a tile has threads"),
            values.iter().fold(0, |bits, v| bits ^ v),
            sum(&values[..=i]),
            sum(&values[..i]),
            first.wrapping_add(!first).wrapping_add(first & 0xffff),
            (like.iter().position(|j| *j == i).expect("itself") as u32) << 16 | like.len() as u32,
            like.iter().fold(0, |sum, j| sum.wrapping_add(values[*j])),
            odd,
            (i as u32) << 16 | i as u32,
        ]);
    }
}

#[test]
fn tiles_and_partitions_are_as_a_serial_model_has_them() {
    at_counts(&[1, 2], |world, random| {
        let Some(bench) = bench(world) else { return };
        for (kernel, size) in [("tiles_of_32", 32), ("tiles_of_8", 8), ("tiles_of_1", 1)] {
            for (blocks, threads) in [(1, 32), (2, 96), (1, 256)] {
                // Few values and many.
                let most = [4, 1000, u32::MAX as usize][random.below(3)];
                let values: Vec<u32> = (0..threads).map(|_| random.below(most) as u32).collect();
                let input = world.alloc::<u32>(values.len()).unwrap();
                let output = world.alloc::<u32>((blocks * threads) as usize * WORDS).unwrap();
                input.write(&values).unwrap();
                bench.run(kernel, Launch::new(blocks, threads), (&input, &output));
                let mut wanted = Vec::new();
                for _ in 0..blocks {
                    for (i, tile) in values.chunks(size).enumerate() {
                        of_tile(tile, (i as u32, threads.div_ceil(size as u32)), &mut wanted);
                    }
                }
                for (i, got) in output.to_vec().unwrap().chunks(WORDS).enumerate() {
                    assert_eq!(got, wanted[i], "{kernel}, thread {i} of {blocks} x {threads}, below {most}");
                }
                input.free().unwrap();
                output.free().unwrap();
            }
        }
    });
}

#[test]
fn blocks_meet_as_a_grid() {
    const NAME: &str = "blocks_meet_as_a_grid";
    if on_gpus() {
        return skip(NAME, "launches are not cooperative on GPUs, as this barrier asks for there");
    }
    at_counts(&[1, 2], |world, random| {
        let bench = Bench::new(world, GROUPS);
        for (blocks, threads) in [(1, 3), (2, 1), (5, 33), (16, 64)] {
            let rounds = 1 + random.below(20) as u32;
            let n = blocks * threads;
            let memory = || world.alloc::<u32>(n as usize).unwrap();
            let (words, seen) = (memory(), memory());
            bench.run("grid", Launch::new(blocks, threads), (&words, &seen, rounds));
            let of = |i: u32, round: u32| {
                let other = (i / threads + 1 + round) % blocks;
                round * 1000 + other * threads + (i % threads + round) % threads
            };
            let wanted: Vec<u32> = (0..n).map(|i| (0..rounds).map(|round| of(i, round)).sum()).collect();
            assert_eq!(seen.to_vec().unwrap(), wanted, "{blocks} x {threads}, {rounds} rounds");
            words.free().unwrap();
            seen.free().unwrap();
        }
    });
}
