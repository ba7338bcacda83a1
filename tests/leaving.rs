//! A PE that leaves before the others, by an error, a panic, a `World` that is dropped, or the end of its
//! process: nobody hangs, and every other PE names it first, whatever it waits in and whichever launcher
//! started it.

// PEs end themselves here, at once.
#![allow(clippy::disallowed_methods)]

use rushmem_test_support::programs;

use std::time::{Duration, Instant};

use rushmem::testing::Exit;
use rushmem::World;
use rushmem_test_support::api_common::place::hosts;
use rushmem_test_support::api_common::{longer, Rng};

use programs::{command, example, installed, run, rushmem_run, Ended};

/// Nobody is to need more; far above what it takes, far below the limits of waits and collective calls (600
/// s).
const LIMIT: Duration = Duration::from_secs(40);
/// The others end within a second; the machine may be busy with other tests.
const SOON: Duration = Duration::from_secs(20);
const PES: u32 = 4;

/// Each PE but `pe` has printed a line with all of `words`.
#[track_caller]
fn expect_named(ended: &Ended, pe: u32, words: &[&str]) {
    for other in (0..PES).filter(|other| *other != pe) {
        let mine = format!("[{other}] ");
        let named = ended.stderr.lines().filter(|line| line.starts_with(&mine));
        let named = named.filter(|line| line.contains(&format!("PE {pe} (")));
        let found = named.into_iter().any(|line| words.iter().all(|word| line.contains(word)));
        assert!(found, "PE {other} does not say of PE {pe} {words:?}: {ended}");
    }
}

fn job(how: &str, pe: u32, environment: &[(&str, &str)]) -> (Ended, Duration) {
    let mut job = rushmem_run(PES, example("errors"));
    let mut tagged = command(job.get_program());
    tagged.args(["--tag-output", "--grace", "20"]).args(job.get_args());
    job = tagged;
    job.args(["--how", how, "--pe", &pe.to_string()]).envs(environment.iter().copied());
    let start = Instant::now();
    (run(&mut job, LIMIT), start.elapsed())
}

#[track_caller]
fn check(how: &str, pe: u32, code: i32, words: &[&str], environment: &[(&str, &str)]) {
    let (ended, took) = job(how, pe, environment);
    assert_eq!(ended.status.code(), Some(code), "{how} of PE {pe}: {ended}");
    expect_named(&ended, pe, words);
    assert!(took < SOON, "{how} of PE {pe} took {took:?}: {ended}");
}

#[test]
fn an_error_is_carried_to_every_pe() {
    check("error", 1, 1, &["its program failed: out of cheese"], &[]);
    check("error", 0, 1, &["its program failed: out of cheese"], &[]);
}

#[test]
fn a_panic_is_carried_to_every_pe() {
    check("panic", 2, 101, &["its program panicked: out of cheese"], &[]);
}

#[test]
fn a_dropped_world_is_named() {
    check("drop", 1, 1, &["left the job without finalize", "dropped"], &[]);
    check("drop", 0, 1, &["left the job without finalize", "dropped"], &[]);
}

#[test]
fn a_process_that_exits_is_named() {
    check("exit", 3, 3, &["left the job without finalize", "its process ended"], &[]);
    check("exit", 0, 3, &["left the job without finalize", "its process ended"], &[]);
}

#[test]
fn pes_that_are_not_mapped_hear_of_it_too() {
    let info = run(programs::rushmem_info().arg("--json"), LIMIT).stdout;
    if !info.contains("libucp") {
        eprintln!("SKIP pes_that_are_not_mapped_hear_of_it_too: no UCX on this machine");
        return;
    }
    let apart =
        [("RUSHMEM_TRANSPORT", "ucx"), ("RUSHMEM_PES_PER_NODE", "2"), ("UCX_POSIX_USE_PROC_LINK", "n")];
    check("error", 1, 1, &["its program failed: out of cheese"], &apart);
    check("drop", 2, 1, &["left the job without finalize", "dropped"], &apart);
    job("nothing", 0, &apart).0.ok();
}

#[test]
fn all_may_leave_without_finalising() {
    let (ended, took) = job("nothing", 0, &[]);
    let ended = ended.ok();
    assert!(!ended.stderr.contains("[error]"), "{ended}");
    assert!(took < SOON, "{took:?}");
}

#[test]
fn under_mpirun() {
    let Some(mpirun) = installed("mpirun.openmpi") else {
        eprintln!("SKIP under_mpirun: no mpirun.openmpi in PATH");
        return;
    };
    if !programs::built().join("librushmem_bootstrap_openmpi.so").exists() {
        eprintln!("SKIP under_mpirun: the plug-in for Open MPI is not built (make mpi-plugins builds it)");
        return;
    }
    for (how, word) in [("error", "out of cheese"), ("exit", "its process ended")] {
        let mut job = command(&mpirun);
        job.args(programs::OPEN_MPI_ON_ONE_HOST).args(["-n", "3"]).arg(example("errors"));
        let start = Instant::now();
        let ended = run(job.args(["--how", how, "--pe", "1"]), LIMIT).failed();
        assert!(start.elapsed() < SOON, "{how}: {ended}");
        assert!(ended.stderr.contains(word), "{how}: {ended}");
    }
}

/// The exit handlers of the network's library must find no thread of rushmem's inside: a process that exits
/// ends with its code, not by a signal.
#[test]
fn a_process_exits_with_its_code_in_the_middle_of_far_traffic() {
    let name = "a_process_exits_with_its_code_in_the_middle_of_far_traffic";
    for _ in 0..longer(4) {
        let Some(pes) = hosts(name, 3, 1) else { return };
        pes.env("RUSHMEM_TRANSPORT", "ucx").supervise(
            |_| -> () {
                let world = World::init().unwrap();
                let memory = world.alloc::<u8>(1 << 20).unwrap();
                let late = Duration::from_micros(Rng::printed().below(30_000) as u64);
                world.barrier_all().unwrap();
                std::thread::scope(|scope| {
                    for (bytes, pe) in [(300_000, world.right()), (300, world.left())] {
                        let (data, memory) = (vec![1; bytes], &memory);
                        scope.spawn(move || while memory.slice(..bytes).unwrap().put(&data, pe).is_ok() {});
                    }
                    std::thread::sleep(late);
                    std::process::exit(3)
                })
            },
            |job| {
                for outcome in job.outcomes() {
                    let said = format!("{} {}: {}", outcome.pe, outcome.exit, outcome.stderr);
                    assert_eq!(outcome.exit, Exit::Code(3), "{said}");
                }
            },
        );
    }
}
