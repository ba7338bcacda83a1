//! What strangers do, in processes of their own, and how the tests start and end them.

use std::collections::HashSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use rushmem_bootstrap_uid::join_meeting;

use crate::{allow_descriptors, config, one_host, ranks, LONG};

const PART: &str = "RUSHMEM_TEST_STRANGER";
/// The kernel's number for nobody.
const NOBODY: u32 = 65534;

#[test]
fn stranger() {
    let Ok(part) = std::env::var(PART) else { return };
    allow_descriptors(u64::MAX); // strangers do
    let words: Vec<&str> = part.split(' ').collect();
    match words[..] {
        ["tcp", addr, n, hello] => {
            let addr: SocketAddr = addr.parse().expect("an address");
            flood(n.parse().expect("a number"), &unhex(hello), || {
                TcpStream::connect_timeout(&addr, Duration::from_secs(1)).ok()
            })
        }
        ["listeners", pid, least, n] => {
            println!("@full"); // it is ready for them
            let least: usize = least.parse().expect("a number");
            let all = Fresh::new(|| {
                let found: Vec<_> = children(pid).iter().flat_map(|p| listeners(p)).collect();
                if found.len() < least {
                    Vec::new()
                } else {
                    found
                }
            });
            flood(n.parse().expect("a number"), &[], || {
                TcpStream::connect_timeout(&all.any()?, Duration::from_secs(1)).ok()
            })
        }
        ["local", n] => {
            let all = Fresh::new(names);
            flood(n.parse().expect("a number"), &[], || {
                UnixStream::connect_addr(&local_address(&all.any()?)).ok()
            })
        }
        ["rendezvous", network, descriptors] => {
            ranks::rendezvous(network == "local", descriptors.parse().expect("a number"));
        }
        ["rank", uid, rank, n, late, descriptors] => ranks::play(
            uid,
            rank.parse().expect("a rank"),
            n.parse().expect("a number"),
            Duration::from_millis(late.parse().expect("milliseconds")),
            descriptors.parse().expect("a number"),
        ),
        ["nobody", tag, n] => nobody(tag, n.parse().expect("a number")),
        _ => panic!("no part {part}"),
    }
}

/// What a connection must do to be part of a flood.
trait Flooding: Read + Write + Send {
    fn never_wait(&self);
}

impl Flooding for TcpStream {
    fn never_wait(&self) {
        self.set_nonblocking(true).expect("non-blocking");
    }
}

impl Flooding for UnixStream {
    fn never_wait(&self) {
        self.set_nonblocking(true).expect("non-blocking");
    }
}

/// Keeps `n` connections that say `hello` and no more; each that is closed is opened again at once.
fn flood<S: Flooding>(n: usize, hello: &[u8], open: impl Fn() -> Option<S> + Sync) {
    let (threads, opened) = (4, std::sync::atomic::AtomicUsize::new(0));
    std::thread::scope(|s| {
        for _ in 0..threads {
            s.spawn(|| {
                let mut held: Vec<Option<S>> = (0..n / threads).map(|_| None).collect();
                loop {
                    for slot in &mut held {
                        let closed = slot.as_mut().is_none_or(|s| match s.read(&mut [0; 64]) {
                            Ok(n) => n == 0,
                            Err(e) => e.kind() != std::io::ErrorKind::WouldBlock,
                        });
                        if closed {
                            *slot = open();
                            let Some(stream) = slot else { continue };
                            stream.never_wait();
                            let _ = stream.write_all(hello); // it may have been thrown out already
                            if opened.fetch_add(1, std::sync::atomic::Ordering::Relaxed) + 1
                                == n / threads * threads
                            {
                                println!("@full");
                            }
                        }
                    }
                    std::thread::sleep(Duration::from_millis(1));
                }
            });
        }
    });
}

/// The processes that process `pid` has started.
fn children(pid: &str) -> Vec<String> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let lists = threads.filter_map(|t| std::fs::read_to_string(t.path().join("children")).ok());
    lists.flat_map(|l| l.split_whitespace().map(str::to_owned).collect::<Vec<_>>()).collect()
}

/// The TCP ports of loopback at which process `pid` listens.
fn listeners(pid: &str) -> Vec<SocketAddr> {
    let own: HashSet<String> = std::fs::read_dir(format!("/proc/{pid}/fd"))
        .into_iter()
        .flatten()
        .filter_map(|e| std::fs::read_link(e.ok()?.path()).ok()?.to_str().map(str::to_owned))
        .collect();
    let table = std::fs::read_to_string(format!("/proc/{pid}/net/tcp")).unwrap_or_default();
    let rows = table.lines().map(|l| l.split_whitespace().collect::<Vec<_>>());
    rows.filter(|r| r.get(3) == Some(&"0A") && own.contains(&format!("socket:[{}]", r[9])))
        .filter_map(|r| u16::from_str_radix(r[1].rsplit_once(':')?.1, 16).ok())
        .map(|port| SocketAddr::from(([127, 0, 0, 1], port)))
        .collect()
}

/// The local names at which any rushmem of this network namespace listens.
fn names() -> Vec<String> {
    let table = std::fs::read_to_string("/proc/self/net/unix").unwrap_or_default();
    let rows = table.lines().map(|l| l.split_whitespace().collect::<Vec<_>>());
    rows.filter(|r| r.get(3) == Some(&"00010000"))
        .filter_map(|r| {
            r.get(7)?.strip_prefix('@').filter(|n| n.starts_with("rushmem-uid-")).map(str::to_owned)
        })
        .collect()
}

fn local_address(name: &str) -> std::os::unix::net::SocketAddr {
    std::os::unix::net::SocketAddr::from_abstract_name(name).expect("a short name")
}

/// A list that takes time to make, made anew now and then; its members in turn.
struct Fresh<T, F: Fn() -> Vec<T>> {
    make: F,
    made: Mutex<(Option<Instant>, Vec<T>, usize)>,
}

impl<T: Clone, F: Fn() -> Vec<T>> Fresh<T, F> {
    fn new(make: F) -> Self {
        Fresh { make, made: Mutex::new((None, Vec::new(), 0)) }
    }

    fn any(&self) -> Option<T> {
        let mut made = self.made.lock().expect("no panic in here");
        if made.0.is_none_or(|at| at.elapsed() > Duration::from_millis(30)) {
            (made.1, made.0) = ((self.make)(), Some(Instant::now()));
        }
        made.2 += 1;
        made.1.get(made.2 % made.1.len().max(1)).cloned()
    }
}

/// As another user: holds names that look like the job's, and knocks wherever a rushmem listens.
fn nobody(tag: &str, n: usize) {
    nix::unistd::setuid(nix::unistd::Uid::from_raw(NOBODY)).expect("root may become nobody");
    let name = |i: usize| format!("rushmem-uid-{tag}{i:016x}");
    let held: Vec<UnixListener> =
        (0..n).map(|i| UnixListener::bind_addr(&local_address(&name(i))).expect("a free name")).collect();
    println!("@full");
    // It also tries to be rank 1 of the job, with all that the launcher's variables say.
    let joins = std::thread::spawn(|| join_meeting(&one_host("nobody"), config(1, 2)).map(|_| ()));
    let mut printed = false;
    loop {
        for name in names() {
            let _ = UnixStream::connect_addr(&local_address(&name)).map(|mut s| s.write_all(b"hello"));
        }
        std::thread::sleep(Duration::from_millis(1));
        if joins.is_finished() && !printed {
            printed = true;
            println!("@a stranger's attempt ended with {} names held", held.len());
        }
    }
}

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len() / 2).map(|i| u8::from_str_radix(&text[2 * i..][..2], 16).expect("hex digits")).collect()
}

/// Processes at work; whatever happens, they do not outlive this.
pub(crate) struct Processes(Vec<Child>);

impl Processes {
    /// `processes` of strangers, all at work.
    pub(crate) fn strangers(part: &str, processes: usize) -> Processes {
        let (all, said): (Vec<_>, Vec<_>) = (0..processes).map(|_| start(part)).unzip();
        let all = Processes(all);
        said.into_iter().for_each(|out| drop(wait_for(out, "@full")));
        all
    }

    /// One, and what it says behind `word`.
    pub(crate) fn one_that_says(word: &str, part: &str) -> (Processes, String) {
        let (child, said) = start(part);
        let one = Processes(vec![child]);
        (one, wait_for(said, word))
    }

    pub(crate) fn are_at_work(&mut self) -> bool {
        self.0.iter_mut().all(|child| matches!(child.try_wait(), Ok(None)))
    }

    /// One for each part, and what each says behind `word`, in the same order.
    pub(crate) fn that_say(word: &str, parts: &[String]) -> Vec<String> {
        let (all, said): (Vec<_>, Vec<_>) = parts.iter().map(|part| start(part)).unzip();
        let _all = Processes(all);
        said.into_iter().map(|out| wait_for(out, word)).collect()
    }
}

fn start(part: &str) -> (Child, ChildStdout) {
    let mut command = Command::new(std::env::current_exe().expect("this test's path"));
    command.args(["--exact", "strangers::stranger", "--nocapture", "--test-threads=1"]).env(PART, part);
    let mut child = command.stdout(Stdio::piped()).stdin(Stdio::null()).spawn().expect("a process");
    let said = child.stdout.take().expect("it is piped");
    (child, said)
}

/// The rest of the first line with `word` in it.
fn wait_for(out: ChildStdout, word: &str) -> String {
    let (tx, rx) = std::sync::mpsc::channel();
    let wanted = word.to_owned();
    // It reads to the end, so that the process never waits for a reader.
    std::thread::spawn(move || {
        for line in BufReader::new(out).lines().map_while(Result::ok) {
            if let Some((_, rest)) = line.split_once(&wanted) {
                let _ = tx.send(rest.trim().to_owned());
            }
        }
    });
    rx.recv_timeout(LONG).unwrap_or_else(|_| panic!("no {word} within a minute"))
}

impl Drop for Processes {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill(); // it may be gone
            let _ = child.wait();
        }
    }
}
