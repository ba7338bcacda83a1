//! What a person who debugs a job reads: variables that nobody reads are warned about once, and
//! `RUSHMEM_LOG=debug` says what was chosen, how far things have grown, who is connected, and what is used
//! for the first time.

use rushmem_test_support::programs;

use std::time::Duration;

use programs::{example, run, rushmem_run};

use rushmem::testing::{self, Exit};
use rushmem::{Cmp, World};

const LIMIT: Duration = Duration::from_secs(60);
/// Where a kernel is compiled, which takes a second on an idle machine.
const COMPILING: Duration = Duration::from_secs(240);

#[test]
fn a_variable_that_nobody_reads_is_warned_about_once() {
    let mut job = rushmem_run(3, example("hello"));
    let ended = run(job.env("RUSHMEM_HEAPMAX", "1G").env("RUSHMEM_HEAP_MIN", "1M"), LIMIT).ok();
    let warnings = ended.lines_with("[warn]");
    assert_eq!(warnings.len(), 1, "{ended}");
    for word in ["RUSHMEM_HEAPMAX", "is RUSHMEM_HEAP_MAX meant?"] {
        assert!(warnings[0].contains(word), "{word:?}: {ended}");
    }
}

#[test]
fn a_level_that_is_none_is_warned_about_once() {
    let ended = run(rushmem_run(3, example("hello")).env("RUSHMEM_LOG", "verbose"), LIMIT).ok();
    let warnings = ended.lines_with("[warn]");
    assert!(warnings.len() == 1 && warnings[0].contains("RUSHMEM_LOG=verbose"), "{ended}");
    assert!(warnings[0].contains("error, warn, info and debug"), "{ended}");
}

#[test]
fn debug_says_what_a_person_who_debugs_needs() {
    let secret = "not-for-the-log";
    let cache = tempfile::tempdir().expect("a temporary folder");
    let mut job = rushmem_run(2, example("ring"));
    job.args(["--laps", "3"]).env("RUSHMEM_LOG", "debug").env("RUSHMEM_JOB_SECRET", secret);
    job.env("RUSHMEM_CACHE_DIR", cache.path());
    let ended = run(&mut job, COMPILING).ok();
    for words in [
        &["setting RUSHMEM_LOG=debug"][..],
        &["setting RUSHMEM_UID=(a secret)"],
        &["librushmem_host.so ", "/librushmem_host.so"],
        &["bootstrap uid for rank 1 of 2", "rushmem-run"],
        &["its device is ", "2 of them mapped directly"],
        &["connected with 1 of the 1 PEs of this node"],
        &["the heap grows by ", "RUSHMEM_HEAP_MAX"],
        &["PE 0 (host ", "first alloc"],
        &["first barrier_all"],
        &["first launch of kernel `ring` (ring.cu)"],
    ] {
        let found = ended.stderr.lines().any(|line| words.iter().all(|word| line.contains(word)));
        assert!(found, "no line with {words:?}: {ended}");
    }
    assert!(!ended.stderr.contains(secret), "{ended}");
    // One PE compiles for all.
    if programs::device() == "device: CPU" {
        for words in [["ring.cu was compiled in ", " by "], ["ring.cu is taken from", "kernel cache"]] {
            let lines = ended.stderr.lines().filter(|line| words.iter().all(|word| line.contains(word)));
            assert_eq!(lines.count(), 1, "{words:?}: {ended}");
        }
    }
}

#[test]
fn debug_tells_of_the_network() {
    let info = run(programs::rushmem_info().arg("--json"), LIMIT).stdout;
    if !info.contains("libucp") {
        eprintln!("SKIP debug_tells_of_the_network: no UCX on this machine");
        return;
    }
    let mut job = rushmem_run(2, example("put"));
    job.env("RUSHMEM_LOG", "debug").env("RUSHMEM_TRANSPORT", "ucx").env("RUSHMEM_PES_PER_NODE", "1");
    let ended = run(job.env("UCX_POSIX_USE_PROC_LINK", "n"), LIMIT).ok();
    for words in [
        &["setting RUSHMEM_TRANSPORT=ucx"][..],
        &["is reached by ucx"],
        &["kernels reach far PEs by the proxy", "libibverbs"],
        &["far PEs up to 512 bytes travel in a message", "RUSHMEM_RING_SLOTS"],
        &["UCX connects with PE "],
        &["first put: PE ", "reached by ucx"],
    ] {
        let found = ended.stderr.lines().any(|line| words.iter().all(|word| line.contains(word)));
        assert!(found, "no line with {words:?}: {ended}");
    }
}

/// A wait of a second is no stall yet, but worth knowing when one debugs.
#[test]
fn debug_says_what_a_long_wait_is_for() {
    let job = testing::pes(2).env("RUSHMEM_LOG", "debug").env("RUSHMEM_STALL_REPORT", "60");
    job.supervise(
        |_| -> rushmem::Result<()> {
            let world = World::init()?;
            let signal = world.signal()?;
            if world.my_pe().number() == 0 {
                signal.wait_until(Cmp::Ge, 3)?;
            } else {
                std::thread::sleep(Duration::from_millis(2500));
                signal.set(3, rushmem::Pe::new(0))?;
            }
            world.barrier_all()?;
            world.finalize()
        },
        |job| {
            for outcome in job.outcomes() {
                assert_eq!(
                    outcome.exit,
                    Exit::Done,
                    "{}:\n{}\n{}",
                    outcome.pe,
                    outcome.stdout,
                    outcome.stderr
                );
                let is_the_wait = |line: &&str| line.contains("has waited 1.") && line.contains("[debug]");
                let waits: Vec<&str> = outcome.stderr.lines().filter(is_the_wait).collect();
                if outcome.pe.number() == 0 {
                    assert_eq!(waits.len(), 1, "once for each wait: {}", outcome.stderr);
                    for word in ["PE 0 (host ", "waits for", "heap offset", ">= 3"] {
                        assert!(waits[0].contains(word), "{word:?} is missing: {}", waits[0]);
                    }
                }
            }
        },
    );
}

#[test]
fn debug_says_what_is_first_used_on_a_stream() {
    let ended = run(rushmem_run(2, example("pipeline")).env("RUSHMEM_LOG", "debug"), LIMIT).ok();
    let first = |line: &str| {
        line.contains("first put_signal_on_stream: PE ") && line.contains("is reached by direct")
    };
    // Once for each process.
    assert_eq!(ended.stderr.lines().filter(|line| first(line)).count(), 2, "{ended}");
}
