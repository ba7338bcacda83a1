//! Random operations of every kind against a serial model, on every way from PE to PE.
//!
//! Each PE has one to four *actors*: threads of the host, streams and blocks of a kernel. An actor runs a
//! random [program](program) of puts, gets, atomics, signals, fences and quiets on random PEs. Each actor has
//! a region of every PE's memory to itself, so what must be in it follows from its program alone ([`model`]).
//! Meanwhile [observers](observe) look at the regions: an observer that sees an operation must see all that
//! its actor fenced before it. At the end of a round the regions are compared with the model.
//!
//! [`memory`] does the same to memory that comes and goes under such operations.
//!
//! A round that fails is repeated with fewer and fewer operations ([`shrink`]); the smallest failing program
//! is printed with its seed.
//!
//! Each way takes `RUSHMEM_SOAK_SECONDS` (2 unless set). `RUSHMEM_TEST_SEED` repeats a run.

use rushmem_test_support::api_common;

mod actor;
mod field;
mod kernel;
mod memory;
mod model;
mod observe;
mod program;
mod round;
mod shrink;

use std::time::{Duration, Instant};

use rushmem::testing::Pes;
use rushmem::World;

use api_common::card::stand_in;
use api_common::place::{self, hosts, in_turns, on_gpus};
use api_common::{seed, seeded, Rng};
use field::Field;
use program::Program;
use round::run_round;

/// How long a way is tried.
fn seconds() -> u64 {
    std::env::var("RUSHMEM_SOAK_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(2)
}

/// How long a way may take, with the time to make a failing program smaller.
fn limit() -> Duration {
    Duration::from_secs(seconds() + 110) + shrink::limit()
}

/// Rounds until the time is up.
fn soak(world: &World) {
    let mut random = Rng::new(seed());
    let field = Field::new(world);
    let (start, limit, mut rounds, mut operations) = (Instant::now(), Duration::from_secs(seconds()), 0, 0);
    loop {
        let program = Program::random(&mut random, world.n_pes(), field.next_round());
        operations += program.operations();
        if let Err(failure) = run_round(&field, &program) {
            shrink::report(&field, program, &failure);
        }
        rounds += 1;
        // PE 0's clock decides, so that all stop after the same round.
        if field.agree(start.elapsed() > limit) {
            break;
        }
    }
    if world.my_pe().number() == 0 {
        println!("{rounds} rounds, {operations} operations of {} PEs", world.n_pes());
    }
}

/// What PEs do.
type Soak = fn(&World);

/// As processes; as threads where the way or a shared GPU wants that.
fn run(pes: Pes, n: u32, soak: Soak) {
    let pes = seeded(pes).timeout(limit());
    if place::threads_only() || in_turns(n) {
        pes.threads(soak);
    } else {
        pes.run(soak);
    }
}

/// Over UCX with these settings.
fn over_ucx(test: &str, n: u32, each: u32, env: &[(&str, &str)], soak: Soak) {
    let Some(pes) = hosts(test, n, each) else { return };
    run(env.iter().fold(pes, |pes, (name, value)| pes.env(name, value)), n, soak);
}

/// Over the fake network, which leads from thread to thread.
fn over_fake(n: u32, each: &str, delay: &str, soak: Soak) {
    if on_gpus() {
        return place::skip("soak over the fake network", "it carries no GPU's memory");
    }
    let pes = place::pes(n).env("RUSHMEM_TRANSPORT", "fake").env("RUSHMEM_PES_PER_NODE", each);
    seeded(pes.env("RUSHMEM_FAKE_DELAY", delay)).timeout(limit()).threads(soak);
}

/// Over queues of a software card, as threads: so many queues to each PE.
fn over_queues(n: u32, each: &str, contexts: &str, soak: Soak) {
    if on_gpus() {
        return place::skip("soak over a software card", "the fake network carries no GPU's memory");
    }
    let pes = place::pes(n).env("RUSHMEM_TRANSPORT", "queue-emulated").env("RUSHMEM_PES_PER_NODE", each);
    let pes = pes.env("RUSHMEM_QUEUE_SLOTS", "64").env("RUSHMEM_FAKE_DELAY", "20");
    let pes = pes.env("RUSHMEM_QUEUE_CONTEXTS", contexts);
    seeded(pes).timeout(limit()).threads(soak);
}

#[test]
fn direct() {
    run(place::pes(3), 3, soak);
}

#[test]
fn ucx_shared_memory() {
    over_ucx("soak over shared memory", 2, 1, &[], soak);
}

#[test]
fn ucx_tcp() {
    over_ucx("soak over tcp", 2, 1, &[("UCX_TLS", "tcp")], soak);
}

#[test]
fn ucx_copies() {
    over_ucx("soak over UCX's copies", 2, 1, &[("RUSHMEM_FAR_COPIES", "ucx")], soak);
}

#[test]
fn mixed() {
    over_ucx("soak of near and far PEs", 4, 2, &[], soak);
}

#[test]
fn fake() {
    over_fake(2, "1", "100", soak);
}

#[test]
fn fake_in_haste() {
    over_fake(3, "1", "5", soak);
}

#[test]
fn mixed_fake() {
    over_fake(4, "2", "20", soak);
}

/// Kernels write queues of a software card; the rest goes by the fake network.
#[test]
fn queue() {
    over_queues(2, "1", "1", soak);
}

/// Blocks of a kernel have queues of their own.
#[test]
fn queue_contexts() {
    over_queues(3, "1", "3", soak);
}

#[test]
fn mixed_queue() {
    over_queues(4, "2", "1", soak);
}

/// The same as processes; the rest goes by UCX.
#[test]
fn queue_ucx() {
    let way = [("RUSHMEM_TRANSPORT", "queue-emulated"), ("RUSHMEM_FAKE_DELAY", "20")];
    over_ucx("soak of queues", 2, 1, &way, soak);
}

/// Two ways at once, which a fence and a quiet cover both: kernels write a card's queues where both PEs have
/// a card, and post to the proxy for PE 3, which has none. PEs 0 and 1 are near, 2 and 3, too.
#[test]
fn queue_and_ucx_and_near() {
    over_two_ways("soak of two ways and near PEs", 4, 2, "direct,queue,ucx", ",3,", "auto");
}

/// The same with all PEs far; in long runs alone.
#[test]
fn queue_and_ucx() {
    if std::env::var_os("RUSHMEM_SOAK_SECONDS").is_some() {
        over_two_ways("soak of two ways", 3, 1, "queue,ucx", ",2,", "auto");
    }
}

/// The proxy thread rings for kernels; in long runs alone.
#[test]
fn queue_that_the_proxy_rings() {
    if std::env::var_os("RUSHMEM_SOAK_SECONDS").is_some() {
        over_two_ways("soak of the proxy's doorbells", 4, 2, "direct,queue,ucx", ",3,", "proxy");
    }
}

fn over_two_ways(test: &str, n: u32, each: u32, way: &str, without: &str, ringer: &str) {
    let folder = match (on_gpus(), stand_in()) {
        (false, Ok(folder)) => folder,
        (true, _) => return place::skip(test, "the stand-in reaches a GPU's memory within one process"),
        (_, Err(why)) => return place::skip(test, why),
    };
    let way = [
        ("RUSHMEM_TRANSPORT", way),
        ("RUSHMEM_VERBS", &folder),
        ("STAND_IN_WITHOUT", without),
        ("RUSHMEM_DOORBELL", ringer),
        ("RUSHMEM_QUEUE_SLOTS", "64"),
    ];
    over_ucx(test, n, each, &way, soak);
}

#[test]
fn memory_queue() {
    over_queues(4, "2", "2", memory::soak);
}

#[test]
fn memory_direct() {
    run(place::pes(3), 3, memory::soak);
}

#[test]
fn memory_ucx() {
    over_ucx("soak of memory over UCX", 3, 2, &[], memory::soak);
}

#[test]
fn memory_fake() {
    over_fake(4, "2", "20", memory::soak);
}
