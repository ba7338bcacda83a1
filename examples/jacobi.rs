//! Jacobi's iteration with halos: a plate with fixed edges, cut into bands of rows, one for each block of
//! each PE. One launch makes all the steps; blocks exchange their edge rows by put and signal, within a PE
//! and between PEs alike. The result is compared with a serial run, bit by bit.
//!
//! `rushmem-run -n 4 -- jacobi --rows 300 --cols 200 --steps 100 --blocks 3`

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

/// Jacobi's iteration, its halos exchanged inside the kernel.
#[derive(Parser)]
struct Args {
    /// Rows of the plate between its fixed upper and lower edge; at least one for each block of each PE.
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..=65536))]
    rows: u64,
    /// Columns, the fixed first and last one among them.
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u64).range(3..=65536))]
    cols: u64,
    /// Steps.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(..=1_000_000))]
    steps: u64,
    /// Blocks of each PE.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1024))]
    blocks: u32,
    /// Threads of a block.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: u32,
}

fn main() -> ExitCode {
    common::exit("jacobi", run(&Args::parse()))
}

fn run(args: &Args) -> Outcome {
    let world = World::init()?;
    let (n, me) = (u64::from(world.n_pes()), u64::from(world.my_pe().number()));
    let bands = n * u64::from(args.blocks);
    if args.rows < bands {
        return Err(format!("--rows {} are too few for {bands} bands of one row", args.rows).into());
    }
    let cols = args.cols as usize;
    // The rows of this PE are those of its bands: with sizes that do not divide, PEs have different numbers
    // of them.
    let first_row = |pe: u64| (args.rows * (pe * u64::from(args.blocks)) / bands) as usize;
    let (begin, end) = (first_row(me), first_row(me + 1));
    let most_rows = (0..n).map(|pe| first_row(pe + 1) - first_row(pe)).max().unwrap_or(0);

    let plate = world.alloc::<f64>(most_rows * cols)?;
    let other = world.alloc::<f64>(most_rows * cols)?;
    let places = args.blocks as usize * 4;
    let halo = world.alloc::<f64>(places * cols)?;
    let arrived = world.signals(places)?;

    // Rows 0 and rows + 1 of the whole plate are its fixed edges: nobody sends them, they are there from
    // the start.
    let mut whole = whole_plate(args.rows as usize + 2, cols);
    plate.write(&whole[(begin + 1) * cols..(end + 1) * cols])?;
    let (upper, lower) = (&whole[..cols], &whole[whole.len() - cols..]);
    for parity in 0..2 {
        if me == 0 {
            halo.slice(parity * cols..)?.write(upper)?;
        }
        if me == n - 1 {
            halo.slice((places - 2 + parity) * cols..)?.write(lower)?;
        }
    }

    let module = world.load(Source::text(include_str!("jacobi.cu")).name("jacobi.cu"))?;
    let jacobi = module.kernel("jacobi")?;
    world.barrier_all()?; // nobody's rows arrive before everybody's memory is filled
    let start = Instant::now();
    // SAFETY: the kernel stays within these allocations, which outlive it; each place for a row has one
    // writer and one reader, and signals say whose turn it is.
    unsafe {
        jacobi.launch(
            Launch::new(args.blocks, args.threads),
            (&plate, &other, &halo, arrived.words(), args.rows, args.cols, args.steps),
        )
    }?;
    world.synchronize()?;
    let elapsed = start.elapsed();

    for _ in 0..args.steps {
        whole = serial_step(&whole, cols);
    }
    let result = if args.steps % 2 == 0 { &plate } else { &other };
    let mine = result.slice(..(end - begin) * cols)?.to_vec()?;
    let wrong =
        mine.iter().zip(&whole[(begin + 1) * cols..]).enumerate().find(|(_, (seen, right))| seen != right);
    let wrong = wrong.map(|(i, (seen, right))| {
        format!("row {}, column {} is {seen}, not {right}", begin + i / cols, i % cols)
    });
    verdict::all_agree(&world, wrong)?;
    if me == 0 {
        println!(
            "jacobi: {} rows x {cols} columns, {} steps on {n} PEs x {} blocks in {}, \
             every bit as in a serial run",
            args.rows,
            args.steps,
            args.blocks,
            units::time(elapsed.as_nanos() as f64)
        );
        println!("jacobi: device: {} ({} threads a block)", device::name(&world), args.threads);
    }
    world.finalize()?;
    Ok(())
}

/// The plate before the first step: hot at its upper edge, colder to the right, and with something inside.
fn whole_plate(rows: usize, cols: usize) -> Vec<f64> {
    let at = |row: usize, col: usize| match row {
        0 => 100.0 - 50.0 * col as f64 / cols as f64,
        row if row == rows - 1 => 0.0,
        row => ((row * 31 + col * 17) % 64) as f64,
    };
    (0..rows * cols).map(|i| at(i / cols, i % cols)).collect()
}

/// One step by one thread, in the kernel's order of additions.
fn serial_step(plate: &[f64], cols: usize) -> Vec<f64> {
    let mut next = plate.to_vec();
    for i in cols..plate.len() - cols {
        if i % cols != 0 && i % cols != cols - 1 {
            next[i] = 0.25 * ((plate[i - cols] + plate[i + cols]) + (plate[i - 1] + plate[i + 1]));
        }
    }
    next
}
