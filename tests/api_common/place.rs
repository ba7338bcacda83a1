//! Where the tests run, and how much of them: the same tests run on the CPU device and on GPUs, on one GPU
//! and on several, at full length and, under a sanitizer, at a small part of it.
//!
//! PEs that are processes of their own take turns on a GPU that they share, a few milliseconds each, so that
//! what bounces between them is slower by three orders of magnitude. PEs that are threads of one process run
//! on it side by side. Therefore a test runs its PEs as processes only where each has a device to itself,
//! unless processes are its point. In brief it is the other way round: a sanitizer may let one kernel of a
//! process run at a time.

use std::sync::LazyLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::way::way_to;
use rushmem::testing::{self, Pes};

/// The most PEs of a test; set where kernels are made slower by orders of magnitude, so for a part of the
/// rounds, too.
const BRIEF: &str = "RUSHMEM_TEST_BRIEF";

/// The GPUs over which the PEs of these tests are spread; 0 where their device is the CPU.
pub fn gpus() -> usize {
    static GPUS: LazyLock<usize> = LazyLock::new(|| {
        let wish = std::env::var("RUSHMEM_DEVICE").unwrap_or_default().trim().to_ascii_lowercase();
        if wish == "cpu" {
            return 0;
        }
        let here = rushmem::gpus().unwrap().len();
        if wish.starts_with("cuda:") {
            here.min(1)
        } else {
            here
        }
    });
    *GPUS
}

/// Whether these tests' device is a GPU.
pub fn on_gpus() -> bool {
    gpus() > 0
}

/// Whether `n` PEs as processes would have to take turns on a GPU.
pub fn in_turns(n: u32) -> bool {
    on_gpus() && n as usize > gpus()
}

fn brief() -> Option<u32> {
    static MOST: LazyLock<Option<u32>> =
        LazyLock::new(|| std::env::var(BRIEF).ok().and_then(|text| text.trim().parse().ok()));
    *MOST
}

/// Whether tests are to be brief.
pub fn is_brief() -> bool {
    brief().is_some()
}

/// Those of some numbers of PEs that the running test takes: two PEs and another number. That differs between
/// tests and changes every second day, as some tests run on every second one (`scripts/test`).
/// `RUSHMEM_TEST_COUNTS=all` takes all (`make test-all`). A PE's process must come to the same as the test's,
/// whose name it has.
pub fn counts(all: &[u32]) -> Vec<u32> {
    let all: Vec<u32> = all.iter().copied().filter(|n| !too_many(*n)).collect();
    if all.len() < 3 || std::env::var("RUSHMEM_TEST_COUNTS").is_ok_and(|v| v == "all") {
        return all;
    }
    let always = if all.contains(&2) { 2 } else { all[0] };
    let others: Vec<u32> = all.iter().copied().filter(|n| *n != always).collect();
    let day = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs() / 86_400);
    let test = std::thread::current().name().map_or(0, |name| name.bytes().map(u64::from).sum());
    vec![always, others[(day / 2 + test) as usize % others.len()]]
}

/// Whether tests of `n` PEs are left out.
pub fn too_many(n: u32) -> bool {
    brief().is_some_and(|most| n > most)
}

/// Whether PEs have to be threads of one process here: where the fake network is what leads from PE to PE,
/// where a stand-in for a card's libraries (`RUSHMEM_TEST_VERBS`) has to reach GPU memory, and where a run
/// wants it (`RUSHMEM_TEST_THREADS`), as a brief one over the software card on one GPU does.
pub fn threads_only() -> bool {
    if std::env::var_os("RUSHMEM_TEST_THREADS").is_some() {
        return true;
    }
    match std::env::var("RUSHMEM_TRANSPORT").unwrap_or_default().trim().to_ascii_lowercase().as_str() {
        "fake" => true,
        "queue" | "queue,ucx" => on_gpus() && std::env::var_os("RUSHMEM_TEST_VERBS").is_some(),
        _ => false,
    }
}

/// Whether the PEs of a test may be processes, which is its point; if not, it says that it does nothing here.
pub fn processes(test: &str) -> bool {
    if threads_only() {
        skip(test, "its PEs are processes, and those of this run are threads of one");
    }
    !threads_only()
}

/// Rounds of something that goes on inside a kernel.
pub fn rounds(n: usize) -> usize {
    if is_brief() {
        n.div_ceil(20)
    } else {
        n
    }
}

/// Rounds of a litmus test in a kernel or on a stream: what is rare shows in many only, so that tests in
/// brief have fewer just where a sanitizer makes them so, not over a network; but over a card that is a
/// program, to which each access to a GPU's memory is a copy.
pub fn litmus_rounds(n: usize) -> usize {
    let queues = std::env::var("RUSHMEM_TRANSPORT").is_ok_and(|way| way.starts_with("queue"));
    if all_mapped(8) || queues && on_gpus() {
        rounds(n)
    } else {
        n
    }
}

/// Rounds of what takes tens of seconds on the CPU device: a third, drawn anew in each run, and at least two;
/// all of them on GPUs, and with RUSHMEM_TEST_ROUNDS (`make test-all`).
pub fn long_rounds(n: usize) -> usize {
    if on_gpus() || std::env::var_os("RUSHMEM_TEST_ROUNDS").is_some() {
        n
    } else {
        n.div_ceil(3).max(2)
    }
}

/// Rounds of host operations: one on a GPU's memory takes some 10 us, one on the host's a few ns.
pub fn host_rounds(n: usize) -> usize {
    match (is_brief(), on_gpus()) {
        (true, _) => n.div_ceil(50),
        (_, true) => n.div_ceil(5),
        _ => n,
    }
}

/// Whether every PE of `n` maps the memory of every other one: not where the tests are run over a network.
pub fn all_mapped(n: u32) -> bool {
    (0..n).all(|pe| way_to(0, pe) == "direct")
}

/// `n` PEs with the time that they may need here: on GPUs a test may compile dozens of kernels.
pub fn pes(n: u32) -> Pes {
    testing::pes(n).timeout(Duration::from_secs(if is_brief() || on_gpus() { 190 } else { 60 }))
}

/// Says that a test, or a part of it, does nothing here.
pub fn skip(test: &str, why: impl std::fmt::Display) {
    eprintln!("SKIP {test}: {why}");
}

/// `n` PEs on hosts of `each`, reached by UCX; `None`, aloud, where there is no UCX.
pub fn hosts(test: &str, n: u32, each: u32) -> Option<Pes> {
    over_ucx(test, n).map(|pes| pes.env("RUSHMEM_PES_PER_NODE", each.to_string()).env("RUSHMEM_NODES", ""))
}

/// `n` PEs on the hosts that `list` says (`RUSHMEM_NODES`); likewise.
pub fn nodes(test: &str, n: u32, list: &str) -> Option<Pes> {
    over_ucx(test, n).map(|pes| pes.env("RUSHMEM_PES_PER_NODE", "").env("RUSHMEM_NODES", list))
}

fn over_ucx(test: &str, n: u32) -> Option<Pes> {
    // Whether it is there is asked where the test starts: some of its PEs are to miss it.
    if std::env::var_os("RUSHMEM_PE").is_none() {
        if let Err(why) = rushmem::doctor::network().unwrap() {
            skip(test, why);
            return None;
        }
    }
    Some(pes(n).env("RUSHMEM_TRANSPORT", "auto"))
}
