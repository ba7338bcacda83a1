//! The life of a job: starts the PEs, waits, and decides what their ends mean.
//!
//! A PE that fails is not the end at once: the others get some seconds to notice by themselves, because what they say then
//! (which PE died, and where they waited for it) is what the user needs. After that they are asked, then made to
//! end. Whichever way the job ends, nothing that it started is left.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use nix::sys::wait::WaitStatus;
use nix::unistd::Pid;

use crate::args::Args;
use crate::output::Output;
use crate::signals::{Arrived, Signals};
use crate::{processes, rendezvous, say, spawn, Failure};

/// Between SIGTERM and SIGKILL.
const TERM_GRACE: Duration = Duration::from_secs(2);
/// How long killed processes may take to go.
const KILL_LIMIT: Duration = Duration::from_secs(10);
/// A second SIGINT or SIGTERM counts as one only after this: some senders signal both the group and the launcher.
const SECOND_SIGNAL_AFTER: Duration = Duration::from_millis(500);
/// Exit code when the time is up, as `timeout` has it.
const TIMED_OUT: u8 = 124;
/// A message names at most so many PEs.
const MOST_NAMES: usize = 8;

/// How far the ending of a job has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Running,
    /// A PE failed; the others are left alone until then.
    Noticing(Instant),
    /// SIGTERM was sent; SIGKILL follows then.
    Terminating(Instant),
    Killing,
}

struct Job<'a> {
    args: &'a Args,
    pids: Vec<Pid>,
    alive: Vec<bool>,
    stage: Stage,
    /// The exit code, once it is known not to be 0.
    code: Option<u8>,
    first_signal: Option<Instant>,
}

/// Runs the job; its exit code.
pub(crate) fn run(args: &Args) -> Result<u8, Failure> {
    let os = |what: &'static str| move |e: nix::Error| Failure::own(format!("cannot {what}: {e}"));
    processes::adopt_orphans().map_err(os("become the reaper of orphans"))?;
    let files = spawn::make_room(args)?;
    // Before the first thread, so that no thread takes a signal from us.
    let signals = Signals::block().map_err(os("wait for signals"))?;
    let begin = Instant::now();
    let (uid, _rendezvous) = rendezvous::open()?;

    let mut children = Vec::new();
    for pe in 0..args.n {
        match spawn::spawn(args, pe, &uid, signals.before(), files) {
            Ok(child) => children.push(child),
            Err(failure) => {
                processes::kill_all(KILL_LIMIT, |_, _| ());
                return Err(failure);
            }
        }
    }
    let output = if args.tag_output { Some(Output::start(&mut children)) } else { None };
    let output = output.transpose();
    let pids: Vec<Pid> = children.iter().map(|c| Pid::from_raw(c.id() as i32)).collect();
    drop(children);

    let mut job = Job {
        args,
        alive: vec![true; pids.len()],
        pids,
        stage: Stage::Running,
        code: None,
        first_signal: None,
    };
    let watched = match &output {
        Ok(_) => job.watch(&signals, args.timeout.map(|limit| begin + limit)),
        Err(e) => Err(Failure::own(format!("cannot start a thread for output: {e}"))),
    };
    // Whatever happened, and also when all went well: what PEs left behind goes now.
    if !processes::kill_all(KILL_LIMIT, |pid, status| job.ended(pid, status)) {
        say("some processes withstand SIGKILL; leaving them");
    }
    // From here on a signal ends us as it ends any program: a reader of ours may never read on.
    signals.restore();
    if let Ok(Some(output)) = output {
        output.finish();
    }
    watched.map(|()| job.code.unwrap_or(0))
}

impl Job<'_> {
    /// Until no PE is left, or the rest is to be killed.
    fn watch(&mut self, signals: &Signals, end: Option<Instant>) -> Result<(), Failure> {
        loop {
            processes::reap(|pid, status| self.ended(pid, status));
            if !self.alive.contains(&true) {
                return Ok(());
            }
            let now = Instant::now();
            if self.code != Some(TIMED_OUT) && end.is_some_and(|end| now >= end) {
                let limit = self.args.timeout.unwrap_or_default();
                say(&format!(
                    "the time of {limit:?} is up with {} still running; ending the job",
                    self.names()
                ));
                self.code = Some(TIMED_OUT);
                self.terminate(now);
            }
            match self.stage {
                Stage::Noticing(until) if now >= until => {
                    say(&format!("{} did not end by itself; ending it", self.names()));
                    self.terminate(now);
                }
                Stage::Terminating(until) if now >= until => self.stage = Stage::Killing,
                _ => {}
            }
            let stage_end = match self.stage {
                Stage::Running => None,
                Stage::Noticing(until) | Stage::Terminating(until) => Some(until),
                Stage::Killing => return Ok(()),
            };
            let end = end.filter(|_| self.code != Some(TIMED_OUT));
            let until = [stage_end, end].into_iter().flatten().min();
            let arrived =
                signals.wait(until).map_err(|e| Failure::own(format!("cannot wait for signals: {e}")))?;
            for signal in arrived {
                self.signalled(signal);
            }
        }
    }

    fn signalled(&mut self, arrived: Arrived) {
        let now = Instant::now();
        processes::forward(arrived.signal, &self.pids_alive(), arrived.from_terminal);
        if !matches!(arrived.signal, Signal::SIGINT | Signal::SIGTERM) {
            return;
        }
        match self.first_signal {
            None => self.first_signal = Some(now),
            Some(first) if now.duration_since(first) >= SECOND_SIGNAL_AFTER => {
                if matches!(self.stage, Stage::Running | Stage::Noticing(_)) {
                    say(&format!("a second {}; ending the job", arrived.signal));
                    self.code.get_or_insert(128 + arrived.signal as u8);
                    self.terminate(now);
                }
            }
            Some(_) => {}
        }
    }

    fn terminate(&mut self, now: Instant) {
        processes::terminate_all();
        self.stage = Stage::Terminating(now + TERM_GRACE);
    }

    /// A child ended: a PE, or an orphan that became ours.
    fn ended(&mut self, pid: Pid, status: WaitStatus) {
        let Some(pe) = self.pids.iter().position(|p| *p == pid).filter(|&pe| self.alive[pe]) else { return };
        self.alive[pe] = false;
        let (code, how) = match status {
            WaitStatus::Exited(_, 0) => return,
            WaitStatus::Exited(_, code) => (code as u8, format!("exited with code {code}")),
            WaitStatus::Signaled(_, signal, core) => {
                let core = if core { ", core dumped" } else { "" };
                (128 + signal as u8, format!("was killed by {signal} (signal {}{core})", signal as i32))
            }
            _ => return,
        };
        if self.code.is_some() {
            return;
        }
        self.code = Some(code);
        let others = if self.alive.contains(&true) { "; the others are ended" } else { "" };
        say(&format!("PE {pe} (pid {pid}) {how}{others}"));
        if self.stage == Stage::Running {
            self.stage = Stage::Noticing(Instant::now() + self.args.grace);
        }
    }

    fn pids_alive(&self) -> Vec<Pid> {
        self.pids.iter().zip(&self.alive).filter(|(_, alive)| **alive).map(|(pid, _)| *pid).collect()
    }

    /// The PEs that still run, for a message.
    fn names(&self) -> String {
        let alive: Vec<usize> = (0..self.alive.len()).filter(|&pe| self.alive[pe]).collect();
        let mut names: Vec<String> = alive.iter().take(MOST_NAMES).map(usize::to_string).collect();
        if alive.len() > MOST_NAMES {
            names.push(format!("{} more", alive.len() - MOST_NAMES));
        }
        format!("PE{} {}", if alive.len() == 1 { "" } else { "s" }, names.join(", "))
    }
}
