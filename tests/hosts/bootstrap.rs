//! The bootstrap alone, across hosts.

use std::time::{Duration, Instant};

use rushmem_bootstrap_abi::{BootError, Bootstrap};
use rushmem_bootstrap_conformance::{run_all, Limits};
use rushmem_bootstrap_uid::{environment, UidBootstrap, UidConfig};

use crate::namespaces::on_hosts;
use crate::ranks::{Job, LIMIT};

/// Seconds of [`UidConfig::host_silence`].
const SILENCE: &str = "HOSTS_TEST_SILENCE";

// ---- the ranks ----

fn join() -> Result<UidBootstrap, BootError> {
    let mut cfg = UidConfig { init_timeout: LIMIT, timeout: LIMIT, ..UidConfig::new(0, 1) };
    if let Ok(seconds) = std::env::var(SILENCE) {
        cfg.host_silence = Some(Duration::from_secs(seconds.parse().expect("a number of seconds")));
    }
    environment::detect_here()?.join(cfg)
}

/// Each rank gives `bytes` of its own, and gets everybody's.
fn gather(b: &UidBootstrap, bytes: usize) -> Result<(), BootError> {
    let mut out = vec![0; bytes * b.n_ranks() as usize];
    b.allgather(&vec![b.rank() as u8; bytes], &mut out)?;
    assert!(out.chunks(bytes).enumerate().all(|(rank, part)| part.iter().all(|x| *x == rank as u8)));
    Ok(())
}

fn on(b: &UidBootstrap, part: &str) -> Result<(), BootError> {
    match part {
        "suite" => {
            let limits = Limits { max_total: 8 << 20, ..Limits::default() };
            run_all(b, &limits).unwrap_or_else(|e| panic!("{e}"));
            b.finalize()
        }
        // Rank 0 stays away until a death is known.
        "barrier" if b.rank() == 0 => loop {
            std::thread::sleep(Duration::from_millis(10));
            if b.death().is_some() {
                return b.barrier();
            }
        },
        "barrier" => b.barrier(),
        "data" => loop {
            gather(b, 300_001)?;
        },
        "idle" => loop {
            std::thread::sleep(Duration::from_millis(10));
            if let Some(death) = b.death() {
                std::thread::sleep(Duration::from_millis(100)); // as the runtime's monitor does
                let death = b.death().unwrap_or(death);
                return Err(BootError::new(rushmem_bootstrap_abi::BootErrorKind::PeerDead, death.what));
            }
        },
        "patient" => {
            // More than windows and buffers hold, so that a rank that stands still stops all.
            (0..4).try_for_each(|_| gather(b, 4 << 20))?;
            b.finalize()
        }
        "sleepy" => {
            std::thread::sleep(Duration::from_secs(8));
            gather(b, 1)?;
            b.finalize()
        }
        other => panic!("no part {other}"),
    }
}

pub(crate) fn play(part: &str) {
    let result = join().and_then(|b| {
        b.barrier()?;
        println!("@ready");
        on(&b, part)
    });
    match result {
        Ok(()) => println!("@end fine"),
        Err(e) => println!("@end {:?} {:?} {e}", e.kind, e.rank),
    }
}

// ---- the tests ----

#[test]
fn the_suite_passes_across_hosts() {
    for (hosts, per_host) in [(2, 2), (3, 1)] {
        on_hosts(hosts as usize, |net| {
            Job::start(net, (hosts, per_host), "bootstrap suite", &[]).ends_well();
        });
    }
}

/// With no other setting than the defaults.
#[test]
fn a_host_that_is_cut_off_is_named_within_10_s() {
    on_hosts(2, |net| {
        let mut job = Job::start(net, (2, 2), "bootstrap barrier", &[]);
        job.wait_for("@ready");
        std::thread::sleep(Duration::from_millis(300));
        let cut = Instant::now();
        net.cut(1);
        job.both_sides_say(1, cut, Duration::from_secs(10));
    });
}

#[test]
fn whatever_the_ranks_do_when_it_is_cut_off() {
    const SECONDS: u64 = 3;
    for part in ["idle", "barrier", "data"] {
        for by_address in [false, true] {
            on_hosts(2, |net| {
                let role = format!("bootstrap {part}");
                let mut job = Job::start(net, (2, 2), &role, &[(SILENCE, &SECONDS.to_string())]);
                job.wait_for("@ready");
                std::thread::sleep(Duration::from_millis(1500));
                let cut = Instant::now();
                if by_address {
                    net.take_address(1);
                } else {
                    net.cut(1);
                }
                println!("{part}, {}", if by_address { "no address" } else { "no cable" });
                // Silence is counted in probes a second apart, and a rank's last words take a moment: so
                // short a limit is kept to within that.
                job.both_sides_say(1, cut, Duration::from_millis(SECONDS * 1000 + 900));
            });
        }
    }
}

#[test]
fn one_of_three_hosts_is_cut_off() {
    on_hosts(3, |net| {
        let mut job = Job::start(net, (3, 2), "bootstrap idle", &[(SILENCE, "3")]);
        job.wait_for("@ready");
        let cut = Instant::now();
        net.cut(2);
        job.both_sides_say(2, cut, Duration::from_secs(3));
    });
}

/// Its kernel says so at once.
#[test]
fn all_ranks_of_a_host_are_killed() {
    on_hosts(2, |net| {
        let mut job = Job::start(net, (2, 2), "bootstrap idle", &[]);
        job.wait_for("@ready");
        let killed = Instant::now();
        job.signal(2, libc::SIGKILL);
        job.signal(3, libc::SIGKILL);
        let words = ["rank 2 (host h2, pid", "rank 3 (host h2, pid"];
        job.survivors_say(1, &words, killed, Duration::from_secs(2));
    });
}

/// Four times the limit on silence.
#[test]
fn idle_hosts_are_not_dead() {
    on_hosts(2, |net| {
        Job::start(net, (2, 2), "bootstrap sleepy", &[(SILENCE, "2")]).ends_well();
    });
}

/// Four times the limit on silence, first in the middle of data that it does not take.
#[test]
fn a_stopped_process_is_not_dead() {
    on_hosts(2, |net| {
        let mut job = Job::start(net, (2, 2), "bootstrap patient", &[(SILENCE, "2")]);
        job.wait_for("@ready");
        job.signal(2, libc::SIGSTOP);
        std::thread::sleep(Duration::from_secs(8));
        job.signal(2, libc::SIGCONT);
        job.ends_well();
    });
}

#[test]
fn a_cable_that_is_out_for_a_moment_is_no_death() {
    on_hosts(2, |net| {
        let mut job = Job::start(net, (2, 2), "bootstrap sleepy", &[(SILENCE, "5")]);
        job.wait_for("@ready");
        for _ in 0..2 {
            net.cut(1);
            std::thread::sleep(Duration::from_millis(1500));
            net.join(1).expect("the cable is still there");
            std::thread::sleep(Duration::from_millis(1500));
        }
        job.ends_well();
    });
}
