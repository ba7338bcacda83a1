//! All-to-all: a mixture of experts, one expert a PE. One kernel sends each token to its expert, works on
//! what came, and sends it back; the result is compared with the same work done by one thread of one host.
//!
//! `rushmem-run -n 4 -- alltoall --tokens 64 --width 256`

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
use rushmem::{Launch, Source, World};

/// A mixture of experts: dispatch, work and combine in one kernel.
#[derive(Parser)]
struct Args {
    /// Tokens of each PE.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=65536))]
    tokens: u32,
    /// Numbers in a token.
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=65536))]
    width: u32,
    /// Threads of a block; there is one block for each PE.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: u32,
    /// What the routing is derived from.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

fn main() -> ExitCode {
    common::exit("alltoall", run(&Args::parse()))
}

fn run(args: &Args) -> Outcome {
    let world = World::init()?;
    let n = world.n_pes() as usize;
    let (n_tokens, width) = (args.tokens as usize, args.width as usize);

    let expert = world.alloc::<u32>(n_tokens)?;
    let tokens = world.alloc::<f32>(n_tokens * width)?;
    let output = world.alloc::<f32>(n_tokens * width)?;
    let inbox = world.alloc::<f32>(n * n_tokens * width)?;
    let results = world.alloc::<f32>(n * n_tokens * width)?;
    let order = world.alloc::<u32>(n * n_tokens)?;
    let (dispatched, combined) = (world.alloc::<u64>(n)?, world.alloc::<u64>(n)?);

    let routes: Vec<u32> = (0..n_tokens).map(|token| route(args.seed, &world, token)).collect();
    let values: Vec<f32> =
        (0..n_tokens * width).map(|i| ((i * 7 + world.my_pe().index()) % 1024) as f32).collect();
    expert.write(&routes)?;
    tokens.write(&values)?;

    let module = world.load(Source::text(include_str!("alltoall.cu")).name("alltoall.cu"))?;
    let mixture = module.kernel("mixture")?;
    world.barrier_all()?;
    let start = Instant::now();
    // SAFETY: the kernel stays within these allocations, which outlive it; each pair of PEs has areas and
    // signals of its own, and the signals say when an area may be read.
    unsafe {
        mixture.launch(
            Launch::new(world.n_pes(), args.threads),
            (
                &expert,
                &tokens,
                &output,
                &inbox,
                &results,
                &order,
                &dispatched,
                &combined,
                args.tokens,
                args.width,
            ),
        )
    }?;
    world.synchronize()?;
    let elapsed = start.elapsed();

    let wrong = output.to_vec()?.iter().enumerate().find_map(|(i, seen)| {
        let expert = routes[i / width] as f32;
        let expected = values[i] * (expert + 1.0) + expert;
        (*seen != expected)
            .then(|| format!("number {} of token {} is {seen}, not {expected}", i % width, i / width))
    });
    verdict::all_agree(&world, wrong)?;
    if world.my_pe().number() == 0 {
        println!(
            "alltoall: {n} PEs x {n_tokens} tokens of {width} numbers to their experts and back in {}, as one thread \
             computes it",
            units::time(elapsed.as_nanos() as f64)
        );
        println!("alltoall: device: {} ({n} blocks of {} threads a PE)", device::name(&world), args.threads);
    }
    world.finalize()?;
    Ok(())
}

/// The expert of a token of this PE: anyone, and the first of them more often, as in real life.
fn route(seed: u64, world: &World, token: usize) -> u32 {
    let mut x = seed ^ (u64::from(world.my_pe().number()) << 32 | token as u64);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d049bb133111eb);
    x ^= x >> 31;
    if x % 4 == 0 {
        0
    } else {
        ((x >> 8) % u64::from(world.n_pes())) as u32
    }
}
