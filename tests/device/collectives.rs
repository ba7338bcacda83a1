//! Collectives inside kernels against their definition: random calls, sizes, types, scopes and teams, several
//! blocks at once (tests/kernels/collectives.cu).

use rushmem::TeamConfig;

use crate::api_common::at_all_counts;
use crate::*;

const COLLECTIVES: &str = kernels!("collectives.cu");
/// The same, whose blocks make their calls together.
const OF_GRID: &str = concat!("#define COLLECTIVES_OF_GRID\n", kernels!("collectives.cu"));
/// Bytes that a block has for each array, on a team of any size.
const ROOM: usize = 80 << 10;

/// `collectives_args` of collectives.cu.
#[derive(Clone, Copy)]
#[repr(C)]
struct Collectives {
    dst: *mut u64,
    src: *mut u64,
    room: u64,
    seed: u64,
    steps: i32,
    scope: i32,
    first_set: u32,
    parts: i32,
}

/// Each of at most four blocks in a slot set, from the first of `team` on, of the world (0) or of teams of
/// every so many-th PE.
fn run(
    bench: &Bench,
    rng: &mut Rng,
    kernel: &str,
    shape: Launch,
    scope: i32,
    team: (u32, i32),
    (steps, room): (usize, usize),
) {
    let (world, words) = (bench.world, room / 8 * 4);
    let (dst, src) = (world.alloc::<u64>(words).unwrap(), world.alloc::<u64>(words).unwrap());
    let args = Collectives {
        dst: dst.as_ptr(),
        src: src.as_ptr(),
        room: room as u64,
        seed: rng.next(),
        steps: litmus_rounds(steps) as i32,
        scope,
        first_set: team.0,
        parts: team.1,
    };
    bench.run(kernel, shape, (&bench.report, ByValue(args)));
}

fn random(bench: &Bench, rng: &mut Rng, shape: Launch, scope: i32, team: (u32, i32), steps: usize) {
    run(bench, rng, "collectives_random", shape, scope, team, (steps, ROOM));
}

/// The kernels, which take seconds to load where a sanitizer instruments them.
fn loaded(world: &World) -> Bench<'_> {
    Bench::made_quickly(world, COLLECTIVES)
}

/// Threads of a block that makes its calls at that scope. One thread of a GPU takes a microsecond for an
/// element, so there others help those of a thread or a warp to fill arrays and to compare.
fn threads_for(scope: i32, threads: u32) -> u32 {
    if on_gpus() && (scope == THREAD || scope == WARP) {
        256
    } else {
        threads
    }
}

#[test]
fn random_collectives_agree_with_their_definition_at_every_scope() {
    at_all_counts(|world, rng| {
        let bench = loaded(world);
        // One thread for all is slow on a GPU, too, and nobody can help a block of one.
        let of_one = if on_gpus() { 15 } else { 60 };
        for (threads, scope, steps) in [(1, THREAD, 60), (64, WARP, 60), (70, BLOCK, 60), (1, 3, of_one)] {
            let shape = Launch::new(1, threads_for(scope, threads));
            random(&bench, rng, shape, scope, (0, 0), long_rounds(steps));
        }
    });
}

/// Sizes at which a block (and less) goes over from packets to wide ones, and from there to direct access;
/// the first block in a wide slot set, the second in one of few packets, without wide ones.
#[test]
fn large_calls_of_a_block() {
    at_counts(&[2, 3, 5], |world, rng| {
        let bench = loaded(world);
        for (blocks, threads, scope) in [(1, 64, BLOCK), (2, 70, 3), (1, 32, WARP), (1, 1, THREAD)] {
            let (shape, room) = (Launch::new(blocks, threads_for(scope, threads)), 600 << 10);
            run(&bench, rng, "collectives_random", shape, scope, (0, 0), (long_rounds(30), room));
        }
    });
}

#[test]
fn blocks_use_slot_sets_of_their_own_at_once() {
    at_few_counts(|world, rng| random(&loaded(world), rng, Launch::new(4, 33), 3, (0, 0), 24));
}

#[test]
fn teams_that_are_disjoint_run_at_once() {
    at_counts(&[4, 5], |world, rng| {
        let bench = loaded(world);
        random(&bench, rng, Launch::new(2, 64), 3, (0, 2), 40);
        random(&bench, rng, Launch::new(1, 1), 3, (2, 3), 40);
    });
}

#[test]
fn a_root_that_runs_ahead_overwrites_nothing() {
    at_all_counts(|world, rng| {
        let bench = loaded(world);
        for (threads, room) in [(1, 1 << 10), (33, 1 << 10), (33, 260 << 10), (256, 260 << 10)] {
            run(&bench, rng, "collectives_broadcasts", Launch::new(1, threads), BLOCK, (0, 0), (300, room));
        }
    });
}

/// Calls of all blocks together; then other numbers of blocks in the same slot set; after each launch calls
/// of `alone`'s by one block.
fn grids(
    world: &World,
    rng: &mut Rng,
    room: usize,
    launches: &[(u32, u32)],
    steps: usize,
    alone: Option<&Bench>,
) {
    let bench = Bench::made_quickly(world, OF_GRID);
    let (dst, src) = (world.alloc::<u64>(room / 8).unwrap(), world.alloc::<u64>(room / 8).unwrap());
    for &(blocks, threads) in launches {
        let args = Collectives {
            dst: dst.as_ptr(),
            src: src.as_ptr(),
            room: room as u64,
            seed: rng.next(),
            steps: litmus_rounds(steps) as i32,
            scope: 3,
            first_set: (rng.below(4) == 0).into(),
            parts: 0,
        };
        bench.run(
            "collectives_grid",
            Launch::new(blocks, threads),
            (&bench.report, &world.team(), ByValue(args)),
        );
        if let Some(alone) = alone {
            let few = 1 + rng.below(5);
            run(alone, rng, "collectives_random", Launch::new(1, 70), 3, (0, 0), (few, 600 << 10));
        }
    }
}

#[test]
fn all_blocks_of_a_launch_make_one_call() {
    at_all_counts(|world, rng| {
        grids(world, rng, ROOM, &[(3, 33), (1, 64), (5, 1), (3, 70), (2, 128)], 16, None)
    });
}

/// Sizes at which grids go over from packets to wide ones, and from there to direct access; and on five
/// PEs to broadcasts by relays.
#[test]
fn large_calls_of_a_grid() {
    let launches = [(4, 64), (2, 128), (3, 32)];
    at_counts(&[2, 3, 5], |world, rng| {
        grids(world, rng, 3 << 20, &launches, long_rounds(8), Some(&loaded(world)))
    });
}

#[test]
fn blocks_need_not_wait_for_one_another() {
    at_few_counts(|world, rng| {
        let bench = Bench::made_quickly(world, OF_GRID);
        for words in [1, 100, 3000, 9000, 70_000] {
            let (dst, src) = (world.alloc::<u64>(words).unwrap(), world.alloc::<u64>(words).unwrap());
            let args = Collectives {
                dst: dst.as_ptr(),
                src: src.as_ptr(),
                room: words as u64 * 8,
                seed: rng.next(),
                steps: litmus_rounds(20) as i32,
                scope: 3,
                first_set: 0,
                parts: 0,
            };
            let args = (&bench.report, &world.team(), ByValue(args));
            bench.run("collectives_parts", Launch::new(4, 33), args);
        }
    });
}

/// A few of all of these, for a way that a test chooses.
pub(crate) fn some(world: &World, rng: &mut Rng) {
    random(&loaded(world), rng, Launch::new(4, 33), 3, (0, 0), 12);
    grids(world, rng, ROOM, &[(3, 33), (5, 1)], 6, None);
}

/// Random teams of the host that overlap: a PE is in a kernel for each of its teams at once, and starts them
/// in an order of its own.
#[test]
fn teams_that_overlap_run_at_once() {
    // A GPU's hardware queues are few, and a kernel that waits behind another one's wait never starts.
    let teams = if on_gpus() { 3 } else { 10 };
    const BLOCKS: usize = 2;
    at_counts(&[2, 3, 5], |world, rng| {
        let bench = loaded(world);
        let words = teams * BLOCKS * ROOM / 8;
        let (dst, src) = (world.alloc::<u64>(words).unwrap(), world.alloc::<u64>(words).unwrap());
        let config = TeamConfig::default().slot_sets(BLOCKS as u32);
        let mut mine = Vec::new();
        for i in 0..teams {
            let mut left: Vec<u32> = (0..world.n_pes()).collect();
            let count = 1 + rng.below(left.len());
            let list: Vec<u32> = (0..count).map(|_| left.swap_remove(rng.below(left.len()))).collect();
            let seed = rng.next();
            if let Some(team) = world.team().configured(config).listed(&list).unwrap() {
                mine.push((i, seed, team, world.stream().unwrap()));
            }
        }
        bench.report.fill(0).unwrap();
        world.barrier_all().unwrap();
        let first = world.my_pe().number() as usize % mine.len().max(1);
        for k in 0..mine.len() {
            let (i, seed, team, stream) = &mine[(first + k) % mine.len()];
            let at = i * BLOCKS * ROOM / 8;
            let args = Collectives {
                dst: dst.as_ptr().wrapping_add(at),
                src: src.as_ptr().wrapping_add(at),
                room: ROOM as u64,
                seed: *seed,
                steps: litmus_rounds(8) as i32,
                scope: 3,
                first_set: 0,
                parts: 0,
            };
            let shape = Launch::new(BLOCKS as u32, 33);
            let kernel = bench.kernel("collectives_of_team");
            // SAFETY: each block has room of its own in memory that lives until the streams are synchronized.
            unsafe { kernel.launch_on(shape, (&bench.report, team, ByValue(args)), stream) }.unwrap();
        }
        for (_, _, _, stream) in &mine {
            stream.synchronize().unwrap();
        }
        bench.check("collectives of teams that overlap");
        mine.into_iter().for_each(|(_, _, team, _)| team.free().unwrap());
        world.barrier_all().unwrap();
    });
}
