//! Exchanges of the fewest tokens, whose routing each warp hears by itself (`kernels/few_hearing.h`), beside
//! those of one word of experts more.

use std::time::Duration;

use rushmem::testing;
use rushmem_moe::{Error, Float, Fp8, Layout, Payload, Scales, Why};

use crate::bench::{Bench, Case, Halves};
use crate::model::{Rng, Routing};
use crate::{more_rounds, rounds, seed};

/// An exchange all of whose rows are packets.
fn few(max_tokens: u32, hidden: u32, experts: u32, top_k: u32) -> Case {
    Case { few: max_tokens, ..Case::new(max_tokens, hidden, experts, top_k) }
}

#[test]
fn as_many_words_of_experts_as_a_warp_has_lanes_and_one_more() {
    for (ranks, max_tokens, top_k) in [(2, 8, 8), (2, 16, 3), (3, 11, 2), (1, 11, 12)] {
        testing::run(ranks, move |world| {
            let mut rng = Rng(seed(world));
            let case = few(max_tokens, 144, 24, top_k);
            rounds(world, &mut rng, case, 3);
            rounds(world, &mut rng, Case { payload: Payload::Cast(Fp8::E4m3, Scales::F32), ..case }, 2);
        });
    }
}

#[test]
fn experts_named_twice_by_the_fewest_tokens() {
    testing::run(2, |world| {
        let (mut rng, team) = (Rng(seed(world)), world.team());
        for case in [few(1, 64, 3, 7), few(5, 64, 5, 3), few(8, 784, 6, 8)] {
            let case = Case { routing: Routing::Repeated, ..case };
            // Room for all that are named.
            let bench = Bench::of(&team, case, case.config().capacity(2 * case.max_tokens * case.top_k));
            more_rounds(world, &mut rng, &bench, case.max_tokens, 4);
            bench.free();
        }
    });
}

/// Rank-major rows and sums go by packets where a team has no packed rows. In the world, and in a team whose
/// ranks are numbered the other way. Numbers of columns around a part of a row and of a sum, and a packed
/// row.
#[test]
fn rank_major_with_packed_rows_and_without() {
    for rows in ["1", "0"] {
        testing::pes(3).env("RUSHMEM_WIDE_PACKETS", rows).timeout(Duration::from_secs(120)).run(|world| {
            let mut rng = Rng(seed(world));
            let split = world.team().split(Some(0), -(world.my_pe().number() as i32)).unwrap().unwrap();
            for team in [&world.team(), &split] {
                for hidden in [16, 192, 240, 256, 400, 784] {
                    for payload in [Payload::Floats(Float::Bf16), Payload::Cast(Fp8::E4m3, Scales::F32)] {
                        let case = Case { layout: Layout::RankMajor, payload, ..few(4, hidden, 9, 4) };
                        let bench = Bench::new(team, case);
                        more_rounds(world, &mut rng, &bench, case.max_tokens, 2);
                        bench.free();
                    }
                }
            }
            split.free().unwrap();
        });
    }
}

#[test]
fn rounds_without_any_token() {
    testing::run(2, |world| {
        let team = world.team();
        let bench = Bench::new(&team, few(2, 64, 6, 2));
        let stream = world.stream().unwrap();
        for (seed, tokens) in [[0, 0], [0, 2], [2, 0], [0, 0], [1, 2]].into_iter().enumerate() {
            let all = bench.draw(seed as u64, |_, rank| tokens[rank]);
            bench.round(&stream, seed as u64, &all, Halves::Whole, || Duration::ZERO);
        }
        stream.destroy().unwrap();
        bench.free();
    });
}

/// Of several experts that get too many tokens the error names the first, whichever warp counts it.
#[test]
fn the_first_expert_over_its_capacity_is_told_of() {
    testing::run(2, |world| {
        let team = world.team();
        let bench = Bench::new(&team, few(2, 64, 160, 6));
        let stream = world.stream().unwrap();
        // Local experts 3 and 70 of rank 1, three times for each of four tokens: 12 rows of 4.
        let mut all = bench.draw(1, |_, _| 2);
        for drawn in &mut all {
            drawn.experts.copy_from_slice(&[150, 83, 150, 83, 83, 150].repeat(2));
        }
        let (tokens, to) = (bench.tokens(&all[bench.me], true), bench.received());
        // SAFETY: buffers of the configuration's sizes, which nobody else uses until the stream is idle.
        unsafe {
            bench.exchange.dispatch(&tokens, &to, &stream).unwrap();
            bench.exchange.combine(bench.y(), bench.out(), &stream).unwrap();
        }
        stream.synchronize().unwrap();
        let failure = bench.exchange.check();
        if bench.me == 1 {
            let Err(Error::Round(failure)) = failure else { panic!("{failure:?}") };
            let wanted = Why::OverCapacity { rank: 1, expert: Some(83), count: 12, capacity: 4 };
            assert_eq!(failure.why, wanted);
        } else {
            failure.unwrap();
        }
        stream.destroy().unwrap();
        bench.free();
    });
}
