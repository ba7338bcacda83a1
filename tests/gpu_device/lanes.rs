//! Litmus tests of a million rounds at each scope, between two GPUs where there are two, else between two PEs
//! of one (or, in small, of the CPU device): message passing by every way to announce data, and store
//! buffering.

use crate::*;

const LITMUS: &str = kernels!("litmus_lanes.cu");
/// `MP_*` and `SB_*` of litmus_lanes.cu, the last of each being too weak on purpose.
const MESSAGES: [&str; 11] = [
    "put, fence, signal_op",
    "put_nbi, fence, p",
    "put_signal set",
    "put_signal add",
    "put_signal_nbi",
    "put_nbi, quiet, atomic_add",
    "p, fence, atomic_set",
    "atomics, fence, p",
    "iput, fence, atomic_swap",
    "stores, fence, signal_op; get",
    "p, p (weak)",
];
const BUFFERS: [&str; 5] = ["put_nbi, g", "p, get", "atomics", "signals", "p, g without quiet (weak)"];

/// `lanes_args` of litmus_lanes.cu.
#[derive(Clone, Copy)]
#[repr(C)]
struct Lanes {
    scope: i32,
    form: i32,
    rounds: i32,
    stride: usize,
    words: usize,
    seed: u64,
}

/// Words of each lane's data: not a multiple of a line.
const STRIDE: usize = 72;

/// Blocks of how many threads, and how many rounds in all: an odd number of lanes' worth of them is no
/// matter.
fn shape() -> (Launch, u32, usize) {
    match on_gpus() {
        true => (Launch::new(32, 128), 32, rounds(1_000_000)),
        false => (Launch::new(1, 64), 1, rounds(400)),
    }
}

struct Memory<'w> {
    stats: SymSlice<'w, u64>,
    data: SymSlice<'w, u64>,
    src: SymSlice<'w, u64>,
    flags: SymSlice<'w, u64>,
}

impl<'w> Memory<'w> {
    fn new(world: &'w World, lanes: usize) -> Self {
        let words = |n| world.alloc_aligned::<u64>(n, 128).unwrap();
        Memory {
            stats: words(4),
            data: words(lanes * STRIDE),
            src: words(lanes * STRIDE),
            flags: words(lanes * 32),
        }
    }
}

/// All forms of one test at all scopes, the rounds shared out among `sizes`.
fn run(kernel: &str, forms: &[&str], sizes: &[usize], world: &World, rng: &mut Rng) {
    let (launch, blocks, total) = shape();
    let warps = launch.block.0[0] / 32;
    let bench = Bench::new(world, LITMUS);
    let memory = Memory::new(world, (blocks * warps) as usize);
    for (scope, scope_name) in SCOPES.into_iter().zip(["thread", "warp", "block"]) {
        let lanes = if scope == BLOCK { blocks } else { blocks * warps } as usize;
        let each = total.div_ceil(lanes * sizes.len());
        for (form, what) in forms.iter().enumerate() {
            memory.stats.fill(0).unwrap();
            for &words in sizes {
                for zeroed in [&memory.data, &memory.flags] {
                    zeroed.fill(0).unwrap();
                }
                let (report, stats) = (&bench.report, &memory.stats);
                let (data, src, flags) = (&memory.data, &memory.src, &memory.flags);
                let (form, rounds, seed) = (form as i32, each as i32, rng.next());
                let lanes = Lanes { scope, form, rounds, stride: STRIDE, words, seed };
                bench.run(kernel, launch, (report, stats, data, src, flags, ByValue(lanes)));
            }
            let seen = memory.stats.to_vec().unwrap();
            assert!(seen[2] as usize >= total, "{seen:?}: fewer than {total} rounds");
            if world.my_pe() == Pe::new(0) {
                println!(
                    "LITMUS {kernel} {scope_name} [{what}] on {}: {} rounds, {} raced, weak failures {}",
                    world.device_name(),
                    seen[2],
                    seen[0],
                    seen[1]
                );
            }
        }
    }
}

#[test]
fn a_million_messages_are_never_seen_before_their_data() {
    both(2, |world, rng| run("litmus_lanes_mp", &MESSAGES, &[1, 5, 40], world, rng));
}

#[test]
fn a_million_times_two_pes_cannot_both_miss_a_completed_put() {
    both(2, |world, rng| run("litmus_lanes_sb", &BUFFERS, &[1, 33], world, rng));
}
