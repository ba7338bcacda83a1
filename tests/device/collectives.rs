//! Collectives inside kernels against their definition: random calls, sizes, types, scopes and teams, several
//! blocks at once (tests/kernels/collectives.cu).

use crate::api_common::at_all_counts;
use crate::*;

const COLLECTIVES: &str = kernels!("collectives.cu");
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
    world: &World,
    rng: &mut Rng,
    kernel: &str,
    shape: Launch,
    scope: i32,
    team: (u32, i32),
    steps: usize,
) {
    let bench = Bench::new(world, COLLECTIVES);
    let words = ROOM / 8 * 4;
    let (dst, src) = (world.alloc::<u64>(words).unwrap(), world.alloc::<u64>(words).unwrap());
    let args = Collectives {
        dst: dst.as_ptr(),
        src: src.as_ptr(),
        room: ROOM as u64,
        seed: rng.next(),
        steps: rounds(steps) as i32,
        scope,
        first_set: team.0,
        parts: team.1,
    };
    bench.run(kernel, shape, (&bench.report, ByValue(args)));
}

fn random(world: &World, rng: &mut Rng, shape: Launch, scope: i32, team: (u32, i32), steps: usize) {
    run(world, rng, "collectives_random", shape, scope, team, steps);
}

#[test]
fn random_collectives_agree_with_their_definition_at_every_scope() {
    at_all_counts(|world, rng| {
        for (i, scope) in [THREAD, WARP, BLOCK, 3].into_iter().enumerate() {
            random(world, rng, Launch::new(1, BLOCK_SIZES[i % 3]), scope, (0, 0), 60);
        }
    });
}

#[test]
fn blocks_use_slot_sets_of_their_own_at_once() {
    at_few_counts(|world, rng| random(world, rng, Launch::new(4, 33), 3, (0, 0), 24));
}

#[test]
fn teams_that_are_disjoint_run_at_once() {
    at_counts(&[4, 5], |world, rng| {
        random(world, rng, Launch::new(2, 64), 3, (0, 2), 40);
        random(world, rng, Launch::new(1, 1), 3, (2, 3), 40);
    });
}

#[test]
fn a_root_that_runs_ahead_overwrites_nothing() {
    at_all_counts(|world, rng| {
        for threads in [1, 33] {
            run(world, rng, "collectives_broadcasts", Launch::new(1, threads), BLOCK, (0, 0), 300);
        }
    });
}
