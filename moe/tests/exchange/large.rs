//! Exchanges whose experts shared memory has no copy of, because they do not fit or may not: blocks read them
//! in the packets in which they came. What is large in them is made small by `Config::shared_routing`.

use std::time::Duration;

use rushmem::testing;
use rushmem_moe::{Float, Fp8, Layout, Payload, Scales};

use crate::bench::{Bench, Case, Halves};
use crate::model::{Rng, Routing};
use crate::{kinds, rounds, seed};

pub(crate) const LAYOUTS: [Layout; 3] = [Layout::ExpertMajor, Layout::RankMajor, Layout::Flat { align: 4 }];

/// What a block takes that copies the experts of all tokens, as docs/moe.md says it.
fn bytes_of_a_copy(case: &Case, ranks: u32) -> u32 {
    let counts = case.experts.div_ceil(ranks) + case.experts;
    ranks * case.max_tokens * case.top_k.div_ceil(4) * 8 + counts * 4
}

#[test]
fn every_kind_in_place() {
    testing::pes(3).timeout(Duration::from_secs(120)).run(|world| {
        let mut rng = Rng(seed(world));
        for case in kinds() {
            let case = Case { shared_routing: Some(0), ..case };
            rounds(world, &mut rng, case, 2);
            rounds(world, &mut rng, Case { routing: Routing::Same, rounded: true, ..case }, 1);
        }
    });
}

/// More words than a block asks for at once, tokens of several turns of its warps, of one word and of
/// several.
#[test]
fn more_tokens_than_a_block_has_threads_in_place() {
    testing::pes(3).timeout(Duration::from_secs(120)).run(|world| {
        let mut rng = Rng(seed(world));
        for (layout, (threads, top_k)) in LAYOUTS.into_iter().zip([(128, 9), (32, 4), (96, 5)]) {
            // Rows in one part, so that the warps of a block take a token each; and in several.
            for (payload, max_tokens, few) in
                [(Payload::Floats(Float::Bf16), 150, 150), (Payload::Cast(Fp8::E4m3, Scales::F32), 67, 9)]
            {
                let base = Case::new(max_tokens, 32, 13, top_k);
                let (shared_routing, threads) = (Some(0), Some(threads));
                rounds(world, &mut rng, Case { payload, layout, shared_routing, threads, few, ..base }, 3);
            }
        }
    });
}

/// As much memory as a copy takes, and a byte less; and ranks of which some copy and others do not.
#[test]
fn copied_up_to_the_limit_and_in_place_beyond() {
    testing::run(4, |world| {
        let mut rng = Rng(seed(world));
        let team = world.team();
        let stream = world.stream().unwrap();
        for layout in LAYOUTS {
            let base = Case { layout, ..Case::new(11, 48, 10, 5) };
            let bytes = bytes_of_a_copy(&base, team.n_pes());
            let mixed = if team.my_pe() % 2 == 0 { bytes } else { bytes - 1 };
            for limit in [bytes, bytes - 1, mixed] {
                let bench = Bench::new(&team, Case { shared_routing: Some(limit), ..base });
                for halves in [Halves::Whole, Halves::Split] {
                    let seed = rng.next();
                    let all = bench.draw(seed, |rng, _| rng.below(12) as usize);
                    bench.round(&stream, seed, &all, halves, || Duration::ZERO);
                }
                bench.free();
            }
        }
        stream.destroy().unwrap();
    });
}

#[test]
fn near_and_far_ranks_in_place() {
    let pes = testing::pes(4).env("RUSHMEM_TRANSPORT", "fake").env("RUSHMEM_PES_PER_NODE", "2");
    pes.timeout(Duration::from_secs(120)).threads(|world| {
        let mut rng = Rng(seed(world));
        for case in &kinds()[..3] {
            rounds(world, &mut rng, Case { shared_routing: Some(0), ..*case }, 2);
        }
    });
}

/// 4 ranks of 4096 tokens: 263 KB of experts, which no device's shared memory has room for.
#[test]
fn more_tokens_than_shared_memory_has_room_for() {
    testing::pes(4).timeout(Duration::from_secs(120)).run(|world| {
        let mut rng = Rng(seed(world));
        let team = world.team();
        let stream = world.stream().unwrap();
        for layout in LAYOUTS {
            let case = Case { layout, few: 32, ..Case::new(4096, 16, 24, 8) };
            assert!(bytes_of_a_copy(&case, team.n_pes()) > 227 << 10);
            let bench = Bench::new(&team, case);
            let seed = rng.next();
            let all = bench.draw(seed, |rng, rank| 4096 - [0, 1, 7][rng.below(3) as usize] * rank);
            bench.round(&stream, seed, &all, Halves::Whole, || Duration::ZERO);
            bench.free();
        }
        stream.destroy().unwrap();
    });
}

/// From 2048 tokens and 64 blocks on some blocks send while others receive: ranks that do and ranks that do
/// not, in one round; rows that are cast, which a rank sends to itself, too, and rows that stay as they are,
/// which it takes from where its tokens lie.
#[test]
fn some_blocks_send_while_others_receive() {
    let cast = Payload::Cast(Fp8::E4m3, Scales::F32);
    let bytes = Payload::Bytes { row: 48, side: 16 };
    let kinds = [(LAYOUTS[0], cast), (LAYOUTS[1], bytes), (LAYOUTS[2], bytes), (LAYOUTS[2], cast)];
    many_tokens(2, kinds, &[[2049, 2048], [2047, 2048], [2049, 0], [3, 2048]]);
}

/// There is nobody to send rows to that stay as they are.
#[test]
fn a_rank_alone_takes_its_many_tokens_from_where_they_lie() {
    let kinds = LAYOUTS.map(|layout| (layout, Payload::Floats(Float::Bf16)));
    many_tokens(1, kinds, &[[2049], [2048], [2047], [0]]);
}

fn many_tokens<const KINDS: usize, const N: usize>(
    n: u32,
    kinds: [(Layout, Payload); KINDS],
    rounds: &'static [[usize; N]],
) {
    testing::pes(n).timeout(Duration::from_secs(240)).run(move |world| {
        let mut rng = Rng(seed(world));
        let team = world.team();
        let stream = world.stream().unwrap();
        for (layout, payload) in kinds {
            let case = Case {
                layout,
                payload,
                shared_routing: matches!(layout, Layout::ExpertMajor).then_some(0),
                few: 32,
                threads: Some(32),
                ..Case::new(2049, 16, 7, 3)
            };
            let bench = Bench::of(&team, case, case.config().blocks(65));
            for counts in rounds {
                let seed = rng.next();
                let all = bench.draw(seed, |_, rank| counts[rank]);
                bench.round(&stream, seed, &all, Halves::Whole, || Duration::ZERO);
            }
            bench.free();
        }
        stream.destroy().unwrap();
    });
}
