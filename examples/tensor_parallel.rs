//! A tensor-parallel matrix product: the inner dimension is cut over the PEs, each multiplies its part, and
//! the kernel itself sums the parts on all PEs while other blocks go on computing. Every element is compared
//! with a serial product.
//!
//! `rushmem-run -n 4 -- tensor_parallel --rows 61 --cols 37 --depth 101 --blocks 3`

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
use rushmem::{Launch, Source, TeamConfig, World};

/// A tensor-parallel matrix product with its allreduce in the kernel.
#[derive(Parser)]
struct Args {
    /// Rows of the left matrix and of the product.
    #[arg(long, default_value_t = 61, value_parser = clap::value_parser!(u64).range(1..=65536))]
    rows: u64,
    /// Columns of the right matrix and of the product.
    #[arg(long, default_value_t = 37, value_parser = clap::value_parser!(u64).range(1..=65536))]
    cols: u64,
    /// The inner dimension, which is cut over the PEs; not all of them need have a part.
    #[arg(long, default_value_t = 101, value_parser = clap::value_parser!(u64).range(1..=65536))]
    depth: u64,
    /// Rows that are summed at a time.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..=65536))]
    stripe: u64,
    /// Blocks of each PE.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=64))]
    blocks: u32,
    /// Threads of a block.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: u32,
}

fn main() -> ExitCode {
    common::exit("tensor_parallel", run(&Args::parse()))
}

fn run(args: &Args) -> Outcome {
    let world = World::init()?;
    let (n, me) = (u64::from(world.n_pes()), u64::from(world.my_pe().number()));
    let (rows, cols) = (args.rows as usize, args.cols as usize);
    // With sizes that do not divide, parts differ, and some may be empty.
    let first = |pe: u64| (args.depth * pe / n) as usize;
    let (begin, end) = (first(me), first(me + 1));
    let most = (0..n).map(|pe| first(pe + 1) - first(pe)).max().unwrap_or(0);

    let x = world.alloc::<f32>(rows * most)?;
    let w = world.alloc::<f32>(most * cols)?;
    let y = world.alloc::<f32>(rows * cols)?;
    let part: Vec<f32> = (0..rows).flat_map(|row| (begin..end).map(move |k| left(row, k))).collect();
    x.slice(..part.len())?.write(&part)?;
    let part: Vec<f32> = (begin..end).flat_map(|k| (0..cols).map(move |col| right(k, col))).collect();
    w.slice(..part.len())?.write(&part)?;

    // Blocks reduce at once, so each has a slot set of the team.
    let lanes = TeamConfig::default().slot_sets(args.blocks);
    let team = world.team().configured(lanes).strided(0, 1, world.n_pes())?;
    let team = team.ok_or("all PEs are members")?;
    let module = world.load(Source::text(include_str!("tensor_parallel.cu")).name("tensor_parallel.cu"))?;
    let product = module.kernel("product")?;
    world.barrier_all()?;
    let start = Instant::now();
    // SAFETY: the kernel stays within these allocations and has a slot set for each block; all PEs launch it
    // with the same sizes.
    unsafe {
        let depth = (end - begin) as u64;
        let sizes = (args.rows, args.cols, depth, args.stripe);
        let arguments = (&team, &y, &x, &w, sizes.0, sizes.1, sizes.2, sizes.3);
        product.launch(Launch::new(args.blocks, args.threads), arguments)
    }?;
    world.synchronize()?;
    let elapsed = start.elapsed();

    let found = y.to_vec()?;
    let serial = |row: usize, col: usize| -> f32 {
        (0..args.depth as usize).fold(0.0, |sum, k| sum + left(row, k) * right(k, col))
    };
    let wrong = (0..rows * cols).find_map(|i| {
        let (row, col) = (i / cols, i % cols);
        let expected = serial(row, col);
        let is_wrong = found[i].to_bits() != expected.to_bits();
        is_wrong.then(|| format!("row {row}, column {col} is {}, not {expected}", found[i]))
    });
    verdict::all_agree(&world, wrong)?;
    if me == 0 {
        println!(
            "tensor_parallel: {rows} x {} by {} x {cols} on {n} PEs x {} blocks in {}, every element as in a serial \
             product",
            args.depth,
            args.depth,
            args.blocks,
            units::time(elapsed.as_nanos() as f64)
        );
        println!("tensor_parallel: device: {} ({} threads a block)", device::name(&world), args.threads);
    }
    team.free()?;
    world.finalize()?;
    Ok(())
}

/// Small whole numbers, whose products and sums floats hold exactly: so every order of additions gives the
/// same, a serial one too. Sums begin at 0, so none of them is -0.
fn left(row: usize, k: usize) -> f32 {
    ((row * 7 + k * 5) % 13) as f32 - 6.0
}

fn right(k: usize, col: usize) -> f32 {
    ((k * 3 + col * 11) % 9) as f32 - 4.0
}
