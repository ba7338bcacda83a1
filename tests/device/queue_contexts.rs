//! Several queues of a card to each PE (`RUSHMEM_QUEUE_CONTEXTS`): many blocks post at once, each to its own,
//! and all order holds across them. Over the software card, which lets queues overtake each other, and over
//! the stand-in for a card's libraries.

use crate::api_common::card::{stand_in, stand_in_of_processes};
use crate::api_common::place::{self, on_gpus};
use crate::api_common::seed;
use crate::queue::{can_fail, fails_in, mix, mixture, over_queues, with_network};
use crate::*;
use rushmem::testing::{Job, Pes};
use rushmem::{ErrorCode, Pe};

const CONTEXTS: &str = kernels!("queue_contexts.cu");

fn over_contexts(n: u32, contexts: u32, stand_in: Option<&str>) -> Pes {
    over_queues(n, stand_in).env("RUSHMEM_QUEUE_CONTEXTS", contexts.to_string())
}

/// As threads over the software card; over the stand-in as processes where there is a network, else as
/// threads.
fn everywhere(test: &str, n: u32, contexts: u32, f: impl Fn(&World, &mut Rng) + Sync) {
    if place::too_many(n) {
        return skip(test, "tests in brief have fewer PEs");
    }
    let network = rushmem::doctor::network().unwrap();
    if let (true, Err(why)) = (on_gpus(), &network) {
        return skip(test, why);
    }
    let run = |world: &World| f(world, &mut Rng::new(seed()));
    over_contexts(n, contexts, None).threads(run);
    match stand_in() {
        Ok(card) if network.is_ok() && !on_gpus() => over_contexts(n, contexts, Some(&card)).run(run),
        Ok(card) => over_contexts(n, contexts, Some(&card)).threads(run),
        Err(why) => skip(test, why),
    }
}

#[test]
fn blocks_post_to_queues_of_their_own() {
    let test = "blocks_post_to_queues_of_their_own";
    for contexts in 2..=4 {
        everywhere(test, 2, contexts, |world, rng| {
            let bench = Bench::new(world, CONTEXTS);
            // Numbers in a grid of three dimensions, too.
            for grid in [(8, 1, 1), (2, 3, 2), (1, 1, 5)] {
                let threads = [1, 33, 64][rng.below(3)];
                let words = world.alloc::<u32>((grid.0 * grid.1 * grid.2 * threads) as usize).unwrap();
                let met = world.alloc::<u64>(1).unwrap();
                let launch = Launch::new(grid, threads);
                bench.run("contexts_flood", launch, (&bench.report, &words, &met, rounds(60) as u32));
            }
        });
    }
}

/// A completion says less than a probe: that the peer's card has a WRITE, which the proxy's may overtake.
#[test]
fn a_fence_orders_the_proxys_operations_behind_all_contexts() {
    let test = "a_fence_orders_the_proxys_operations_behind_all_contexts";
    everywhere(test, 3, 2, |world, _| mixture(world));
}

#[test]
fn a_quiet_of_one_block_covers_all_contexts() {
    let test = "a_quiet_of_one_block_covers_all_contexts";
    for contexts in 2..=4 {
        everywhere(test, 2, contexts, |world, _| {
            let bench = Bench::new(world, CONTEXTS);
            for n in [1, 33, 700] {
                let (blocks, n) = (5, n as usize);
                let [words, source, got] = [0; 3].map(|_| world.alloc::<u64>(blocks * n).unwrap());
                // Behind five words of the blocks' own what all of them get.
                let met = world.alloc::<u64>(5 + blocks * n).unwrap();
                let there: Vec<u64> = (0..(blocks * n) as u64).map(|i| mix(7, i)).collect();
                met.write(&[&[0; 5], &there[..]].concat()).unwrap();
                let args = (&bench.report, &words, &source, &got, &met, n as u64, rounds(100).max(30) as u64);
                bench.run("contexts_quiet", Launch::new(blocks as u32, 1), args);
            }
        });
    }
}

/// More than 2^16 requests in each context, in 64 slots.
#[test]
fn slots_and_counters_wrap_in_each_context() {
    let test = "slots_and_counters_wrap_in_each_context";
    if place::too_many(2) || on_gpus() {
        return skip(test, "one queue's wrap there, in queue::slots_and_counters_wrap_under_many_threads");
    }
    over_contexts(2, 2, None).threads(|world| {
        let bench = Bench::new(world, CONTEXTS);
        let (blocks, threads) = (4, 64u32);
        let words = world.alloc::<u32>((blocks * threads) as usize).unwrap();
        let met = world.alloc::<u64>(1).unwrap();
        let rounds = litmus_rounds(70_000 / (blocks / 2 * threads) as usize) as u32;
        bench.run("contexts_flood", Launch::new(blocks, threads), (&bench.report, &words, &met, rounds));
    });
}

/// `contexts_args` of queue_contexts.cu.
#[derive(Clone, Copy)]
#[repr(C)]
struct ContextsArgs {
    data: *mut u64,
    source: *mut u64,
    words: *mut u64,
    n: u64,
    rounds: u64,
    data_kind: i32,
    flag_kind: i32,
}

/// Each kind of data with each kind of flag.
fn litmus(world: &World, rounds: usize, run: impl Fn(ContextsArgs)) {
    for kind in 0..15 {
        let n = [16, 700, 33][kind % 3];
        let (data, source) = (world.alloc::<u64>(n).unwrap(), world.alloc::<u64>(n).unwrap());
        let words = world.alloc::<u64>(6).unwrap();
        run(ContextsArgs {
            data: data.as_ptr(),
            source: source.as_ptr(),
            words: words.as_ptr(),
            n: n as u64,
            rounds: rounds as u64,
            data_kind: (kind % 3) as i32,
            flag_kind: (kind % 5) as i32,
        });
    }
}

#[test]
fn a_fence_of_one_block_orders_puts_of_another_before_signals_of_a_third() {
    let test = "a_fence_of_one_block_orders_puts_of_another_before_signals_of_a_third";
    for (contexts, blocks) in [(2, 4), (3, 4), (4, 6)] {
        everywhere(test, 2, contexts, |world, _| {
            let bench = Bench::new(world, CONTEXTS);
            litmus(world, rounds(100).max(30), |args| {
                bench.run("contexts_relay", Launch::new(blocks, 1), (&bench.report, ByValue(args)));
            });
        });
    }
}

#[test]
fn a_fence_orders_while_all_contexts_are_busy() {
    everywhere("a_fence_orders_while_all_contexts_are_busy", 3, 3, |world, _| {
        let bench = Bench::new(world, CONTEXTS);
        let (blocks, threads) = (6u32, 16u32);
        let noise = world.alloc::<u64>(((blocks - 3) * threads) as usize).unwrap();
        litmus(world, rounds(30).max(20), |args| {
            let launch = Launch::new(blocks, threads);
            bench.run("contexts_noise", launch, (&bench.report, ByValue(args), &noise));
        });
    });
}

#[test]
fn barriers_and_syncs_of_one_block_after_another_hold() {
    let test = "barriers_and_syncs_of_one_block_after_another_hold";
    for (contexts, blocks) in [(2, 3), (3, 5)] {
        everywhere(test, 3, contexts, |world, _| {
            let bench = Bench::new(world, CONTEXTS);
            let words = world.alloc::<u64>(3).unwrap();
            let turn = world.alloc::<u64>(1).unwrap();
            let rounds = rounds(200).max(30) as u64;
            bench.run("contexts_meet", Launch::new(blocks, 1), (&bench.report, &words, &turn, rounds));
        });
    }
}

#[test]
fn syncs_and_broadcasts_by_one_block_after_another_keep_their_order() {
    let test = "syncs_and_broadcasts_by_one_block_after_another_keep_their_order";
    for (n, contexts, blocks) in [(2, 2, 3), (3, 3, 4)] {
        everywhere(test, n, contexts, |world, _| {
            let bench = Bench::new(world, CONTEXTS);
            let words = world.alloc::<u64>(6).unwrap();
            let turn = world.alloc::<u64>(1).unwrap();
            let rounds = rounds(400).max(150) as u64;
            bench.run("contexts_syncs", Launch::new(blocks, 1), (&bench.report, &words, &turn, rounds));
        });
    }
}

/// The host's barrier waits for what blocks have left in all contexts.
#[test]
fn the_hosts_barrier_covers_all_contexts_of_an_ended_kernel() {
    let test = "the_hosts_barrier_covers_all_contexts_of_an_ended_kernel";
    everywhere(test, 2, 4, |world, rng| {
        let bench = Bench::new(world, CONTEXTS);
        let words = world.alloc::<u64>(9 * 8 * 8).unwrap();
        for _ in 0..rounds(60).max(10) {
            let value = rng.next();
            bench.run("contexts_leave", Launch::new(9, 8), (&words, value));
            assert!(words.to_vec().unwrap().iter().all(|word| *word == value));
            world.barrier_all().unwrap();
        }
    });
}

#[test]
fn collectives_hold_over_several_contexts() {
    let test = "collectives_hold_over_several_contexts";
    everywhere(test, 3, 3, crate::collectives::some);
}

#[test]
fn pes_with_other_numbers_of_contexts_do_not_start() {
    let test = "pes_with_other_numbers_of_contexts_do_not_start";
    if !with_network(test) {
        return;
    }
    let refused = |pes: Pes| {
        pes.env_for(Pe::new(1), "RUSHMEM_QUEUE_CONTEXTS", "4").supervise(
            |_| println!("FAILED {}", World::init().err().unwrap()),
            |job: &mut Job| {
                for outcome in job.outcomes() {
                    let (mine, other, theirs) = if outcome.pe.number() == 1 { (4, 0, 2) } else { (2, 1, 4) };
                    let says = [
                        format!("this PE has RUSHMEM_QUEUE_CONTEXTS={mine}, PE {other} "),
                        format!(" has {theirs}: set it alike on all PEs"),
                    ];
                    let said = &outcome.stdout;
                    assert!(says.iter().all(|part| said.contains(part)), "{said}");
                }
            },
        );
    };
    refused(over_contexts(3, 2, None));
    match stand_in() {
        Ok(card) => {
            refused(over_contexts(3, 2, Some(&card)));
            refused(over_contexts(3, 2, Some(&card)).env("RUSHMEM_TRANSPORT", "queue,ucx"));
        }
        Err(why) => skip(test, why),
    }
}

#[test]
fn a_peer_that_dies_ends_blocks_in_all_contexts() {
    let test = "a_peer_that_dies_ends_blocks_in_all_contexts";
    if can_fail(test) {
        let dies = |pes: Pes| {
            let says = ["PE 1", "contexts_go_on"];
            let launch = Launch::new(4, 2);
            fails_in(launch, "50", pes, (CONTEXTS, "contexts_go_on"), true, ErrorCode::PeerDead, &says);
        };
        dies(over_contexts(2, 2, None));
        match stand_in_of_processes() {
            Ok(card) => dies(over_contexts(2, 3, Some(&card))),
            Err(why) => skip(test, why),
        }
    }
}

/// One of a PE's links is lost, and the others are not.
#[test]
fn a_lost_link_of_one_context_ends_the_job() {
    if can_fail("a_lost_link_of_one_context_ends_the_job") {
        let pes = over_contexts(2, 3, None).env("RUSHMEM_QUEUE_LOSE", "30");
        let says = ["PE 1", "does not answer (syndrome 0x15)", "contexts_go_on"];
        let launch = Launch::new(3, 1);
        fails_in(launch, "50", pes, (CONTEXTS, "contexts_go_on"), false, ErrorCode::PeerDead, &says);
    }
}
