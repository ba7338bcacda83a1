//! Litmus tests of collectives at each scope and by each protocol: what a scope's threads stored before a
//! call is what arrives, and what a call has read or left is the caller's behind it, without a meeting of the
//! threads by themselves. Between two GPUs where there are two, else between PEs of one (or, in small, of the
//! CPU device).

use crate::*;

/// The kernel of each scope.
const CALLS: [&str; 3] = [
    concat!("#define CALLS_OF rushmem::thread\n", kernels!("litmus_calls.cu")),
    concat!("#define CALLS_OF rushmem::warp\n", kernels!("litmus_calls.cu")),
    concat!("#define CALLS_OF rushmem::block\n", kernels!("litmus_calls.cu")),
];
/// `CALL_*` of litmus_calls.cu, the last of them being too weak on purpose.
const FORMS: [&str; 6] = ["broadcast", "fcollect", "alltoall", "reduce", "reducescatter", "p (weak)"];
/// One for each slot set that a world has.
const BLOCKS: u32 = 4;

/// `calls_args` of litmus_calls.cu.
#[derive(Clone, Copy)]
#[repr(C)]
struct Calls {
    form: i32,
    rounds: i32,
    words: usize,
    seed: u64,
}

/// Words of a member: of one thread's packet and past it, of a warp's and past it, of several turns, of what
/// a block sends directly, and of what a broadcast's members read (96 KiB).
const SIZES: [usize; 7] = [1, 2, 32, 33, 600, 5_000, 13_000];

/// As many rounds as take a GPU a tenth of a second, by its rates when a kernel of one block calls: PEs that
/// share one take many times as long. On the CPU device some.
fn rounds_of(scope: i32, words: usize, members: usize) -> usize {
    let bytes = words * 8 * members;
    if !on_gpus() {
        return rounds((8_000 / (bytes + 100)).max(3));
    }
    let bytes_a_us = match scope {
        THREAD => 500,
        WARP => 4_000,
        _ => 30_000,
    };
    rounds(100_000 / (4 + bytes / bytes_a_us)).max(20)
}

/// All forms and sizes at a scope.
fn run(scope: i32, name: &str) {
    at_counts(&[2, 3], |world, rng| {
        let bench = Bench::new(world, CALLS[scope as usize]);
        let members = world.n_pes() as usize;
        let room = SIZES[SIZES.len() - 1] * members * BLOCKS as usize;
        let arrays =
            [world.alloc_aligned::<u64>(room, 128).unwrap(), world.alloc_aligned::<u64>(room, 128).unwrap()];
        let stats = world.alloc::<u64>(1).unwrap();
        // The block's size decides which calls are small. The CPU device's threads take turns.
        let sizes = if on_gpus() { [32, 256, 1024] } else { [32, 64, 96] };
        let launch = Launch::new(BLOCKS, if scope == BLOCK { sizes[rng.below(3)] } else { 64 });
        for (form, what) in FORMS.iter().enumerate() {
            stats.fill(0).unwrap();
            let mut total = 0;
            for words in SIZES {
                let rounds = rounds_of(scope, words, members);
                total += rounds;
                arrays[0].fill(0).unwrap();
                let args = Calls { form: form as i32, rounds: rounds as i32, words, seed: rng.next() };
                let (report, [dst, src]) = (&bench.report, &arrays);
                bench.run("litmus_calls", launch, (report, &stats, dst, src, ByValue(args)));
            }
            if world.my_pe() == Pe::new(0) {
                println!(
                    "LITMUS calls {name} of {} threads [{what}], {members} PEs on {}: {total} rounds of each block, weak \
                     failures {}",
                    launch.block.0[0],
                    world.device_name(),
                    stats.to_vec().unwrap()[0]
                );
            }
        }
    });
}

#[test]
fn a_threads_calls_order_what_it_stores_and_reads() {
    run(THREAD, "thread");
}

#[test]
fn calls_order_what_the_lanes_of_a_warp_store_and_read() {
    run(WARP, "warp");
}

#[test]
fn calls_order_what_the_threads_of_a_block_store_and_read() {
    run(BLOCK, "block");
}
