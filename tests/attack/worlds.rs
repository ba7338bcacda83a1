//! World after world in one process: descriptors, threads and memory stay what they were.

use rushmem::testing;
use rushmem::World;

use super::rounds;

fn count(dir: &str) -> usize {
    std::fs::read_dir(dir).expect("readable").count()
}

/// Resident memory in KiB.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("readable");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("it says");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

#[test]
fn worlds_leave_nothing() {
    let worlds = rounds(100);
    testing::pes(1)
        .timeout(std::time::Duration::from_secs(60 + u64::from(worlds) / 10))
        .env("RUSHMEM_DEVICE", "cpu")
        .supervise(
            |_| {
                let one = || {
                    let world = World::builder()
                        .uid(&rushmem::Uid::create().expect("an ID"), 0, 1)
                        .init()
                        .expect("a world");
                    let words = world.alloc::<u64>(1000).expect("room");
                    world.barrier_all().expect("one PE");
                    drop(words);
                    world.finalize().expect("nothing is in flight");
                };
                let measure = || (count("/proc/self/fd"), count("/proc/self/task"), resident());
                // What is made once has been made.
                (0..20).for_each(|_| one());
                let before = measure();
                (0..worlds).for_each(|_| one());
                // A thread that was joined may be listed for a moment more.
                std::thread::sleep(std::time::Duration::from_millis(100));
                let after = measure();
                println!("{before:?} {after:?}");
                assert!(after.0 <= before.0 && after.1 <= before.1, "{before:?} {after:?}");
                assert!(after.2 < before.2 + 2048 + worlds as usize, "{} to {} KiB", before.2, after.2);
            },
            |job| {
                let outcome = job.outcome(rushmem::Pe::new(0));
                assert_eq!(outcome.exit, testing::Exit::Done, "{}\n{}", outcome.stdout, outcome.stderr);
            },
        );
}
