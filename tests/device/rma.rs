//! put, get, their nbi and strided forms, p, g and ptr inside kernels.

use crate::api_common::at_all_counts;
use crate::*;
use rushmem_test_support::arguments::Large;

const RMA: &str = kernels!("rma.cu");
const ELEMENTS: &str = kernels!("elements.cu");
/// `OP_*` of rma.cu: put, put_nbi, get, get_nbi.
const OPS: [i32; 4] = [0, 1, 2, 3];

/// `sweep_args` of rma.cu.
#[derive(Clone, Copy)]
#[repr(C)]
struct Sweep {
    op: i32,
    scope: i32,
    unit: i32,
    max_bytes: usize,
    seed: u64,
}

/// Every size up to `most` bytes, every alignment of either side, by `block` threads: those of a GPU are
/// slower each.
fn sweep(scope: i32, units: &'static [i32], block: u32, most: usize) {
    let block = if on_gpus() { block + 224 } else { block };
    let most = if is_brief() { 40 } else { most };
    at_few_counts(|world, rng| {
        let bench = Bench::new(world, RMA);
        let dst = world.alloc_aligned::<u8>(256 * (most + 64), 16).unwrap();
        let src = world.alloc_aligned::<u8>(most + 512 + 16, 16).unwrap();
        for &unit in units {
            for op in OPS {
                let sweep = Sweep { op, scope, unit, max_bytes: most, seed: rng.next() };
                bench.run("rma_sweep", Launch::new(1, block), (&bench.report, &dst, &src, ByValue(sweep)));
            }
        }
    });
}

#[test]
fn every_small_size_and_alignment_by_a_thread() {
    sweep(THREAD, &[1, 2, 4, 8, 16], 4, 300);
}

#[test]
fn every_small_size_and_alignment_by_a_warp() {
    sweep(WARP, &[1, 8], 37, 150);
    sweep(WARP, &[2, 4, 16], 32, 150);
}

#[test]
fn every_small_size_and_alignment_by_a_block() {
    sweep(BLOCK, &[1], 20, 150);
    sweep(BLOCK, &[2, 4, 8, 16], 45, 150);
}

/// The host's barrier completes the operations of a kernel that has ended, on near and far PEs.
#[test]
fn what_a_kernel_left_the_hosts_barrier_completes() {
    const THREADS: usize = 64;
    const BULK: usize = 700;
    let mix = |x: u64| Rng::new(x).next(); // as in check.h
    at_few_counts(move |world, rng| {
        let bench = Bench::new(world, RMA);
        let words = world.alloc::<u64>(THREADS + BULK).unwrap();
        let src = world.alloc::<u64>(BULK).unwrap();
        let (me, n) = (world.my_pe().number() as u64, u64::from(world.n_pes()));
        let left = (me + n - 1) % n;
        let bulk = |pe: u64, seed: u64| (0..BULK as u64).map(move |i| mix(seed ^ pe << 32 ^ i));
        for round in 0..rounds(200) {
            let seed = rng.next();
            src.write(&bulk(me, seed).collect::<Vec<_>>()).unwrap();
            world.barrier_all().unwrap();
            // SAFETY: the kernel reads its source, and writes words that nobody reads before the barrier.
            unsafe {
                bench
                    .kernel("rma_leave")
                    .launch(Launch::new(1, THREADS as u32), (&words, &src, BULK, seed))
                    .unwrap();
            }
            world.synchronize().unwrap();
            world.barrier_all().unwrap();
            let one_each = (0..THREADS as u64).map(|i| mix(mix(seed.wrapping_add(left)) ^ i));
            let expected: Vec<u64> = one_each.chain(bulk(left, seed)).collect();
            assert!(words.to_vec().unwrap() == expected, "round {round}");
        }
    });
}

#[test]
fn large_transfers_to_the_byte() {
    at_few_counts(|world, rng| {
        let bench = Bench::new(world, RMA);
        let room = (1 << 20) + 100;
        let dst = world.alloc_aligned::<u8>(room, 16).unwrap();
        let src = world.alloc_aligned::<u8>(room, 16).unwrap();
        for (i, bytes) in
            [4095usize, 4096, 4097, 65535, (1 << 20) - 1, 1 << 20, (1 << 20) + 1].into_iter().enumerate()
        {
            for scope in SCOPES {
                let (op, threads) = (OPS[(i + rng.below(4)) % 4], BLOCK_SIZES[rng.below(3)]);
                // The test's own pattern is what takes time on a GPU.
                let threads = if on_gpus() && bytes > 5000 { threads + 256 } else { threads };
                if is_brief() && bytes > 5000 {
                    continue;
                }
                let (from_align, to_align, seed) = (rng.below(16), rng.below(16), rng.next());
                let large = Large { op, scope, bytes, from_align, to_align, seed };
                bench.run("rma_large", Launch::new(1, threads), (&bench.report, &dst, &src, ByValue(large)));
            }
        }
    });
}

#[test]
fn single_values_of_every_type() {
    at_all_counts(|world, rng| {
        let bench = Bench::new(world, ELEMENTS);
        for threads in BLOCK_SIZES {
            let dst = world.alloc_aligned::<u8>(48 * threads as usize, 16).unwrap();
            let src = world.alloc_aligned::<u8>(48 * threads as usize, 16).unwrap();
            bench.run("elements_values", Launch::new(1, threads), (&bench.report, &dst, &src, rng.next()));
        }
    });
}

#[test]
fn strides_touch_their_elements_and_no_others() {
    at_few_counts(|world, rng| {
        let bench = Bench::new(world, ELEMENTS);
        let dst = world.alloc_aligned::<u8>(4096, 16).unwrap();
        let src = world.alloc_aligned::<u8>(4096, 16).unwrap();
        for scope in SCOPES {
            for threads in BLOCK_SIZES {
                let args = (&bench.report, &dst, &src, scope, 4, rng.next());
                bench.run("elements_strided", Launch::new(1, threads), args);
            }
        }
    });
}

#[test]
fn pointers_reach_every_mapped_pe() {
    if !all_mapped(8) {
        return skip("pointers_reach_every_mapped_pe", "memory of these PEs is not mapped");
    }
    at_all_counts(|world, rng| {
        let bench = Bench::new(world, ELEMENTS);
        let words = world.alloc::<u64>(world.n_pes() as usize).unwrap();
        bench.run("elements_ptr", Launch::new(1, 1), (&bench.report, &words, rng.next()));
    });
}
