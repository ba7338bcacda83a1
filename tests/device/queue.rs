//! Kernels that write a card's queues themselves, over the software card, and over the way to a real one with
//! a stand-in for its libraries (`host/runtime/tests/verbs`): what is particular to them. (All other tests of
//! kernels run over both, too: `scripts/test`.)

use crate::api_common::card::{stand_in, stand_in_of_processes};
use crate::api_common::place::{self, on_gpus, pes};
use crate::api_common::{seed, seeded};
use crate::*;
use rushmem::testing::{Exit, Job, Pes};
use rushmem::ErrorCode;

pub(crate) const QUEUE: &str = kernels!("queue.cu");

/// Over the software card; or over the stand-in, of that folder.
pub(crate) fn over_queues(n: u32, stand_in: Option<&str>) -> Pes {
    let way = if stand_in.is_some() { "queue" } else { "queue-emulated" };
    // On a busy machine threads that wait for room take the time of the card's.
    let pes = seeded(pes(n))
        .timeout(std::time::Duration::from_secs(120))
        .env("RUSHMEM_TRANSPORT", way)
        .env("RUSHMEM_FAKE_DELAY", "20");
    let pes = pes.env("RUSHMEM_VERBS", stand_in.unwrap_or_default()).env("RUSHMEM_CARD", "");
    pes.env("RUSHMEM_PES_PER_NODE", "1").env("RUSHMEM_NODES", "").env("RUSHMEM_QUEUE_SLOTS", "64")
}

/// As threads, and where the rest has a network, as processes.
fn both(test: &str, n: u32, f: impl Fn(&World, &mut Rng) + Sync) {
    if place::too_many(n) {
        return skip(test, "tests in brief have fewer PEs");
    }
    let network = rushmem::doctor::network().unwrap();
    if let (true, Err(why)) = (on_gpus(), &network) {
        return skip(test, why);
    }
    over_queues(n, None).threads(|world| f(world, &mut Rng::new(seed())));
    match &network {
        Err(why) => skip(test, why),
        Ok(_) if place::in_turns(n) => skip(test, "its PEs would take turns on a GPU"),
        Ok(_) => over_queues(n, None).run(|world| f(world, &mut Rng::new(seed()))),
    }
    // Once: where there is a choice, with memory of other processes, whose GPU memory the stand-in has not.
    match stand_in() {
        Ok(card) if network.is_ok() && !on_gpus() => {
            over_queues(n, Some(&card)).run(|world| f(world, &mut Rng::new(seed())));
        }
        Ok(card) => over_queues(n, Some(&card)).threads(|world| f(world, &mut Rng::new(seed()))),
        Err(why) => skip(test, why),
    }
}

#[test]
fn slots_and_counters_wrap_under_many_threads() {
    both("slots_and_counters_wrap_under_many_threads", 2, |world, _| {
        let bench = Bench::new(world, QUEUE);
        // More than 2^16 requests in all, in 64 slots.
        let (blocks, threads) = (4, 64u32);
        let words = world.alloc::<u32>((blocks * threads) as usize).unwrap();
        let rounds = litmus_rounds(70_000 / (blocks * threads) as usize) as u32;
        bench.run("queue_flood", Launch::new(blocks, threads), (&bench.report, &words, rounds));
        assert!(words.to_vec().unwrap().iter().all(|word| *word == rounds));
    });
}

/// The function by which GPUs post one word, on the CPU device.
#[test]
fn words_posted_as_gpus_post_them_arrive() {
    let test = "words_posted_as_gpus_post_them_arrive";
    if on_gpus() {
        return skip(test, "the other tests run that function there");
    }
    both(test, 2, |world, _| {
        let bench = Bench::new(world, QUEUE);
        let (blocks, threads) = (2, 64u32);
        let words = world.alloc::<u32>((blocks * threads) as usize).unwrap();
        let rounds = rounds(40) as u32;
        bench.run("queue_flood_as_gpus_do", Launch::new(blocks, threads), (&bench.report, &words, rounds));
        assert!(words.to_vec().unwrap().iter().all(|word| *word == rounds));
    });
}

#[test]
fn one_doorbell_tells_of_the_requests_of_many_threads() {
    let test = "one_doorbell_tells_of_the_requests_of_many_threads";
    if on_gpus() {
        return skip(test, "in relocatable code the functions that it calls are the device library's");
    }
    both(test, 2, |world, rng| {
        let bench = Bench::new(world, QUEUE);
        let words = world.alloc::<u64>(48).unwrap();
        for _ in 0..rounds(20) {
            bench.run("queue_one_doorbell", Launch::new(1, 48), (&bench.report, &words, rng.next()));
        }
    });
}

#[test]
fn a_fence_orders_what_goes_by_a_queue_and_what_does_not() {
    both("a_fence_orders_what_goes_by_a_queue_and_what_does_not", 3, |world, _| mixture(world));
}

/// What goes by a queue before a fence, and by the proxy after it, and the other way round.
pub(crate) fn mixture(world: &World) {
    let bench = Bench::new(world, QUEUE);
    for way in 0..5 {
        let n = 700u64;
        let words = world.alloc::<u64>(8).unwrap();
        let large = world.alloc::<u64>(2 * n as usize).unwrap();
        let rounds = rounds(60) as u64;
        bench.run("queue_mixture", Launch::new(1, 3), (&bench.report, &words, &large, n, way, rounds));
    }
}

#[test]
fn a_put_does_not_overtake_a_get() {
    both("a_put_does_not_overtake_a_get", 2, |world, _| {
        let bench = Bench::new(world, QUEUE);
        let words = world.alloc::<u64>(3).unwrap();
        bench.run("queue_get_then_put", Launch::new(1, 1), (&bench.report, &words, rounds(400) as u64));
    });
}

#[test]
fn more_threads_than_places_for_answers() {
    both("more_threads_than_places_for_answers", 2, |world, rng| {
        let bench = Bench::new(world, QUEUE);
        let threads = 320;
        let words = world.alloc::<u64>(threads).unwrap();
        let seed = rng.next();
        let data: Vec<u64> = (0..threads as u64).map(|i| mix(seed, i)).collect();
        words.write(&data).unwrap();
        let launch = Launch::new(1, threads as u32);
        bench.run("queue_answers", launch, (&bench.report, &words, seed, rounds(20) as i32));
    });
}

/// Of check.h.
pub(crate) fn mix(a: u64, b: u64) -> u64 {
    let one = |x: u64| {
        let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ x >> 31
    };
    one(one(a) ^ b)
}

/// PE 0's launch fails, and the error says so much of it. `pes` are two, of which the other may `die`.
pub(crate) fn fails(
    pes: Pes,
    source: &'static str,
    kernel: &'static str,
    die: bool,
    code: ErrorCode,
    says: &[&str],
) {
    fails_in(Launch::new(1, 1), "50", pes, (source, kernel), die, code, says);
}

/// The same of a launch of that shape, where no wait may take longer than so many seconds.
// The death of a PE is what is tested.
#[allow(clippy::disallowed_methods)]
pub(crate) fn fails_in(
    shape: Launch,
    limit: &str,
    pes: Pes,
    (source, kernel): (&'static str, &'static str),
    die: bool,
    code: ErrorCode,
    says: &[&str],
) {
    let pes = pes.env("RUSHMEM_WAIT_TIMEOUT", limit);
    pes.supervise(
        |_| {
            let world = World::init().unwrap();
            let word = world.alloc::<u64>(1).unwrap();
            let module = world.load(with_queues(made_quickly(source))).unwrap();
            world.barrier_all().unwrap();
            if world.my_pe().number() == 0 {
                // SAFETY: the kernel writes the word of PE 1, or ends before.
                unsafe { module.kernel(kernel).unwrap().launch(shape, (&word, 1i32)) }.unwrap();
                let error = world.synchronize().unwrap_err();
                println!("FAILED {:?}: {error}", error.code());
            } else if die {
                // Once the kernel is under way.
                while word.to_vec().unwrap()[0] < 10 {}
                std::process::abort();
            } else {
                // Until the job is broken, or PE 0 has left.
                while world.barrier_all().is_ok() {}
            }
            // Of a broken job, whatever that says.
            drop(world);
        },
        |job: &mut Job| {
            for outcome in job.outcomes() {
                if outcome.pe.number() != 0 {
                    continue;
                }
                let said = format!("{}\n{}", outcome.stdout, outcome.stderr);
                assert_eq!(outcome.exit, Exit::Done, "{said}");
                let failed = outcome.stdout.lines().find(|line| line.starts_with("FAILED")).expect(&said);
                assert!(failed.starts_with(&format!("FAILED {code:?}")), "{said}");
                for part in says {
                    assert!(failed.contains(part), "{part:?} is missing in {said}");
                }
            }
        },
    );
}

/// Whether a test can run whose kernels the CPU device alone has, or whose PEs start in many ways.
pub(crate) fn with_network(test: &str) -> bool {
    if on_gpus() {
        skip(test, "it is of the CPU device");
        return false;
    }
    has_network(test)
}

/// Whether a test can run in which a kernel fails: on a GPU that takes the context with it, so PEs are
/// processes with one each.
pub(crate) fn can_fail(test: &str) -> bool {
    if on_gpus() && place::in_turns(2) {
        skip(test, "a failure takes the GPU's context with it: each of its PEs wants a GPU");
        return false;
    }
    place::processes(test) && has_network(test)
}

fn has_network(test: &str) -> bool {
    let network = rushmem::doctor::network().unwrap();
    if let Err(why) = &network {
        skip(test, why);
    }
    network.is_ok()
}

#[test]
fn a_request_that_the_card_refuses_ends_the_launch() {
    let test = "a_request_that_the_card_refuses_ends_the_launch";
    if with_network(test) {
        let says = ["PE 1", "not registered so (syndrome 0x13)", "queue_bad_key"];
        fails(over_queues(2, None), QUEUE, "queue_bad_key", false, ErrorCode::Io, &says);
        match stand_in() {
            Ok(card) => {
                fails(over_queues(2, Some(&card)), QUEUE, "queue_bad_key", false, ErrorCode::Io, &says)
            }
            Err(why) => skip(test, why),
        }
    }
}

/// One word as GPUs post it, which waits for room alone: that wait has an end, and sees that the card has
/// refused what is before it.
#[test]
fn a_put_of_a_word_does_not_wait_for_ever_for_room() {
    let test = "a_put_of_a_word_does_not_wait_for_ever_for_room";
    if with_network(test) {
        let says = ["room in the network card's queue to PE 1, which is full", "0 requests", "queue_full"];
        let (shape, kernel) = (Launch::new(1, 1), (QUEUE, "queue_full"));
        fails_in(shape, "1", over_queues(2, None), kernel, false, ErrorCode::Timeout, &says);
        let says = ["PE 1", "not registered so (syndrome 0x13)", "queue_full_and_refused"];
        fails(over_queues(2, None), QUEUE, "queue_full_and_refused", false, ErrorCode::Io, &says);
    }
}

#[test]
fn a_lost_link_ends_the_job_and_says_which() {
    if can_fail("a_lost_link_ends_the_job_and_says_which") {
        let pes = over_queues(2, None).env("RUSHMEM_QUEUE_LOSE", "30");
        let says = ["PE 1", "does not answer (syndrome 0x15)", "queue_go_on"];
        fails(pes, QUEUE, "queue_go_on", false, ErrorCode::PeerDead, &says);
    }
}

#[test]
fn a_peer_that_dies_ends_the_kernel() {
    let test = "a_peer_that_dies_ends_the_kernel";
    if can_fail(test) {
        let says = ["PE 1", "queue_go_on"];
        fails(over_queues(2, None), QUEUE, "queue_go_on", true, ErrorCode::PeerDead, &says);
        match stand_in_of_processes() {
            Ok(card) => {
                fails(over_queues(2, Some(&card)), QUEUE, "queue_go_on", true, ErrorCode::PeerDead, &says)
            }
            Err(why) => skip(test, why),
        }
    }
}

#[test]
fn each_kind_of_link_carries_what_kernels_post() {
    let test = "each_kind_of_link_carries_what_kernels_post";
    let folder = match stand_in() {
        Ok(folder) => folder,
        Err(why) => return skip(test, why),
    };
    // RoCE v2, InfiniBand (whose stand-in has one process to a subnet), RoCE v1.
    for card in ["mlx5_1:2:3", "mlx5_2", "mlx5_5"] {
        over_queues(3, Some(&folder)).env("RUSHMEM_CARD", card).threads(|world| {
            let bench = Bench::new(world, QUEUE);
            let words = world.alloc::<u64>(3).unwrap();
            bench.run("queue_get_then_put", Launch::new(1, 1), (&bench.report, &words, 20u64));
        });
    }
}

/// As where a GPU does not reach the card's registers.
#[test]
fn the_proxy_thread_rings_for_kernels() {
    let test = "the_proxy_thread_rings_for_kernels";
    let folder = match stand_in() {
        Ok(folder) => folder,
        Err(why) => return skip(test, why),
    };
    over_queues(2, Some(&folder)).env("RUSHMEM_DOORBELL", "proxy").threads(|world| {
        let bench = Bench::new(world, QUEUE);
        let words = world.alloc::<u64>(3).unwrap();
        bench.run("queue_get_then_put", Launch::new(1, 1), (&bench.report, &words, 20u64));
        let (blocks, threads, rounds) = (4, 64u32, rounds(40) as u32);
        let words = world.alloc::<u32>((blocks * threads) as usize).unwrap();
        bench.run("queue_flood", Launch::new(blocks, threads), (&bench.report, &words, rounds));
        assert!(words.to_vec().unwrap().iter().all(|word| *word == rounds));
    });
}

#[test]
fn a_start_without_such_a_card_says_what_is_missing() {
    let test = "a_start_without_such_a_card_says_what_is_missing";
    let folder = match stand_in() {
        Ok(folder) => folder,
        Err(why) => return skip(test, why),
    };
    for (verbs, card, says) in [
        (folder.as_str(), "mlx5_4", "mlx5_4: opening it with DEVX failed"),
        (
            folder.as_str(),
            "mlx5_3",
            "mlx5_3, port 1: CREATE_QP for the queue to PE 2 was refused: status 0x0f",
        ),
        ("/nonexistent", "", "no libibverbs.so.1"),
    ] {
        let pes = over_queues(3, Some(verbs)).env("RUSHMEM_CARD", card);
        pes.supervise(
            |_| println!("FAILED {}", World::init().err().unwrap()),
            |job: &mut Job| {
                let said: String = job.outcomes().iter().map(|outcome| outcome.stdout.clone()).collect();
                assert!(said.contains(says), "{said}");
                assert!(said.contains("connecting the network cards whose queues kernels write"), "{said}");
            },
        );
    }
}
