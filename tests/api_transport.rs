//! Ways to other PEs: who is reached how, and what is said where a way is missing or PEs do not agree. (What
//! is done over them: api_far.rs, and every other test of the API, over each in its turn: `scripts/test`.)

use std::time::Duration;

use rushmem::testing::{self, Exit, Pes};
use rushmem::{Pe, World};
use rushmem_test_support::api_common::place::{hosts, on_gpus, pes};

const LIMIT: Duration = Duration::from_secs(60);

#[test]
fn every_peer_is_reported_with_its_way_and_the_reason() {
    let Some(hosts) = hosts("every_peer_is_reported_with_its_way_and_the_reason", 4, 2) else { return };
    hosts.run(|world| {
        let me = world.my_pe();
        let slice = world.alloc::<u64>(1).unwrap();
        for pe in world.pes() {
            let peer = world.peer(pe).unwrap();
            let mate = pe.number() / 2 == me.number() / 2;
            assert_eq!(peer.transport, if mate { "direct" } else { "ucx" }, "{peer:?}");
            assert_eq!(slice.ptr_at(pe).is_some(), mate);
            if !mate {
                assert!(
                    peer.reason.contains("RUSHMEM_PES_PER_NODE") && peer.reason.contains("UCX 1."),
                    "{peer:?}"
                );
            }
        }
        world.barrier_all().unwrap();
    });
    // PEs of one host, whose memory could be mapped.
    pes(2).env("RUSHMEM_TRANSPORT", "ucx").env("RUSHMEM_PES_PER_NODE", "").run(|world| {
        let peer = world.peer(world.right()).unwrap();
        assert_eq!(peer.transport, "ucx");
        assert!(peer.reason.contains("RUSHMEM_TRANSPORT=ucx"), "{peer:?}");
        assert_eq!(world.peer(world.my_pe()).unwrap().transport, "direct");
    });
}

#[test]
fn the_fake_network_is_one_of_threads() {
    let fake = || pes(3).env("RUSHMEM_TRANSPORT", "fake");
    if !on_gpus() {
        fake().threads(|world| {
            let peer = world.peer(world.right()).unwrap();
            assert_eq!(peer.transport, "fake");
            assert!(peer.reason.contains("delays"), "{peer:?}");
        });
        // It leads to other hosts where there are some.
        fake().env("RUSHMEM_PES_PER_NODE", "2").threads(|world| {
            let ways: Vec<_> = world.pes().map(|pe| world.peer(pe).unwrap().transport.to_owned()).collect();
            let mine = if world.my_pe().number() < 2 {
                ["direct", "direct", "fake"]
            } else {
                ["fake", "fake", "direct"]
            };
            assert_eq!(ways, mine);
        });
    }
    // Processes get an error that says so.
    for error in start(fake().env("RUSHMEM_INIT_TIMEOUT", "50"), 3) {
        assert!(error.contains("RUSHMEM_TRANSPORT=fake") && error.contains("one process"), "{error}");
    }
}

/// Starts a job whose PEs only start; returns the output of each.
fn start(pes: Pes, n: u32) -> Vec<String> {
    let mut said = Vec::new();
    pes.supervise(
        |_| {
            let started = World::init();
            println!(
                "ENDED {}",
                started
                    .and_then(|world| {
                        let said = format!("as {world:?}");
                        world.finalize().map(|()| said)
                    })
                    .unwrap_or_else(|error| error.to_string())
                    .replace('\n', " ")
            );
        },
        |job| {
            for pe in 0..n {
                said.push(job.wait_for_line(Pe::new(pe), "ENDED", LIMIT));
            }
            for outcome in job.outcomes() {
                assert_eq!(outcome.exit, Exit::Done, "{}:\n{}", outcome.pe, outcome.stderr);
            }
        },
    );
    said
}

#[test]
fn a_direct_way_to_another_host_is_an_error_at_the_start() {
    let pes = testing::pes(3).env("RUSHMEM_TRANSPORT", "direct").env("RUSHMEM_PES_PER_NODE", "2");
    for (pe, error) in start(pes, 3).into_iter().enumerate() {
        let other = if pe == 2 { "PE 0" } else { "PE 2" };
        assert!(error.contains("RUSHMEM_TRANSPORT=direct") && error.contains(other), "PE {pe}: {error}");
    }
}

#[test]
fn a_ucx_that_is_missing_is_missed_only_where_it_is_needed() {
    let without =
        |n| testing::pes(n).env("RUSHMEM_UCX_LIB", "/nonexistent").env("RUSHMEM_INIT_TIMEOUT", "50");
    without(3).env("RUSHMEM_TRANSPORT", "auto").env("RUSHMEM_PES_PER_NODE", "").run(|world| {
        world.barrier_all().unwrap();
    });
    for (way, each) in [("auto", "1"), ("auto", "2"), ("ucx", "")] {
        let said = start(without(3).env("RUSHMEM_TRANSPORT", way).env("RUSHMEM_PES_PER_NODE", each), 3);
        for error in said {
            assert!(
                error.contains("/nonexistent") && error.contains("RUSHMEM_UCX_LIB"),
                "{way} {each}: {error}"
            );
            assert!(error.contains("apt-get install libucx0"), "{way} {each}: {error}");
        }
    }
}

#[test]
fn a_ucx_that_one_pe_misses_is_missed_by_all() {
    let Some(hosts) = hosts("a_ucx_that_one_pe_misses_is_missed_by_all", 3, 1) else { return };
    let pes = hosts.env("RUSHMEM_INIT_TIMEOUT", "50").env_for(Pe::new(1), "RUSHMEM_UCX_LIB", "/nonexistent");
    let said = start(pes, 3);
    assert!(said[1].contains("/nonexistent") && said[1].contains("apt-get install"), "{}", said[1]);
    for error in [&said[0], &said[2]] {
        assert!(error.contains("PE 1"), "{error}");
    }
}

#[test]
fn pes_that_ask_for_different_ways_are_told_who_did() {
    for ways in [["auto", "auto", "ucx"], ["ucx", "fake", "ucx"], ["direct", "auto", "auto"]] {
        let mut pes = testing::pes(3).env("RUSHMEM_INIT_TIMEOUT", "50");
        for (pe, way) in (0u32..).zip(ways) {
            pes = pes.env_for(Pe::new(pe), "RUSHMEM_TRANSPORT", way);
        }
        let odd = ways.iter().position(|way| *way != ways[0]).unwrap();
        for error in start(pes, 3) {
            assert!(error.contains(&format!("RUSHMEM_TRANSPORT={} on PE 0", ways[0])), "{error}");
            assert!(error.contains(&format!("{} on PE {odd}", ways[odd])), "{error}");
        }
    }
}

/// Starts a job whose PEs have these `RUSHMEM_DEVICE`s; each PE's error.
fn start_with(devices: &[&str]) -> Vec<String> {
    let n = devices.len() as u32;
    let mut pes = testing::pes(n).env("RUSHMEM_INIT_TIMEOUT", "50");
    for (pe, device) in (0u32..).zip(devices) {
        pes = pes.env_for(Pe::new(pe), "RUSHMEM_DEVICE", device);
    }
    start(pes, n)
}

#[test]
fn pes_that_ask_for_different_devices_are_told_who_did() {
    // Without a GPU the odd one finds that there is none; the others learn that from it.
    for error in start_with(&["cpu", "cpu", "cuda"]) {
        assert!(
            error.contains("PE 2") || (!on_gpus() && error.contains("RUSHMEM_DEVICE asks for a GPU")),
            "{error}"
        );
        assert!(error.contains("GPU"), "{error}");
    }
}

#[test]
fn a_gpu_that_is_not_there_is_an_error() {
    for devices in [&["cuda:99"][..], &["cuda:99", "cuda:99"]] {
        for error in start_with(devices) {
            assert!(
                error.contains("99") || (!on_gpus() && error.contains("RUSHMEM_DEVICE asks for a GPU")),
                "{error}"
            );
        }
    }
}
