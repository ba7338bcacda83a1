//! What must end with an error: a PE that is none, a wait that nothing will ever satisfy, a sync that one PE never enters.

use std::time::{Duration, Instant};

use rushmem::{testing, ErrorCode, Pe};

use crate::*;

const FAULTS: &str = kernels!("faults.cu");

/// Launches without waiting for the end.
fn start(world: &World, name: &str, args: impl KernelArgs) {
    let module = world.load(Source::text(FAULTS)).unwrap();
    // SAFETY: the kernels of faults.cu write to no memory but the word that they are given.
    unsafe { module.kernel(name).unwrap().launch(Launch::new(1, 2), args) }.unwrap();
}

fn launch(world: &World, name: &str, args: impl KernelArgs) -> rushmem::Result<()> {
    start(world, name, args);
    world.synchronize()
}

#[test]
fn a_pe_that_is_none_ends_the_launch_and_writes_nothing() {
    both(2, |world, _| {
        let word = world.alloc::<u64>(1).unwrap();
        for pe in [2, -1, i32::MAX, i32::MIN] {
            let error = launch(world, "faults_bad_pe", (&word, pe)).unwrap_err();
            assert_eq!(error.code(), ErrorCode::BadPe, "{error}");
        }
        world.barrier_all().unwrap();
        assert_eq!(word.to_vec().unwrap(), [0]);
        world.barrier_all().unwrap();
        // The world is still usable.
        launch(world, "faults_bad_pe", (&word, 0)).unwrap();
        world.barrier_all().unwrap();
        assert_eq!(word.to_vec().unwrap(), [u64::from(world.my_pe().number() == 0)]);
    });
}

#[test]
fn a_wait_ends_at_its_limit() {
    let seed = api_common::seed();
    testing::pes(1).env("RUSHMEM_WAIT_TIMEOUT", "0.5").env("RUSHMEM_TEST_SEED", seed.to_string()).run(
        |world| {
            let (signal, start) = (world.signal().unwrap(), Instant::now());
            let error = launch(world, "faults_wait_for_ever", (&signal,)).unwrap_err();
            assert_eq!(error.code(), ErrorCode::Timeout, "{error}");
            let took = start.elapsed();
            assert!(took > Duration::from_millis(400) && took < Duration::from_secs(30), "{took:?}");
        },
    );
}

#[test]
fn a_sync_that_lasts_names_the_late_pe() {
    testing::pes(3).env("RUSHMEM_STALL_REPORT", "0.3").env("RUSHMEM_WAIT_TIMEOUT", "3").supervise(
        |_| -> rushmem::Result<()> {
            let world = World::init()?;
            let result = launch(&world, "faults_missing_in_sync", (1,));
            println!("ENDED {:?}", result.map_err(|error| error.code()));
            // Until the others have been heard: the end of this one would end their wait, too.
            std::thread::sleep(Duration::from_secs(60));
            Ok(())
        },
        |job| {
            for pe in [0, 2] {
                job.wait_for_line(Pe::new(pe), "for PE 1 to enter", Duration::from_secs(30));
                let end = job.wait_for_line(Pe::new(pe), "ENDED", Duration::from_secs(30));
                assert!(end.contains("Timeout"), "{end}");
            }
        },
    );
}

#[test]
fn a_killed_pe_ends_the_others_kernels() {
    testing::pes(3).supervise(
        |_| -> rushmem::Result<()> {
            let world = World::init()?;
            let signal = world.signal().unwrap();
            start(&world, "faults_wait_for_ever", (&signal,));
            println!("READY");
            let error = world.synchronize().unwrap_err();
            println!("ENDED {error}");
            Ok(())
        },
        |job| {
            let limit = Duration::from_secs(20);
            for pe in 0..3 {
                job.wait_for_line(Pe::new(pe), "READY", limit);
            }
            std::thread::sleep(Duration::from_millis(300));
            let start = Instant::now();
            job.kill(Pe::new(1));
            for pe in [0, 2] {
                assert!(job.wait_for_line(Pe::new(pe), "ENDED", limit).contains("PE 1"));
            }
            assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
        },
    );
}
