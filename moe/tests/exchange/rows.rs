//! Rows that dispatch moves as they are, through rooms in shared memory: of 512 bytes on the CPU device,
//! three of a warp's.

use std::time::Duration;

use rushmem::testing;
use rushmem_moe::{Float, Fp8, Layout, Payload, Scales};

use crate::bench::{Bench, Case};
use crate::model::{Rng, Routing};
use crate::{more_rounds, rounds, seed};

/// Bytes of a room on the CPU device.
const ROOM: u32 = 512;
const LAYOUTS: [Layout; 3] = [Layout::Flat { align: 4 }, Layout::ExpertMajor, Layout::RankMajor];

/// What rows are: with scales that go along with them (where these take a multiple of 16 bytes) or by
/// themselves, with nothing beside them, and with bytes beside them.
fn payloads(bytes: u32) -> [Payload; 5] {
    [
        Payload::Cast(Fp8::E4m3, Scales::F32),
        Payload::Cast(Fp8::E5m2, Scales::Ue8m0),
        Payload::Floats(Float::Bf16),
        Payload::Bytes { row: bytes, side: 16 },
        Payload::Bytes { row: bytes, side: ROOM + 48 },
    ]
}

/// Rows shorter than a room, of one, of one and the least that is past it, and of more than a warp has.
#[test]
fn rows_around_the_length_of_a_room() {
    testing::pes(2).timeout(Duration::from_secs(240)).run(|world| {
        let mut rng = Rng(seed(world));
        for (i, hidden) in
            [16, ROOM / 2, ROOM - 16, ROOM, ROOM + 16, 3 * ROOM + 16, 4 * ROOM].into_iter().enumerate()
        {
            for (j, payload) in payloads(hidden).into_iter().enumerate() {
                let layout = LAYOUTS[(i + j) % 3];
                rounds(world, &mut rng, Case { payload, layout, few: 0, ..Case::new(5, hidden, 9, 4) }, 1);
            }
        }
    });
}

/// Rows of one part, which go on one behind the other; of warps that have several of them, and none. `i`: the
/// test's number. GPUs' compilers take ten seconds for each payload, hence one test for each length.
fn rows_that_follow(i: usize, (top_k, experts): (u32, u32), hidden: u32, routing: Routing) {
    testing::pes(2).timeout(Duration::from_secs(240)).run(|world| {
        let mut rng = Rng(seed(world));
        for (payload, k) in payloads(hidden).into_iter().zip([0, 1, 0, 2, 2]) {
            let (layout, threads) =
                (LAYOUTS[(i + usize::from(hidden == ROOM) + k) % 3], Some([64, 256][k % 2]));
            let case = Case::new(560, hidden, experts, top_k);
            rounds(world, &mut rng, Case { payload, layout, threads, routing, few: 0, ..case }, 1);
        }
    });
}

#[test]
fn short_rows_that_follow_one_another_to_one_place() {
    rows_that_follow(0, (1, 5), 16, Routing::Any(3));
}

#[test]
fn rows_that_follow_one_another_to_one_place() {
    rows_that_follow(0, (1, 5), ROOM, Routing::Any(3));
}

#[test]
fn short_rows_that_follow_one_another_to_as_many_as_can_be() {
    rows_that_follow(1, (32, 40), 16, Routing::Any(3));
}

#[test]
fn rows_that_follow_one_another_to_as_many_as_can_be() {
    rows_that_follow(1, (32, 40), ROOM, Routing::Any(3));
}

#[test]
fn short_rows_that_follow_one_another_to_repeated_experts() {
    rows_that_follow(2, (3, 6), 16, Routing::Repeated);
}

#[test]
fn rows_that_follow_one_another_to_repeated_experts() {
    rows_that_follow(2, (3, 6), ROOM, Routing::Repeated);
}

/// Less room than all tokens could take, in rounds that find enough: then blocks count all tokens first.
#[test]
fn rows_where_there_is_less_room_than_can_come() {
    testing::pes(3).timeout(Duration::from_secs(240)).run(|world| {
        let mut rng = Rng(seed(world));
        let team = world.team();
        for (layout, shared_routing) in
            [(LAYOUTS[0], None), (LAYOUTS[1], None), (LAYOUTS[0], Some(0)), (LAYOUTS[1], Some(0))]
        {
            let payload = Payload::Cast(Fp8::E4m3, Scales::F32);
            let case = Case { payload, layout, shared_routing, few: 3, ..Case::new(90, 528, 8, 3) };
            let most = 20;
            let capacity = if layout == Layout::ExpertMajor { most * 3 } else { most * 3 * 3 + 4 * 3 };
            let bench = Bench::of(&team, case, case.config().capacity(capacity));
            more_rounds(world, &mut rng, &bench, most, 3);
            bench.free();
        }
    });
}
