//! PEs on other hosts that say nothing for long: silence is not taken for a death, be it that a PE has
//! nothing to say or that it is stopped. What UCX, TCP and the bootstrap do to watch connections, each some
//! 10 or 20 s by default, they do much more often here, so that as many looks as in an hour pass in seconds.

use std::time::Duration;

use rushmem::testing::{Exit, Pes};
use rushmem::{Cmp, Pe, World};
use rushmem_test_support::api_common::place::{hosts, on_gpus, skip};

const LIMIT: Duration = Duration::from_secs(30);
/// Two hundred and fifty looks of UCX, which are those of 80 minutes, and more than twice what the bootstrap
/// allows a host. `make attack` takes half a minute.
fn silence() -> Duration {
    Duration::from_secs(if std::env::var_os("RUSHMEM_TEST_ATTACK").is_some() { 30 } else { 5 })
}

const MOST: usize = 300_000;

/// Three PEs on a host each, on either network of one machine.
fn watched(test: &str) -> Vec<Pes> {
    let Some(pes) = hosts(test, 3, 1) else { return Vec::new() };
    let pes = pes.timeout(2 * silence() + Duration::from_secs(60));
    let pes = pes.env("UCX_KEEPALIVE_INTERVAL", "20ms").env("RUSHMEM_PEER_TIMEOUT", "2");
    let pes = pes.env("UCX_TCP_KEEPIDLE", "1s").env("UCX_TCP_KEEPINTVL", "1s");
    vec![pes.clone().env("UCX_TLS", "tcp"), pes]
}

/// Everybody puts to everybody, gets it back, and counts.
fn talk(world: &World, round: u8) {
    let (me, n) = (world.my_pe(), world.n_pes() as usize);
    let inbox = world.alloc::<u8>(n * MOST).unwrap();
    let counter = world.alloc::<u64>(1).unwrap();
    let data = |from: Pe, bytes: usize| vec![round * 16 + from.number() as u8; bytes];
    for bytes in [8, 600, MOST] {
        let mine = inbox.slice(me.index() * MOST..me.index() * MOST + bytes).unwrap();
        for pe in world.pes() {
            mine.put(&data(me, bytes), pe).unwrap();
            counter.at(0, pe).add(1).unwrap();
        }
        world.barrier_all().unwrap();
        let seen = inbox.to_vec().unwrap();
        for from in world.pes() {
            assert!(
                seen[from.index() * MOST..][..bytes] == data(from, bytes),
                "round {round}, {bytes} of {from}"
            );
            let mut back = vec![0; bytes];
            mine.get(&mut back, from).unwrap();
            assert!(back == data(me, bytes), "round {round}, {bytes} bytes back from {from}");
        }
        world.barrier_all().unwrap();
    }
    assert_eq!(counter.g(0, me).unwrap(), 3 * n as u64);
    world.barrier_all().unwrap();
}

#[test]
fn pes_that_say_nothing_for_long_are_alive() {
    for pes in watched("pes_that_say_nothing_for_long_are_alive") {
        pes.run(|world| {
            talk(world, 1);
            let signal = world.signal().unwrap();
            // One says nothing at all, one waits in rushmem, one without.
            match world.my_pe().number() {
                0 => {
                    std::thread::sleep(silence());
                    signal.set(1, Pe::new(1)).unwrap();
                }
                1 => assert_eq!(signal.wait_until(Cmp::Ne, 0).unwrap(), 1),
                _ => std::thread::sleep(silence()),
            }
            talk(world, 2);
        });
    }
}

#[test]
fn a_pe_that_is_stopped_for_long_is_alive() {
    for pes in watched("a_pe_that_is_stopped_for_long_is_alive") {
        pes.supervise(
            |pe| {
                let world = World::init().unwrap();
                {
                    let (memory, victim) = (world.alloc::<u8>(4 << 20).unwrap(), Pe::new(1));
                    let counter = world.alloc::<u64>(1).unwrap();
                    talk(&world, 1);
                    println!("READY");
                    // By then it is stopped.
                    std::thread::sleep(Duration::from_millis(500));
                    match pe.number() {
                        // More than any network takes on, and a question that only the victim answers.
                        0 => memory.put(&vec![1; 4 << 20], victim).unwrap(),
                        1 => {}
                        _ => assert!(counter.at(0, victim).fetch_add(1).unwrap() == 0),
                    }
                    world.barrier_all().unwrap();
                    assert!(pe != victim || memory.to_vec().unwrap().iter().all(|byte| *byte == 1));
                    talk(&world, 2);
                }
                world.finalize()
            },
            |job| {
                let victim = Pe::new(1);
                (0..3).for_each(|pe| drop(job.wait_for_line(Pe::new(pe), "READY", LIMIT)));
                job.signal(victim, libc::SIGSTOP);
                std::thread::sleep(silence());
                assert!((0..3).all(|pe| job.is_running(Pe::new(pe))), "nobody has ended");
                job.signal(victim, libc::SIGCONT);
                for outcome in job.outcomes() {
                    assert_eq!(outcome.exit, Exit::Done, "{outcome:?}");
                }
            },
        );
    }
}

/// What fences hold back is bounded: a caller that goes on and on waits, says for what, and nothing is lost.
#[test]
fn a_flood_behind_fences_waits_and_says_so() {
    const ROUNDS: u64 = 6_000;
    let test = "a_flood_behind_fences_waits_and_says_so";
    if on_gpus() {
        return skip(test, "staging buffers keep the order by themselves, so that fences hold nothing back");
    }
    let Some(pes) = hosts(test, 2, 1) else { return };
    pes.env("RUSHMEM_STALL_REPORT", "1").supervise(
        |pe| {
            let world = World::init().unwrap();
            {
                let (words, victim) = (world.alloc::<u64>(100).unwrap(), Pe::new(1));
                let source = vec![7u64; 99];
                println!("READY");
                std::thread::sleep(Duration::from_millis(500));
                if pe != victim {
                    let rest = words.slice(1..).unwrap();
                    for round in 1..=ROUNDS {
                        // SAFETY: the source lives to the barrier.
                        unsafe { rest.put_nbi(&source, victim) }.unwrap();
                        world.fence().unwrap();
                        words.p(0, round, victim).unwrap();
                        world.fence().unwrap();
                    }
                }
                world.barrier_all().unwrap();
                let seen = words.to_vec().unwrap();
                assert!(pe != victim || (seen[0] == ROUNDS && seen[1..] == source), "{seen:?}");
                world.barrier_all().unwrap();
            }
            world.finalize()
        },
        |job| {
            let victim = Pe::new(1);
            (0..2).for_each(|pe| drop(job.wait_for_line(Pe::new(pe), "READY", LIMIT)));
            job.signal(victim, libc::SIGSTOP);
            job.wait_for_line(Pe::new(0), "make room for more", LIMIT);
            job.signal(victim, libc::SIGCONT);
            for outcome in job.outcomes() {
                assert_eq!(outcome.exit, Exit::Done, "{outcome:?}");
            }
        },
    );
}
