//! Sums of rows that go through shared memory by pieces: of 2048 bytes, four of a warp's under way; fetched
//! by the warp, or where blocks are few by each lane for itself.

use std::time::Duration;

use rushmem::{testing, World};
use rushmem_moe::{Float, Layout, Payload};

use crate::bench::Case;
use crate::model::{Rng, Routing};
use crate::{rounds, seed};

/// Columns of a piece of 16-bit numbers; of f32 it has half as many.
const COLUMNS: u32 = 1024;

/// Every way in which rows are added: of 16-bit numbers and of f32, to sums of either, that travel as either.
fn ways() -> [Case; 5] {
    let (bf16, f16, f32) = (Float::Bf16, Float::F16, Float::F32);
    let base = Case { few: 0, payload: Payload::Bytes { row: 16, side: 0 }, ..Case::new(4, 16, 9, 6) };
    [
        Case { produced: bf16, output: bf16, rounded: true, layout: Layout::Flat { align: 1 }, ..base },
        Case { produced: bf16, output: f32, ..base },
        Case { produced: f16, output: f16, weighted: false, ..base },
        Case { produced: f32, output: bf16, ..base },
        Case { produced: bf16, output: bf16, layout: Layout::RankMajor, ..base },
    ]
}

/// Those where blocks are few: rows and sums of one type.
fn ways_by_lanes() -> [Case; 3] {
    let [rounded, .., f32_to_bf16, _] = ways();
    [rounded, Case { produced: Float::F16, output: Float::F32, weighted: false, ..rounded }, f32_to_bf16]
        .map(|way| Case { blocks: Some(3), ..way })
}

/// Rows shorter than a piece, of one, of one and the least that is past it, and of more than are under way.
fn around_the_length_of_a_piece(world: &World, ways: &[Case]) {
    let mut rng = Rng(seed(world));
    for way in ways {
        // The same kernels for every length.
        for hidden in [16, COLUMNS / 2 + 16, COLUMNS - 16, COLUMNS, COLUMNS + 16, 4 * COLUMNS + 16] {
            rounds(world, &mut rng, Case { hidden, ..*way }, 1);
        }
        // A single row, and none of most tokens.
        let alone = Case { hidden: 2 * COLUMNS + 32, top_k: 1, routing: Routing::Any(2), ..*way };
        rounds(world, &mut rng, alone, 2);
    }
}

#[test]
fn rows_around_the_length_of_a_piece() {
    testing::pes(2)
        .timeout(Duration::from_secs(240))
        .run(|world| around_the_length_of_a_piece(world, &ways()));
}

#[test]
fn rows_around_the_length_of_a_piece_by_lanes() {
    testing::pes(2)
        .timeout(Duration::from_secs(240))
        .run(|world| around_the_length_of_a_piece(world, &ways_by_lanes()));
}

/// Homes that are far are sent to from a copy, which lanes compose, too.
#[test]
fn rows_that_lanes_add_for_far_homes() {
    let pes = testing::pes(3).env("RUSHMEM_TRANSPORT", "fake").env("RUSHMEM_PES_PER_NODE", "2");
    pes.timeout(Duration::from_secs(120)).threads(|world| {
        let mut rng = Rng(seed(world));
        for way in ways_by_lanes() {
            for hidden in [16, COLUMNS + 16] {
                rounds(world, &mut rng, Case { hidden, ..way }, 2);
            }
        }
    });
}

/// Tokens of more turns than one, which are taken from all sources by turns: as many of each, and any number;
/// of every number of parts that a row has.
fn several_turns(way: Case) {
    testing::pes(3).timeout(Duration::from_secs(120)).run(|world| {
        let mut rng = Rng(seed(world));
        for (max_tokens, threads) in [(19, 64), (100, 128), (200, 96), (600, 128)] {
            let case = Case { max_tokens, threads: Some(threads), hidden: 48, ..way };
            rounds(world, &mut rng, case, 2);
        }
    });
}

#[test]
fn tokens_of_several_turns_rounded() {
    several_turns(ways()[0]);
}

#[test]
fn tokens_of_several_turns_exact() {
    several_turns(ways()[1]);
}

#[test]
fn tokens_of_several_turns_by_lanes() {
    several_turns(ways_by_lanes()[0]);
}
