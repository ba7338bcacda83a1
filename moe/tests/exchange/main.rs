//! Dispatch and combine against a serial model, with fresh random tokens and routing, bit for bit.

mod bench;
mod checked;
mod errors;
mod few;
mod groups;
mod large;
mod model;
mod pieces;
mod queued;
mod rows;

use std::time::Duration;

use bench::{Bench, Case, Halves};
use model::{Rng, Routing};
use rushmem::testing;
use rushmem::World;
use rushmem_moe::{Float, Fp8, Layout, Payload, Scales};

/// The same random number on all PEs; `RUSHMEM_TEST_SEED` repeats one.
fn seed(world: &World) -> u64 {
    let drawn = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos() as u64;
    let given = std::env::var("RUSHMEM_TEST_SEED").ok().and_then(|text| text.parse().ok());
    let mut seed = [given.unwrap_or(drawn)];
    world.team().broadcast_in_place(&mut seed, 0).unwrap();
    if world.my_pe().number() == 0 {
        println!("RUSHMEM_TEST_SEED={}", seed[0]);
    }
    seed[0]
}

/// Rounds of a case with random numbers of tokens, none and all among them.
fn rounds(world: &World, rng: &mut Rng, case: Case, n: usize) {
    let team = world.team();
    let bench = Bench::new(&team, case);
    more_rounds(world, rng, &bench, case.max_tokens, n);
    bench.free();
}

/// Of up to `most` tokens a rank.
fn more_rounds(world: &World, rng: &mut Rng, bench: &Bench<'_, '_>, most: u32, n: usize) {
    let stream = world.stream().unwrap();
    for round in 0..n {
        let seed = rng.next();
        let all = bench.draw(seed, |rng, _| match rng.below(4) {
            0 => 0,
            1 => most as usize,
            _ => rng.below(u64::from(most) + 1) as usize,
        });
        let halves = if round % 2 == 0 { Halves::Whole } else { Halves::Split };
        let mut own = Rng(seed ^ bench.me as u64);
        bench.round(&stream, seed, &all, halves, || Duration::from_micros(own.below(3) * own.below(500)));
    }
    stream.destroy().unwrap();
}

#[test]
fn tokens_come_and_results_return() {
    testing::run(2, |world| {
        let mut rng = Rng(seed(world));
        rounds(world, &mut rng, Case::new(6, 128, 8, 3), 6);
    });
}

/// Places are exact where a token names an expert several times.
#[test]
fn experts_that_are_named_twice_have_the_token_twice() {
    testing::run(2, |world| {
        let mut rng = Rng(seed(world));
        for few in [40, 20] {
            let case = Case { routing: Routing::Repeated, few, ..Case::new(40, 64, 5, 3) };
            rounds(world, &mut rng, case, 3);
        }
    });
}

/// All combinations that compile differently, with sizes around the boundaries: one column group and a part,
/// one token and one past a block's share.
fn kinds() -> Vec<Case> {
    let (bf16, f16, f32) = (Float::Bf16, Float::F16, Float::F32);
    let base = Case::new(6, 144, 8, 3);
    vec![
        Case { payload: Payload::Cast(Fp8::E4m3, Scales::F32), hidden: 528, ..base },
        Case {
            payload: Payload::Cast(Fp8::E5m2, Scales::Ue8m0),
            output: f32,
            layout: Layout::RankMajor,
            ..base
        },
        Case {
            payload: Payload::Cast(Fp8::E4m3, Scales::Ue8m0),
            produced: f16,
            layout: Layout::Flat { align: 4 },
            ..base
        },
        Case {
            payload: Payload::Floats(f32),
            produced: f32,
            output: f32,
            layout: Layout::Flat { align: 1 },
            ..base
        },
        Case {
            payload: Payload::Bytes { row: 48, side: 16 },
            produced: f32,
            layout: Layout::RankMajor,
            experts: 7,
            ..base
        },
        Case { payload: Payload::Floats(f16), produced: f16, output: f16, weighted: false, top_k: 1, ..base },
        Case {
            payload: Payload::Floats(bf16),
            produced: bf16,
            output: bf16,
            top_k: 7,
            experts: 7,
            routing: Routing::Any(0),
            ..base
        },
        // Rows of a rank by every number up to twelve, and of more columns than a warp loads at once.
        Case {
            payload: Payload::Floats(bf16),
            produced: bf16,
            hidden: 1968,
            top_k: 12,
            experts: 24,
            routing: Routing::Any(3),
            ..base
        },
    ]
}

fn all_kinds(world: &World) {
    let mut rng = Rng(seed(world));
    for case in kinds() {
        rounds(world, &mut rng, case, 3);
        rounds(world, &mut rng, Case { routing: Routing::Same, rounded: true, ..case }, 2);
        // All rows and sums are packets.
        let few = Case { few: case.max_tokens, ..case };
        rounds(world, &mut rng, few, 3);
        rounds(world, &mut rng, Case { routing: Routing::Same, rounded: true, ..few }, 2);
    }
}

#[test]
fn every_kind_on_one_rank() {
    testing::run(1, all_kinds);
}

#[test]
fn every_kind_on_two_ranks() {
    testing::run(2, all_kinds);
}

#[test]
fn every_kind_on_three_ranks() {
    testing::run(3, all_kinds);
}

#[test]
fn a_few_kinds_on_eight_ranks() {
    testing::pes(8).timeout(Duration::from_secs(120)).run(|world| {
        let mut rng = Rng(seed(world));
        for case in &kinds()[..3] {
            rounds(world, &mut rng, Case { experts: 21, top_k: 8, ..*case }, 2);
        }
    });
}

#[test]
fn every_kind_on_far_ranks() {
    let pes = testing::pes(2).env("RUSHMEM_TRANSPORT", "fake").env("RUSHMEM_PES_PER_NODE", "1");
    pes.timeout(Duration::from_secs(120)).threads(all_kinds);
}

#[test]
fn near_and_far_ranks_in_one_team() {
    let pes = testing::pes(4).env("RUSHMEM_TRANSPORT", "fake").env("RUSHMEM_PES_PER_NODE", "2");
    pes.timeout(Duration::from_secs(120)).threads(|world| {
        let mut rng = Rng(seed(world));
        for case in &kinds()[..3] {
            rounds(world, &mut rng, *case, 2);
        }
    });
}

/// pplx-kernels' grid: 8 experts of 512 columns for 3 of which a token is, up to 10 tokens; then 64 of 1024,
/// 4, 20; bf16, fp16 and quantised tokens in, fp16 and bf16 out.
#[test]
fn the_grid_of_pplx_kernels() {
    testing::pes(4).timeout(Duration::from_secs(120)).run(|world| {
        let mut rng = Rng(seed(world));
        for (tokens, hidden, experts, top_k) in [(10, 512, 8, 3), (20, 1024, 64, 4)] {
            let quantised = Payload::Bytes { row: hidden, side: hidden / 128 * 4 };
            for (payload, float) in [
                (Payload::Floats(Float::Bf16), Float::F16),
                (Payload::Floats(Float::F16), Float::Bf16),
                (quantised, Float::Bf16),
            ] {
                let case = Case::new(tokens, hidden, experts, top_k);
                let case = Case { payload, produced: float, output: float, ..case };
                rounds(world, &mut rng, case, 2);
                rounds(world, &mut rng, Case { few: tokens, ..case }, 2);
            }
        }
    });
}

/// Ranks that are late by turns, at random, with nothing between rounds that would bring them together.
/// `make soak` has a hundred times as many.
#[test]
fn rounds_of_ranks_that_are_late_by_turns() {
    let factor = std::env::var("RUSHMEM_TEST_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    let limit = Duration::from_secs(280 + 20 * factor as u64);
    testing::pes(3).timeout(limit).run(move |world| {
        let mut rng = Rng(seed(world));
        for few in [2, 4] {
            rounds(world, &mut rng, Case { few, ..Case::new(4, 64, 6, 2) }, 50 * factor);
        }
    });
}

/// Kernels for few tokens mark packets by the lower half of a round's number. What has lain in a packet since
/// that was last the same, or since the beginning, is taken for no round's.
#[test]
fn numbers_of_rounds_whose_lower_half_begins_anew() {
    testing::pes(3).timeout(Duration::from_secs(120)).run(|world| {
        let (mut rng, team) = (Rng(seed(world)), world.team());
        let (short, long) = (Case::new(5, 64, 6, 2), Case::new(9, 1040, 6, 2));
        let rank_major = Case { layout: Layout::RankMajor, ..short };
        for (case, few) in [(short, 5), (rank_major, 5), (long, 9), (short, 2)] {
            let bench = Bench::new(&team, Case { few, ..case });
            // Packets are marked anew at each multiple of 2^31. Without that, rounds at those of 2^32 would
            // find what others of their lower halves left: between them nobody sends anything.
            for half in 1..=8u64 {
                bench.exchange.skip_to((half << 31) - 5).unwrap();
                let most = if half % 2 == 0 { case.max_tokens } else { 0 };
                more_rounds(world, &mut rng, &bench, most, 8);
            }
            bench.free();
        }
    });
}

#[test]
fn teams_that_are_disjoint_exchange_at_once() {
    testing::run(4, |world| {
        let mut rng = Rng(seed(world) + u64::from(world.my_pe().number() % 2));
        let team = world.team().split(Some(world.my_pe().number() % 2), -(world.my_pe().number() as i32));
        let team = team.unwrap().unwrap();
        let bench = Bench::new(&team, Case::new(5, 128, 4, 2));
        let stream = world.stream().unwrap();
        for _ in 0..4 {
            let seed = rng.next();
            let all = bench.draw(seed, |rng, _| rng.below(6) as usize);
            bench.round(&stream, seed, &all, Halves::Whole, || Duration::ZERO);
        }
        stream.destroy().unwrap();
        bench.free();
        team.free().unwrap();
    });
}
