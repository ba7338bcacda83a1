//! The PEs that this process has started: which of them run, and in which order they ended and how.

use std::time::Duration;

use nix::sys::wait::WaitStatus;
use nix::unistd::Pid;

use crate::deaths::Deaths;
use crate::processes;

/// PEs of this process, by their place among them.
pub(crate) struct Crew {
    pids: Vec<Pid>,
    alive: Vec<bool>,
    deaths: Deaths,
    failed: bool,
}

/// A PE has ended.
pub(crate) struct End {
    /// Its place.
    pub(crate) index: usize,
    pub(crate) pid: Pid,
    /// What the launcher exits with because of it, and how it ended, for people; `None`: well.
    pub(crate) failure: Option<(u8, String)>,
}

impl Crew {
    pub(crate) fn new(pids: Vec<Pid>) -> Crew {
        Crew { alive: vec![true; pids.len()], deaths: Deaths::watch(&pids), pids, failed: false }
    }

    /// The PEs that have ended since the last call, causes first. Orphans that have become our children are
    /// reaped along.
    pub(crate) fn reap(&mut self) -> Vec<End> {
        let mut ended = self.deaths.reap();
        processes::reap(|pid, status| ended.push((pid, status)));
        self.take(ended)
    }

    /// Ends every child, and what becomes one thereby; false if some withstand for `limit`.
    pub(crate) fn kill_all(&mut self, limit: Duration) -> (bool, Vec<End>) {
        let mut ended = Vec::new();
        let gone = processes::kill_all(limit, |pid, status| ended.push((pid, status)));
        (gone, self.take(ended))
    }

    fn take(&mut self, ended: Vec<(Pid, WaitStatus)>) -> Vec<End> {
        let mut ends = Vec::new();
        for (pid, status) in ended {
            let Some(end) = self.end(pid, status) else { continue };
            // Another one may have been the cause, and have been slower to be gone.
            if !self.failed && matches!(status, WaitStatus::Exited(_, code) if code != 0) {
                let cause = self.deaths.killed_before();
                ends.extend(cause.and_then(|(pid, status)| self.end(pid, status)));
            }
            self.failed |= end.failure.is_some();
            ends.push(end);
        }
        ends
    }

    fn end(&mut self, pid: Pid, status: WaitStatus) -> Option<End> {
        let index = self.pids.iter().position(|p| *p == pid).filter(|&index| self.alive[index])?;
        let failure = match status {
            WaitStatus::Exited(_, 0) => None,
            WaitStatus::Exited(_, code) => Some((code as u8, format!("exited with code {code}"))),
            WaitStatus::Signaled(_, signal, core) => {
                let core = if core { ", core dumped" } else { "" };
                let how = format!("was killed by {signal} (signal {}{core})", signal as i32);
                Some((128 + signal as u8, how))
            }
            _ => return None,
        };
        self.alive[index] = false;
        Some(End { index, pid, failure })
    }

    /// Whether any of them runs.
    pub(crate) fn is_alive(&self) -> bool {
        self.alive.contains(&true)
    }

    /// Those that run.
    pub(crate) fn pids(&self) -> Vec<Pid> {
        self.pids.iter().zip(&self.alive).filter(|(_, alive)| **alive).map(|(pid, _)| *pid).collect()
    }
}
