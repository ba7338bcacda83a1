//! The testing helper itself: success and failure are distinguished, limits are kept, nothing is left behind.
//! Tests of failures use `supervise`, which looks at the PEs from outside.

use std::io::{BufRead, BufReader};
use std::process::Command;
use std::time::{Duration, Instant};

use rushmem::testing::{self, Exit};
use rushmem::{ErrorCode, Pe, Uid, World};
use rushmem_test_support::api_common::place::on_gpus;

#[test]
fn processes_are_processes_and_threads_are_threads() {
    testing::run(3, |world| {
        let pids: Vec<_> = world.pes().map(|pe| world.peer(pe).unwrap().pid).collect();
        assert_eq!(pids[world.my_pe().index()], std::process::id());
        assert!(pids[0] != pids[1] && pids[1] != pids[2] && pids[0] != pids[2], "{pids:?}");
        assert_eq!(world.n_pes(), 3);
    });
    testing::threads(3, |world| {
        assert!(world.pes().all(|pe| world.peer(pe).unwrap().pid == std::process::id()));
        assert_eq!(std::thread::current().name(), Some(world.my_pe().to_string().as_str()));
    });
}

#[test]
fn several_calls_in_one_test_are_kept_apart() {
    for round in 1..=3u32 {
        testing::run(round, move |world| assert_eq!(world.n_pes(), round));
    }
    testing::pes(2).env("COLOUR", "green").env_for(Pe::new(1), "COLOUR", "blue").run(|world| {
        let expected = ["green", "blue"][world.my_pe().index()];
        assert_eq!(std::env::var("COLOUR").as_deref(), Ok(expected));
    });
}

#[test]
fn an_error_and_a_panic_are_failures_of_their_pe() {
    testing::pes(3).supervise(
        |pe| match pe.number() {
            0 => Ok(()),
            1 => Err("out of luck"),
            _ => panic!("out of order"),
        },
        |job| {
            let outcomes = job.outcomes();
            let exits: Vec<_> = outcomes.iter().map(|outcome| outcome.exit).collect();
            assert_eq!(exits, [Exit::Done, Exit::Code(101), Exit::Code(101)]);
            assert!(outcomes[1].stderr.contains("PE 1 failed: out of luck"), "{}", outcomes[1].stderr);
            assert!(outcomes[2].stderr.contains("out of order"), "{}", outcomes[2].stderr);
        },
    );
}

/// The failing run is a test of this very binary that only fails when asked to.
fn failing_test(name: &str) -> (bool, String) {
    let output = Command::new(std::env::current_exe().unwrap())
        .args([name, "--exact", "--include-ignored"])
        .env("RUSHMEM_TEST_FAIL", "1")
        .env_remove("RUSHMEM_TEST_CALL")
        .output()
        .unwrap();
    (
        output.status.success(),
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr),
    )
}

#[test]
fn helper_that_fails_on_one_pe_when_told() {
    let fail = std::env::var_os("RUSHMEM_TEST_FAIL").is_some();
    testing::run(3, move |world| {
        assert!(!(fail && world.my_pe().number() == 2), "this PE fails");
        world.barrier_all().map_err(|error| error.to_string())
    });
}

#[test]
fn a_failed_run_shows_the_pe_and_its_output() {
    let (passed, text) = failing_test("helper_that_fails_on_one_pe_when_told");
    assert!(!passed, "{text}");
    assert!(text.contains("[pe 2]") && text.contains("this PE fails"), "{text}");
    assert!(text.contains("PE 2 panicked or returned an error"), "{text}");
    // The others end with an error that names it, long before any limit.
    assert!(text.contains("[pe 0] PE 0 failed:") && text.contains("PE 2"), "{text}");
    assert!(!text.contains("was killed"), "{text}");
}

#[test]
fn helper_with_a_thread_that_fails_when_told() {
    let fail = std::env::var_os("RUSHMEM_TEST_FAIL").is_some();
    testing::threads(3, move |world| {
        assert!(!(fail && world.my_pe().number() == 1), "this thread fails");
        world.barrier_all()
    });
}

#[test]
fn a_failed_thread_is_named_and_ends_the_others() {
    let (passed, text) = failing_test("helper_with_a_thread_that_fails_when_told");
    assert!(!passed, "{text}");
    assert!(text.contains("[pes]") && text.contains("this thread fails"), "{text}");
    assert!(text.contains("PE 1 panicked") && text.contains("the process of all PEs panicked"), "{text}");
    assert!(!text.contains("was killed"), "{text}");
}

#[test]
fn helper_that_hangs_when_told() {
    if std::env::var_os("RUSHMEM_TEST_FAIL").is_some() {
        // More than a start takes, which opens a GPU where there is one.
        let limit = Duration::from_millis(if on_gpus() { 6000 } else { 700 });
        testing::pes(2).timeout(limit).run(|world| {
            if world.my_pe().number() == 1 {
                std::thread::sleep(Duration::from_secs(100));
            }
        });
    }
}

#[test]
fn the_limit_ends_a_run_that_hangs() {
    let start = Instant::now();
    let (passed, text) = failing_test("helper_that_hangs_when_told");
    assert!(!passed, "{text}");
    assert!(text.contains("PE 1 did not end by itself and was killed"), "{text}");
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
}

fn is_alive(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // A zombie that nobody has reaped yet is dead.
    !stat.is_empty() && !stat.rsplit(')').next().unwrap_or_default().trim_start().starts_with('Z')
}

fn dies_within(pid: u32, limit: Duration) -> bool {
    let start = Instant::now();
    while is_alive(pid) {
        if start.elapsed() > limit {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    true
}

#[test]
fn grandchildren_and_hanging_pes_are_killed_with_the_job() {
    testing::pes(2).supervise(
        |pe| {
            #[allow(clippy::zombie_processes)] // left behind on purpose
            let child = Command::new("sleep").arg("1000").spawn().unwrap();
            println!("CHILD={}", child.id());
            if pe.number() == 1 {
                std::thread::sleep(Duration::from_secs(1000));
            }
        },
        |job| {
            let limit = Duration::from_secs(60);
            let pids: Vec<u32> = [0, 1]
                .map(|pe| job.wait_for_line(Pe::new(pe), "CHILD=", limit))
                .iter()
                .map(|line| line.split('=').nth(1).unwrap().parse().unwrap())
                .collect();
            // PE 0 has ended by itself, and what it left behind goes with it.
            assert_eq!(job.outcome(Pe::new(0)).exit, Exit::Done);
            assert!(dies_within(pids[0], limit));
            assert!(is_alive(pids[1]) && job.is_running(Pe::new(1)));
            job.kill(Pe::new(1));
            assert_eq!(job.outcome(Pe::new(1)).exit, Exit::Signal(9));
            assert!(dies_within(pids[1], limit));
        },
    );
}

#[test]
fn pes_that_still_run_are_killed_when_the_parents_side_returns() {
    let mut pid = 0;
    testing::pes(1).supervise(
        |_| {
            println!("UP");
            std::thread::sleep(Duration::from_secs(1000));
        },
        |job| {
            job.wait_for_line(Pe::new(0), "UP", Duration::from_secs(60));
            pid = job.pid(Pe::new(0));
        },
    );
    assert!(dies_within(pid, Duration::from_secs(60)));
}

#[test]
fn helper_that_says_its_pids_and_waits_when_told() {
    if std::env::var_os("RUSHMEM_TEST_FAIL").is_some() {
        testing::run(2, |_| {
            println!("PID={}.", std::process::id());
            std::thread::sleep(Duration::from_secs(1000));
        });
    }
}

#[test]
fn pes_die_with_the_test_process_however_that_ends() {
    let mut test = Command::new(std::env::current_exe().unwrap())
        .args(["helper_that_says_its_pids_and_waits_when_told", "--exact", "--nocapture"])
        .env("RUSHMEM_TEST_FAIL", "1")
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(test.stdout.take().unwrap()).lines().map(Result::unwrap);
    let pid =
        |line: String| line.split_once("PID=").map(|(_, pid)| pid.trim_end_matches('.').parse().unwrap());
    let pids: Vec<u32> = lines.filter_map(pid).take(2).collect();
    assert!(pids.len() == 2 && pids.iter().all(|pid| is_alive(*pid)), "{pids:?}");
    test.kill().unwrap();
    test.wait().unwrap();
    assert!(pids.iter().all(|pid| dies_within(*pid, Duration::from_secs(60))));
}

#[test]
fn a_pe_that_never_comes_is_an_error_of_the_others() {
    testing::pes(3).without(Pe::new(1)).env("RUSHMEM_INIT_TIMEOUT", "1").supervise(
        |_| {
            let error = World::init().expect_err("PE 1 never comes");
            assert_eq!(error.code(), ErrorCode::Timeout, "{error}");
            println!("REPORTED {error}");
        },
        |job| {
            for outcome in job.outcomes() {
                assert_eq!(outcome.exit, Exit::Done, "{outcome:?}");
                assert!(outcome.stdout.contains('1'), "{outcome:?}");
            }
        },
    );
}

#[test]
fn the_runtime_is_the_one_beside_the_test() {
    let (version, path) = rushmem::runtime().unwrap();
    assert_eq!(version, env!("CARGO_PKG_VERSION"));
    assert!(path.is_absolute() && path.ends_with("librushmem_host.so"), "{}", path.display());
    assert_eq!(Uid::create().unwrap().to_string().len(), 256);
}
