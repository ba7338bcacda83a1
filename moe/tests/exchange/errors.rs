//! What is refused, on all ranks alike and before anything is overwritten; ranks that are out; deaths.

use std::time::Duration;

use rushmem::{testing, Pe, World};
use rushmem_moe::{AllToAll, Config, Error, Layout, Received, Why};

use crate::bench::{Bench, Case, Halves};
use crate::model::{Drawn, Rng, Routing};
use crate::seed;

/// A round of which dispatch is refused: nothing is written but counts of 0; and the next round is as usual.
fn refused(world: &World, bench: &Bench<'_, '_>, all: &[Drawn], seed: u64) -> Why {
    let stream = world.stream().unwrap();
    let (x, counts, out) = bench.poison();
    let (tokens, to) = (bench.tokens(&all[bench.me], true), bench.received());
    // SAFETY: buffers of the configuration's sizes, which nobody else uses until the stream is idle.
    unsafe {
        bench.exchange.dispatch(&tokens, &to, &stream).unwrap();
        bench.exchange.combine(bench.y(), bench.out(), &stream).unwrap();
    }
    stream.synchronize().unwrap();
    let failure = match bench.exchange.check().unwrap_err() {
        Error::Round(failure) => failure,
        other => panic!("{other}"),
    };
    bench.exchange.check().unwrap();
    assert!(x.to_vec().unwrap().iter().all(|byte| *byte == 0xee));
    assert!(counts.to_vec().unwrap().iter().all(|count| *count == 0));
    assert!(out.to_vec().unwrap().iter().all(|byte| *byte == 0xee));
    let fine = bench.draw(seed ^ 1, |_, _| 1);
    bench.round(&stream, seed ^ 1, &fine, Halves::Whole, || Duration::ZERO);
    stream.destroy().unwrap();
    failure.why
}

#[test]
fn a_round_over_capacity_is_refused_by_name() {
    testing::run(3, |world| {
        let mut rng = Rng(seed(world));
        let team = world.team();
        // Seven tokens, all for one expert, which has room for six; nine, which take twelve rows, of eight.
        let (major, flat) = (Layout::ExpertMajor, Layout::Flat { align: 4 });
        for (layout, capacity, middle, count, shared_routing) in [
            (major, 6, 0, 7, None),
            (flat, 8, 2, 12, None),
            (major, 6, 0, 7, Some(0)),
            (flat, 8, 2, 12, Some(0)),
        ] {
            let case = Case { routing: Routing::Same, layout, shared_routing, ..Case::new(4, 64, 6, 1) };
            let bench = Bench::of(&team, case, case.config().capacity(capacity));
            let seed = rng.next();
            let all = bench.draw(seed, |_, _| 0);
            assert!(all.iter().all(|drawn| drawn.n == 0));
            let mut all = bench.draw(seed, |_, rank| [4, middle, 3][rank]);
            for drawn in &mut all {
                drawn.experts.fill(4);
            }
            let expert = (layout == Layout::ExpertMajor).then_some(4);
            let (capacity, count) = (u64::from(capacity), count);
            assert_eq!(
                refused(world, &bench, &all, seed),
                Why::OverCapacity { rank: 2, expert, count, capacity }
            );
            bench.free();
        }
    });
}

/// Experts copied to shared memory, read in place, and kernels for few tokens.
fn ways() -> [Case; 3] {
    [(None, 2), (Some(0), 2), (None, 4)].map(|(shared_routing, few)| Case {
        shared_routing,
        few,
        ..Case::new(4, 64, 6, 2)
    })
}

/// An expert has room for every token once, unless the configuration says otherwise; tokens that name it
/// several times fill it, are reported, and leave alone what lies behind.
#[test]
fn an_expert_that_tokens_name_too_often_keeps_to_its_rows() {
    testing::run(2, |world| {
        let mut rng = Rng(seed(world));
        let team = world.team();
        for case in ways() {
            let bench = Bench::new(&team, case);
            let seed = rng.next();
            let mut all = bench.draw(seed, |_, _| 4);
            all.iter_mut().for_each(|drawn| drawn.experts.fill(3));
            let stream = world.stream().unwrap();
            let (x, counts, _) = bench.poison();
            let (tokens, to) = (bench.tokens(&all[bench.me], true), bench.received());
            // SAFETY: buffers of the configuration's sizes, which nobody else uses until the stream is idle.
            unsafe {
                bench.exchange.dispatch(&tokens, &to, &stream).unwrap();
                bench.exchange.combine(bench.y(), bench.out(), &stream).unwrap();
            }
            stream.synchronize().unwrap();
            // Expert 3 is the first of rank 1, of three with eight rows each.
            let (x, counts) = (x.to_vec().unwrap(), counts.to_vec().unwrap());
            let row = x.len() / (3 * 8);
            let written =
                |expert: usize| x[expert * 8 * row..(expert + 1) * 8 * row].iter().any(|byte| *byte != 0xee);
            assert_eq!([0, 1, 2].map(written), [bench.me == 1, false, false]);
            assert_eq!(counts, if bench.me == 1 { [8, 0, 0] } else { [0; 3] });
            let failure = bench.exchange.check();
            if bench.me == 1 {
                let Err(Error::Round(failure)) = failure else { panic!("{failure:?}") };
                let wanted = Why::OverCapacity { rank: 1, expert: Some(3), count: 16, capacity: 8 };
                assert_eq!(failure.why, wanted);
            }
            let fine = bench.draw(seed ^ 1, |_, _| 1);
            bench.round(&stream, seed ^ 1, &fine, Halves::Whole, || Duration::ZERO);
            stream.destroy().unwrap();
            bench.free();
        }
    });
}

#[test]
fn too_many_tokens_and_unknown_experts_are_refused_by_name() {
    testing::run(2, |world| {
        let mut rng = Rng(seed(world));
        let team = world.team();
        for case in ways() {
            let bench = Bench::new(&team, case);
            let seed = rng.next();
            let mut all = bench.draw(seed, |_, _| 4);
            all[1].n = 5;
            assert_eq!(
                refused(world, &bench, &all, seed),
                Why::TooManyTokens { rank: 1, count: 5, max_tokens: 4 }
            );
            all[1].n = 4;
            all[0].experts[2 * 2 + 1] = 6;
            all[1].experts[0] = i32::MAX;
            assert_eq!(refused(world, &bench, &all, seed), Why::NoSuchExpert { rank: 0, token: 2 });
            bench.free();
        }
    });
}

#[test]
fn calls_out_of_turn_and_bad_arguments_are_refused() {
    testing::run(1, |world| {
        let team = world.team();
        let case = Case::new(4, 64, 6, 2);
        let bench = Bench::new(&team, case);
        let stream = world.stream().unwrap();
        let all = bench.draw(1, |_, _| 2);
        let (tokens, to) = (bench.tokens(&all[0], false), bench.received());
        let exchange = &bench.exchange;
        let is_order =
            |result: Result<(), Error>| assert!(matches!(result, Err(Error::Order(_))), "{result:?}");
        let is_invalid =
            |result: Result<(), Error>| assert!(matches!(result, Err(Error::Invalid(_))), "{result:?}");
        // SAFETY: buffers of the configuration's sizes, which nobody else uses until the stream is idle.
        unsafe {
            is_order(exchange.combine(bench.y(), bench.out(), &stream));
            is_order(exchange.dispatch_receive(&to, &stream));
            exchange.dispatch_send(&tokens, &stream).unwrap();
            is_order(exchange.dispatch(&tokens, &to, &stream));
            exchange.dispatch_receive(&to, &stream).unwrap();
            exchange.combine_send(bench.y(), &stream).unwrap();
            is_order(exchange.dispatch(&tokens, &to, &stream));
            exchange.combine_receive(bench.out(), &stream).unwrap();
            is_order(exchange.combine(bench.y(), bench.out(), &stream));
            is_invalid(exchange.dispatch(&tokens, &Received { x: std::ptr::null_mut(), ..to }, &stream));
            is_invalid(exchange.dispatch(&tokens, &Received { x: to.x.wrapping_byte_add(8), ..to }, &stream));
            let many = rushmem_moe::Tokens { count: rushmem_moe::Count::Host(5), ..tokens };
            is_invalid(exchange.dispatch(&many, &to, &stream));
            let lacking = rushmem_moe::Tokens { weights: std::ptr::null(), ..tokens };
            is_invalid(exchange.dispatch(&lacking, &to, &stream));
        }
        stream.synchronize().unwrap();
        for config in [
            Config::new(0, 64, 6, 2),
            Config::new(4, 60, 6, 2),
            Config::new(4, 64, 0, 2),
            Config::new(4, 64, 6, 33),
            Config::new(4, 64, 6, 2).threads(48),
            Config::new(4, 64, 6, 2).layout(Layout::Flat { align: 0 }),
        ] {
            let error = AllToAll::new(&team, config).err().unwrap();
            assert!(matches!(error, Error::Invalid(_)), "{error}");
        }
        stream.destroy().unwrap();
        bench.free();
    });
}

/// Rank 1 is out: it makes no calls, and the others go on without its experts.
fn without_a_rank(world: &World, case: Case) {
    let mut rng = Rng(seed(world));
    let team = world.team();
    let mut bench = Bench::new(&team, case);
    let stream = world.stream().unwrap();
    for round in 0..6 {
        let seed = rng.next();
        let mut all = bench.draw(seed, |rng, _| rng.below(5) as usize);
        if round == 3 && bench.me != 1 {
            bench.exchange.set_absent(&[false, true, false]).unwrap();
        }
        if round >= 3 {
            all[1] = Drawn::default();
            for expert in all.iter_mut().flat_map(|drawn| &mut drawn.experts) {
                *expert = if *expert / 2 == 1 { -1 } else { *expert };
            }
            if bench.me == 1 {
                continue;
            }
        }
        bench.round(&stream, seed, &all, Halves::Whole, || Duration::ZERO);
    }
    assert!(bench.exchange.set_absent(&[false; 2]).is_err());
    stream.destroy().unwrap();
    bench.free();
}

#[test]
fn ranks_that_are_out_are_not_waited_for() {
    testing::run(3, |world| {
        for layout in [Layout::ExpertMajor, Layout::RankMajor] {
            for few in [2, 4] {
                without_a_rank(world, Case { layout, few, ..Case::new(4, 64, 6, 2) });
            }
        }
    });
}

#[test]
fn ranks_that_are_out_are_not_waited_for_in_place() {
    testing::run(3, |world| {
        for layout in [Layout::ExpertMajor, Layout::RankMajor, Layout::Flat { align: 4 }] {
            without_a_rank(world, Case { layout, shared_routing: Some(0), ..Case::new(4, 64, 6, 2) });
        }
    });
}

fn a_killed_pe_ends_the_others(few: u32) {
    testing::pes(3).supervise::<()>(
        move |_| {
            let world = World::init().unwrap();
            let team = world.team();
            let bench = Bench::new(&team, Case { few, ..Case::new(4, 64, 6, 2) });
            let stream = world.stream().unwrap();
            let all = bench.draw(7, |_, _| 3);
            let tokens = bench.tokens(&all[bench.me], false);
            println!("READY");
            let error = loop {
                let to = bench.received();
                // SAFETY: buffers of the configuration's sizes, which nobody else uses until the stream is
                // idle.
                let put = unsafe {
                    let there = bench.exchange.dispatch(&tokens, &to, &stream);
                    there.and_then(|()| bench.exchange.combine(bench.y(), bench.out(), &stream))
                };
                if let Err(error) = put.and_then(|()| Ok(stream.synchronize()?)) {
                    break error;
                }
            };
            println!("ENDED {error}");
            #[allow(clippy::disallowed_methods, reason = "the end of a program that gives up")]
            std::process::exit(0)
        },
        |job| {
            let (victim, limit) = (Pe::new(1), Duration::from_secs(20));
            for pe in 0..3 {
                job.wait_for_line(Pe::new(pe), "READY", Duration::from_secs(60));
            }
            std::thread::sleep(Duration::from_millis(30));
            job.kill(victim);
            for pe in [0, 2] {
                let line = job.wait_for_line(Pe::new(pe), "ENDED", limit);
                assert!(line.contains("PE 1"), "{line}");
            }
        },
    );
}

#[test]
fn a_killed_pe_ends_the_others_by_name() {
    a_killed_pe_ends_the_others(2);
}

#[test]
fn a_killed_pe_ends_the_others_by_name_where_all_is_packets() {
    a_killed_pe_ends_the_others(4);
}
