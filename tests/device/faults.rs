//! What must end with an error: a PE that is none, a wait that nothing will ever satisfy, a sync that one PE
//! never enters.
//!
//! A kernel that gives up on a GPU takes its process' context with it. So every failure here happens in
//! processes of its own, which say what they saw; that the job goes on afterwards is tested where it does, on
//! the CPU.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rushmem::testing::{self, Exit, Job};
use rushmem::{Device, ErrorCode, Pe};

use crate::*;

const FAULTS: &str = kernels!("faults.cu");
const LIMIT: Duration = Duration::from_secs(60);

/// Launches without waiting for the end.
fn start(world: &World, name: &str, args: impl KernelArgs) {
    let module = world.load(made_quickly(FAULTS)).unwrap();
    // SAFETY: the kernels of faults.cu write to no memory but the word that they are given.
    unsafe { module.kernel(name).unwrap().launch(Launch::new(1, 2), args) }.unwrap();
}

fn launch(world: &World, name: &str, args: impl KernelArgs) -> rushmem::Result<()> {
    start(world, name, args);
    world.synchronize()
}

/// The end of a PE whose kernel has failed: in good order on the CPU; from a GPU it can only go.
fn leave(world: World) {
    let cpu = world.device() == Device::Cpu;
    let result = world.finalize();
    assert!(!cpu || result.is_ok(), "{result:?}");
}

/// Every PE has come to its end.
#[track_caller]
fn all_done(job: &mut Job) {
    for outcome in job.outcomes() {
        assert_eq!(outcome.exit, Exit::Done, "{}:\n{}\n{}", outcome.pe, outcome.stdout, outcome.stderr);
    }
}

#[test]
fn a_pe_that_is_none_ends_the_launch_and_writes_nothing() {
    if !processes("a_pe_that_is_none_ends_the_launch_and_writes_nothing") {
        return;
    }
    for bad in [2, -1, i32::MAX, i32::MIN] {
        testing::pes(2).supervise(
            |_| {
                let world = World::init().unwrap();
                let word = world.alloc::<u64>(1).unwrap();
                // Both have started, and compiled, before either is lost.
                world.load(made_quickly(FAULTS)).unwrap();
                world.barrier_all().unwrap();
                let error = launch(&world, "faults_bad_pe", (&word, bad)).unwrap_err();
                assert_eq!(error.code(), ErrorCode::BadPe, "{error}");
                for part in ["`faults_bad_pe`", "block (0,0,0), thread (0,0,0)", &world.my_pe().to_string()] {
                    assert!(error.message().contains(part), "{part:?} is missing in: {error}");
                }
                if world.device() == Device::Cpu {
                    world.barrier_all().unwrap();
                    assert_eq!(word.to_vec().unwrap(), [0]);
                    world.barrier_all().unwrap();
                    // The world is still usable.
                    launch(&world, "faults_bad_pe", (&word, 0)).unwrap();
                    world.barrier_all().unwrap();
                    assert_eq!(word.to_vec().unwrap(), [u64::from(world.my_pe().number() == 0)]);
                }
                leave(world);
            },
            all_done,
        );
    }
}

/// The kernel's error names the word that it waited for, whether or not its stall was printed before.
#[test]
fn a_wait_ends_at_its_limit() {
    for (report, limit) in [("30", "0.5"), ("0.1", "2")] {
        testing::pes(1).env("RUSHMEM_STALL_REPORT", report).env("RUSHMEM_WAIT_TIMEOUT", limit).supervise(
            |_| {
                let limit = std::env::var("RUSHMEM_WAIT_TIMEOUT").unwrap();
                let world = World::init().unwrap();
                let (signal, start) = (world.signal().unwrap(), Instant::now());
                let error = launch(&world, "faults_wait_for_ever", (&signal,)).unwrap_err();
                assert_eq!(error.code(), ErrorCode::Timeout, "{error}");
                let (text, place) = (error.message(), "a thread in block (0,0,0), thread (0,0,0)");
                let waited = " has waited longer than RUSHMEM_WAIT_TIMEOUT allows, ";
                let allowed = format!("{waited}{limit} s, for the 8-byte word at ");
                for word in [place, &allowed, "heap offset ", "it is 0 (0x0)"] {
                    assert!(text.contains(word), "{word:?} is missing: {text}");
                }
                assert_eq!(text.matches("kernel `").count(), 1, "{text}");
                let took = start.elapsed().as_secs_f64();
                assert!(took > 0.8 * limit.parse::<f64>().unwrap() && took < 30.0, "{took} s");
                leave(world);
            },
            all_done,
        );
    }
}

/// A machine where every core has much else to do: to say where a block's threads are takes seconds there,
/// and what a wait waits for is said before.
#[test]
fn a_wait_is_reported_before_its_limit_on_a_busy_machine() {
    let limits = [("RUSHMEM_STALL_REPORT", "1"), ("RUSHMEM_WAIT_TIMEOUT", "2")];
    let pes = limits.iter().fold(testing::pes(1), |pes, (name, value)| pes.env(name, value));
    pes.supervise(
        |_| {
            let world = World::init().unwrap();
            let signal = world.signal().unwrap();
            world.load(made_quickly(FAULTS)).unwrap();
            let cores = std::thread::available_parallelism().map_or(2, usize::from).min(8);
            let over = AtomicBool::new(false);
            std::thread::scope(|scope| {
                for _ in 0..8 * cores {
                    scope.spawn(|| {
                        while !over.load(Ordering::Relaxed) {
                            std::hint::spin_loop()
                        }
                    });
                }
                let error = launch(&world, "faults_wait_for_ever", (&signal,)).unwrap_err();
                over.store(true, Ordering::Relaxed);
                assert_eq!(error.code(), ErrorCode::Timeout, "{error}");
            });
            leave(world);
        },
        |job| {
            all_done(job);
            let said = &job.outcome(Pe::new(0)).stderr;
            let is_report =
                |line: &str| line.contains("thread (0,0,0) has waited 1.") && line.contains("8-byte word");
            assert!(said.lines().any(is_report), "{said}");
        },
    );
}

/// On GPUs a word is posted by a function of its own, which waits for room by itself.
#[test]
fn a_word_that_finds_no_room_in_the_ring_ends_at_its_limit() {
    let test = "a_word_that_finds_no_room_in_the_ring_ends_at_its_limit";
    if !processes(test) {
        return;
    }
    if let Err(why) = rushmem::doctor::network().unwrap() {
        return skip(test, why);
    }
    // Hosts are said here alone, whatever the suite that runs this says of them.
    let far = [("RUSHMEM_TRANSPORT", "ucx"), ("RUSHMEM_PES_PER_NODE", "1"), ("RUSHMEM_NODES", "")];
    let limits =
        [("RUSHMEM_RING_SLOTS", "64"), ("RUSHMEM_STALL_REPORT", "0.5"), ("RUSHMEM_WAIT_TIMEOUT", "2")];
    let pes = far.iter().chain(&limits).fold(testing::pes(2), |pes, (name, value)| pes.env(name, value));
    pes.supervise(
        |_| -> rushmem::Result<()> {
            let world = World::init()?;
            let word = world.alloc::<u64>(1)?;
            let module = world.load(made_quickly(FAULTS))?;
            world.barrier_all()?;
            println!("READY");
            // By then PE 1 is stopped, and takes nothing.
            std::thread::sleep(Duration::from_secs(1));
            if world.my_pe().number() == 0 {
                // SAFETY: the kernel writes that word of PE 1.
                unsafe { module.kernel("faults_words_for_ever")?.launch(Launch::new(1, 2), (&word, 1i32)) }?;
                let error = world.synchronize().unwrap_err();
                println!("ENDED {:?}: {error}", error.code());
            }
            // The end of either would be an end of the other.
            std::thread::sleep(Duration::from_secs(60));
            Ok(())
        },
        |job| {
            (0..2).for_each(|pe| drop(job.wait_for_line(Pe::new(pe), "READY", LIMIT)));
            job.signal(Pe::new(1), libc::SIGSTOP);
            let end = job.wait_for_line(Pe::new(0), "ENDED", LIMIT);
            for part in
                ["ENDED Timeout", "`faults_words_for_ever`", "WAIT_TIMEOUT allows, 2 s", "room to post"]
            {
                assert!(end.contains(part), "{part:?} is missing in {end}");
            }
        },
    );
}

#[test]
fn a_sync_that_lasts_names_the_late_pe() {
    if !processes("a_sync_that_lasts_names_the_late_pe") {
        return;
    }
    testing::pes(3).env("RUSHMEM_STALL_REPORT", "0.3").env("RUSHMEM_WAIT_TIMEOUT", "3").supervise(
        |_| -> rushmem::Result<()> {
            let world = World::init()?;
            let result = launch(&world, "faults_missing_in_sync", (1,));
            println!("ENDED {:?}", result.map_err(|error| error.code()));
            // Until the others have reported: the end of this one would end their wait, too.
            std::thread::sleep(Duration::from_secs(60));
            Ok(())
        },
        |job| {
            for pe in [0, 2] {
                job.wait_for_line(Pe::new(pe), "for PE 1 to enter", LIMIT);
                let end = job.wait_for_line(Pe::new(pe), "ENDED", LIMIT);
                assert!(end.contains("Timeout"), "{end}");
            }
        },
    );
}

#[test]
fn a_killed_pe_ends_the_others_kernels() {
    if !processes("a_killed_pe_ends_the_others_kernels") {
        return;
    }
    testing::pes(3).supervise(
        |_| -> rushmem::Result<()> {
            let world = World::init()?;
            let signal = world.signal().unwrap();
            start(&world, "faults_wait_for_ever", (&signal,));
            println!("READY");
            let error = world.synchronize().unwrap_err();
            println!("ENDED {:?} {error}", error.code());
            Ok(())
        },
        |job| {
            for pe in 0..3 {
                job.wait_for_line(Pe::new(pe), "READY", LIMIT);
            }
            std::thread::sleep(Duration::from_millis(300));
            let start = job.kill(Pe::new(1));
            for pe in [0, 2] {
                let end = job.wait_for_line(Pe::new(pe), "ENDED", LIMIT);
                assert!(end.contains("PE 1") && end.contains("PeerDead"), "{end}");
            }
            assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
        },
    );
}
