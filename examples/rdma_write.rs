//! A kernel that drives the network card itself: it writes work requests into the card's queue, rings the
//! doorbell, polls for completion and signals, with no CPU on the way. The target verifies every byte.
//! Without a card that kernels can write to, or with `--card software`, a program stands in for it
//! (docs/rdma.md).
//!
//! `rushmem-run -n 2 -- rdma_write --bytes 1000000`, and `rdma_write --list` for this machine's cards

mod common;
#[path = "common/device.rs"]
mod device;
#[path = "common/random.rs"]
mod random;
#[path = "common/units.rs"]
mod units;
#[path = "common/verdict.rs"]
mod verdict;

use std::process::ExitCode;
use std::time::Instant;

use clap::{Parser, ValueEnum};
use common::Outcome;
use rushmem::{Launch, Pe, Source, World};

/// Whose queues the kernel writes.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Card {
    /// A card's, where one is listed that kernels could write to, else the software card's.
    Auto,
    /// A card's.
    Real,
    /// The software card's, for PEs of one host.
    Software,
}

/// Two processes, and a kernel that writes from one to the other by the network card's queue.
#[derive(Parser)]
struct Args {
    /// Only shows this machine's network cards.
    #[arg(long)]
    list: bool,
    /// Bytes of each write.
    #[arg(long, default_value_t = 1 << 20, value_parser = clap::value_parser!(u64).range(1..=1 << 30))]
    bytes: u64,
    /// How many writes.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
    rounds: u64,
    /// Whose queue the kernel writes. RUSHMEM_TRANSPORT goes before it.
    #[arg(long, value_enum, default_value_t = Card::Auto)]
    card: Card,
}

fn main() -> ExitCode {
    let args = Args::parse();
    common::exit("rdma_write", if args.list { list() } else { run(&args) })
}

fn list() -> Outcome {
    match rushmem::doctor::network_cards()? {
        Ok(cards) => cards.iter().for_each(|card| println!("rdma_write: {card}")),
        Err(why) => println!("rdma_write: no network card with verbs: {why}"),
    }
    println!("rdma_write: a software card, for PEs of one host (RUSHMEM_TRANSPORT=queue-emulated)");
    Ok(())
}

/// An mlx5 card with a port that is active; or of whose ports Linux says nothing.
fn is_usable(card: &str) -> bool {
    card.contains(" (mlx5)") && (card.contains(": active,") || !card.contains("; port "))
}

/// What RUSHMEM_TRANSPORT is to be.
fn way(card: Card) -> rushmem::Result<&'static str> {
    let real = match card {
        Card::Auto => {
            rushmem::doctor::network_cards()?.is_ok_and(|cards| cards.iter().any(|card| is_usable(card)))
        }
        Card::Real => true,
        Card::Software => false,
    };
    Ok(if real { "queue" } else { "queue-emulated" })
}

fn run(args: &Args) -> Outcome {
    for (name, value) in [("RUSHMEM_TRANSPORT", way(args.card)?), ("RUSHMEM_PES_PER_NODE", "1")] {
        if std::env::var_os(name).is_none() {
            // No other thread runs yet that could read the environment.
            #[allow(clippy::disallowed_methods)]
            std::env::set_var(name, value);
        }
    }
    let world = World::init().map_err(|e| {
        let instead = "; --card software takes a program that is a card";
        format!("{e}{}", if args.card == Card::Software { "" } else { instead })
    })?;
    if world.n_pes() != 2 {
        return Err("takes two PEs: rushmem-run -n 2 -- rdma_write".into());
    }
    let (bytes, target) = (args.bytes as usize, Pe::new(1));
    let (to, from) = (world.alloc::<u8>(bytes)?, world.alloc::<u8>(bytes)?);
    let (signal, queued) = (world.signal()?, world.alloc::<u64>(1)?);
    let module = world.load(Source::text(include_str!("rdma_write.cu")).name("rdma_write.cu"))?;
    let write = module.kernel("rdma_write")?;
    let (mut requests, mut wrong, mut spent) = (0u64, None, 0.0);
    for round in 1..=args.rounds {
        let mut state = round;
        let data: Vec<u8> = (0..bytes).map(|_| random::next(&mut state) as u8).collect();
        if world.my_pe() != target {
            from.write(&data)?;
        }
        world.barrier_all()?;
        let start = Instant::now();
        // SAFETY: the kernel touches these arrays alone, which outlive it; the signal says when `to` is
        // written.
        unsafe { write.launch(Launch::new(1, 128), (&to, &from, bytes, &signal, round, &queued)) }?;
        world.synchronize()?;
        spent += start.elapsed().as_nanos() as f64;
        requests += queued.to_vec()?[0];
        if world.my_pe() == target {
            let seen = to.to_vec()?;
            let bad = seen.iter().zip(&data).position(|(seen, data)| seen != data);
            wrong = wrong.or_else(|| bad.map(|at| format!("round {round}: byte {at} is wrong")));
        }
        world.barrier_all()?;
    }
    verdict::all_agree(&world, wrong)?;
    if world.my_pe() != target {
        let way = world.peer(target)?;
        println!(
            "rdma_write: {} writes of {bytes} bytes in {} requests, {} each with its launch; every byte verified by {target}",
            args.rounds,
            requests,
            units::time(spent / args.rounds as f64)
        );
        println!("rdma_write: {} ({}); device: {}", way.transport, way.reason, device::name(&world));
    }
    world.finalize()?;
    Ok(())
}
