//! A PE is killed while the others wait in a kernel: each ends within 5 s with an error that names it, and
//! nothing is left: no process, none of the GPU's memory. (tests/faults.rs kills in every other stage, too.)

use std::path::Path;
use std::time::Instant;

use rushmem_test_support::arguments::Syncs;

use crate::*;

const FAULTS: &str = kernels!("faults.cu");
const SYNC: &str = kernels!("sync.cu");
/// What other programs may have taken of the GPUs meanwhile.
const SLACK_MIB: u64 = 64;

#[derive(Clone, Copy)]
enum Kernel {
    /// Waits for a signal that nobody sends.
    Waits,
    /// Syncs with the others again and again.
    Syncs,
}

/// Kills PE `victim` of `n` a moment after all have launched.
#[track_caller]
fn kill(test: &str, n: u32, device: Option<String>, victim: Pe, kernel: Kernel) {
    let before = if on_gpus() { memory::in_use(test) } else { None };
    let mut pes = testing::pes(n);
    if let Some(device) = device {
        pes = pes.env("RUSHMEM_DEVICE", device);
    }
    pes.supervise(
        |_| {
            let world = World::init().unwrap();
            // Some memory, to be given back.
            let memory = world.alloc::<u64>(8 << 20).unwrap();
            let report = world.alloc::<u64>(8).unwrap();
            let module =
                world.load(made_quickly(if let Kernel::Waits = kernel { FAULTS } else { SYNC })).unwrap();
            let (entered, data) = (memory.slice(..64).unwrap(), memory.slice(64..).unwrap());
            // SAFETY: the kernels stay within what they are given, and write their own places.
            unsafe {
                match kernel {
                    Kernel::Waits => {
                        let waits = module.kernel("faults_wait_for_ever").unwrap();
                        waits.launch(Launch::new(2, 64), (&entered,)).unwrap();
                    }
                    Kernel::Syncs => {
                        let syncs = module.kernel("sync_rounds").unwrap();
                        let meeting = Syncs { scope: BLOCK, barrier: 1, rounds: i32::MAX - 1, seed: 1 };
                        let args = (&report, &entered, &data, ByValue(meeting));
                        syncs.launch(Launch::new(1, 64), args).unwrap();
                    }
                }
            }
            println!("READY");
            let error = world.synchronize().unwrap_err();
            assert_eq!(error.code(), ErrorCode::PeerDead, "{error}");
            println!("ENDED {error}");
            // What else there is to do fails alike, and soon.
            let later = world.barrier_all().unwrap_err();
            assert_eq!(later.code(), ErrorCode::PeerDead, "{later}");
            let left = world.finalize();
            assert!(left.is_err());
        },
        |job| {
            for pe in 0..n {
                job.wait_for_line(Pe::new(pe), "READY", LIMIT);
            }
            std::thread::sleep(Duration::from_millis(500));
            let pids: Vec<_> = (0..n).map(|pe| job.pid(Pe::new(pe))).collect();
            let killed = job.kill(victim);
            for outcome in job.outcomes() {
                if outcome.pe == victim {
                    continue;
                }
                let said = format!("{}:\n{}\n{}", outcome.pe, outcome.stdout, outcome.stderr);
                assert_eq!(outcome.exit, Exit::Done, "{said}");
                assert!(outcome.ended < killed + Duration::from_secs(5), "{said}");
                let end = outcome.stdout.lines().find(|line| line.starts_with("ENDED")).expect("it says so");
                assert!(end.contains(&victim.to_string()), "{said}");
            }
            for pid in pids {
                assert!(!Path::new(&format!("/proc/{pid}")).exists(), "process {pid} is left");
            }
        },
    );
    let Some(before) = before else { return };
    let (mut used, start) = (u64::MAX, Instant::now());
    // The driver tidies up after a process that was killed.
    while used > before + SLACK_MIB {
        assert!(start.elapsed() < Duration::from_secs(10), "{used} MiB in use, {before} before");
        std::thread::sleep(Duration::from_millis(100));
        used = memory::in_use(test).expect("it was read before");
    }
}

#[test]
fn killed_while_others_wait_on_one_device() {
    let test = "killed_while_others_wait_on_one_device";
    kill(test, 3, Some(one_device()), Pe::new(1), Kernel::Waits);
    kill(test, 3, Some(one_device()), Pe::new(0), Kernel::Syncs);
}

#[test]
fn one_of_eight_is_killed_on_one_device() {
    kill("one_of_eight_is_killed_on_one_device", 8, Some(one_device()), Pe::new(5), Kernel::Waits);
}

#[test]
fn killed_while_others_wait_on_gpus_of_their_own() {
    let test = "killed_while_others_wait_on_gpus_of_their_own";
    if gpus() < 2 {
        return skip(test, "it needs two GPUs");
    }
    let n = gpus() as u32;
    kill(test, 2, None, Pe::new(1), Kernel::Waits);
    kill(test, n, None, Pe::new(n - 1), Kernel::Syncs);
}
