//! Packed messages: data and flag in one store.

use crate::*;

const PACKED: &str = kernels!("packed.cu");

/// `packed_args` of packed.cu.
#[derive(Clone, Copy)]
#[repr(C)]
struct Sweep {
    scope: i32,
    unit: i32,
    max_bytes: usize,
    seed: u64,
}

fn sweep(scope: i32, units: &'static [i32], most: usize) {
    let most = if is_brief() { 40 } else { most };
    at_few_counts(|world, rng| {
        let bench = Bench::new(world, PACKED);
        let dst = world.alloc_aligned::<u8>(most + 64, 16).unwrap();
        let src = world.alloc_aligned::<u8>(most + 64, 16).unwrap();
        for &unit in units {
            // Packets are u128s to the host: 16 bytes, aligned to as many.
            let slots = world.alloc_aligned::<u64>(2 * most.div_ceil(8), 16).unwrap();
            let ack = world.alloc_aligned::<u64>(2, 16).unwrap();
            for memory in [&slots, &ack] {
                memory.fill(0).unwrap();
            }
            let threads = BLOCK_SIZES[rng.below(3)];
            let sweep = Sweep { scope, unit, max_bytes: most, seed: rng.next() };
            let args = (&bench.report, &slots, &ack, &dst, &src, ByValue(sweep));
            bench.run("packed_sweep", Launch::new(1, threads), args);
        }
    });
}

#[test]
fn packed_messages_of_every_small_size_by_a_thread() {
    sweep(THREAD, &[1, 2, 3, 4, 8, 16], 150);
}

#[test]
fn packed_messages_of_every_small_size_by_a_warp() {
    sweep(WARP, &[1, 3, 8, 16], 300);
}

#[test]
fn packed_messages_of_every_small_size_by_a_block() {
    sweep(BLOCK, &[1, 2, 4, 8], 300);
}

#[test]
fn a_packets_value_is_never_another_ones() {
    at_counts(&[2, 3], |world, rng| {
        let bench = Bench::new(world, PACKED);
        let (blocks, threads) = if on_gpus() { (4u32, 64u32) } else { (1, 8) };
        let lanes = (blocks * threads) as usize;
        for words in [1usize, 2, 7] {
            let slots = world.alloc_aligned::<u64>(2 * lanes * words, 16).unwrap();
            let acks = world.alloc_aligned::<u64>(2 * lanes, 16).unwrap();
            let beside = world.alloc::<u64>(lanes).unwrap();
            for memory in [&slots, &acks, &beside] {
                memory.fill(0).unwrap();
            }
            let many = rounds(if on_gpus() { 20_000 } else { 300 }) as i32;
            let args = (&bench.report, &slots, &acks, &beside, words, many, rng.next());
            bench.run("packed_litmus", Launch::new(blocks, threads), args);
        }
    });
}
