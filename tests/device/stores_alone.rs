//! Large reductions of two PEs, which go by stores alone, against their definition
//! (tests/kernels/stores_alone.cu).

use crate::*;

const STORES_ALONE: &str = kernels!("stores_alone.cu");
const GRID: i32 = 4;
const GRID_PARTS: i32 = 5;

/// `stores_alone_args` of stores_alone.cu.
#[derive(Clone, Copy)]
#[repr(C)]
struct StoresAlone {
    dst: *mut u8,
    src: *mut u8,
    words: *mut u64,
    room: u64,
    seed: u64,
    steps: i32,
    scope: i32,
    set: u32,
}

#[test]
fn large_reductions_of_two() {
    at_counts(&[2], |world, rng| {
        let bench = Bench::made_quickly(world, STORES_ALONE);
        let room = 8 << 20;
        let memory = || world.alloc_aligned::<u8>(room, 128).unwrap();
        let (dst, src, words) = (memory(), memory(), world.alloc::<u64>(16).unwrap());
        words.fill(0).unwrap();
        for (blocks, threads, scope, set) in
            [(1, 33, GRID, 0), (3, 64, GRID_PARTS, 0), (8, 32, GRID_PARTS, 1)]
        {
            let args = StoresAlone {
                dst: dst.as_ptr(),
                src: src.as_ptr(),
                words: words.as_ptr(),
                room: room as u64,
                seed: rng.next(),
                steps: litmus_rounds(long_rounds(6)) as i32,
                scope,
                set,
            };
            let args = (&bench.report, &world.team(), ByValue(args));
            bench.run("stores_alone", Launch::new(blocks, threads), args);
        }
    });
}
