//! Which PEs kernels reach by a card's queues where only some have a card (`RUSHMEM_TRANSPORT=queue,ucx`),
//! and what is said of the others: over the stand-in for the card's libraries.

use std::time::Duration;

use crate::api_common::card::stand_in;
use crate::api_common::place;
use crate::queue::{over_queues, QUEUE};
use crate::*;
use rushmem::testing::{Exit, Job, Pes};
use rushmem::Pe;

/// PEs that have a card where the machine has one, each a host by itself; `None`, aloud, where there is no
/// stand-in or no network.
fn with_cards(test: &str, n: u32) -> Option<Pes> {
    if place::too_many(n) {
        skip(test, "tests in brief have fewer PEs");
        return None;
    }
    if let Err(why) = rushmem::doctor::network().unwrap() {
        skip(test, why);
        return None;
    }
    if place::on_gpus() {
        skip(test, "its PEs are processes, and the stand-in reaches a GPU's memory within one");
        return None;
    }
    match stand_in() {
        Ok(folder) => Some(over_queues(n, Some(&folder)).env("RUSHMEM_TRANSPORT", "queue,ucx")),
        Err(why) => {
            skip(test, why);
            None
        }
    }
}

/// Every PE reaches these by a queue, says so, and its kernels do so; `why` is said of the rest.
fn goes(world: &World, queues: &[u32], why: impl Fn(u32) -> &'static str) {
    let mut expected = 0u64;
    for pe in world.pes().filter(|pe| *pe != world.my_pe()) {
        let peer = world.peer(pe).unwrap();
        if queues.contains(&pe.number()) {
            expected |= 1 << pe.number();
            assert_eq!(peer.transport, "queue", "{peer:?}");
        } else {
            assert_eq!(peer.transport, "ucx", "{peer:?}");
            let why = why(pe.number());
            assert!(peer.reason.contains(why), "{why:?} is not in {peer:?}");
        }
    }
    let bench = Bench::new(world, QUEUE);
    let words = world.alloc::<u64>(world.n_pes() as usize).unwrap();
    bench.run("queue_ways", Launch::new(1, 1), (&bench.report, &words, expected));
    let wanted: Vec<u64> = (0..u64::from(world.n_pes())).map(|pe| 1001 + pe).collect();
    assert_eq!(words.to_vec().unwrap(), wanted);
    // Order holds across both ways.
    let (n, rounds) = (40u64, rounds(20) as u64);
    for way in 0..5 {
        let words = world.alloc::<u64>(8).unwrap();
        let large = world.alloc::<u64>(2 * n as usize).unwrap();
        bench.run("queue_mixture", Launch::new(1, 2), (&bench.report, &words, &large, n, way, rounds));
    }
}

#[test]
fn pes_without_a_card_are_reached_by_the_network() {
    let test = "pes_without_a_card_are_reached_by_the_network";
    let Some(pes) = with_cards(test, 4) else { return };
    let pes = pes.env_for(Pe::new(1), "STAND_IN_CARDS", ",mlx5_0,mlx5_4,");
    pes.env_for(Pe::new(3), "RUSHMEM_VERBS", "/nonexistent").run(|world| {
        let no_card = "mlx5_0: port 1 is not active";
        let why = |pe: u32| if pe == 1 { no_card } else { "no libibverbs.so.1" };
        match world.my_pe().number() {
            0 => goes(world, &[2], why),
            1 => goes(world, &[], |_| no_card),
            2 => goes(world, &[0], why),
            _ => goes(world, &[], |_| "no libibverbs.so.1"),
        }
    });
}

#[test]
fn cards_that_cannot_reach_each_other_are_left_out() {
    let Some(pes) = with_cards("cards_that_cannot_reach_each_other_are_left_out", 3) else { return };
    // RoCE v2 here, InfiniBand there.
    pes.env_for(Pe::new(2), "RUSHMEM_CARD", "mlx5_2").run(|world| match world.my_pe().number() {
        0 => goes(world, &[1], |_| "it is Ethernet, and the peer's card is InfiniBand"),
        1 => goes(world, &[0], |_| "it is Ethernet, and the peer's card is InfiniBand"),
        _ => goes(world, &[], |_| "it is InfiniBand, and the peer's card is Ethernet"),
    });
}

#[test]
fn near_pes_are_mapped_and_far_ones_have_queues() {
    let Some(pes) = with_cards("near_pes_are_mapped_and_far_ones_have_queues", 3) else { return };
    let pes = pes.env("RUSHMEM_TRANSPORT", "direct,queue,ucx").env("RUSHMEM_PES_PER_NODE", "2");
    pes.run(|world| {
        let ways: Vec<_> = world.pes().map(|pe| world.peer(pe).unwrap().transport.to_owned()).collect();
        let mine = if world.my_pe().number() < 2 {
            ["direct", "direct", "queue"]
        } else {
            ["queue", "queue", "direct"]
        };
        assert_eq!(ways, mine);
        let bench = Bench::new(world, QUEUE);
        let words = world.alloc::<u64>(8).unwrap();
        let large = world.alloc::<u64>(80).unwrap();
        let rounds = rounds(20) as u64;
        bench.run("queue_mixture", Launch::new(1, 2), (&bench.report, &words, &large, 40u64, 0, rounds));
    });
}

#[test]
fn memory_that_a_card_does_not_take_goes_by_the_network() {
    let test = "memory_that_a_card_does_not_take_goes_by_the_network";
    // Nothing but the places for answers; then the heap's front, and not what grows behind it.
    for (locked, queues) in [("65536", false), ("20000000", true)] {
        let Some(pes) = with_cards(test, 3) else { return };
        let pes = pes.env("RUSHMEM_HEAP_MIN", "").env_for(Pe::new(1), "STAND_IN_LOCKED", locked);
        pes.run(|world| {
            let reached: Vec<u32> =
                if queues { (0..3).filter(|pe| *pe != world.my_pe().number()).collect() } else { Vec::new() };
            goes(world, &reached, |_| "symmetric memory is not known to the cards");
            // Past what may be pinned.
            let large = world.alloc::<u64>(8 << 20).unwrap();
            let ends = large.slice(large.len() - 8..).unwrap();
            let bench = Bench::new(world, QUEUE);
            let bulk = world.alloc::<u64>(80).unwrap();
            let rounds = rounds(20) as u64;
            bench.run("queue_mixture", Launch::new(1, 2), (&bench.report, &ends, &bulk, 40u64, 0, rounds));
        });
    }
}

/// Why each device was refused stands in one line of the log; where queues are demanded, in the error.
#[test]
fn a_log_line_says_why_each_card_was_refused() {
    let test = "a_log_line_says_why_each_card_was_refused";
    let refused = [
        "qedr0 is no mlx5 card",
        "mlx5_0: port 1 is not active (state 1: down",
        "mlx5_4: opening it with DEVX failed",
        "mlx5_6: port 1 has no GID that is set",
        "rushmem-info lists the cards",
    ];
    for way in ["queue,ucx", "queue"] {
        let Some(pes) = with_cards(test, 2) else { return };
        let pes = pes.env("RUSHMEM_TRANSPORT", way).env("RUSHMEM_LOG", "info");
        let pes = pes.env_for(Pe::new(1), "STAND_IN_CARDS", ",qedr0,mlx5_0,mlx5_4,mlx5_6,");
        pes.supervise(
            |_| match World::init() {
                Ok(world) => println!("STARTED {}", world.peer(world.right()).unwrap().transport),
                Err(e) => println!("FAILED {e}"),
            },
            |job: &mut Job| {
                for pe in 0..2 {
                    job.wait_for_line(
                        Pe::new(pe),
                        if way == "queue" { "FAILED" } else { "STARTED ucx" },
                        LIMIT,
                    );
                }
                for outcome in job.outcomes() {
                    let said = format!("{}{}", outcome.stdout, outcome.stderr);
                    assert_eq!(outcome.exit, Exit::Done, "{said}");
                    let pe = outcome.pe.number();
                    // Who has a card learns of who has none.
                    let named = if pe == 0 && way == "queue" { "PE 1 failed" } else { refused[0] };
                    let line = said.lines().find(|line| line.contains(named)).expect(&said);
                    assert_eq!(refused.iter().all(|part| line.contains(part)), named == refused[0], "{line}");
                    assert!(pe == 1 || line.contains("PE 1"), "{line}");
                }
            },
        );
    }
}

const LIMIT: Duration = Duration::from_secs(30);
