//! What a job's end means: which failure was the first, how far the ending has come, and the exit code.
//!
//! A PE that fails is not the end at once: the others get some seconds to notice by themselves, because what
//! they say then (which PE died, and where they waited for it) is what the user needs. After that they are
//! asked, then made to end.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::say;
use crate::signals::Arrived;

/// A second SIGINT or SIGTERM counts as one only after this: some senders signal both the group and the
/// launcher.
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
    /// They have been asked to end; they are killed then.
    Terminating(Instant),
}

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Wait until then, or for ever.
    Wait(Option<Instant>),
    /// Ask all that still run to end.
    Terminate,
    Kill,
}

/// The state of a job.
pub(crate) struct Verdict {
    grace: Duration,
    term_grace: Duration,
    limit: Option<Duration>,
    end: Option<Instant>,
    stage: Stage,
    /// The exit code, once it is known not to be 0.
    code: Option<u8>,
    first_signal: Option<Instant>,
    alive: Vec<bool>,
}

impl Verdict {
    /// For `n` PEs that run from now on, for `limit` at most. After a failure the others have `grace` to end
    /// by themselves, and when they have been asked `term_grace`.
    pub(crate) fn new(n: usize, grace: Duration, term_grace: Duration, limit: Option<Duration>) -> Verdict {
        Verdict {
            grace,
            term_grace,
            limit,
            end: limit.map(|limit| Instant::now() + limit),
            stage: Stage::Running,
            code: None,
            first_signal: None,
            alive: vec![true; n],
        }
    }

    /// A PE has ended; `who` is what it is called. Only the first failure is announced.
    pub(crate) fn ended(&mut self, pe: usize, who: &str, failure: Option<(u8, String)>) {
        self.alive[pe] = false;
        if let Some((code, how)) = failure {
            let others = if self.is_alive() { "; the others are ended" } else { "" };
            self.failed(code, &format!("{who} {how}{others}"));
        }
    }

    /// Something has failed; only the first failure is announced.
    pub(crate) fn failed(&mut self, code: u8, text: &str) {
        if self.code.is_some() {
            return;
        }
        self.code = Some(code);
        say(text);
        if self.stage == Stage::Running {
            self.stage = Stage::Noticing(Instant::now() + self.grace);
        }
    }

    /// PEs that will report nothing any more.
    pub(crate) fn lost(&mut self, pes: &[u32]) {
        pes.iter().for_each(|pe| self.alive[*pe as usize] = false);
    }

    pub(crate) fn is_alive(&self) -> bool {
        self.alive.contains(&true)
    }

    /// The exit code.
    pub(crate) fn code(&self) -> u8 {
        self.code.unwrap_or(0)
    }

    /// What is to be done now.
    pub(crate) fn step(&mut self) -> Step {
        let now = Instant::now();
        if self.code != Some(TIMED_OUT) && self.end.is_some_and(|end| now >= end) {
            let limit = self.limit.unwrap_or_default();
            say(&format!("the time of {limit:?} is up with {} still running; ending the job", self.names()));
            self.code = Some(TIMED_OUT);
            return self.terminate();
        }
        match self.stage {
            Stage::Noticing(until) if now >= until => {
                if self.is_alive() {
                    say(&format!("{} did not end by itself; ending it", self.names()));
                }
                return self.terminate();
            }
            Stage::Terminating(until) if now >= until => return Step::Kill,
            _ => {}
        }
        let stage_end = match self.stage {
            Stage::Running => None,
            Stage::Noticing(until) | Stage::Terminating(until) => Some(until),
        };
        let end = self.end.filter(|_| self.code != Some(TIMED_OUT));
        Step::Wait([stage_end, end].into_iter().flatten().min())
    }

    /// A signal that has been passed on; true where it ends the job.
    pub(crate) fn signalled(&mut self, arrived: Arrived) -> bool {
        if !matches!(arrived.signal, Signal::SIGINT | Signal::SIGTERM) {
            return false;
        }
        let now = Instant::now();
        match self.first_signal {
            None => self.first_signal = Some(now),
            Some(first) if now.duration_since(first) >= SECOND_SIGNAL_AFTER => {
                if !matches!(self.stage, Stage::Terminating(_)) {
                    say(&format!("a second {}; ending the job", arrived.signal));
                    self.code.get_or_insert(128 + arrived.signal as u8);
                    self.terminate();
                    return true;
                }
            }
            Some(_) => {}
        }
        false
    }

    /// Begins the ending; the caller asks the PEs to end.
    pub(crate) fn terminate(&mut self) -> Step {
        self.stage = Stage::Terminating(Instant::now() + self.term_grace);
        Step::Terminate
    }

    /// The PEs that still run, for a message.
    pub(crate) fn names(&self) -> String {
        names(&(0..self.alive.len() as u32).filter(|&pe| self.alive[pe as usize]).collect::<Vec<_>>())
    }
}

/// `PE 3`, `PEs 0, 1, 2`, for a message.
pub(crate) fn names(pes: &[u32]) -> String {
    let mut names: Vec<String> = pes.iter().take(MOST_NAMES).map(u32::to_string).collect();
    if pes.len() > MOST_NAMES {
        names.push(format!("{} more", pes.len() - MOST_NAMES));
    }
    format!("PE{} {}", if pes.len() == 1 { "" } else { "s" }, names.join(", "))
}
