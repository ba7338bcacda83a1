//! Large broadcasts between three PEs and more, which members pass on to each other, against their definition
//! (tests/kernels/relays.cu).

use crate::*;

const RELAYS: &str = kernels!("relays.cu");
const GRID: i32 = 4;
const GRID_PARTS: i32 = 5;

/// `relays_args` of relays.cu.
#[derive(Clone, Copy)]
#[repr(C)]
struct Relays {
    dst: *mut u8,
    src: *mut u8,
    words: *mut u64,
    room: u64,
    seed: u64,
    steps: i32,
    scope: i32,
    set: u32,
    packets: u32,
}

/// Calls of each shape: blocks, threads, scope, slot set, and packets of the set, if not its own number.
/// There are as many as PEs, or twice as many,
/// so that each is the root.
fn calls(room: usize, shapes: &[(u32, u32, i32, u32, u32)]) {
    // All counts take a minute; `make attack` runs them.
    let counts: &[u32] = if longer(1) > 1 { &[3, 4, 5, 8] } else { &[3, 5] };
    at_counts(counts, |world, rng| {
        let bench = Bench::new(world, RELAYS);
        let memory = || world.alloc_aligned::<u8>(room, 128).unwrap();
        let (dst, src, words) = (memory(), memory(), world.alloc::<u64>(1024).unwrap());
        words.fill(0).unwrap();
        let n = world.n_pes() as usize;
        for &(blocks, threads, scope, set, packets) in shapes {
            let args = Relays {
                dst: dst.as_ptr(),
                src: src.as_ptr(),
                words: words.as_ptr(),
                room: room as u64,
                seed: rng.next(),
                steps: litmus_rounds(long_rounds(2 * n).max(n)) as i32,
                scope,
                set,
                packets,
            };
            bench.run("relays", Launch::new(blocks, threads), (&bench.report, &world.team(), ByValue(args)));
        }
    });
}

#[test]
fn large_broadcasts_of_a_grid() {
    calls(
        (8 << 20) + 4096,
        &[
            (1, 33, GRID, 0, 0),
            (3, 64, GRID_PARTS, 0, 0),
            (8, 33, GRID, 1, 0),
            (40, 2, GRID_PARTS, 0, 0),
            // Most blocks have no channel.
            (7, 32, GRID, 2, 2),
        ],
    );
}
