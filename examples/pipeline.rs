//! A pipeline of three streams. Each PE sends its array, piece by piece, to its right neighbour, which
//! works on it and sends the results back: sending, work and sending back overlap, each on a stream of its
//! own, and the host only queues. Signals say when a piece has come; a piece's result that has come back
//! says that its place is free for a later piece.
//!
//! `rushmem-run -n 4 -- pipeline --len 1000000 --piece 65536`

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
use rushmem::{Cmp, Launch, SignalOp, Source, World};

/// Sending, work and sending back, overlapped on three streams.
#[derive(Parser)]
struct Args {
    /// Numbers of each PE.
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(1..))]
    len: u32,
    /// Numbers in a piece; the last one has the rest.
    #[arg(long, default_value_t = 65536, value_parser = clap::value_parser!(u32).range(1..))]
    piece: u32,
    /// Pieces that may be on their way at once.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=64))]
    depth: u32,
    /// Blocks of the kernel.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=1024))]
    blocks: u32,
    /// Threads of a block.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: u32,
}

fn main() -> ExitCode {
    common::exit("pipeline", run(&Args::parse()))
}

fn run(args: &Args) -> Outcome {
    let world = World::init()?;
    let (len, piece, depth) = (args.len as usize, (args.piece.min(args.len)) as usize, args.depth as usize);
    let (left, me, right) = (world.left(), world.my_pe(), world.right());

    let input = world.alloc::<f32>(len)?;
    let output = world.alloc::<f32>(len)?;
    let places = world.alloc::<f32>(depth * piece)?; // for the left neighbour's pieces
    let results = world.alloc::<f32>(depth * piece)?; // of those, before they go back

    // Which piece is in a place, counted from 1. A word for each place: one word for all of them would be set
    // in an order that nothing promises.
    let arrived = world.signals(depth)?;
    let returned = world.signals(depth)?;
    let worked = world.signal()?;

    // A prime: no two pieces are alike, so that one which is written over another shows.
    let numbers: Vec<f32> = (0..len).map(|i| ((i * 13 + me.index() * 7) % 1009) as f32).collect();
    input.write(&numbers)?;
    let module = world.load(Source::text(include_str!("pipeline.cu")).name("pipeline.cu"))?;
    let square = module.kernel("square")?;
    let (send, work, back) = (world.stream()?, world.stream()?, world.stream()?);
    world.barrier_all()?;

    let start = Instant::now();
    for k in 0..len.div_ceil(piece) {
        let range = k * piece..len.min((k + 1) * piece);
        let (n, number) = (range.len(), k as u64 + 1);
        let place = (k % depth) * piece..(k % depth) * piece + n;
        let (came, went) = (arrived.at(k % depth)?, returned.at(k % depth)?);

        // To the right, as soon as the piece before in that place has come back.
        if k >= depth {
            went.wait_until_on(Cmp::Ge, number - args.depth as u64, &send)?;
        }
        places.slice(place.clone())?.put_signal_from_on(
            &input.slice(range.clone())?,
            &came,
            SignalOp::Set,
            number,
            right,
            &send,
        )?;

        // The left neighbour's piece, as soon as it is here.
        came.wait_until_on(Cmp::Ge, number, &work)?;
        let (from, to) = (places.slice(place.clone())?, results.slice(place)?);
        // SAFETY: the kernel stays within the two slices, which outlive it; the signals say whose turn it is.
        unsafe { square.launch_on(Launch::new(args.blocks, args.threads), (&from, &to, n as u64), &work) }?;
        worked.signal_op_on(SignalOp::Set, number, me, &work)?;

        // And back to the left.
        worked.wait_until_on(Cmp::Ge, number, &back)?;
        output.slice(range)?.put_signal_from_on(&to, &went, SignalOp::Set, number, left, &back)?;
    }
    let queued = start.elapsed();
    for stream in [&send, &work, &back] {
        stream.synchronize()?;
    }
    world.barrier_all()?; // everything that this PE gets back is here
    let elapsed = start.elapsed();

    let mark = right.number() as f32;
    let wrong = output.to_vec()?.iter().zip(&numbers).enumerate().find_map(|(i, (seen, number))| {
        let expected = number * number + mark;
        (*seen != expected).then(|| format!("number {i} is {seen}, not {expected}"))
    });
    verdict::all_agree(&world, wrong)?;
    if me.number() == 0 {
        println!(
            "pipeline: {len} numbers in pieces of {piece} to the right and back on {} PEs in {} (queued in \
             {}), as a serial run computes them",
            world.n_pes(),
            units::time(elapsed.as_nanos() as f64),
            units::time(queued.as_nanos() as f64)
        );
        println!("pipeline: device: {} ({} threads a block)", device::name(&world), args.threads);
    }
    world.finalize()?;
    Ok(())
}
