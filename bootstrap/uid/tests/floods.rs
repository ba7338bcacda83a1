//! Jobs that start while strangers do what they can: hold thousands of connections that come back when they
//! are closed, hold the ports that the ranks would meet at, hold names of local sockets, try to join without
//! the secret. The strangers are processes: this test binary starts itself with the test `stranger` and a
//! part in the environment. `RUSHMEM_TEST_ATTACK=1` makes the floods larger.

use std::collections::HashSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use nix::sys::resource::{getrlimit, setrlimit, Resource};
use rushmem_bootstrap_abi::{BootError, Bootstrap};
use rushmem_bootstrap_uid::{
    join_address, join_meeting, join_uid, MeetingPoint, Uid, UidBootstrap, UidConfig,
};

const PART: &str = "RUSHMEM_TEST_STRANGER";
const LONG: Duration = Duration::from_secs(60);
/// A start takes milliseconds; under these floods it took 10 s, or never ended. This much is for a loaded
/// machine.
const SOON: Duration = Duration::from_secs(6);
/// The kernel's number for nobody.
const NOBODY: u32 = 65534;

/// A size for CI, and one for `make attack`.
fn size(usual: usize, attack: usize) -> usize {
    if std::env::var("RUSHMEM_TEST_ATTACK").is_ok_and(|v| v == "1") {
        attack
    } else {
        usual
    }
}

// ---- the strangers' side ----

#[test]
fn stranger() {
    let Ok(part) = std::env::var(PART) else { return };
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).expect("a limit");
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).expect("up to the hard limit");
    let words: Vec<&str> = part.split(' ').collect();
    match words[..] {
        ["tcp", addr, n, hello] => {
            let addr: SocketAddr = addr.parse().expect("an address");
            flood(n.parse().expect("a number"), &unhex(hello), || {
                TcpStream::connect_timeout(&addr, Duration::from_secs(1)).ok()
            })
        }
        ["listeners", pid, n] => {
            let all = Fresh::new(|| listeners(pid));
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

// ---- the jobs' side ----

/// Strangers at work; whatever happens, they do not outlive this.
struct Strangers(Vec<Child>);

impl Strangers {
    /// `processes` of them, all at work.
    fn start(part: &str, processes: usize) -> Strangers {
        let mut strangers = Strangers(Vec::new());
        let mut said = Vec::new();
        for _ in 0..processes {
            let mut command = Command::new(std::env::current_exe().expect("this test's path"));
            command.args(["--exact", "stranger", "--nocapture", "--test-threads=1"]).env(PART, part);
            let mut child = command.stdout(Stdio::piped()).stdin(Stdio::null()).spawn().expect("a stranger");
            said.push(child.stdout.take().expect("it is piped"));
            strangers.0.push(child);
        }
        said.into_iter().for_each(wait_until_full);
        strangers
    }
}

fn wait_until_full(out: ChildStdout) {
    let (tx, rx) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(out).lines().map_while(Result::ok) {
            if line.contains("@full") {
                let _ = tx.send(());
            }
        }
    });
    rx.recv_timeout(LONG).expect("the strangers are at work within a minute");
}

impl Drop for Strangers {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill(); // it may be gone
            let _ = child.wait();
        }
    }
}

/// One flood at a time, with so many descriptors at most. Listeners keep half of them for strangers: with as
/// many as a shell usually gives, these floods are larger than what is kept.
fn alone_with(descriptors: u64) -> std::sync::MutexGuard<'static, ()> {
    static FLOODS: Mutex<()> = Mutex::new(());
    let alone = FLOODS.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).expect("a limit");
    setrlimit(Resource::RLIMIT_NOFILE, descriptors.min(hard), hard).expect("up to the hard limit");
    alone
}

/// What a shell usually gives.
const USUAL: u64 = 1024;

fn config(rank: u32, n: u32) -> UidConfig {
    UidConfig { init_timeout: LONG, timeout: LONG, ..UidConfig::new(rank, n) }
}

/// `n` ranks join by `join`, gather and leave; how long the slowest took to join.
fn starts(n: u32, join: impl Fn(u32) -> Result<UidBootstrap, BootError> + Sync) -> Duration {
    std::thread::scope(|s| {
        let rank = |rank| {
            let join = &join;
            s.spawn(move || {
                let start = Instant::now();
                let b = join(rank).expect("the job comes up");
                let took = start.elapsed();
                let mut out = vec![0; n as usize];
                b.allgather(&[rank as u8], &mut out).expect("all are there");
                assert!(out.iter().enumerate().all(|(r, x)| r == *x as usize));
                b.finalize().expect("all leave");
                took
            })
        };
        let ranks: Vec<_> = (0..n).map(rank).collect();
        ranks.into_iter().map(|r| r.join().expect("no panic")).max().expect("there are ranks")
    })
}

/// In time, or as a machine that does other things as well can show it: the best of three.
fn in_time(what: &str, mut start: impl FnMut() -> Duration) {
    let mut tries = Vec::new();
    for _ in 0..3 {
        tries.push(start());
        println!("{what}: {:?}", tries.last());
        if tries.last().is_some_and(|t| *t < SOON) {
            return;
        }
    }
    panic!("{what}: {tries:?}, each longer than {SOON:?}");
}

/// A good hello of this version, which anybody can say who knows the job's public name.
fn hello(uid: &Uid) -> String {
    let nonce = "07".repeat(32);
    format!("3700000001{}0300{}{}{nonce}", "726d5569", "01", uid.job())
}

#[test]
fn connections_that_come_back_at_once_do_not_delay_a_start() {
    let _alone = alone_with(USUAL);
    let n = size(3000, 6000);
    for speaks in [false, true] {
        let (uid, rendezvous) = Uid::create_standing(Some("lo")).expect("a unique ID");
        let addr = uid.addr().net().expect("TCP");
        let said = if speaks { hello(&uid) } else { String::new() };
        let part = format!("tcp {addr} {} {said}", n / 2);
        let _strangers = Strangers::start(&part, 2);
        in_time(&format!("{n} connections, hello {speaks}"), || {
            starts(4, |rank| join_uid(&uid, config(rank, 4)))
        });
        assert!(!rendezvous.is_finished());
    }
}

/// The listeners for neighbours among them, which live for milliseconds: one rank comes late, so that they
/// last.
#[test]
fn nor_do_those_at_every_listener_of_the_ranks() {
    // The ranks are threads here, so the strangers of all listeners are this process's.
    let _alone = alone_with(u64::MAX);
    let (uid, _rendezvous) = Uid::create_standing(Some("lo")).expect("a unique ID");
    let part = format!("listeners {} {}", std::process::id(), size(400, 2000));
    let _strangers = Strangers::start(&part, 2);
    in_time("strangers at every listener", || {
        let took = starts(5, |rank| {
            std::thread::sleep(Duration::from_millis(if rank == 4 { 500 } else { 0 }));
            join_uid(&uid, config(rank, 5))
        });
        took.saturating_sub(Duration::from_millis(500))
    });
}

#[test]
fn nor_do_processes_of_this_user_at_local_sockets() {
    // More than this process may have, with room for what comes to the ranks, too, in their milliseconds.
    let _alone = alone_with(4096);
    let (uid, _rendezvous) = Uid::create_standing_local().expect("a unique ID");
    let _strangers = Strangers::start(&format!("local {}", size(2500, 3500)), 2);
    in_time("strangers at local sockets", || starts(4, |rank| join_uid(&uid, config(rank, 4))));
}

/// A process that is short of descriptors must not take itself for another host's: then it would probe local
/// sockets as it does a network's, which fails.
#[test]
fn a_host_is_the_same_with_and_without_descriptors() {
    let _alone = alone_with(1);
    let short = rushmem_bootstrap_uid::home();
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).expect("a limit");
    setrlimit(Resource::RLIMIT_NOFILE, USUAL.min(hard), hard).expect("up to the hard limit");
    let usual = rushmem_bootstrap_uid::home().expect("descriptors are there");
    match short {
        Ok(home) => assert_eq!(home, usual, "asked for earlier in this process"),
        Err(e) => assert_eq!(e.raw_os_error(), Some(nix::libc::EMFILE), "{e}"),
    }
}

fn meeting(identity: &str, one_host: Option<&str>) -> MeetingPoint {
    MeetingPoint {
        host: "127.0.0.1".into(),
        host_from: "MASTER_ADDR",
        identity: vec![identity.into()],
        secret: None,
        taken: None,
        one_host: one_host.map(str::to_owned),
    }
}

fn one_host(identity: &str) -> MeetingPoint {
    meeting(identity, Some("a test says so"))
}

/// Half of the held ports answer nothing, the other half are taken without listening. There were 32 ports
/// once.
#[test]
fn ports_that_others_hold_only_move_the_meeting() {
    let _alone = alone_with(USUAL);
    let held = size(100, 400);
    let point = meeting(&format!("ports {} {:?}", std::process::id(), Instant::now()), None);
    let mut listening: Vec<TcpListener> = Vec::new();
    let mut bound: Vec<socket2::Socket> = Vec::new();
    for (i, port) in point.ports().into_iter().take(held).enumerate() {
        if i % 2 == 0 {
            listening.extend(TcpListener::bind(("127.0.0.1", port)).ok());
        } else {
            let at = SocketAddr::from(([127, 0, 0, 1], port));
            let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None);
            bound.extend(socket.ok().filter(|s| s.bind(&at.into()).is_ok()));
        }
    }
    assert!(listening.len() + bound.len() > held * 9 / 10, "the ports were free");
    in_time(&format!("{held} ports held"), || starts(4, |rank| join_meeting(&point, config(rank, 4))));
}

/// Another user knows all that the launcher's variables say: it holds names that look like the job's, knocks
/// at its sockets, and tries to be rank 1 before the real one comes.
#[test]
fn another_user_of_this_host_neither_joins_nor_stops_a_job_without_a_secret() {
    if !nix::unistd::geteuid().is_root() {
        return eprintln!("SKIP another_user_of_this_host_…: only root can start a process of another user");
    }
    let tag = one_host("nobody").tag();
    let _stranger = Strangers::start(&format!("nobody {tag} {}", size(300, 5000)), 1);
    in_time("another user at work", || {
        let took = starts(2, |rank| {
            std::thread::sleep(Duration::from_millis(if rank == 1 { 700 } else { 0 }));
            join_meeting(&one_host("nobody"), config(rank, 2))
        });
        took.saturating_sub(Duration::from_millis(700))
    });
}

/// Over TCP, where anybody can knock; the guess is a secret that is right but for one letter.
#[test]
fn who_does_not_hold_the_secret_is_not_welcomed() {
    let secret = |s: &str| MeetingPoint {
        secret: Some((s.into(), "RUSHMEM_JOB_SECRET")),
        ..meeting(&format!("secret {}", std::process::id()), None)
    };
    std::thread::scope(|s| {
        // Until it has found rank 0, which takes as long as the machine is slow.
        let impostor = s.spawn(|| {
            let limit = Duration::from_secs(1);
            let join = || {
                let config = UidConfig { init_timeout: limit, ..config(1, 2) };
                join_meeting(&secret("correct horsf"), config).expect_err("it does not know the secret")
            };
            let start = Instant::now();
            let mut told = join();
            while !told.message.contains("RUSHMEM_JOB_SECRET") && start.elapsed() < LONG / 2 {
                told = join();
            }
            told
        });
        starts(2, |rank| {
            while rank == 1 && !impostor.is_finished() {
                std::thread::sleep(Duration::from_millis(1));
            }
            join_meeting(&secret("correct horse"), config(rank, 2))
        });
        let told = impostor.join().expect("no panic");
        assert!(told.message.contains("RUSHMEM_JOB_SECRET"), "{told}");
    });
}

/// The address is loopback, so no other user gets as far as being asked for a secret.
#[test]
fn an_address_of_loopback_is_met_at_without_a_port() {
    let address = format!("127.0.0.1:{}", 12000 + std::process::id() % 8000);
    let port = address.rsplit_once(':').and_then(|a| a.1.parse().ok()).expect("a port");
    let _held = TcpListener::bind(("127.0.0.1", port));
    starts(3, |rank| join_address(&address, b"", config(rank, 3)));
}
