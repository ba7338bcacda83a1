//! What happens when one PE fails while the others wait for it in a barrier, for a signal and in a kernel:
//! every PE ends within a second, and says which one was the first and why.
//!
//! `rushmem-run -n 4 -- errors --how error --pe 1`; `--how` is `error` or `panic` (which `rushmem::run`
//! carries to all PEs), `drop` (a `main` without it, that returns early), `exit`, or `nothing`.

mod common;

use std::process::ExitCode;

use clap::{Parser, ValueEnum};
use common::Outcome;
use rushmem::{Cmp, Launch, Pe, World};

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum How {
    Error,
    Panic,
    Drop,
    Exit,
    Nothing,
}

/// One PE fails, the others wait for it.
#[derive(Parser)]
struct Args {
    /// How it fails.
    #[arg(long, value_enum, default_value = "error")]
    how: How,
    /// Which PE.
    #[arg(long, default_value_t = 1)]
    pe: u32,
}

/// Waits for what never comes.
const WAITER: &str = r#"
#include <rushmem/rushmem.cuh>
extern "C" __global__ void waiter(uint64_t *word) {
  rushmem::wait_until(word, RUSHMEM_CMP_EQ, uint64_t(1));
}
"#;

fn main() -> ExitCode {
    let args = Args::parse();
    match args.how {
        // The world is dropped on the way out of `without_run`.
        How::Drop | How::Nothing => common::exit("errors", without_run(&args)),
        _ => rushmem::run(|world| program(world, &args)),
    }
}

fn without_run(args: &Args) -> Outcome {
    let world = World::init()?;
    program(&world, args)
}

fn program(world: &World, args: &Args) -> Outcome {
    let signal = world.signal()?;
    let module = world.load(WAITER)?;
    world.barrier_all()?;
    let me = world.my_pe();
    if args.how == How::Nothing {
        return Ok(());
    }
    if me == Pe::new(args.pe) {
        match args.how {
            How::Panic => panic!("out of cheese"),
            #[allow(clippy::disallowed_methods, reason = "this is what the example is about")]
            How::Exit => std::process::exit(3),
            _ => return Err("out of cheese".into()),
        }
    }
    println!("{me} waits");
    match me.number() % 3 {
        0 => world.barrier_all()?,
        1 => drop(signal.wait_until(Cmp::Eq, 1)?),
        _ => {
            // SAFETY: the kernel reads the signal alone, which outlives it.
            unsafe { module.kernel("waiter")?.launch(Launch::new(1, 1), (&signal,)) }?;
            world.synchronize()?;
        }
    }
    Err(format!("{me}: nobody was to come").into())
}
