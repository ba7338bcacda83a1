//! The Rust API's put and p of 8 bytes, as `program.c` does them in C: the same words in the same order, one
//! quiet behind each batch.

use std::time::Instant;

use rushmem::World;

use crate::args::ShmemPeArgs;
use crate::job::{self, Result};

/// Calls of a batch, as program.c has it.
const CALLS: u64 = 1000;

pub(crate) fn run(args: &ShmemPeArgs) -> Result<()> {
    let world = World::init()?;
    let me = world.my_pe();
    job::pin(me.index());
    let memory = world.alloc::<i64>(2)?;
    let other = world.pe(world.n_pes() - 1)?;
    world.barrier_all()?;
    if me.number() == 0 {
        let put = |i| memory.slice(..1)?.put(&[i], other);
        let p = |i| memory.p(0, i, other);
        measure(&world, "put", args.samples, put)?;
        measure(&world, "p", args.samples, p)?;
    }
    world.barrier_all()?;
    memory.free()?;
    Ok(world.finalize()?)
}

fn measure(
    world: &World,
    name: &str,
    samples: u32,
    mut call: impl FnMut(i64) -> rushmem::Result<()>,
) -> Result<()> {
    let mut times = Vec::new();
    for batch in 0..=samples {
        let start = Instant::now();
        for i in 0..CALLS as i64 {
            call(i)?;
        }
        world.quiet()?;
        let ns = start.elapsed().as_nanos() as f64 / CALLS as f64;
        // The first one warms caches.
        if batch > 0 {
            times.push(format!("{ns:.2}"));
        }
    }
    println!("{name} 8 {}", times.join(" "));
    Ok(())
}
