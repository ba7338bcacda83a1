//! MPI itself: whether the program initialised it or we must, and from which thread it may be called.
//!
//! MPI wants to be finalised by the thread that initialised it and can be initialised once in a process,
//! whereas worlds come and go on any thread. So when MPI is ours, one thread that lives as long as the
//! process owns it and makes every call, and MPI is finalised at process exit. That thread also bounds
//! `MPI_Init`, which itself blocks until every process of the job has called it. When MPI is the user's,
//! calls are made where the caller stands, one at a time, and MPI is left alone.

use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{channel, RecvTimeoutError, Sender};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use mpi_sys as ffi;
use rushmem_bootstrap_abi::{BootError, BootErrorKind, Result};

use crate::slow;

type Job = Box<dyn FnOnce() + Send>;

/// The owner thread's inbox, once MPI is ours; an `Err` is a start that failed or never returned.
static OURS: Mutex<Option<Result<Ours>>> = Mutex::new(None);
/// Keeps calls into the user's MPI one at a time.
static THEIRS: Mutex<()> = Mutex::new(());
/// A bootstrap gave up (timeout, abort), so MPI is not finalised: that would wait for all ranks.
static GAVE_UP: AtomicBool = AtomicBool::new(false);
/// The process that initialised MPI.
static OWNER: AtomicU32 = AtomicU32::new(0);
/// How long MPI may take to start before it is asked why, and how long that may take.
const USUAL: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_secs(6);
/// How long process exit may wait for `MPI_Finalize`.
const EXIT_LIMIT: Duration = Duration::from_secs(10);

#[derive(Clone)]
struct Ours {
    jobs: Sender<Job>,
    level: i32,
}

/// MPI, initialised and not finalised when this was made, and the way to call it.
#[derive(Clone)]
pub(crate) struct Session {
    ours: Option<Sender<Job>>,
    level: i32,
}

/// An MPI handle on its way between threads. MPI handles are plain names, valid on every thread; only *calls*
/// are restricted to threads, which [`Session::call`] sees to.
#[derive(Clone, Copy)]
pub(crate) struct Handle<T>(T);
// SAFETY: a handle is a name; only `Session::call` makes calls with it, on a thread that MPI allows.
unsafe impl<T> Send for Handle<T> {}
// SAFETY: a handle is a name; only `Session::call` makes calls with it, on a thread that MPI allows.
unsafe impl<T> Sync for Handle<T> {}

impl<T: Copy> Handle<T> {
    pub(crate) fn new(handle: T) -> Self {
        Handle(handle)
    }
    // A method, because closures would capture the bare field.
    pub(crate) fn get(self) -> T {
        self.0
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What these mutexes guard is replaced whole, so a panic elsewhere leaves it sound.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn flag(query: unsafe extern "C" fn(*mut i32) -> i32) -> bool {
    let mut value = 0;
    // SAFETY: only for MPI_Initialized, MPI_Finalized and MPI_Is_thread_main, which any thread may call.
    unsafe { query(&mut value) };
    value != 0
}

/// True once MPI is finalised.
fn finalized() -> bool {
    flag(ffi::MPI_Finalized)
}

/// Remembers that ranks are out of step, so that nothing collective is started at exit.
pub(crate) fn give_up() {
    GAVE_UP.store(true, Ordering::Release);
}

/// The text of an MPI error code. Call it where MPI may be called.
pub(crate) fn check(code: i32, what: &str) -> Result<()> {
    if code == ffi::MPI_SUCCESS as i32 {
        return Ok(());
    }
    let mut text = vec![0u8; ffi::MPI_MAX_ERROR_STRING as usize + 1];
    let mut len = 0;
    // SAFETY: the buffer has the size that MPI demands.
    unsafe { ffi::MPI_Error_string(code, text.as_mut_ptr().cast(), &mut len) };
    text.truncate(usize::try_from(len).unwrap_or(0));
    let text = String::from_utf8_lossy(&text).into_owned();
    Err(BootError::new(BootErrorKind::Io, format!("{what} failed: {text}")))
}

impl Session {
    /// MPI as it is, or initialised now; `limit` bounds that. `comm_given` says that the caller named a
    /// communicator, which only makes sense when MPI is already up.
    pub(crate) fn start(comm_given: bool, limit: Option<Duration>) -> Result<Session> {
        let environment = |text: &str| Err(BootError::new(BootErrorKind::Environment, text));
        if finalized() {
            return environment("MPI was finalised already in this process and cannot be started again");
        }
        let mut ours = lock(&OURS);
        match &*ours {
            Some(Ok(o)) => return Ok(Session { ours: Some(o.jobs.clone()), level: o.level }),
            Some(Err(e)) => return Err(e.clone()),
            None => {}
        }
        if flag(ffi::MPI_Initialized) {
            let mut level = 0;
            // SAFETY: MPI is up, and any thread may ask.
            check(unsafe { ffi::MPI_Query_thread(&mut level) }, "MPI_Query_thread")?;
            return Ok(Session { ours: None, level });
        }
        if comm_given {
            return environment(
                "a communicator was given, but MPI is not initialised: call MPI_Init_thread first",
            );
        }
        let made = init(limit);
        *ours = Some(made.clone());
        made.map(|o| Session { ours: Some(o.jobs), level: o.level })
    }

    /// True when this library initialised MPI.
    pub(crate) fn is_ours(&self) -> bool {
        self.ours.is_some()
    }

    /// The thread level that MPI gives, by name.
    pub(crate) fn level_name(&self) -> &'static str {
        match self.level as u32 {
            ffi::MPI_THREAD_SINGLE => "MPI_THREAD_SINGLE",
            ffi::MPI_THREAD_FUNNELED => "MPI_THREAD_FUNNELED",
            ffi::MPI_THREAD_SERIALIZED => "MPI_THREAD_SERIALIZED",
            ffi::MPI_THREAD_MULTIPLE => "MPI_THREAD_MULTIPLE",
            _ => "an unknown thread level",
        }
    }

    /// Runs `f`, a few MPI calls that do not block, where MPI may be called; an error once MPI is finalised.
    pub(crate) fn call<R: Send>(&self, f: impl FnOnce() -> Result<R> + Send) -> Result<R> {
        let gone =
            || BootError::new(BootErrorKind::Environment, "MPI was finalised before rushmem's world was");
        let f = || if finalized() { Err(gone()) } else { f() };
        let Some(jobs) = &self.ours else {
            let _one = lock(&THEIRS);
            if self.level < ffi::MPI_THREAD_SERIALIZED as i32
                && !finalized()
                && !flag(ffi::MPI_Is_thread_main)
            {
                let text = format!(
                    "MPI runs at {}, so only the thread that initialised it may start, use and finalise rushmem's \
                     world: do so, or initialise MPI with MPI_THREAD_SERIALIZED or more",
                    self.level_name()
                );
                return Err(BootError::new(BootErrorKind::Environment, text));
            }
            return f();
        };
        let (answer, wait) = channel();
        let job: Box<dyn FnOnce() + Send + '_> = Box::new(move || {
            // The receiver cannot be gone: it waits below.
            let _ = answer.send(catch_unwind(AssertUnwindSafe(f)));
        });
        // SAFETY: only the lifetime changes. The job is run or dropped before this function returns, because
        // the receive below ends with the job's answer or with the drop of its sender.
        let job: Job = unsafe { std::mem::transmute(job) };
        if jobs.send(job).is_err() {
            return Err(gone());
        }
        match wait.recv() {
            Ok(Ok(result)) => result,
            Ok(Err(panic)) => resume_unwind(panic),
            Err(_) => Err(gone()),
        }
    }
}

/// Initialises MPI on a thread of its own, which then serves jobs for ever.
fn init(limit: Option<Duration>) -> Result<Ours> {
    let (jobs, inbox) = channel::<Job>();
    let (started, start) = channel();
    let owner = move || {
        let mut level = 0;
        // SAFETY: MPI is neither initialised nor finalised, as `start` checked under the lock; MPI allows
        // nulls.
        let code = unsafe {
            ffi::MPI_Init_thread(
                std::ptr::null_mut(),
                std::ptr::null_mut(),
                ffi::MPI_THREAD_MULTIPLE as i32,
                &mut level,
            )
        };
        let outcome = check(code, "MPI_Init_thread");
        let up = outcome.is_ok();
        // Nobody listens after a timeout; then the job is lost anyway.
        let is_awaited = started.send(outcome.map(|()| level)).is_ok();
        while let Ok(job) = if up && is_awaited { inbox.recv() } else { return } {
            job();
        }
    };
    let spawned = std::thread::Builder::new().name("rushmem-mpi".into()).spawn(owner);
    spawned.map_err(|e| BootError::new(BootErrorKind::Io, format!("cannot start a thread for MPI: {e}")))?;

    let mut trouble = None;
    // What takes longer than usual is looked into while it goes on, and reported at once.
    let usual = limit.map_or(USUAL, |limit| USUAL.min(limit / 2));
    let mut reply = start.recv_timeout(usual);
    if reply == Err(RecvTimeoutError::Timeout) {
        let begin = Instant::now();
        let left = limit.map(|limit| limit.saturating_sub(usual));
        trouble = slow::name_trouble(left.unwrap_or(LOOK).min(LOOK));
        if let Some(trouble) = &trouble {
            eprintln!("rushmem [warn] MPI is slow to start, and {trouble}, which MPI asks for at its start");
        }
        reply = match left {
            Some(left) => start.recv_timeout(left.saturating_sub(begin.elapsed())),
            None => start.recv().map_err(RecvTimeoutError::from),
        };
    }
    let died = || BootError::new(BootErrorKind::Internal, "the thread that called MPI_Init_thread died");
    match reply {
        Ok(level) => {
            let level = level?;
            OWNER.store(std::process::id(), Ordering::Release);
            // SAFETY: the handler is a plain function that stays loaded: the runtime never unloads a plug-in.
            if unsafe { libc::atexit(finalize_at_exit) } != 0 {
                return Err(BootError::new(BootErrorKind::Io, "cannot register a handler for process exit"));
            }
            Ok(Ours { jobs, level })
        }
        Err(RecvTimeoutError::Timeout) => Err(BootError::new(
            BootErrorKind::Timeout,
            slow::verdict(limit.unwrap_or_default(), trouble.as_deref()),
        )),
        Err(RecvTimeoutError::Disconnected) => Err(died()),
    }
}

/// Finalises MPI on its thread, for a bounded time, unless ranks are out of step: then leaving without it is
/// what tells mpirun to end the job.
extern "C" fn finalize_at_exit() {
    // A child of fork calls this at its exit, too. MPI belongs to its parent, and the owning thread is not in
    // the child.
    if OWNER.load(Ordering::Acquire) != std::process::id() {
        return;
    }
    if GAVE_UP.load(Ordering::Acquire) {
        return;
    }
    // Another thread that holds the lock at exit is starting something that will never come to anything.
    let Ok(guard) = OURS.try_lock() else { return };
    let Some(Ok(ours)) = &*guard else { return };
    let (done, wait) = channel();
    let job: Job = Box::new(move || {
        if !finalized() {
            // SAFETY: on the thread that initialised MPI, once, at the very end.
            unsafe { ffi::MPI_Finalize() };
        }
        let _ = done.send(());
    });
    if ours.jobs.send(job).is_ok() && wait.recv_timeout(EXIT_LIMIT) == Err(RecvTimeoutError::Timeout) {
        eprintln!("rushmem: MPI_Finalize did not return within {EXIT_LIMIT:?}; leaving without it");
    }
}
