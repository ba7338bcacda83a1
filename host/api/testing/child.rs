//! The child's side: which part this process plays, and how a PE runs its closure and says how it went.
//!
//! A child is the same test binary with the same test selected, so it comes to the same calls in the same
//! order; their number, counted for each test, says which one it was started for. A child says that its
//! closure has finished by an exit code of its own, because a test binary that found no such test also exits
//! with 0.

use std::collections::HashMap;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use super::PeResult;
use crate::{Pe, Uid, World, WorldBuilder};

/// Tells a child which call of the testing functions it is for.
pub(super) const CALL: &str = "RUSHMEM_TEST_CALL";
/// Exit code of a PE whose closure returned, and whose world was finalised, without an error.
pub(super) const DONE: i32 = 86;
/// Exit code of a PE that panicked or failed; what the Rust runtime uses for panics.
pub(super) const FAILED: i32 = 101;

/// One call of a testing function: of which test, and its how-manieth.
pub(super) struct Call {
    /// The test's path; `None` where the program is not a test binary (a doc test, an example).
    pub(super) test: Option<String>,
    pub(super) number: u32,
}

pub(super) enum Role {
    /// The test itself: start the PEs and watch them.
    Parent(Call),
    /// A PE started for this very call.
    Pe(Pe),
    /// A PE started for a later call of the same test: pass by.
    Bystander,
}

impl Role {
    #[track_caller]
    pub(super) fn of_this_process(test: Option<&str>) -> Role {
        static INSIDE: AtomicBool = AtomicBool::new(false);
        assert!(
            !INSIDE.load(Ordering::Relaxed),
            "a PE of a test cannot start PEs itself: call the functions of rushmem::testing one after another"
        );
        let call = Call::next(test);
        let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u32>().ok());
        match number(CALL) {
            None => Role::Parent(call),
            Some(wanted) if wanted != call.number => Role::Bystander,
            Some(_) => {
                INSIDE.store(true, Ordering::Relaxed);
                Role::Pe(Pe::new(number("RUSHMEM_PE").expect("set together with the call's number")))
            }
        }
    }
}

impl Call {
    /// libtest runs each test in a thread that bears its path, also one at a time.
    fn next(test: Option<&str>) -> Call {
        static CALLS: Mutex<Option<HashMap<Option<String>, u32>>> = Mutex::new(None);
        let thread = std::thread::current();
        let test = test.or_else(|| thread.name().filter(|name| *name != "main")).map(str::to_owned);
        let mut calls = CALLS.lock().unwrap_or_else(PoisonError::into_inner);
        let count = calls.get_or_insert_default().entry(test.clone()).or_default();
        *count += 1;
        Call { test, number: *count }
    }
}

/// Runs the PE's code and ends the process with the code that says how it went.
pub(super) fn exit_with(code: impl FnOnce() -> Result<(), String>, who: &str) -> ! {
    // The default hook has printed a panic's text and place by the time it arrives here.
    let exit = match catch_unwind(AssertUnwindSafe(code)) {
        Ok(Ok(())) => DONE,
        Ok(Err(error)) => {
            eprintln!("{who} failed: {error}");
            FAILED
        }
        Err(_) => FAILED,
    };
    // The world is gone by now, and the rest of the test function belongs to the parent.
    #[allow(clippy::disallowed_methods)]
    std::process::exit(exit)
}

/// Makes a world, lends it to `f`, and finalises it when all went well; else drops it, and tells the others.
pub(super) fn with_world<R: PeResult>(
    builder: WorldBuilder,
    f: impl FnOnce(&World) -> R,
) -> Result<(), String> {
    let world = builder.init().map_err(|error| format!("starting: {error}"))?;
    match f(&world).into_result() {
        Ok(()) => world.finalize().map_err(|error| format!("finalising: {error}")),
        Err(error) => {
            world.abandon(&error);
            std::mem::forget(world);
            Err(error)
        }
    }
}

/// Every PE a thread of this process.
pub(super) fn all_threads<R: PeResult>(n: u32, f: &(impl Fn(&World) -> R + Sync)) -> Result<(), String> {
    let uid = Uid::create().map_err(|error| error.to_string())?;
    let run = |rank| with_world(World::builder().uid(&uid, rank, n), f);
    let failures: Vec<String> = std::thread::scope(|scope| {
        let start = |rank| {
            let thread = std::thread::Builder::new().name(Pe::new(rank).to_string());
            thread.spawn_scoped(scope, move || run(rank)).expect("the system has room for a few threads")
        };
        let running: Vec<_> = (0..n).map(start).collect();
        let ended = running.into_iter().map(|thread| thread.join());
        let failure = |(pe, end)| match end {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(format!("PE {pe}: {error}")),
            Err(_) => Some(format!("PE {pe} panicked")),
        };
        ended.enumerate().filter_map(failure).collect()
    });
    if failures.is_empty() {
        Ok(())
    } else {
        Err(failures.join("; "))
    }
}
