//! In which order processes end. The kernel hands ended children over in the order of their birth, so that a
//! PE that was killed may come after those that ended because of it; but an `epoll` set of pidfds lists them
//! in the order in which they became ready (ep_poll_callback appends to the ready list).
//!
//! A dying process closes its sockets, by which the others notice, a moment before it has ended. So a PE that
//! ends with an exit code is not taken for the cause while another one is on its way out: that one is waited
//! for.

use std::collections::HashMap;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::signal::Signal;
use nix::sys::wait::{waitpid, WaitPidFlag, WaitStatus};
use nix::unistd::Pid;

use crate::processes;

/// How long a process that is on its way out may take.
const LAST_BREATH: Duration = Duration::from_secs(1);
/// Read at once.
const BATCH: usize = 256;

/// The ends of some children.
pub(crate) struct Deaths {
    /// `None` where the system has no pidfds: then the order is not known.
    epoll: Option<Epoll>,
    fds: HashMap<i32, OwnedFd>,
}

impl Deaths {
    /// Watches children, none of which has been reaped.
    pub(crate) fn watch(children: &[Pid]) -> Deaths {
        let mut deaths =
            Deaths { epoll: Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).ok(), fds: HashMap::new() };
        for child in children.iter().map(|child| child.as_raw()) {
            // SAFETY: a plain system call; the new descriptor is owned by nobody else.
            let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, child, 0) };
            if let (Some(epoll), Ok(fd @ 0..)) = (&deaths.epoll, i32::try_from(fd)) {
                // SAFETY: just opened.
                let fd = unsafe { OwnedFd::from_raw_fd(fd) };
                // One report each: a descriptor that stays ready would go to the end of the list again.
                let flags = EpollFlags::EPOLLIN | EpollFlags::EPOLLONESHOT;
                if epoll.add(&fd, EpollEvent::new(flags, child as u64)).is_ok() {
                    deaths.fds.insert(child, fd);
                }
            }
        }
        deaths
    }

    /// Reaps the watched children that have ended since the last call, in the order of their ends.
    pub(crate) fn reap(&mut self) -> Vec<(Pid, WaitStatus)> {
        let Some(epoll) = &self.epoll else { return Vec::new() };
        let mut ended = Vec::new();
        loop {
            let mut events = [EpollEvent::empty(); BATCH];
            let n = epoll.wait(&mut events, EpollTimeout::ZERO).unwrap_or(0);
            for event in &events[..n] {
                let pid = Pid::from_raw(event.data() as i32);
                if let Some(fd) = self.fds.remove(&pid.as_raw()) {
                    debug_assert!(fd.as_raw_fd() >= 0);
                    ended.extend(reap_one(pid).map(|status| (pid, status)));
                }
            }
            if n < BATCH {
                return ended;
            }
        }
    }

    /// A child that was killed by a signal and was on its way out when another one had ended already, with an
    /// exit code. It is reaped.
    pub(crate) fn killed_before(&mut self) -> Option<(Pid, WaitStatus)> {
        let dying: Vec<i32> = self.fds.keys().copied().filter(|pid| processes::is_dying(*pid)).collect();
        let begin = Instant::now();
        for pid in dying.into_iter().map(Pid::from_raw) {
            while begin.elapsed() < LAST_BREATH {
                match look(pid) {
                    Some(true) => {
                        self.fds.remove(&pid.as_raw());
                        return reap_one(pid).map(|status| (pid, status));
                    }
                    Some(false) => break,
                    None => std::thread::sleep(Duration::from_millis(1)),
                }
            }
        }
        None
    }
}

fn reap_one(pid: Pid) -> Option<WaitStatus> {
    waitpid(pid, Some(WaitPidFlag::WNOHANG)).ok().filter(|status| status.pid().is_some())
}

/// Whether a child has been killed, by a signal that nobody sends to end a job; `None` while it has not
/// ended. It is not reaped.
fn look(pid: Pid) -> Option<bool> {
    // SAFETY: siginfo_t is plain data for which all zeroes is a value.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    let options = libc::WEXITED | libc::WNOWAIT | libc::WNOHANG;
    // SAFETY: a place for the answer.
    let code = unsafe { libc::waitid(libc::P_PID, pid.as_raw() as libc::id_t, &mut info, options) };
    // SAFETY: filled by the call, or zero.
    let (ended, status) = unsafe { (info.si_pid() == pid.as_raw(), info.si_status()) };
    if code != 0 {
        return Some(false);
    }
    let polite = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGPIPE];
    let killed = matches!(info.si_code, libc::CLD_KILLED | libc::CLD_DUMPED);
    ended.then(|| killed && !polite.iter().any(|signal| *signal as i32 == status))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command, Stdio};

    fn child(script: &str) -> (Child, Pid) {
        let child = Command::new("sh").args(["-c", script]).stdin(Stdio::piped()).spawn().expect("sh starts");
        let pid = Pid::from_raw(child.id() as i32);
        (child, pid)
    }

    #[test]
    fn the_order_is_that_of_the_ends() {
        // They end when their input does.
        let mut children: Vec<(Child, Pid)> =
            (0..5).map(|code| child(&format!("read x; exit {code}"))).collect();
        let pids: Vec<Pid> = children.iter().map(|(_, pid)| *pid).collect();
        let mut deaths = Deaths::watch(&pids);
        if deaths.fds.is_empty() {
            eprintln!("SKIP the_order_is_that_of_the_ends: this system has no pidfds");
        }
        assert!(deaths.reap().is_empty());
        let order = [3, 0, 4, 1, 2];
        for i in order {
            drop(children[i].0.stdin.take());
            let begin = Instant::now();
            while look(pids[i]).is_none() {
                assert!(begin.elapsed() < Duration::from_secs(20), "it does not end");
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        let ended: Vec<Pid> = deaths.reap().into_iter().map(|(pid, _)| pid).collect();
        if !ended.is_empty() {
            assert_eq!(ended, order.map(|i| pids[i]));
        }
        for (mut child, _) in children {
            let _ = child.wait();
        }
    }

    #[test]
    fn a_kill_differs_from_an_exit() {
        for (script, killed) in [("kill -KILL $$", true), ("kill -TERM $$", false), ("exit 7", false)] {
            let (mut child, pid) = child(script);
            let begin = Instant::now();
            let seen = loop {
                match look(pid) {
                    Some(seen) => break seen,
                    None if begin.elapsed() > Duration::from_secs(20) => panic!("{script} does not end"),
                    None => std::thread::sleep(Duration::from_millis(1)),
                }
            };
            assert_eq!(seen, killed, "{script}");
            assert!(processes::is_dying(pid.as_raw()), "{script}: a process that has ended is past its exit");
            let _ = child.wait();
        }
    }
}
