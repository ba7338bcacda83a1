//! The ring: a kernel on every PE waits for a token, adds one to each of its words, and puts it to its right
//! neighbour, `--laps` times round. That every word has counted every hop is checked on every PE.
//!
//! `rushmem-run -n 4 -- ring --laps 1000`

mod common;
#[path = "common/device.rs"]
mod device;
#[path = "common/units.rs"]
mod units;
#[path = "common/verdict.rs"]
mod verdict;

use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use common::Outcome;
use rushmem::{Cmp, Launch, Source, World};

/// A token passed round all PEs by a kernel.
#[derive(Parser)]
struct Args {
    /// How many times round.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..))]
    laps: u64,
    /// Threads of the kernel, and 8-byte words of the token.
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: u32,
}

fn main() -> ExitCode {
    common::exit("ring", run(&Args::parse()))
}

fn run(args: &Args) -> Outcome {
    let world = World::init()?;
    let token = world.alloc::<u64>(args.threads as usize)?;
    let arrived = world.signal()?;
    let module = world.load(Source::text(include_str!("ring.cu")).name("ring.cu"))?;
    let ring = module.kernel("ring")?;

    // SAFETY: the kernel touches `token` and `arrived` alone, which outlive it, and one PE at a time: the
    // signals say whose turn it is.
    unsafe { ring.launch(Launch::new(1, args.threads), (&token, &arrived, args.laps)) }?;

    world.barrier_all()?; // every PE waits for the token: let it go at PE 0
    let (me, n) = (u64::from(world.my_pe().number()), u64::from(world.n_pes()));
    let start = Instant::now();
    if me == 0 {
        arrived.add(1, world.my_pe())?;
    }
    world.synchronize()?;

    // Each PE holds the token as it passed it on last, except PE 0, which gets it back in the end.
    let hops = n * args.laps;
    let expected = if me == 0 { hops } else { hops - n + me + 1 };
    if me == 0 {
        arrived.wait_until(Cmp::Eq, args.laps + 1)?;
    }
    let elapsed = start.elapsed();

    let wrong = token
        .to_vec()?
        .iter()
        .enumerate()
        .find(|(_, seen)| **seen != expected)
        .map(|(word, seen)| format!("word {word} of the token has made {seen} hops, not {expected}"));
    verdict::all_agree(&world, wrong)?;
    if me == 0 {
        println!(
            "ring: {n} PEs x {} laps = {hops} hops of {} bytes in {}: {} a hop, every word counted on every PE",
            args.laps,
            token.bytes(),
            units::time(elapsed.as_nanos() as f64),
            units::time(elapsed.as_nanos() as f64 / hops as f64),
        );
        println!("ring: device: {} ({} threads a PE)", device::name(&world), args.threads);
    }
    world.finalize()?;
    Ok(())
}
