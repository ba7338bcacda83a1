//! Words that network cards update (`rushmem/card_word.h`), over the software card and over the stand-in for
//! a card's libraries: exact under updates from near, far and own PEs at once, in order with everything else;
//! and jobs in which cards do not update them, on all PEs alike.

use crate::api_common::card::{stand_in, stand_in_of_processes};
use crate::api_common::place::{in_turns, on_gpus, too_many};
use crate::queue::{can_fail, fails, over_queues, with_network};
use crate::*;
use rushmem::testing::{Exit, Job, Pes};
use rushmem::{CardWord, ErrorCode, Pe, Source};

const WORDS: &str = kernels!("card_word.cu");

/// All PEs far from one another; and two hosts of which each has near PEs.
const PLACES: [&str; 2] = ["", "0,1"];

/// Updates in a kernel. The software card updates a GPU's memory by three copies, each of some 10 us: a few
/// hundred there.
fn updates(n: usize) -> usize {
    if on_gpus() {
        println!(
            "on GPUs these are {} updates, and not {n}: each takes the software card some 50 us",
            n.min(200)
        );
    }
    rounds(if on_gpus() { n.min(200) } else { n })
}

fn at(pes: Pes, place: &str) -> Pes {
    if place.is_empty() {
        return pes;
    }
    pes.env("RUSHMEM_PES_PER_NODE", "").env("RUSHMEM_NODES", place)
}

/// Of `n` PEs: as threads and, where there is a network, as processes over the software card, and as
/// processes over the stand-in.
fn everywhere(test: &str, n: u32, f: impl Fn(&World, &mut Rng) + Sync) {
    if too_many(n) {
        return skip(test, "tests in brief have fewer PEs");
    }
    let run = |world: &World| {
        let bench = Bench::new(world, WORDS);
        bench.run("card_ways", Launch::new(1, 1), (&bench.report, 1i32));
        f(world, &mut Rng::new(api_common::seed()));
    };
    let network = rushmem::doctor::network().unwrap();
    for place in PLACES {
        match &network {
            Err(why) if on_gpus() => skip(test, why),
            _ => at(over_queues(n, None), place).threads(run),
        }
        match &network {
            Err(why) => skip(test, why),
            Ok(_) if in_turns(n) => skip(test, "its PEs would take turns on a GPU"),
            Ok(_) => at(over_queues(n, None), place).run(run),
        }
        match stand_in() {
            Ok(card) if network.is_ok() && !on_gpus() => at(over_queues(n, Some(&card)), place).run(run),
            Ok(card) => at(over_queues(n, Some(&card)), place).threads(run),
            Err(why) => skip(test, why),
        }
    }
}

/// All PEs' threads at once on the words of all.
fn counts(world: &World) {
    let bench = Bench::new(world, WORDS);
    let n = world.n_pes() as usize;
    let (blocks, threads) = (2, 33u32);
    let per_thread = (updates(2000) / (blocks * threads) as usize).max(1) * n;
    let words = world.alloc::<CardWord>(2 * n).unwrap();
    let sums = world.alloc::<u64>(1).unwrap();
    bench.run("card_count", Launch::new(blocks, threads), (&words, &sums, per_thread as u32));
    // Each thread has come to each PE as often; each value was there once, on each PE.
    let each = (blocks * threads) as usize * n * per_thread / n;
    let mine = words.to_vec().unwrap();
    let me = world.my_pe().number() as usize;
    for (i, word) in mine.iter().enumerate() {
        assert_eq!(word.0, if i / 2 == me { each as u64 } else { 0 }, "word {i}");
    }
    let all = world.alloc::<u64>(n).unwrap();
    all.p(me, sums.to_vec().unwrap()[0], Pe::new(0)).unwrap();
    world.barrier_all().unwrap();
    if me == 0 {
        let each = each as u64;
        assert_eq!(all.to_vec().unwrap().iter().sum::<u64>(), n as u64 * (each * (each - 1) / 2));
    }
    world.barrier_all().unwrap();
}

#[test]
fn counts_from_all_pes_at_once_are_exact() {
    everywhere("counts_from_all_pes_at_once_are_exact", 4, |world, _| counts(world));
}

#[test]
fn a_lock_guards_what_is_no_cards() {
    everywhere("a_lock_guards_what_is_no_cards", 3, |world, _| {
        let bench = Bench::new(world, WORDS);
        let (blocks, takes) = (2u32, updates(20) as u32);
        for quiet in [0i32, 1] {
            let (lock, counter) = (world.alloc::<CardWord>(1).unwrap(), world.alloc::<u64>(1).unwrap());
            let args = (&bench.report, &lock, &counter, takes, quiet);
            bench.run("card_lock", Launch::new(blocks, 1), args);
            assert_eq!(lock.to_vec().unwrap(), [CardWord(0)]);
            assert_eq!(counter.to_vec().unwrap(), [u64::from(world.n_pes() * blocks * takes)]);
        }
    });
}

#[test]
fn every_form_does_what_it_says() {
    everywhere("every_form_does_what_it_says", 3, |world, rng| {
        let bench = Bench::new(world, WORDS);
        let word = world.alloc::<CardWord>(3).unwrap();
        let middle = word.slice(1..2).unwrap();
        bench.run("card_forms", Launch::new(1, 1), (&bench.report, &middle, rng.next()));
        let seen = word.to_vec().unwrap();
        assert!(seen[0] == CardWord(0) && seen[1] != CardWord(0) && seen[2] == CardWord(0), "{seen:?}");

        let (blocks, threads) = (1, 21u32);
        let all = (world.n_pes() * blocks * threads) as usize;
        let words = world.alloc::<CardWord>(all.div_ceil(64)).unwrap();
        let rounds = updates(3) as u32;
        bench.run("card_bits", Launch::new(blocks, threads), (&bench.report, &words, rounds));
        let set: u32 = words.to_vec().unwrap().iter().map(|word| word.0.count_ones()).sum();
        assert_eq!(set as usize, all, "each thread's own bit");
    });
}

#[test]
fn slots_and_counters_wrap_under_atomics() {
    everywhere("slots_and_counters_wrap_under_atomics", 2, |world, _| {
        let bench = Bench::new(world, WORDS);
        // On the CPU device more than 2^16 requests in all, in 64 slots.
        let (blocks, threads) = (2, 32u32);
        let words = world.alloc::<CardWord>((blocks * threads) as usize).unwrap();
        let rounds = updates(70_000).div_ceil((blocks * threads) as usize) as u32;
        bench.run("card_flood", Launch::new(blocks, threads), (&bench.report, &words, rounds));
        assert!(words.to_vec().unwrap().iter().all(|word| word.0 == 3 * u64::from(rounds)));
    });
}

/// The host's barrier waits for what kernels that have ended left in their queues, to themselves and to near
/// PEs, too.
#[test]
fn a_barrier_covers_what_kernels_have_left() {
    everywhere("a_barrier_covers_what_kernels_have_left", 3, |world, _| {
        let bench = Bench::new(world, WORDS);
        let (word, rounds) = (world.alloc::<CardWord>(1).unwrap(), (updates(200) as u32 / 40).max(1));
        for lap in 1..=8 {
            bench.run("card_leave", Launch::new(1, 5), (&word, rounds));
            let wanted = lap * u64::from(world.n_pes() * 5 * rounds);
            assert_eq!(word.to_vec().unwrap(), [CardWord(wanted)], "lap {lap}");
            world.barrier_all().unwrap();
        }
    });
}

#[test]
fn a_fence_orders_them_with_everything_else() {
    everywhere("a_fence_orders_them_with_everything_else", 3, |world, _| {
        let bench = Bench::new(world, WORDS);
        for way in 0..6 {
            let (card, n) = (world.alloc::<CardWord>(2).unwrap(), 700u64);
            let words = world.alloc::<u64>(4).unwrap();
            let large = world.alloc::<u64>(2 * n as usize).unwrap();
            let rounds = updates(40) as u64;
            let args = (&bench.report, &card, &words, &large, n, way, rounds);
            bench.run("card_order", Launch::new(1, 1), args);
        }
    });
}

/// Where a PE has no card, or one without atomics, targets update the words, on all PEs.
#[test]
fn cards_update_words_on_all_pes_or_on_none() {
    let test = "cards_update_words_on_all_pes_or_on_none";
    if !with_network(test) {
        return;
    }
    let folder = match stand_in() {
        Ok(folder) => folder,
        Err(why) => return skip(test, why),
    };
    let by = |expected: i32| {
        move |world: &World| {
            let bench = Bench::new(world, WORDS);
            bench.run("card_ways", Launch::new(1, 1), (&bench.report, expected));
            counts(world);
        }
    };
    for place in PLACES {
        let pes = || at(over_queues(4, Some(&folder)), place);
        let lists = pes().env("RUSHMEM_TRANSPORT", "queue,ucx");
        lists.env_for(Pe::new(1), "RUSHMEM_VERBS", "/nonexistent").run(by(0));
        pes().env("RUSHMEM_TRANSPORT", "queue,ucx").run(by(1));
        pes().env("RUSHMEM_CARD", "mlx5_5").run(by(0));
        pes().env("RUSHMEM_TRANSPORT", "ucx").run(by(0));
    }
    // All near: no card has a part in it.
    over_queues(2, None).env("RUSHMEM_PES_PER_NODE", "2").run(by(0));
}

/// PE 0's kernel was compiled without queues, and the others' with them.
#[test]
fn a_kernel_without_queues_is_refused_where_cards_update_words() {
    let test = "a_kernel_without_queues_is_refused_where_cards_update_words";
    if !can_fail(test) {
        return;
    }
    over_queues(2, None).supervise(
        |_| {
            let world = World::init().unwrap();
            let word = world.alloc::<CardWord>(2).unwrap();
            let report = world.alloc::<u64>(8).unwrap();
            let source = Source::text(WORDS);
            let without = world.my_pe().number() == 0;
            let source = if without { source.option("-DRUSHMEM_NO_NET_QUEUE") } else { with_queues(source) };
            let module = world.load(source).unwrap();
            world.barrier_all().unwrap();
            // SAFETY: two words for each PE, but PE 0 alone is asked for, once.
            unsafe { module.kernel("card_forms").unwrap().launch(Launch::new(1, 1), (&report, &word, 1u64)) }
                .unwrap();
            let done = world.synchronize();
            if let Err(e) = &done {
                println!("FAILED {:?}: {e}", e.code());
            }
            assert_eq!(done.is_err(), without);
            drop(world);
        },
        |job: &mut Job| {
            for outcome in job.outcomes().iter().filter(|outcome| outcome.pe.number() == 0) {
                let said = format!("{}\n{}", outcome.stdout, outcome.stderr);
                assert_eq!(outcome.exit, Exit::Done, "{said}");
                let failed = outcome.stdout.lines().find(|line| line.starts_with("FAILED")).expect(&said);
                for part in
                    ["Unsupported", "`card_forms`", "without queues", "card_word", "-DRUSHMEM_NET_QUEUE"]
                {
                    assert!(failed.contains(part), "{part:?} is missing in {said}");
                }
            }
        },
    );
}

#[test]
fn wrong_addresses_end_the_launch() {
    let test = "wrong_addresses_end_the_launch";
    if !can_fail(test) {
        return;
    }
    let invalid = ["PE 1", "takes for invalid (syndrome 0x12)", "card_misaligned"];
    let nowhere = ["PE 1's copy of address", "not symmetric memory", "card_nowhere"];
    let cards = [None, stand_in_of_processes().map_err(|why| skip(test, why)).ok()];
    for card in cards.iter().enumerate().filter(|(i, card)| *i == 0 || card.is_some()).map(|(_, card)| card) {
        let pes = || over_queues(2, card.as_deref());
        fails(pes(), WORDS, "card_misaligned", false, ErrorCode::Io, &invalid);
        fails(pes(), WORDS, "card_nowhere", false, ErrorCode::BadAddress, &nowhere);
    }
}

#[test]
fn a_lost_link_ends_a_wait_for_a_cards_answer() {
    if can_fail("a_lost_link_ends_a_wait_for_a_cards_answer") {
        let pes = over_queues(2, None).env("RUSHMEM_QUEUE_LOSE", "30");
        let says = ["PE 1", "does not answer (syndrome 0x15)", "card_go_on"];
        fails(pes, WORDS, "card_go_on", false, ErrorCode::PeerDead, &says);
    }
}

#[test]
fn a_peer_that_dies_ends_a_wait_for_a_cards_answer() {
    let test = "a_peer_that_dies_ends_a_wait_for_a_cards_answer";
    if can_fail(test) {
        let says = ["PE 1", "card_go_on"];
        fails(over_queues(2, None), WORDS, "card_go_on", true, ErrorCode::PeerDead, &says);
        match stand_in_of_processes() {
            Ok(card) => {
                fails(over_queues(2, Some(&card)), WORDS, "card_go_on", true, ErrorCode::PeerDead, &says)
            }
            Err(why) => skip(test, why),
        }
    }
}

/// Cards refuse what is registered, and not for atomics: in a job whose memory was taken by all cards but
/// one.
#[test]
fn memory_that_a_card_has_not_taken_has_no_such_words() {
    let test = "memory_that_a_card_has_not_taken_has_no_such_words";
    if !with_network(test) {
        return;
    }
    let folder = match stand_in() {
        Ok(folder) => folder,
        Err(why) => return skip(test, why),
    };
    let pes = over_queues(2, Some(&folder)).env("RUSHMEM_TRANSPORT", "queue,ucx").env("RUSHMEM_HEAP_MIN", "");
    pes.env_for(Pe::new(1), "STAND_IN_LOCKED", "20000000").supervise(
        |_| {
            let world = World::init().unwrap();
            // Past what may be pinned.
            let large = world.alloc::<CardWord>(8 << 20).unwrap();
            let end = large.slice(large.len() - 2..).unwrap();
            let report = world.alloc::<u64>(8).unwrap();
            let module = world.load(with_queues(made_quickly(WORDS))).unwrap();
            world.barrier_all().unwrap();
            // SAFETY: the kernel uses the word of each PE, or ends before.
            unsafe { module.kernel("card_forms").unwrap().launch(Launch::new(1, 1), (&report, &end, 1u64)) }
                .unwrap();
            match world.synchronize() {
                Ok(()) => println!("DONE"),
                Err(e) => println!("FAILED {:?}: {e}", e.code()),
            }
            drop(world);
        },
        |job: &mut Job| {
            for outcome in job.outcomes() {
                let said = format!("{}\n{}", outcome.stdout, outcome.stderr);
                assert_eq!(outcome.exit, Exit::Done, "{said}");
                if outcome.pe.number() == 0 {
                    let failed = outcome.stdout.lines().find(|line| line.starts_with("FAILED")).expect(&said);
                    for part in ["Unsupported", "PE 0's copy of the card_word", "have not taken", "ulimit -l"]
                    {
                        assert!(failed.contains(part), "{part:?} is missing in {said}");
                    }
                }
            }
        },
    );
}
