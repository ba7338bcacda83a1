//! Who descends from this process, by `/proc`, and how to be rid of them.
//!
//! The launcher is a *subreaper*: a descendant whose parent dies becomes its child, even one that forked
//! twice or began a session of its own. So killing and reaping children until there are none leaves nothing
//! behind.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::signal::{kill, Signal};
use nix::sys::wait::{waitpid, WaitPidFlag, WaitStatus};
use nix::unistd::{getpgrp, getpid, Pid};

/// A process as `/proc/<pid>/stat` tells it.
#[derive(Debug, Clone, Copy)]
struct Process {
    pid: i32,
    parent: i32,
    group: i32,
}

/// Reads a line of `/proc/<pid>/stat`: `pid (name) state parent group …`, where the name may hold anything.
fn parse(stat: &str) -> Option<Process> {
    let (pid, rest) = stat.split_once(" (")?;
    let mut words = rest[rest.rfind(')')? + 1..].split_ascii_whitespace().skip(1);
    let mut number = || words.next()?.parse().ok();
    Some(Process { pid: pid.parse().ok()?, parent: number()?, group: number()? })
}

fn all() -> Vec<Process> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.flatten().filter(|e| e.file_name().as_encoded_bytes()[0].is_ascii_digit());
    // A process that ends meanwhile is not there any more: nothing to report.
    pids.filter_map(|e| parse(&String::from_utf8_lossy(&std::fs::read(e.path().join("stat")).ok()?)))
        .collect()
}

/// Descendants of this process.
fn descendants() -> Vec<Process> {
    let mut children: HashMap<i32, Vec<Process>> = HashMap::new();
    for process in all() {
        children.entry(process.parent).or_default().push(process);
    }
    let mut found = children.remove(&getpid().as_raw()).unwrap_or_default();
    let mut next = 0;
    while let Some(process) = found.get(next).copied() {
        found.extend(children.remove(&process.pid).unwrap_or_default());
        next += 1;
    }
    found
}

/// Whether a process has begun to exit: PF_EXITING (include/linux/sched.h) among its flags, the seventh word
/// after its name.
pub(crate) fn is_dying(pid: i32) -> bool {
    const PF_EXITING: u32 = 4;
    let Ok(stat) = std::fs::read(format!("/proc/{pid}/stat")) else { return false };
    let stat = String::from_utf8_lossy(&stat);
    let words = stat.rfind(')').map(|end| stat[end + 1..].split_ascii_whitespace());
    let flags = words.and_then(|mut words| words.nth(6)?.parse::<u32>().ok());
    flags.is_some_and(|flags| flags & PF_EXITING != 0)
}

/// Makes orphaned descendants this process's children.
pub(crate) fn adopt_orphans() -> nix::Result<()> {
    nix::sys::prctl::set_child_subreaper(true)
}

/// Sends `signal` to the PEs, and to their descendants in our process group. A descendant that left the group
/// does not get it, a PE that left does. With `by_terminal`, the terminal has signalled the group already.
pub(crate) fn forward(signal: Signal, pes: &[Pid], by_terminal: bool) {
    let group = getpgrp().as_raw();
    for process in descendants() {
        let pid = Pid::from_raw(process.pid);
        let member = process.group == group;
        if (member && !by_terminal) || (!member && pes.contains(&pid)) {
            // It may have ended meanwhile.
            let _ = kill(pid, signal);
        }
    }
}

/// Asks every descendant to end; stopped ones must run to get the signal.
pub(crate) fn terminate_all() {
    for process in descendants() {
        let pid = Pid::from_raw(process.pid);
        let _ = kill(pid, Signal::SIGTERM);
        let _ = kill(pid, Signal::SIGCONT);
    }
}

/// Reaps the children that have ended; `ended` is called for each. False once there are no children at all.
pub(crate) fn reap(mut ended: impl FnMut(Pid, WaitStatus)) -> bool {
    loop {
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::StillAlive) => return true,
            Ok(status) => {
                if let Some(pid) = status.pid() {
                    ended(pid, status);
                }
            }
            Err(Errno::EINTR) => {}
            Err(_) => return false,
        }
    }
}

/// Kills and reaps children, and those that become children thereby, until there are none; false if some
/// withstand for `limit` (a process stuck in the kernel, or one of another user). Only children are killed,
/// because a child keeps its pid until we reap it.
pub(crate) fn kill_all(limit: Duration, mut ended: impl FnMut(Pid, WaitStatus)) -> bool {
    let me = getpid().as_raw();
    let begin = Instant::now();
    while reap(&mut ended) {
        if begin.elapsed() > limit {
            return false;
        }
        for child in all().iter().filter(|p| p.parent == me) {
            let _ = kill(Pid::from_raw(child.pid), Signal::SIGKILL);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_brackets_and_spaces_do_not_confuse() {
        let p = parse("42 (a) b (c)) S 7 41 41 0 -1").expect("a stat line");
        assert_eq!((p.pid, p.parent, p.group), (42, 7, 41));
        assert!(parse("").is_none() && parse("x (y) S 1").is_none());
    }

    #[test]
    fn a_child_is_a_descendant() {
        let mut child = std::process::Command::new("sleep").arg("30").spawn().expect("sleep starts");
        let found = descendants().iter().any(|p| p.pid == child.id() as i32);
        child.kill().expect("it runs");
        child.wait().expect("it is ours");
        assert!(found);
    }
}
