//! Several PEs inside one `#[test]` function, under plain `cargo test` or nextest, with no launcher.
//!
//! ```no_run
//! // #[test]
//! fn everybody_hears_from_the_left() {
//!     rushmem::testing::run(4, |world| {
//!         let inbox = world.alloc::<u32>(1).unwrap();
//!         inbox.p(0, world.my_pe().number(), world.right()).unwrap();
//!         world.barrier_all().unwrap();
//!         assert_eq!(inbox.to_vec().unwrap(), [world.left().number()]);
//!     });
//! }
//! ```
//!
//! The test binary starts itself again, once for each PE, with the arguments that run this one test; in those
//! processes [`run`] executes the closure and exits, in the first one it supervises. So a PE is a process as
//! in production; what precedes `run` in the function happens in every PE too, and what follows it only in
//! the parent (and in the PEs of a later `run` of the same function).
//!
//! Nobody outlives the test: there is a time limit (60 s unless said otherwise; checked runs,
//! `RUSHMEM_CHECK`, have five times as long), each PE leads a process group that is killed as a whole, and
//! PEs die with the test process. Their output is shown with `[pe 2]` before each line, through the test's
//! own captured output.
//!
//! [`threads`] runs the PEs as threads of one process. [`pes`] is the long form: settings, and
//! [`Pes::supervise`] for tests in which PEs are meant to fail.

mod child;
mod job;
mod process;

use std::ffi::{OsStr, OsString};
use std::time::Duration;

pub use job::{Job, Outcome};
pub use process::Exit;

use crate::{Pe, World};
use child::Role;
use job::Shape;

/// Runs `f` on `n` PEs, each a process of its own, and panics if any of them fails, saying which and how.
///
/// The world is made before `f` and finalised after it. `f` may return a `Result`.
#[track_caller]
pub fn run<R: PeResult>(n: u32, f: impl FnOnce(&World) -> R) {
    pes(n).run(f)
}

/// Runs `f` on `n` PEs that are threads of one process, and panics if any of them fails.
///
/// That process is a child too, so that a time limit can be kept.
#[track_caller]
pub fn threads<R: PeResult>(n: u32, f: impl Fn(&World) -> R + Sync) {
    pes(n).threads(f)
}

/// `n` PEs; the methods of [`Pes`] set the rest.
pub fn pes(n: u32) -> Pes {
    Pes { n, limit: Duration::from_secs(60), env: Vec::new(), without: Vec::new(), test: None }
}

/// The PEs of a test, before they start.
#[derive(Debug, Clone)]
#[must_use = "nothing runs before run(), threads() or supervise()"]
pub struct Pes {
    n: u32,
    limit: Duration,
    env: Vec<(Option<Pe>, OsString, OsString)>,
    without: Vec<Pe>,
    test: Option<String>,
}

impl Pes {
    /// The time limit: at its end everything is killed and the test fails. 60 s unless said.
    /// In checked runs (`RUSHMEM_CHECK`) it is five times as long.
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Sets an environment variable for all PEs.
    pub fn env(mut self, key: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.env.push((None, key.as_ref().into(), value.as_ref().into()));
        self
    }

    /// Sets an environment variable for one PE.
    pub fn env_for(mut self, pe: Pe, key: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.env.push((Some(pe), key.as_ref().into(), value.as_ref().into()));
        self
    }

    /// Never starts this PE, although the others count it as one of the job.
    pub fn without(mut self, pe: Pe) -> Self {
        self.without.push(pe);
        self
    }

    /// The test's path as `cargo test -- --exact` takes it. Only needed when called from a thread that the
    /// test made itself: the test's own thread bears the test's name.
    pub fn test(mut self, path: impl Into<String>) -> Self {
        self.test = Some(path.into());
        self
    }

    /// [`run`] with these settings.
    #[track_caller]
    pub fn run<R: PeResult>(self, f: impl FnOnce(&World) -> R) {
        match Role::of_this_process(self.test.as_deref()) {
            Role::Pe(pe) => child::exit_with(|| child::with_world(World::builder(), f), &pe.to_string()),
            Role::Bystander => {}
            Role::Parent(test) => Job::start(&self, &test, Shape::Processes).expect_success(),
        }
    }

    /// [`threads`] with these settings; [`env_for`](Pes::env_for) and [`without`](Pes::without) cannot apply.
    #[track_caller]
    pub fn threads<R: PeResult>(self, f: impl Fn(&World) -> R + Sync) {
        match Role::of_this_process(self.test.as_deref()) {
            Role::Pe(_) => child::exit_with(|| child::all_threads(self.n, &f), "the process of all PEs"),
            Role::Bystander => {}
            Role::Parent(test) => {
                // The streams of a process share eight hardware queues, and one that waits holds its own:
                // four that wait stop copies out of the GPU. More queues cost every start 0.6 s
                // (docs/gpu-findings.md).
                const QUEUES: &str = "CUDA_DEVICE_MAX_CONNECTIONS";
                let many = self.n > 1 && std::env::var_os(QUEUES).is_none();
                let pes = if many { self.env(QUEUES, "32") } else { self };
                Job::start(&pes, &test, Shape::Threads).expect_success();
            }
        }
    }

    /// The low-level form, for tests in which PEs die: `pe_side` runs in each PE's process, with the
    /// environment that [`World::init`] needs but no world made yet; `parent_side` runs in the test's process
    /// and decides what is right. PEs that still run when it returns are killed.
    ///
    /// ```no_run
    /// # use rushmem::{testing, Pe, World};
    /// # use std::time::Duration;
    /// // #[test]
    /// fn a_killed_pe_is_named() {
    ///     testing::pes(3).supervise(
    ///         |_pe| {
    ///             let world = World::init().unwrap();
    ///             println!("READY");
    ///             let error = loop {
    ///                 if let Err(error) = world.barrier_all() {
    ///                     break error;
    ///                 }
    ///             };
    ///             println!("ENDED {error}");
    ///         },
    ///         |job| {
    ///             let (victim, limit) = (Pe::new(1), Duration::from_secs(5));
    ///             job.wait_for_line(victim, "READY", limit);
    ///             job.kill(victim);
    ///             assert!(job.wait_for_line(Pe::new(2), "ENDED", limit).contains("PE 1"));
    ///             assert_eq!(job.outcome(Pe::new(0)).exit, testing::Exit::Done);
    ///         },
    ///     );
    /// }
    /// ```
    #[track_caller]
    pub fn supervise<R: PeResult>(self, pe_side: impl FnOnce(Pe) -> R, parent_side: impl FnOnce(&mut Job)) {
        match Role::of_this_process(self.test.as_deref()) {
            Role::Pe(pe) => child::exit_with(|| pe_side(pe).into_result(), &pe.to_string()),
            Role::Bystander => {}
            Role::Parent(test) => parent_side(&mut Job::start(&self, &test, Shape::Processes)),
        }
    }
}

/// What a PE's closure may return: nothing, or a `Result` whose error is shown.
pub trait PeResult {
    #[doc(hidden)]
    fn into_result(self) -> Result<(), String>;
}

impl PeResult for () {
    fn into_result(self) -> Result<(), String> {
        Ok(())
    }
}

impl<E: std::fmt::Display> PeResult for Result<(), E> {
    fn into_result(self) -> Result<(), String> {
        self.map_err(|error| error.to_string())
    }
}
