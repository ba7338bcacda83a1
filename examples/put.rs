//! Put and get from the host: every PE puts its squares to its right neighbour, and gets back what it put;
//! both sides are checked.
//!
//! `rushmem-run -n 4 -- put`

mod common;
#[path = "common/device.rs"]
mod device;
#[path = "common/verdict.rs"]
mod verdict;

use std::process::ExitCode;

use common::Outcome;
use rushmem::World;

const N: usize = 1000;

/// What `pe` puts.
fn squares(pe: rushmem::Pe) -> Vec<u64> {
    (0..N as u64).map(|i| u64::from(pe.number()) * 1_000_000 + i * i).collect()
}

fn main() -> ExitCode {
    common::exit("put", run())
}

fn run() -> Outcome {
    let world = World::init()?;
    let inbox = world.alloc::<u64>(N)?; // the same place on every PE

    inbox.put(&squares(world.my_pe()), world.right())?;
    world.barrier_all()?; // every put is complete, everywhere

    let mut back = vec![0; N];
    inbox.get(&mut back, world.right())?;

    let wrong = if inbox.to_vec()? != squares(world.left()) {
        Some(format!("the inbox does not hold what {} put", world.left()))
    } else if back != squares(world.my_pe()) {
        Some(format!("{} does not hold what was put there", world.right()))
    } else {
        None
    };
    verdict::all_agree(&world, wrong)?;
    if world.my_pe().number() == 0 {
        println!(
            "put: {} PEs put {N} words to the right and got them back, all as they should be",
            world.n_pes()
        );
        println!("put: device: {}", device::name(&world));
    }
    world.finalize()?;
    Ok(())
}
