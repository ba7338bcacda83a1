//! `RUSHMEM_COUNTERS`: what PEs have asked each other for is counted without a timeline, and only then.

use super::*;
use rushmem::Counters;
use rushmem_test_support::api_common::Rng;

const SEED: &str = "COUNTED_SEED";
const PUTS: usize = 20;

/// Elements of the puts that PE 0 makes.
fn lengths() -> Vec<usize> {
    let mut rng = Rng::new(std::env::var(SEED).unwrap().parse().unwrap());
    (0..PUTS).map(|_| 3 + rng.below(60)).collect()
}

/// PE 0 puts, in the host and in a kernel, and comes late with a signal that PE 1 waits for.
fn asks(pe: Pe) -> Counters {
    let world = World::init().unwrap();
    let (data, flags) = (world.alloc::<i32>(64).unwrap(), world.signals(1).unwrap());
    let module = world.load(Source::text(KERNEL).name("adds.cu")).unwrap();
    let other = Pe::new(1 - pe.number());
    if pe.number() == 0 {
        for n in lengths() {
            data.put(&vec![1; n], other).unwrap();
        }
        // SAFETY: one word of an array of 64.
        unsafe { module.kernel("adds").unwrap().launch(Launch::new(1, 1), (&data, 1)) }.unwrap();
        world.synchronize().unwrap();
    }
    world.barrier_all().unwrap();
    if pe.number() == 0 {
        std::thread::sleep(LATE / 3);
        flags.at(0).unwrap().set(1, other).unwrap();
    } else {
        flags.at(0).unwrap().wait_until(Cmp::Eq, 1).unwrap();
    }
    let counted = world.counters(other).unwrap();
    data.free().unwrap();
    flags.free().unwrap();
    world.finalize().unwrap();
    counted
}

fn counted(job: Pes) {
    let seed = rushmem_test_support::api_common::seed().to_string();
    println!("{SEED}={seed}");
    let job = || {
        job.clone().timeout(LIMIT).env("RUSHMEM_DEVICE", "cpu").env("RUSHMEM_LOG", "info").env(SEED, &seed)
    };
    job().env("RUSHMEM_COUNTERS", "1").env("RUSHMEM_STALL_REPORT", "0.2").supervise(
        |pe| {
            let bytes: usize = lengths().iter().map(|n| n * 4).sum();
            let Counters { host, kernels, .. } = asks(pe);
            if pe.number() == 0 {
                // The signal, too: 8 bytes.
                assert_eq!((host.operations, host.bytes), (PUTS as u64 + 1, bytes as u64 + 8));
                assert_eq!((kernels.operations, kernels.bytes), (1, 4));
                assert!(host.time > Duration::ZERO);
                println!("BYTES {}", host.bytes);
            } else {
                assert_eq!((host, kernels), Default::default());
            }
        },
        |job| {
            let outcomes = job.outcomes();
            for outcome in &outcomes {
                assert_eq!(outcome.exit, Exit::Done, "{}", outcome.stderr);
            }
            let line = |pe: usize, part: &str| {
                let mut lines = outcomes[pe].stderr.lines();
                lines.rfind(|line| line.contains(part)).unwrap_or_default().to_owned()
            };
            let bytes = outcomes[0].stdout.lines().find_map(|line| line.strip_prefix("BYTES ")).unwrap();
            let asked = format!("its host asked PE 1 {} times, for {bytes} bytes", PUTS + 1);
            assert!(!line(0, &asked).is_empty(), "{asked}: {}", outcomes[0].stderr);
            assert!(
                !line(0, "its kernels asked PE 1 1 times, for 4 bytes").is_empty(),
                "{}",
                outcomes[0].stderr
            );
            let waited = line(1, "its host waited ");
            assert!(waited.contains(" stalls") && !waited.ends_with("; 0 stalls"), "{waited:?}");
            assert!(outcomes.iter().all(|outcome| !outcome.stderr.contains("its timeline goes to")));
        },
    );
    // It is counted only where that is asked for.
    job().supervise(
        |pe| {
            let Counters { host, kernels, .. } = asks(pe);
            assert_eq!((host, kernels), Default::default());
        },
        |job| assert!(job.outcomes().iter().all(|outcome| outcome.exit == Exit::Done)),
    );
}

#[test]
fn counters_need_no_timeline() {
    counted(testing::pes(2).env("RUSHMEM_TRANSPORT", "direct"));
}

#[test]
fn nor_do_those_of_far_pes() {
    if let Some(job) = hosts("nor_do_those_of_far_pes", 2, 1) {
        counted(job);
    }
}
