//! The parent's side, all PEs: starts them, watches them from one thread, and answers for them.
//!
//! One thread of the job starts, reads and reaps the processes, and lives until the last of them has ended:
//! a process that is to die with its parent dies with the *thread* that started it, so that must not be the
//! test's.

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::mpsc::{channel, Sender};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::child::{Call, CALL};
use super::process::{Exit, Process};
use super::Pes;
use crate::{Pe, Uid};

/// How long the others may take to notice that a PE has failed before they are stopped, in [`super::run`].
const GRACE: Duration = Duration::from_secs(10);
/// Checked runs take longer, and so do their limits: so many times as long.
const CHECKED: u32 = 5;

/// How PEs are spread over processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// One for each.
    Processes,
    /// One for all; it goes by the name of PE 0.
    Threads,
}

impl Shape {
    fn name(self, pe: Pe) -> String {
        match self {
            Shape::Processes => pe.to_string(),
            Shape::Threads => "the process of all PEs".into(),
        }
    }

    /// What stands before each line of output.
    fn label(self, pe: Pe) -> String {
        match self {
            Shape::Processes => format!("[pe {}]", pe.number()),
            Shape::Threads => "[pes]".into(),
        }
    }
}

/// What became of a PE.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Outcome {
    /// The PE.
    pub pe: Pe,
    /// How it ended.
    pub exit: Exit,
    /// All that it wrote to standard output.
    pub stdout: String,
    /// All that it wrote to standard error.
    pub stderr: String,
    /// When it was started.
    pub started: Instant,
    /// When its end was noticed (within some 10 ms).
    pub ended: Instant,
}

/// The running PEs of a test; see [`Pes::supervise`]. Dropping it kills those that still run.
pub struct Job {
    shared: Arc<Shared>,
    deadline: Instant,
    limit: Duration,
    shape: Shape,
    watcher: Option<JoinHandle<()>>,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    processes: Vec<Process>,
    over: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Job {
    #[track_caller]
    pub(super) fn start(pes: &Pes, call: &Call, shape: Shape) -> Job {
        // The PEs meet in this process, so it does not matter which of them lives.
        let uid =
            Uid::create().unwrap_or_else(|error| panic!("cannot make a unique ID for the PEs: {error}"));
        let processes = if shape == Shape::Threads { 1 } else { pes.n };
        let numbers = (0..processes).map(Pe::new).filter(|pe| !pes.without.contains(pe));
        let commands = numbers.map(|pe| (pe, shape.label(pe), command(pes, call, &uid, pe))).collect();
        let state = State { processes: Vec::new(), over: false };
        let shared = Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new() });
        let (started, start) = channel();
        let watched = Arc::clone(&shared);
        let watcher = std::thread::spawn(move || watch(&watched, commands, &started));
        let is_checked =
            std::env::var_os("RUSHMEM_CHECK").is_some_and(|mode| !mode.is_empty() && mode != "0");
        let limit = if is_checked { pes.limit * CHECKED } else { pes.limit };
        let deadline = Instant::now() + limit;
        let job = Job { shared, deadline, limit, shape, watcher: Some(watcher) };
        if let Err(error) = start.recv().expect("the watcher answers before it ends") {
            panic!("{error}");
        }
        job
    }

    /// The process of a PE.
    #[track_caller]
    pub fn pid(&self, pe: Pe) -> u32 {
        find(&mut self.shared.lock(), pe).pid()
    }

    /// Whether a PE still runs.
    #[track_caller]
    pub fn is_running(&self, pe: Pe) -> bool {
        find(&mut self.shared.lock(), pe).ended.is_none()
    }

    /// Kills a PE with SIGKILL, waits until it has ended, and gives the time of that, if it still ran. (On a
    /// busy machine a process takes a while to die, seconds with many threads, and nobody can hear of it
    /// before.)
    #[track_caller]
    pub fn kill(&mut self, pe: Pe) -> Instant {
        let sent = self.signal(pe, libc::SIGKILL);
        let ended = self.wait(self.deadline, |state| find(state, pe).ended.map(|(_, at)| at));
        ended.map_or(sent, |at| at.max(sent))
    }

    /// Sends a signal to a PE, if it still runs, and gives the time of that.
    #[track_caller]
    pub fn signal(&mut self, pe: Pe, signal: i32) -> Instant {
        find(&mut self.shared.lock(), pe).signal(signal);
        Instant::now()
    }

    /// Waits until a PE has written a line that contains `text`, to either stream, and gives the line.
    ///
    /// # Panics
    /// When the PE ends without it, or `limit` or the job's time limit passes.
    #[track_caller]
    pub fn wait_for_line(&mut self, pe: Pe, text: &str, limit: Duration) -> String {
        let until = (Instant::now() + limit).min(self.deadline);
        let found = self.wait(until, |state| {
            let process = find(state, pe);
            process.line_with(text).map(Ok).or(process.ended.map(|(exit, _)| Err(exit)))
        });
        match found {
            Some(Ok(line)) => line,
            Some(Err(exit)) => panic!("{pe} {exit}, and never wrote {text:?}"),
            None => panic!("{pe} did not write {text:?} within {limit:?}"),
        }
    }

    /// Waits for the end of a PE. At the job's time limit the PE is killed, and its exit is
    /// [`Exit::Stopped`].
    #[track_caller]
    pub fn outcome(&mut self, pe: Pe) -> Outcome {
        let ended = self.wait(self.deadline, |state| find(state, pe).ended.map(drop));
        let mut state = self.shared.lock();
        let process = find(&mut state, pe);
        if ended.is_none() {
            process.stop(Exit::Stopped);
        }
        let (exit, ended) = process.ended.expect("it ended, or was just stopped");
        Outcome {
            pe,
            exit,
            stdout: process.text(0),
            stderr: process.text(1),
            started: process.started,
            ended,
        }
    }

    /// Waits for the end of every PE that was started, in order.
    pub fn outcomes(&mut self) -> Vec<Outcome> {
        let pes: Vec<Pe> = self.shared.lock().processes.iter().map(|process| process.pe).collect();
        pes.into_iter().map(|pe| self.outcome(pe)).collect()
    }

    /// Waits until all are done, or, after a failure, for as long as the others may need to notice.
    #[track_caller]
    pub(super) fn expect_success(&mut self) {
        let bad = |process: &Process| process.ended.is_some_and(|(exit, _)| exit != Exit::Done);
        let ended = |process: &Process| process.ended.is_some();
        self.wait(self.deadline, |state| {
            (state.processes.iter().any(bad) || state.processes.iter().all(ended)).then_some(())
        });
        if self.shared.lock().processes.iter().any(bad) {
            self.deadline = self.deadline.min(Instant::now() + GRACE);
        }
        let outcomes = self.outcomes();
        let failures: Vec<_> = outcomes.iter().filter(|outcome| outcome.exit != Exit::Done).collect();
        if failures.is_empty() {
            return;
        }
        let mut report =
            format!("{} of {} PE processes failed (limit {:?}):", failures.len(), outcomes.len(), self.limit);
        for outcome in failures {
            let after = outcome.ended - outcome.started;
            report += &format!(
                "\n  {} {} after {:.2} s",
                self.shape.name(outcome.pe),
                outcome.exit,
                after.as_secs_f64()
            );
        }
        panic!("{report}");
    }

    /// Waits until `done` gives something, or the time comes.
    fn wait<R>(&self, until: Instant, mut done: impl FnMut(&mut State) -> Option<R>) -> Option<R> {
        let mut state = self.shared.lock();
        loop {
            if let Some(result) = done(&mut state) {
                return Some(result);
            }
            let left = until.checked_duration_since(Instant::now())?;
            let changed = self.shared.changed.wait_timeout(state, left);
            state = changed.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        self.shared.lock().over = true;
        if let Some(watcher) = self.watcher.take() {
            // A panic of the watcher has been printed; all that it held has been dropped, so killed.
            let _ = watcher.join();
        }
    }
}

#[track_caller]
fn find(state: &mut State, pe: Pe) -> &mut Process {
    let found = state.processes.iter_mut().find(|process| process.pe == pe);
    found.unwrap_or_else(|| panic!("{pe} was not started"))
}

fn command(pes: &Pes, call: &Call, uid: &Uid, pe: Pe) -> Command {
    // The running binary itself, even if a build has replaced the file by now.
    let mut command = Command::new("/proc/self/exe");
    if let Ok(exe) = std::env::current_exe() {
        command.arg0(exe);
    }
    match &call.test {
        Some(test) => command.args([test, "--exact", "--nocapture", "--include-ignored"]),
        None => command.args(std::env::args_os().skip(1)),
    };
    command.env(CALL, call.number.to_string());
    // With one test at a time, the child's harness would write its name into the PE's first line.
    command.env_remove("RUST_TEST_THREADS");
    for (name, number) in
        [("PE", pe.number()), ("NPES", pes.n), ("LOCAL_PE", pe.number()), ("LOCAL_NPES", pes.n)]
    {
        command.env(format!("RUSHMEM_{name}"), number.to_string());
    }
    command.env("RUSHMEM_UID", uid.to_string());
    for (only, key, value) in &pes.env {
        if only.is_none_or(|only| only == pe) {
            command.env(key, value);
        }
    }
    command
}

/// The watcher: starts the processes, then reads and reaps until all are over or the job is dropped.
fn watch(shared: &Shared, commands: Vec<(Pe, String, Command)>, started: &Sender<Result<(), String>>) {
    let mut processes = Vec::new();
    for (pe, label, command) in commands {
        match Process::start(pe, label, command) {
            Ok(process) => processes.push(process),
            Err(error) => {
                let _ = started.send(Err(format!("cannot start {pe}: {error}")));
                return;
            }
        }
    }
    shared.lock().processes = processes;
    let _ = started.send(Ok(()));
    loop {
        let mut state = shared.lock();
        for process in &mut state.processes {
            process.read();
            process.look();
        }
        shared.changed.notify_all();
        if state.over {
            state.processes.iter_mut().for_each(|process| process.stop(Exit::Stopped));
            return;
        }
        let events = libc::POLLIN;
        let open = state.processes.iter().flat_map(Process::descriptors);
        let mut polled: Vec<_> = open.map(|fd| libc::pollfd { fd, events, revents: 0 }).collect();
        drop(state);
        // SAFETY: an array of that length. A descriptor closed meanwhile (by `stop`) only wakes the poll.
        unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, 10) };
    }
}
