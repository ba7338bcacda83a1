//! The parent's side, one PE: a process in a group of its own, whose output is read as it comes.

use std::fmt;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use super::child::{DONE, FAILED};
use crate::Pe;

/// How a PE ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// Its closure returned without an error (and its world, if the testing function made it, was finalised).
    Done,
    /// The process exited by itself with this code; 101 for a panic or an error.
    Code(i32),
    /// A signal ended it.
    Signal(i32),
    /// Still running at the time limit, or when the test was over; killed.
    Stopped,
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Exit::Done => f.write_str("finished"),
            Exit::Code(0) => f.write_str(
                "exited with code 0 without having run its part (was the test's name found? see Pes::test)",
            ),
            Exit::Code(FAILED) => f.write_str("panicked or returned an error (exit code 101)"),
            Exit::Code(code) => write!(f, "exited with code {code}"),
            Exit::Signal(signal) => write!(f, "was killed by signal {signal}"),
            Exit::Stopped => f.write_str("did not end by itself and was killed"),
        }
    }
}

/// A PE's process, and what it has said so far.
pub(super) struct Process {
    pub(super) pe: Pe,
    label: String,
    child: Child,
    streams: [Captured; 2],
    pub(super) started: Instant,
    /// How and when it ended, once it has been reaped.
    pub(super) ended: Option<(Exit, Instant)>,
}

/// One output stream.
struct Captured {
    pipe: Option<Box<dyn Pipe>>,
    text: Vec<u8>,
    /// Bytes of `text` that have been shown: whole lines.
    shown: usize,
}

trait Pipe: Read + AsRawFd + Send {}
impl<T: Read + AsRawFd + Send> Pipe for T {}

impl Process {
    pub(super) fn start(pe: Pe, label: String, mut command: Command) -> io::Result<Process> {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        let parent = std::process::id();
        let die_with_parent = move || {
            // SAFETY: both calls are async-signal-safe and touch no memory of ours.
            let orphaned = unsafe {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) != 0 || libc::getppid() as u32 != parent
            };
            if orphaned {
                return Err(io::Error::from_raw_os_error(libc::ESRCH));
            }
            Ok(())
        };
        // SAFETY: the closure makes only async-signal-safe calls and allocates nothing.
        unsafe { command.pre_exec(die_with_parent) };
        let mut child = command.spawn()?;
        let stdout = child.stdout.take().map(|pipe| Box::new(pipe) as Box<dyn Pipe>);
        let stderr = child.stderr.take().map(|pipe| Box::new(pipe) as Box<dyn Pipe>);
        let streams = [stdout, stderr].map(|pipe| Captured { pipe, text: Vec::new(), shown: 0 });
        for pipe in streams.iter().filter_map(|stream| stream.pipe.as_ref()) {
            // SAFETY: a descriptor that we own.
            unsafe { libc::fcntl(pipe.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) };
        }
        Ok(Process { pe, label, child, streams, started: Instant::now(), ended: None })
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal to the process, if it still runs: reaping and this are under one lock, so the number
    /// cannot be another process's by now.
    pub(super) fn signal(&self, signal: i32) {
        if self.ended.is_none() {
            // SAFETY: signals a child that has not been reaped.
            unsafe { libc::kill(self.pid() as i32, signal) };
        }
    }

    /// Kills the process and everything in its group, and says `why` it ended.
    pub(super) fn stop(&mut self, why: Exit) {
        if self.ended.is_some() {
            return;
        }
        self.kill_group();
        let status = self.child.wait();
        // It may have ended by itself just before.
        let by_us = status.as_ref().map_or(true, |status| status.signal() == Some(libc::SIGKILL));
        self.end(if by_us { why } else { status.map_or(why, exit_of) });
    }

    fn kill_group(&self) {
        // SAFETY: the group is led by a child that has not been reaped, so its number is still that group's.
        unsafe { libc::kill(-(self.pid() as i32), libc::SIGKILL) };
    }

    /// Notices an end. Looking must not reap at once: what the process left in its group is killed while the
    /// group's number cannot have been given to anybody else.
    pub(super) fn look(&mut self) {
        if self.ended.is_some() {
            return;
        }
        // SAFETY: an all-zero siginfo_t is a valid value of that plain C struct.
        let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
        let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
        // SAFETY: a child of ours and a place for the answer; when nothing ended, the pid in it stays 0.
        let over =
            unsafe { libc::waitid(libc::P_PID, self.pid(), &mut info, flags) == 0 && info.si_pid() != 0 };
        if over {
            self.kill_group();
            let exit = self.child.wait().map_or(Exit::Code(-1), exit_of);
            self.end(exit);
        }
    }

    fn end(&mut self, exit: Exit) {
        self.ended = Some((exit, Instant::now()));
        self.read();
        for stream in &mut self.streams {
            stream.pipe = None;
        }
        self.show();
    }

    /// Reads what has come.
    pub(super) fn read(&mut self) {
        for stream in &mut self.streams {
            let mut buffer = [0; 8192];
            while let Some(pipe) = &mut stream.pipe {
                match pipe.read(&mut buffer) {
                    Ok(0) => stream.pipe = None,
                    Ok(n) => stream.text.extend_from_slice(&buffer[..n]),
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(_) => stream.pipe = None,
                }
            }
        }
        self.show();
    }

    /// Prints new whole lines with the PE before them (and, once the process is over, the last piece),
    /// leaving out what the test harness of the child says of itself.
    fn show(&mut self) {
        let over = self.ended.is_some();
        for stream in &mut self.streams {
            let new = &stream.text[stream.shown..];
            let whole =
                if over { new.len() } else { new.iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1) };
            for line in String::from_utf8_lossy(&new[..whole]).lines() {
                if !(line.is_empty() || line == "running 1 test") {
                    println!("{} {line}", self.label);
                }
            }
            stream.shown += whole;
        }
    }

    /// The descriptors to watch for output.
    pub(super) fn descriptors(&self) -> impl Iterator<Item = RawFd> + '_ {
        self.streams.iter().filter_map(|stream| stream.pipe.as_ref().map(|pipe| pipe.as_raw_fd()))
    }

    /// What was written to standard output (0) or standard error (1).
    pub(super) fn text(&self, stream: usize) -> String {
        String::from_utf8_lossy(&self.streams[stream].text).into_owned()
    }

    /// The first whole line that contains `text`.
    pub(super) fn line_with(&self, text: &str) -> Option<String> {
        let over = self.ended.is_some();
        (0..2).find_map(|stream| {
            let output = self.text(stream);
            let lines = output.split_inclusive('\n').filter(|line| over || line.ends_with('\n'));
            let mut lines = lines.map(|line| line.trim_end_matches('\n'));
            lines.find(|line| line.contains(text)).map(str::to_owned)
        })
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.stop(Exit::Stopped);
    }
}

fn exit_of(status: std::process::ExitStatus) -> Exit {
    match (status.code(), status.signal()) {
        (Some(DONE), _) => Exit::Done,
        (Some(code), _) => Exit::Code(code),
        (None, signal) => Exit::Signal(signal.unwrap_or(0)),
    }
}
