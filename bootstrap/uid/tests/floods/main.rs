//! Jobs that start while strangers do what they can: hold thousands of connections that come back when they
//! are closed, hold the ports that the ranks would meet at, hold names of local sockets, try to join without
//! the secret. The strangers are processes: this test binary starts itself with the test `stranger` and a
//! part in the environment. `RUSHMEM_TEST_ATTACK=1` makes the floods larger.

mod ranks;
mod strangers;

use std::net::{SocketAddr, TcpListener};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nix::sys::resource::{getrlimit, setrlimit, Resource};
use rushmem_bootstrap_uid::{join_address, join_meeting, MeetingPoint, Uid, UidConfig};

use ranks::{processes_start, standing, starts};
use strangers::Processes;

const LONG: Duration = Duration::from_secs(60);
/// A start takes milliseconds; under these floods it took 10 s, or never ended. This much is for a loaded
/// machine.
const SOON: Duration = Duration::from_secs(6);

/// A size for CI, and one for `make attack`.
fn size(usual: usize, attack: usize) -> usize {
    if std::env::var("RUSHMEM_TEST_ATTACK").is_ok_and(|v| v == "1") {
        attack
    } else {
        usual
    }
}

/// One flood at a time.
fn alone() -> MutexGuard<'static, ()> {
    static FLOODS: Mutex<()> = Mutex::new(());
    FLOODS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// This process may have so many descriptors from now on, where the hard limit allows it.
fn allow_descriptors(n: u64) {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).expect("a limit");
    setrlimit(Resource::RLIMIT_NOFILE, n.min(hard), hard).expect("up to the hard limit");
}

/// Nor ever more: a rank raises its limit as far as it may.
fn never_more_descriptors(n: u64) {
    setrlimit(Resource::RLIMIT_NOFILE, n, n).expect("a lower limit");
}

/// What a shell usually gives. A listener keeps half of them for strangers, so that the floods are larger
/// than what it keeps.
const USUAL: u64 = 1024;

fn config(rank: u32, n: u32) -> UidConfig {
    UidConfig { init_timeout: LONG, timeout: LONG, ..UidConfig::new(rank, n) }
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
    let _alone = alone();
    let n = size(3000, 6000);
    for speaks in [false, true] {
        let (mut rendezvous, uid) = standing("tcp", USUAL);
        let addr = uid.addr().net().expect("TCP");
        let said = if speaks { hello(&uid) } else { String::new() };
        let part = format!("tcp {addr} {} {said}", n / 2);
        let _strangers = Processes::strangers(&part, 2);
        in_time(&format!("{n} connections, hello {speaks}"), || {
            processes_start(&uid, &[Duration::ZERO; 4], USUAL)
        });
        assert!(rendezvous.are_at_work());
    }
}

/// The listeners for neighbours, which live for milliseconds: the rank that connects to all others comes
/// late, so that they last. A rank keeps 32 connections of strangers; there come 160 at least to each.
#[test]
fn nor_do_those_at_every_listener_of_the_ranks() {
    let _alone = alone();
    let (_rendezvous, uid) = standing("tcp", USUAL);
    let part = format!("listeners {} 5 {}", std::process::id(), size(400, 2000));
    let _strangers = Processes::strangers(&part, 2);
    let late = [500, 0, 0, 0, 0].map(Duration::from_millis);
    in_time("strangers at every listener", || processes_start(&uid, &late, 64));
}

#[test]
fn nor_do_processes_of_this_user_at_local_sockets() {
    let _alone = alone();
    let (mut rendezvous, uid) = standing("local", USUAL);
    let _strangers = Processes::strangers(&format!("local {}", size(2500, 3500)), 2);
    in_time("strangers at local sockets", || processes_start(&uid, &[Duration::ZERO; 4], USUAL));
    assert!(rendezvous.are_at_work());
}

/// A process that is short of descriptors must not take itself for another host's: then it would probe local
/// sockets as it does a network's, which fails.
#[test]
fn a_host_is_the_same_with_and_without_descriptors() {
    let _alone = alone();
    // What it was, as tests that come later in this process want it.
    let (before, _) = getrlimit(Resource::RLIMIT_NOFILE).expect("a limit");
    allow_descriptors(1);
    let short = rushmem_bootstrap_uid::home();
    allow_descriptors(before);
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
    let _alone = alone();
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
    let _stranger = Processes::strangers(&format!("nobody {tag} {}", size(300, 5000)), 1);
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
            while !told.message.contains("RUSHMEM_JOB_SECRET") && start.elapsed() < LONG * 3 / 4 {
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
