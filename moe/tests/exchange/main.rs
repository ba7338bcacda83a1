//! Dispatch and combine against a serial model, with fresh random tokens and routing, bit for bit.

mod bench;
mod model;

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
    let stream = world.stream().unwrap();
    for round in 0..n {
        let seed = rng.next();
        let all = bench.draw(seed, |rng, _| match rng.below(4) {
            0 => 0,
            1 => case.max_tokens as usize,
            _ => rng.below(u64::from(case.max_tokens) + 1) as usize,
        });
        let halves = if round % 2 == 0 { Halves::Whole } else { Halves::Split };
        let mut own = Rng(seed ^ bench.me as u64);
        bench.round(&stream, seed, &all, halves, || Duration::from_micros(own.below(3) * own.below(500)));
    }
    stream.destroy().unwrap();
    bench.free();
}

#[test]
fn tokens_come_and_results_return() {
    testing::run(2, |world| {
        let mut rng = Rng(seed(world));
        rounds(world, &mut rng, Case::new(6, 128, 8, 3), 6);
    });
}
