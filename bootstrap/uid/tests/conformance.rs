//! The conformance suite over threads, with the unique-ID bootstrap and the single one.

use std::net::SocketAddr;
use std::sync::{mpsc, Arc};
use std::time::{Duration, Instant};

use rushmem_bootstrap_abi::{Bootstrap, Result};
use rushmem_bootstrap_conformance::{dies, on_threads, run_all, Limits};
use rushmem_bootstrap_uid::{join_uid, Single, Uid, UidBootstrap, UidConfig};

fn join(uid: &Uid, rank: u32, n: u32) -> std::result::Result<Arc<dyn Bootstrap>, String> {
    let b: Result<UidBootstrap> = join_uid(uid, UidConfig::new(rank, n));
    b.map(|b| Arc::new(b) as Arc<dyn Bootstrap>).map_err(|e| e.to_string())
}

fn address(uid: &Uid) -> SocketAddr {
    uid.addr().net().expect("an ID made for an interface has its address")
}

fn suite_on(ifname: &str, n: u32) {
    let (uid, rendezvous) = Uid::create(Some(ifname)).expect("a unique ID");
    suite(uid, n);
    assert!(rendezvous.is_finished(), "the rendezvous must end by itself");
}

fn suite(uid: Uid, n: u32) {
    let result = on_threads(
        n,
        move |rank| join(&uid, rank, n),
        Duration::from_secs(120),
        move |b| {
            run_all(b, &Limits::for_threads(n))?;
            b.finalize().map_err(|e| format!("finalize: {e}"))
        },
    );
    result.unwrap_or_else(|e| panic!("{e}"));
}

#[test]
fn suite_over_local_sockets() {
    for n in [1, 2, 5, 16] {
        let (uid, _rendezvous) = Uid::create_standing_local().expect("a unique ID");
        suite(Uid::from_hex(&uid.to_hex()).expect("a copy"), n);
    }
}

macro_rules! suites {
    ($($name:ident: $n:expr),*) => { $(#[test] fn $name() { suite_on("lo", $n) })* };
}

suites!(suite_1: 1, suite_2: 2, suite_3: 3, suite_4: 4, suite_5: 5, suite_7: 7, suite_8: 8, suite_16: 16, suite_33: 33);

#[test]
fn suite_on_the_default_interface() {
    let (uid, handle) = Uid::create(None).expect("a unique ID");
    drop(handle);
    suite_on(&address(&uid).ip().to_string(), 3);
}

#[test]
fn suite_over_ipv6() {
    if std::net::TcpListener::bind("[::1]:0").is_err() {
        return eprintln!("SKIP suite_over_ipv6: this host has no ::1");
    }
    let (uid, handle) = Uid::create(Some("::1")).expect("a unique ID");
    assert!(address(&uid).is_ipv6());
    drop(handle);
    suite_on("::1", 4);
}

#[test]
fn suite_over_link_local_ipv6() {
    let local = |a: &SocketAddr| matches!(a, SocketAddr::V6(a) if a.ip().segments()[0] == 0xfe80);
    let found = Uid::create(Some("fe80::")).ok().map(|(uid, _)| address(&uid)).filter(local);
    let table = std::fs::read_to_string("/proc/net/if_inet6").unwrap_or_default();
    let line = table.lines().find(|l| l.starts_with("fe80"));
    let Some(line) = line.filter(|_| found.is_none()) else {
        return eprintln!("SKIP suite_over_link_local_ipv6: no interface has a link-local address");
    };
    let groups: Vec<&str> = (0..8).map(|i| &line[i * 4..][..4]).collect();
    suite_on(&groups.join(":"), 3);
}

#[test]
fn the_single_bootstrap() {
    run_all(&Single, &Limits::default()).expect("the suite");
    Single.finalize().expect("finalize");
}

#[test]
fn a_dropped_rank_is_a_death() {
    for (n, victim) in [(2, 0), (3, 2), (8, 5), (33, 17)] {
        let (uid, _rendezvous) = Uid::create(Some("lo")).expect("a unique ID");
        let result = on_threads(
            n,
            move |rank| join(&uid, rank, n),
            Duration::from_secs(60),
            move |b| dies(b, victim, &|| b.abort("the test says so"), Duration::from_secs(2)),
        );
        result.unwrap_or_else(|e| panic!("n {n}, victim {victim}: {e}"));
    }
}

/// As when a process has ended, which a PE of its host has seen in a way of its own: that PE may end at once.
#[test]
fn a_death_that_a_rank_reports_is_known_before_its_own_end() {
    let (uid, _rendezvous) = Uid::create(Some("lo")).expect("a unique ID");
    let first_death = |b: &dyn Bootstrap| {
        let start = Instant::now();
        while b.death().is_none() && start.elapsed() < Duration::from_secs(20) {
            std::thread::sleep(Duration::from_millis(1));
        }
        b.death()
    };
    let result = on_threads(
        3,
        move |rank| join(&uid, rank, 3),
        Duration::from_secs(60),
        move |b| {
            let met = b.barrier();
            if b.rank() == 1 {
                met.map_err(|e| e.to_string())?;
                b.report_death(0, "PE 0 is gone: its process ended");
            } else {
                // Rank 1 may be out of the barrier, and say so, before the others are.
                let death = first_death(b).ok_or(format!("no death is known: {met:?}"))?;
                // Rank 0 lives, and sees the other leave.
                if b.rank() == 2 && (death.rank != 0 || !death.what.contains("PE 0 is gone")) {
                    return Err(format!("{death:?}"));
                }
            }
            b.abort("the test says so");
            Ok(())
        },
    );
    result.unwrap_or_else(|e| panic!("{e}"));
}

/// Starts `n` thin clients on threads, which gather 1 KiB each; how long that took.
fn thin_clients(n: u32) -> Duration {
    let (uid, _rendezvous) = Uid::create(Some("lo")).expect("a unique ID");
    let start = Instant::now();
    let (tx, rx) = mpsc::channel();
    let result = on_threads(
        n,
        move |rank| join(&uid, rank, n),
        Duration::from_secs(60),
        move |b| {
            let mut out = vec![0; 1024 * n as usize];
            b.allgather(&[b.rank() as u8 ^ 0x33; 1024], &mut out).map_err(|e| e.to_string())?;
            tx.send(start.elapsed()).map_err(|e| e.to_string())?;
            let right = |(r, blob): (usize, &[u8])| blob.iter().all(|x| *x == r as u8 ^ 0x33);
            if !out.chunks(1024).enumerate().all(right) {
                return Err("wrong bytes".into());
            }
            b.finalize().map_err(|e| format!("finalize: {e}"))
        },
    );
    result.unwrap_or_else(|e| panic!("{e}"));
    let took = rx.try_iter().max().expect("every rank says when it was done");
    println!(
        "{n} ranks joined and gathered 1 KiB each in {took:?}, and were gone after {:?}",
        start.elapsed()
    );
    took
}

/// Five seconds on two cores; three attempts, because other programs may keep them busy.
#[test]
fn thin_clients_by_the_hundred() {
    const LIMIT: Duration = Duration::from_secs(5);
    if (0..3).any(|_| thin_clients(512) < LIMIT) {
        return;
    }
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let busy: f64 = load.split(' ').next().and_then(|l| l.parse().ok()).unwrap_or(0.0);
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
    assert!(busy > 8.0 * cores as f64, "three attempts took longer than {LIMIT:?} at a load of {busy}");
    eprintln!("SKIP the time limit of thin_clients_by_the_hundred: a load of {busy} on {cores} cores");
}
