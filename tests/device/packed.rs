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

/// Rows go round the world, and round a team whose members are numbered the other way, of the PEs with even
/// numbers; each has them where all of its members are mapped.
#[test]
fn a_packed_row_is_whole_and_its_numbers() {
    at_counts(&[1, 2, 3], |world, rng| {
        let even: Vec<u32> = (0..world.n_pes()).rev().filter(|pe| pe % 2 == 0).collect();
        let team = world.team().split_list(&even).unwrap();
        let all: Vec<u32> = (0..world.n_pes()).collect();
        rows_go_round(world, Some(&world.team()), &all, rng);
        rows_go_round(world, team.as_ref(), &even, rng);
        if let Some(team) = team {
            team.free().unwrap();
        }
    });
}

/// A PE that is no member takes part in what is the world's: memory, and launches.
fn rows_go_round(world: &World, team: Option<&Team<'_>>, members: &[u32], rng: &mut Rng) {
    const NAME: &str = "a_packed_row_is_whole_and_its_numbers";
    let has_rows = members.iter().all(|a| members.iter().all(|b| way_to(*a, *b) == "direct"));
    let (bench, whole) = (Bench::new(world, PACKED), world.team());
    let (blocks, threads) = if on_gpus() { (8u32, 256u32) } else { (2, 64) };
    let warps = (blocks * threads / 32) as usize;
    for n in [1u64, 2, 5] {
        // A row has 512 bytes.
        let slots = world.alloc_aligned::<u64>(64 * warps * n as usize, 128).unwrap();
        let acks = world.alloc_aligned::<u64>(2 * warps, 16).unwrap();
        let asked = world.alloc::<u64>(1).unwrap();
        for memory in [&slots, &acks, &asked] {
            memory.fill(0).unwrap();
        }
        let many = rounds(if on_gpus() { 20_000 } else { 200 }) as i32;
        let (team, many) = (team.unwrap_or(&whole), if team.is_some() { many } else { 0 });
        let args = (team, &bench.report, &slots, &acks, &asked, n, many, rng.next());
        bench.run("packed_rows", Launch::new(blocks, threads), args);
        let may = asked.to_vec().unwrap()[0] == 1;
        if has_rows && !may && on_gpus() {
            return skip(NAME, "these GPUs have no packed rows");
        }
        assert!(many == 0 || may == has_rows, "PEs {members:?} have packed rows: {may}");
    }
}
