//! What the tests of `rushmem-run` share: it started with a shell script as its program, ended within a
//! limit, and what it left running, told from everything else on the machine by a unique argument.

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::sys::signal::{kill, Signal};
use nix::unistd::Pid;

pub(crate) const LIMIT: Duration = Duration::from_secs(60);

pub(crate) struct Running {
    pub(crate) child: Child,
    pub(crate) begin: Instant,
    pub(crate) out: JoinHandle<String>,
    pub(crate) err: JoinHandle<String>,
}

pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
    pub(crate) took: Duration,
}

pub(crate) fn collect(mut from: impl Read + Send + 'static) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut text = Vec::new();
        let _ = from.read_to_end(&mut text);
        String::from_utf8_lossy(&text).into_owned()
    })
}

/// `rushmem-run options -- sh -c script`
pub(crate) fn shell(options: &[&str], script: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rushmem-run"));
    command.args(options).args(["--", "sh", "-c", script]);
    command
}

pub(crate) fn start(mut command: Command) -> Running {
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let begin = Instant::now();
    let mut child = command.spawn().expect("rushmem-run starts");
    let out = collect(child.stdout.take().expect("piped"));
    let err = collect(child.stderr.take().expect("piped"));
    Running { child, begin, out, err }
}

impl Running {
    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id() as i32), signal).expect("a child of ours");
    }

    pub(crate) fn end(mut self) -> Ended {
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("waiting") {
                break status;
            }
            if self.begin.elapsed() > LIMIT {
                self.child.kill().expect("a child of ours");
                self.child.wait().expect("a child of ours");
                panic!("still running after {LIMIT:?}: {:?}", self.err.join());
            }
            std::thread::sleep(Duration::from_millis(2));
        };
        let took = self.begin.elapsed();
        let (out, err) = (self.out.join().expect("read"), self.err.join().expect("read"));
        Ended { code: status.code(), out, err, took }
    }
}

/// Starts a job of tagged `yes`, reads a line and closes its output: the job must end because of that.
pub(crate) fn stops_when_its_reader_goes(command: &mut Command) {
    command.stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().expect("rushmem-run starts");
    let mut some = [0; 6];
    child.stdout.take().expect("piped").read_exact(&mut some).expect("a line");
    assert!(some.starts_with(b"[") && some.ends_with(b" y\n"), "{some:?}");
    let begin = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().expect("waiting") {
            break status;
        }
        if begin.elapsed() > LIMIT {
            child.kill().expect("a child of ours");
            panic!("still running");
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    // `yes` ends by SIGPIPE, or by an error where the caller ignores that.
    assert!(matches!(status.code(), Some(141 | 1)), "{status:?}");
}

/// A `sleep` argument that no other process on the machine has.
pub(crate) fn unique() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("300.{}{:05}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// The processes with `mark` as one of their arguments.
pub(crate) fn marked(mark: &str) -> Vec<i32> {
    let entries = std::fs::read_dir("/proc").expect("there is a /proc").flatten();
    let pids = entries.filter_map(|e| e.file_name().to_str()?.parse().ok());
    pids.filter(|pid| {
        let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        words.split(|b| *b == 0).any(|w| w == mark.as_bytes())
    })
    .collect()
}

pub(crate) fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < LIMIT, "{what}: not within {LIMIT:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub(crate) fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines
}
