//! Work stealing by the host: each PE has a list of tasks of its own, some many and some few. A PE takes
//! tasks off its own list by fetch_add, and then, when it has none left, off the lists of the others: no PE
//! waits for another, and no PE needs to answer. Results go to the list's owner, who compares them with a
//! serial run.
//!
//! `rushmem-run -n 4 -- stealing --tasks 1000`

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

use clap::Parser;
use common::Outcome;
use rushmem::World;

/// Tasks for the host that go to the PE that has time.
#[derive(Parser)]
struct Args {
    /// Tasks of all PEs.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(..=10_000_000))]
    tasks: u64,
    /// Tasks that are taken at once.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..=1024))]
    grain: u64,
    /// Rounds of work in the longest task.
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u64).range(1..))]
    work: u64,
    /// What the tasks are derived from.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

fn main() -> ExitCode {
    common::exit("stealing", run(&Args::parse()))
}

fn run(args: &Args) -> Outcome {
    let world = World::init()?;
    let (n, me) = (u64::from(world.n_pes()), world.my_pe());
    // The lists' lengths grow with the PE's number: PE 0 has almost none, the last PE twice the average.
    let first = |pe: u64| args.tasks * pe * pe / (n * n);
    let length = |pe: u64| first(pe + 1) - first(pe);
    let most = (0..n).map(length).max().unwrap_or(0).max(1) as usize;

    let tasks = world.alloc::<u64>(most)?;
    let results = world.alloc::<u64>(most)?;
    let done = world.alloc::<u32>(most)?; // how often: once
    let taken = world.alloc::<u64>(1)?; // tasks that a PE has taken off this list, or tried to
    let stolen = world.alloc::<u64>(1)?; // PE 0's: tasks that went to another PE than their owner

    let begin = first(u64::from(me.number()));
    let mine: Vec<u64> =
        (begin..begin + length(u64::from(me.number()))).map(|i| args.seed ^ (i << 20)).collect();
    tasks.slice(..mine.len())?.write(&mine)?;
    world.barrier_all()?; // all lists are filled
    let start = Instant::now();

    let mut victims = world.pes().collect::<Vec<_>>();
    victims.rotate_left(me.index()); // one's own list first, then the right neighbour's
    for victim in victims {
        let there = length(u64::from(victim.number()));
        loop {
            let at = taken.at(0, victim).fetch_add(args.grain)?;
            if at >= there {
                break; // that list is empty, and stays so
            }
            for task in at..there.min(at + args.grain) {
                let task = task as usize;
                let result = work(tasks.g(task, victim)?, args.work);
                results.p(task, result, victim)?;
                done.at(task, victim).inc()?;
                if victim != me {
                    stolen.at(0, world.pe(0)?).inc()?;
                }
            }
        }
    }
    world.barrier_all()?; // all results are at their owners
    let elapsed = start.elapsed();

    let (results, done) = (results.to_vec()?, done.to_vec()?);
    let wrong = mine.iter().enumerate().find_map(|(i, task)| {
        let right = work(*task, args.work);
        (results[i] != right || done[i] != 1).then(|| {
            format!("task {i} gave {} instead of {right}, and was done {} times", results[i], done[i])
        })
    });
    verdict::all_agree(&world, wrong)?;
    if me.number() == 0 {
        println!(
            "stealing: {} tasks on {n} PEs in {}, {} of them stolen, each done once, as in a serial run",
            args.tasks,
            units::time(elapsed.as_nanos() as f64),
            stolen.g(0, me)?,
        );
        println!("stealing: device: {}; idle, as this is work of the hosts", device::name(&world));
    }
    world.finalize()?;
    Ok(())
}

/// A task: some take long, and none says so beforehand.
fn work(task: u64, longest: u64) -> u64 {
    let mut random = task;
    let rounds = random::next(&mut random) % longest;
    (0..rounds).fold(task, |sum, _| sum.rotate_left(7) ^ random::next(&mut random))
}
