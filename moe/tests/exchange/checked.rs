//! Rounds under `RUSHMEM_CHECK=1`, of which nothing may be reported. `make check-sweep` runs all tests so.

use std::time::Duration;

use rushmem::testing::{self, Exit};
use rushmem::World;
use rushmem_moe::{Fp8, Payload, Scales};

use super::large::LAYOUTS;
use super::model::Rng;
use super::{seed, Bench, Case, Halves};

/// Ranks whose rows come in other numbers of parts than each other's, and as packets.
fn rounds(world: &World) {
    let (mut rng, team, stream) = (Rng(seed(world)), world.team(), world.stream().unwrap());
    for layout in LAYOUTS {
        let payload = Payload::Cast(Fp8::E4m3, Scales::F32);
        let bench = Bench::new(&team, Case { payload, layout, few: 3, ..Case::new(65, 32, 5, 2) });
        for counts in [[65, 10], [2, 65]] {
            let seed = rng.next();
            let all = bench.draw(seed, |_, rank| counts[rank]);
            bench.round(&stream, seed, &all, Halves::Whole, || Duration::ZERO);
        }
        bench.free();
    }
    stream.destroy().unwrap();
}

#[test]
fn nothing_is_read_that_nobody_has_written() {
    let pes = testing::pes(2).timeout(Duration::from_secs(200));
    pes.env("RUSHMEM_DEVICE", "cpu").env("RUSHMEM_CHECK", "1").env("RUSHMEM_LOG", "").supervise(
        |_| {
            let world = World::init().unwrap();
            rounds(&world);
            world.finalize().unwrap();
        },
        |job| {
            for outcome in job.outcomes() {
                assert_eq!(outcome.exit, Exit::Done, "{}:\n{}{}", outcome.pe, outcome.stdout, outcome.stderr);
                assert!(!outcome.stderr.contains("[error]"), "{}:\n{}", outcome.pe, outcome.stderr);
            }
        },
    );
}
