//! put, get and put_signal through the caller's shared memory.

use crate::*;

const STAGED: &str = kernels!("staged.cu");
/// `STAGED_*` of staged.cu: put, get, put_signal.
const OPS: [i32; 3] = [0, 1, 2];

/// `transfer_args` of staged.cu.
#[derive(Clone, Copy)]
#[repr(C)]
struct Transfer {
    op: i32,
    scope: i32,
    wide: i32,
    callers: u32,
    bytes: usize,
    slot: usize,
    from_align: usize,
    to_align: usize,
    stage_bytes: usize,
    stage_align: usize,
    seed: u64,
}

/// `messages_args` there.
#[derive(Clone, Copy)]
#[repr(C)]
struct Messages {
    scope: i32,
    rounds: i32,
    words: usize,
    stage_bytes: usize,
    seed: u64,
}

/// Around a unit, a vector, where each scope begins to use its stage, and where its pieces end.
const SIZES: [usize; 26] = [
    0, 1, 15, 16, 17, 1023, 1024, 1025, 1039, 2047, 2049, 4095, 4096, 4097, 4112, 8191, 16383, 16384, 16385,
    16400, 16415, 32768, 65535, 65536, 65552, 200_001,
];

/// None, too small, the smallest, an odd one, where there are more buffers and larger ones, and as many as a
/// launch may ask for without knowing how many there are.
fn stages() -> Vec<usize> {
    let mut stages = vec![0, 1008, 1024, 1040, 3001, 16383, 16448, 16464, 48 << 10];
    if on_gpus() {
        stages.extend([(64 << 10) + 64, 128 << 10]);
    }
    stages
}

fn sweep(scope: i32) {
    at_few_counts(|world, rng| {
        let bench = Bench::new(world, STAGED);
        let stages = stages();
        let room = SIZES[SIZES.len() - 1] + 128;
        let (dst, src) =
            (world.alloc_aligned::<u8>(room, 128).unwrap(), world.alloc_aligned::<u8>(room, 128).unwrap());
        let signal = world.signal().unwrap();
        for (i, bytes) in SIZES.into_iter().enumerate() {
            if is_brief() && bytes > 5000 {
                continue;
            }
            // Both sides aligned alike, for that is when the stage is used, at each alignment in turn; then
            // at random.
            for (turn, alike) in [true, true, true, false].into_iter().enumerate() {
                let wide = bytes % 8 == 0 && turn == 1;
                let unit = if wide { 8 } else { 1 };
                let from = if turn == 0 { 0 } else { rng.below(16) / unit * unit };
                let to = if alike { from } else { rng.below(16) / unit * unit };
                let stage = stages[rng.below(stages.len())];
                let threads = if on_gpus() { 256 } else { 64 };
                let stage_align = if turn == 2 { 16 * rng.below(4) } else { 0 };
                signal.set(0, world.my_pe()).unwrap();
                let transfer = Transfer {
                    op: OPS[(i + turn) % 3],
                    scope,
                    wide: i32::from(wide),
                    callers: 1,
                    bytes,
                    slot: room - 32,
                    from_align: from,
                    to_align: to,
                    stage_bytes: stage,
                    stage_align,
                    seed: rng.next(),
                };
                let args = (&bench.report, &dst, &src, &signal, ByValue(transfer));
                bench.run("staged_transfer", Launch::new(1, threads).shared_bytes(stage), args);
            }
        }
    });
}

#[test]
fn sizes_and_stages_of_a_thread() {
    sweep(THREAD);
}

#[test]
fn sizes_and_stages_of_a_warp() {
    sweep(WARP);
}

#[test]
fn sizes_and_stages_of_a_block() {
    sweep(BLOCK);
}

#[test]
fn several_threads_of_a_warp_with_a_stage_each() {
    several_callers(THREAD);
}

#[test]
fn several_warps_of_a_block_with_a_stage_each() {
    several_callers(WARP);
}

/// Several threads, or several warps, of a block at once.
fn several_callers(scope: i32) {
    at_few_counts(move |world, rng| {
        let bench = Bench::new(world, STAGED);
        let (callers, slot) = (4usize, 24_000);
        let room = callers * slot;
        let (dst, src) =
            (world.alloc_aligned::<u8>(room, 128).unwrap(), world.alloc_aligned::<u8>(room, 128).unwrap());
        let signal = world.signal().unwrap();
        for op in OPS {
            let bytes = if is_brief() { 4500 } else { 20_000 } + rng.below(3000);
            let align = rng.below(16);
            signal.set(0, world.my_pe()).unwrap();
            let stage = (callers * 8) << 10;
            let transfer = Transfer {
                op,
                scope,
                wide: 0,
                callers: callers as u32,
                bytes,
                slot,
                from_align: align,
                to_align: align,
                stage_bytes: stage,
                stage_align: 0,
                seed: rng.next(),
            };
            let args = (&bench.report, &dst, &src, &signal, ByValue(transfer));
            bench.run("staged_transfer", Launch::new(1, 128).shared_bytes(stage), args);
        }
    });
}

#[test]
fn a_signal_is_never_seen_before_what_the_copy_engine_wrote() {
    at_counts(&[2, 3], |world, rng| {
        let bench = Bench::new(world, STAGED);
        let blocks = if on_gpus() { 4u32 } else { 1 };
        for scope in SCOPES {
            // Past where each scope begins to use its stage: one piece, and many.
            let sizes = [[130usize, 2000], [520, 4000], [2100, 9000]][scope as usize];
            for words in sizes {
                let threads = 128u32;
                let lanes = if scope == BLOCK { blocks } else { blocks * threads / 32 } as usize;
                let memory = |words| {
                    let memory = world.alloc_aligned::<u64>(words, 128).unwrap();
                    memory.fill(0).unwrap();
                    memory
                };
                let (data, src, flags) = (memory(lanes * words), memory(lanes * words), memory(lanes * 32));
                let stage = 32usize << 10;
                let many = rounds(if on_gpus() { (2_000_000 / words).min(3000) } else { 12 }) as i32;
                let messages = Messages { scope, rounds: many, words, stage_bytes: stage, seed: rng.next() };
                let args = (&bench.report, &data, &src, &flags, ByValue(messages));
                bench.run("staged_litmus", Launch::new(blocks, threads).shared_bytes(stage), args);
            }
        }
    });
}
