//! Collectives that must not end well: a PE that never comes, one that makes another call or is killed, a
//! slot set that is in use, a team that is none. Each ends with an error that names what went wrong, on every
//! PE.

use std::time::Duration;

use rushmem::testing::{self, Exit, Job};
use rushmem::{ErrorCode, Pe};

use crate::*;

const FAULTS: &str = kernels!("faults.cu");
const LIMIT: Duration = Duration::from_secs(60);
/// Codes and names of `RUSHMEM_COLLECTIVE_*`.
const NAMES: [(i32, &str); 10] = [
    (1, "sync"),
    (2, "broadcast"),
    (3, "fcollect"),
    (4, "alltoall"),
    (5, "reduce"),
    (6, "reducescatter"),
    (7, "scan"),
    (8, "collect"),
    (9, "alltoallv"),
    (10, "alltoalls"),
];

fn launch(world: &World, name: &str, shape: Launch, args: impl KernelArgs) -> rushmem::Result<()> {
    let module = world.load(made_quickly(FAULTS)).unwrap();
    // SAFETY: the kernels of faults.cu write to no memory but what they are given.
    unsafe { module.kernel(name).unwrap().launch(shape, args) }?;
    world.synchronize()
}

/// The name of the collective in the environment: each job tests one.
fn collective() -> i32 {
    std::env::var("COLLECTIVE").unwrap().parse().unwrap()
}

#[test]
fn a_pe_that_never_comes_is_named_with_the_collective_and_the_team() {
    if !processes("a_pe_that_never_comes_is_named_with_the_collective_and_the_team") {
        return;
    }
    for (code, name) in NAMES {
        testing::pes(3)
            .env("COLLECTIVE", code.to_string())
            .env("RUSHMEM_STALL_REPORT", "0.2")
            .env("RUSHMEM_WAIT_TIMEOUT", "1")
            .supervise(
                |_| -> rushmem::Result<()> {
                    let world = World::init()?;
                    let (dst, src) = (world.alloc::<u64>(4)?, world.alloc::<u64>(4)?);
                    let args = (&dst, &src, collective(), 1);
                    let result = launch(&world, "faults_missing_in_collective", Launch::new(1, 2), args);
                    println!("ENDED {:?}", result.map_err(|e| e.to_string()));
                    // The end of this one would end the others' wait, too.
                    std::thread::sleep(Duration::from_secs(60));
                    Ok(())
                },
                |job| {
                    for pe in [0, 2] {
                        let wanted = format!("for PE 1 to come to a {name} of the world");
                        let said = job.wait_for_line(Pe::new(pe), "for PE 1 to come", LIMIT);
                        assert!(said.contains(&wanted), "{wanted:?} is not in: {said}");
                        let end = job.wait_for_line(Pe::new(pe), "ENDED", LIMIT);
                        assert!(end.contains("RUSHMEM_WAIT_TIMEOUT") && end.contains(&wanted), "{end}");
                    }
                },
            );
    }
}

#[test]
fn a_pe_that_is_killed_in_a_collective_ends_the_others_by_name() {
    if !processes("a_pe_that_is_killed_in_a_collective_ends_the_others_by_name") {
        return;
    }
    for (code, name) in NAMES {
        testing::pes(3).env("COLLECTIVE", code.to_string()).supervise(
            |_| -> rushmem::Result<()> {
                let world = World::init()?;
                let (dst, src) = (world.alloc::<u64>(16)?, world.alloc::<u64>(16)?);
                // Compiled before any of them dies.
                world.load(made_quickly(FAULTS))?;
                world.barrier_all()?;
                println!("READY");
                let args = (&dst, &src, collective());
                let error =
                    launch(&world, "faults_collective_for_ever", Launch::new(1, 2), args).unwrap_err();
                println!("ENDED {:?} {error}", error.code());
                Ok(())
            },
            |job| {
                for pe in 0..3 {
                    job.wait_for_line(Pe::new(pe), "READY", LIMIT);
                }
                std::thread::sleep(Duration::from_millis(150));
                let since = job.kill(Pe::new(1));
                for pe in [0, 2] {
                    let end = job.wait_for_line(Pe::new(pe), "ENDED", LIMIT);
                    assert!(end.contains("PeerDead") && end.contains("PE 1"), "{name}: {end}");
                }
                assert!(since.elapsed() < Duration::from_secs(5), "{name}: {:?}", since.elapsed());
            },
        );
    }
}

/// What every PE of a job of two says of its launch.
fn each(job: &mut Job, wanted: &[&str]) {
    for outcome in job.outcomes() {
        let said = format!("{}\n{}", outcome.stdout, outcome.stderr);
        assert_eq!(outcome.exit, Exit::Done, "{}:\n{said}", outcome.pe);
        assert!(wanted.iter().all(|part| said.contains(part)), "{wanted:?} is not in:\n{said}");
    }
}

#[test]
fn members_that_make_different_calls_get_an_error_each() {
    if !processes("members_that_make_different_calls_get_an_error_each") {
        return;
    }
    // Of a member that is not mapped, and waits too, nothing is known: that is a stall, which is reported.
    for how in 0..if all_mapped(2) { 4 } else { 3 } {
        testing::pes(2).env("HOW", how.to_string()).supervise(
            |_| {
                let world = World::init().unwrap();
                let (dst, src) = (world.alloc::<u64>(8).unwrap(), world.alloc::<u64>(8).unwrap());
                let how: i32 = std::env::var("HOW").unwrap().parse().unwrap();
                let args = (&dst, &src, how);
                let error =
                    launch(&world, "faults_different_collectives", Launch::new(1, 2), args).unwrap_err();
                assert_eq!(error.code(), ErrorCode::Mismatch, "{error}");
                println!("{error}");
            },
            |job| each(job, &["the members of the world make different calls", "PE 0 a", "another"]),
        );
    }
}

#[test]
fn two_blocks_in_one_slot_set_are_an_error() {
    if !processes("two_blocks_in_one_slot_set_are_an_error") {
        return;
    }
    testing::pes(2).supervise(
        |_| {
            let world = World::init().unwrap();
            let (dst, src) = (world.alloc::<u64>(8).unwrap(), world.alloc::<u64>(8).unwrap());
            let error =
                launch(&world, "faults_slot_set_in_use", Launch::new(2, 2), (&dst, &src)).unwrap_err();
            // The other PE may hear of the first one's end instead.
            println!("{:?} {error}", error.code());
        },
        |job| {
            let said: Vec<String> = job.outcomes().iter().map(|outcome| outcome.stdout.clone()).collect();
            assert!(said.iter().any(|text| text.contains("Busy") && text.contains("slot set")), "{said:?}");
        },
    );
}

/// Blocks that take turns in a slot set. Where each acquires what the others have done, all calls are right.
/// Where none does, a block may not know of their calls: it gets an error that says so, and nobody waits for
/// ever. (The CPU device's caches know.)
#[test]
fn blocks_that_take_turns_acquire_what_others_did_or_get_an_error() {
    const ROUNDS: usize = 60;
    if !processes("blocks_that_take_turns_acquire_what_others_did_or_get_an_error") {
        return;
    }
    for (pes, acquires) in [(2, 1), (3, 1), (2, 0), (3, 0)] {
        testing::pes(pes).env("ACQUIRES", acquires.to_string()).env("RUSHMEM_WAIT_TIMEOUT", "30").supervise(
            |_| {
                let world = World::init().unwrap();
                let acquires: i32 = std::env::var("ACQUIRES").unwrap().parse().unwrap();
                let [dst, src, turn] = [ROUNDS, ROUNDS, 1].map(|n| world.alloc::<u64>(n).unwrap());
                let me = world.my_pe().index() as u64;
                src.write(&std::array::from_fn::<u64, ROUNDS, _>(|r| 1000 * me + r as u64)).unwrap();
                let args = (&dst, &src, &turn, ROUNDS as u64, acquires);
                match launch(&world, "faults_turns", Launch::new(3, 64), args) {
                    Ok(()) => {
                        let n = world.n_pes() as u64;
                        let wanted: Vec<u64> =
                            (0..ROUNDS as u64).map(|r| 1000 * (n * (n - 1) / 2) + n * r).collect();
                        assert_eq!(dst.to_vec().unwrap(), wanted);
                        println!("RIGHT");
                    }
                    Err(e) => println!("{:?} {e}", e.code()),
                }
            },
            |job| {
                let said: Vec<String> = job.outcomes().iter().map(|outcome| outcome.stdout.clone()).collect();
                let right = said.iter().all(|text| text.contains("RIGHT"));
                let unordered = said.iter().any(|text| text.contains("Busy") && text.contains("acquires"));
                assert!(right || (unordered && acquires == 0), "{said:?}");
            },
        );
    }
}

#[test]
fn a_team_that_is_none_is_an_error() {
    if !processes("a_team_that_is_none_is_an_error") {
        return;
    }
    for how in 0..3 {
        testing::pes(1).env("HOW", how.to_string()).supervise(
            |_| {
                let world = World::init().unwrap();
                let (dst, src) = (world.alloc::<u64>(8).unwrap(), world.alloc::<u64>(8).unwrap());
                let how: i32 = std::env::var("HOW").unwrap().parse().unwrap();
                let error =
                    launch(&world, "faults_no_team", Launch::new(1, 2), (&dst, &src, how)).unwrap_err();
                assert_eq!(error.code(), ErrorCode::InvalidArgument, "{error}");
                println!("{error}");
            },
            |job| each(job, &["team of another world", "slot_sets()"]),
        );
    }
}

/// As [`launch`], and what came of it for the job's log.
fn tell(result: rushmem::Result<()>) {
    match result {
        Ok(()) => println!("ENDED well"),
        Err(e) => println!("ENDED {:?} {e}", e.code()),
    }
}

#[test]
fn a_block_that_never_comes_ends_the_launch_by_name() {
    if !processes("a_block_that_never_comes_ends_the_launch_by_name") || on_gpus() {
        return;
    }
    for rounds in [0, 3] {
        testing::pes(2)
            .env("ROUNDS", rounds.to_string())
            .env("RUSHMEM_STALL_REPORT", "0.2")
            .env("RUSHMEM_WAIT_TIMEOUT", "1")
            .supervise(
                |_| -> rushmem::Result<()> {
                    let world = World::init()?;
                    let (dst, src) = (world.alloc::<u64>(4)?, world.alloc::<u64>(4)?);
                    let rounds: i32 = std::env::var("ROUNDS").unwrap().parse().unwrap();
                    tell(launch(&world, "faults_block_stays_away", Launch::new(3, 2), (&dst, &src, rounds)));
                    std::thread::sleep(Duration::from_secs(60));
                    Ok(())
                },
                |job| {
                    for pe in [0, 1] {
                        let end = job.wait_for_line(Pe::new(pe), "ENDED", LIMIT);
                        let wanted = "for all 3 blocks of its launch to come to a reduce of the world at grid scope; 2 have";
                        assert!(end.contains("Timeout") && end.contains(wanted), "{end}");
                    }
                },
            );
    }
}

#[test]
fn a_pe_that_never_comes_to_a_call_of_all_blocks_is_named() {
    if !processes("a_pe_that_never_comes_to_a_call_of_all_blocks_is_named") || on_gpus() {
        return;
    }
    testing::pes(3).env("RUSHMEM_STALL_REPORT", "0.2").env("RUSHMEM_WAIT_TIMEOUT", "1").supervise(
        |_| -> rushmem::Result<()> {
            let world = World::init()?;
            let (dst, src) = (world.alloc::<u64>(128)?, world.alloc::<u64>(128)?);
            tell(launch(&world, "faults_grid_for_ever", Launch::new(2, 3), (&dst, &src, 1, 0)));
            std::thread::sleep(Duration::from_secs(60));
            Ok(())
        },
        |job| {
            for pe in [0, 2] {
                let end = job.wait_for_line(Pe::new(pe), "ENDED", LIMIT);
                // The leader of a block may wait for the other blocks, of which one waits for the PE.
                let said = job.wait_for_line(Pe::new(pe), "for PE 1 to come to a reduce of the world", LIMIT);
                assert!(end.contains("Timeout"), "{end}, {said}");
            }
        },
    );
}

#[test]
fn a_pe_that_is_killed_ends_the_calls_of_all_blocks_of_the_others() {
    if !processes("a_pe_that_is_killed_ends_the_calls_of_all_blocks_of_the_others") {
        return;
    }
    for parts in [0, 1] {
        testing::pes(3).env("PARTS", parts.to_string()).supervise(
            |_| -> rushmem::Result<()> {
                let world = World::init()?;
                let (dst, src) = (world.alloc::<u64>(128)?, world.alloc::<u64>(128)?);
                // Compiled before any of them dies.
                world.load(made_quickly(FAULTS))?;
                world.barrier_all()?;
                println!("READY");
                let parts: i32 = std::env::var("PARTS").unwrap().parse().unwrap();
                tell(launch(&world, "faults_grid_for_ever", Launch::new(2, 3), (&dst, &src, -1, parts)));
                Ok(())
            },
            |job| {
                for pe in 0..3 {
                    job.wait_for_line(Pe::new(pe), "READY", LIMIT);
                }
                std::thread::sleep(Duration::from_millis(150));
                job.kill(Pe::new(1));
                for pe in [0, 2] {
                    let end = job.wait_for_line(Pe::new(pe), "ENDED", LIMIT);
                    assert!(end.contains("PeerDead") && end.contains("PE 1"), "{end}");
                }
            },
        );
    }
}

#[test]
fn members_with_other_numbers_of_blocks_get_an_error() {
    if !processes("members_with_other_numbers_of_blocks_get_an_error") || !all_mapped(2) {
        return;
    }
    testing::pes(2).supervise(
        |_| {
            let world = World::init().unwrap();
            let (dst, src) = (world.alloc::<u64>(128).unwrap(), world.alloc::<u64>(128).unwrap());
            let shape = Launch::new(2 + world.my_pe().number(), 2);
            let error = launch(&world, "faults_grid_for_ever", shape, (&dst, &src, -1, 1)).unwrap_err();
            // The other PE may hear of the first one's end instead.
            println!("{:?} {error}", error.code());
        },
        |job| {
            let said: Vec<String> = job.outcomes().iter().map(|outcome| outcome.stdout.clone()).collect();
            let wanted = "the members of the world make different calls";
            assert!(said.iter().any(|text| text.contains("Mismatch") && text.contains(wanted)), "{said:?}");
        },
    );
}

/// A launch that failed in the middle of a collective leaves its slot set in use: the next one says why.
#[test]
fn what_a_failed_launch_has_left_is_an_error_of_the_next() {
    if !processes("what_a_failed_launch_has_left_is_an_error_of_the_next") || on_gpus() {
        return;
    }
    testing::pes(2).env("RUSHMEM_WAIT_TIMEOUT", "0.5").supervise(
        |_| -> rushmem::Result<()> {
            let world = World::init()?;
            let (dst, src) = (world.alloc::<u64>(8)?, world.alloc::<u64>(8)?);
            for _ in 0..2 {
                tell(launch(&world, "faults_missing_in_collective", Launch::new(1, 2), (&dst, &src, 5, 1)));
            }
            std::thread::sleep(Duration::from_secs(60));
            Ok(())
        },
        |job| {
            let first = job.wait_for_line(Pe::new(0), "ENDED Timeout", LIMIT);
            let next = job.wait_for_line(Pe::new(0), "ENDED Busy", LIMIT);
            assert!(next.contains("a launch that failed has left it so"), "{first}, {next}");
            assert!(next.contains("a reduce of the world was begun in a slot set"), "{next}");
        },
    );
}
