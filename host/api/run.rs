//! A program's `main` around its world: whatever ends one PE early, an error or a panic, ends the job, and
//! every PE says first which PE that was and why.

use std::any::Any;
use std::fmt::Display;
use std::io::Write;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::process::ExitCode;
use std::time::Duration;

use crate::{Result, World, WorldBuilder};

/// How long a PE that ends because of another one waits before it exits, so that the launcher sees that one
/// end first.
const EXIT_DELAY: Duration = Duration::from_millis(300);
/// What a program exits with after a panic, as Rust's own `main` does.
const PANICKED: u8 = 101;

/// Joins the job that the environment describes, lends the world to `program`, and finalises it; the exit
/// code for `main`.
///
/// An error that `program` returns, or its panic, reaches all PEs at once: their calls, waits and kernels end
/// with [`ErrorCode::PeerDead`](crate::ErrorCode::PeerDead) and that text. Each PE prints which PE was the
/// first and why, and exits with a code other than 0 (1 for an error, 101 for a panic), also one whose own
/// part went well. A PE that is computing learns of it at its next call.
///
/// ```no_run
/// use std::process::ExitCode;
///
/// fn main() -> ExitCode {
///     rushmem::run(program)
/// }
///
/// fn program(world: &rushmem::World) -> Result<(), Box<dyn std::error::Error>> {
///     let steps: u64 = std::env::args().nth(1).ok_or("how many steps?")?.parse()?; // all PEs learn of it
///     let sum = world.alloc::<u64>(1)?;
///     for _ in 0..steps {
///         sum.at(0, world.right()).add(1)?;
///     }
///     world.barrier_all()?;
///     Ok(())
/// }
/// ```
pub fn run<E: Display>(program: impl FnOnce(&World) -> std::result::Result<(), E>) -> ExitCode {
    run_with(World::builder(), program)
}

/// [`run`] with a world that `builder` describes.
pub fn run_with<E: Display>(
    builder: WorldBuilder,
    program: impl FnOnce(&World) -> std::result::Result<(), E>,
) -> ExitCode {
    let world = match builder.init() {
        Ok(world) => world,
        Err(error) => {
            say(format_args!("cannot start: {error}"));
            return ExitCode::FAILURE;
        }
    };
    // The world is only used to leave it: what `program` may have left half done is its own.
    match catch_unwind(AssertUnwindSafe(|| program(&world))) {
        Ok(Ok(())) => finish(world),
        Ok(Err(error)) => {
            give_up(world, &error.to_string(), "failed");
            ExitCode::FAILURE
        }
        // Its text and place have been printed.
        Err(panic) => {
            give_up(world, text_of(&*panic), "panicked");
            ExitCode::from(PANICKED)
        }
    }
}

/// Prints a line in one piece: all PEs of a host write to one standard error.
fn say(text: std::fmt::Arguments<'_>) {
    let line = format!("rushmem: {text}\n");
    // A failure here could be printed nowhere.
    let _ = std::io::stderr().write_all(line.as_bytes());
}

fn finish(world: World) -> ExitCode {
    let me = name(&world);
    match world.finalize() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(format_args!("{me}: its own part went well, but the job did not: {error}"));
            std::thread::sleep(EXIT_DELAY);
            ExitCode::FAILURE
        }
    }
}

/// Leaves the job because of `error`, unless another PE was first: then that is what is said first.
fn give_up(world: World, error: &str, how: &str) {
    let (me, first) = (name(&world), first(&world));
    let is_first = first.is_none();
    match first {
        Some(first) if error.contains(&first) => say(format_args!("{me} ends because {first}")),
        Some(first) => {
            say(format_args!("{me} ends because {first}"));
            say(format_args!("{me} itself {how} after that: {error}"));
        }
        None => say(format_args!("{me} {how}: {error}")),
    }
    world.abandon(&format!("its program {how}: {error}"));
    // What a drop does has been done.
    std::mem::forget(world);
    if !is_first {
        std::thread::sleep(EXIT_DELAY);
    }
}

/// Why the job broke, where another PE was the reason.
fn first(world: &World) -> Option<String> {
    let broken: Result<()> = world.check_job();
    broken.err().map(|error| error.message().to_owned())
}

fn name(world: &World) -> String {
    format!("{} of {}", world.my_pe(), world.n_pes())
}

fn text_of(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("with a value that is no text")
}
