//! A PE that ends between two worlds of its job, where no PE is connected with another, is named long before
//! the limit of the start that waits for it.

// PEs end themselves here, at once.
#![allow(clippy::disallowed_methods)]

use std::net::TcpListener;
use std::time::{Duration, Instant};

use rushmem::testing::Exit;
use rushmem::{Pe, World};
use rushmem_test_support::api_common::place::{on_gpus, pes, processes};

const N: u32 = 3;
const LIMIT: Duration = Duration::from_secs(150);
/// Two seconds of grace, and room for a machine that stands still for half a minute, as CI's did.
const SOON: Duration = Duration::from_secs(60);

#[test]
fn a_pe_that_ends_between_two_worlds_is_named() {
    if !processes("a_pe_that_ends_between_two_worlds_is_named") || on_gpus() {
        return;
    }
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    // Rank 0 is where they meet; the others come to it.
    for victim in [0, 1, 2] {
        let pes =
            pes(N).env("TEST_ADDRESS", free.to_string()).env("RUSHMEM_INIT_TIMEOUT", "200").timeout(LIMIT);
        pes.supervise(
            |me| -> () {
                let address = std::env::var("TEST_ADDRESS").unwrap();
                let world = || World::builder().address(&address, me.number(), N).init();
                // Twice in good order, so that what is remembered is the last one.
                for _ in 0..2 {
                    let world = world().unwrap();
                    world.barrier_all().unwrap();
                    world.finalize().unwrap();
                }
                if me.number() == victim {
                    std::process::exit(0);
                }
                let began = Instant::now();
                match world() {
                    Err(error) => {
                        println!("ENDED after {:?} with {:?}: {error}", began.elapsed(), error.code())
                    }
                    Ok(_) => println!("a job came up without PE {victim}"),
                }
                std::process::exit(7);
            },
            |job| {
                for pe in (0..N).map(Pe::new) {
                    let outcome = job.outcome(pe);
                    let said = format!("{pe} {}:\n{}\n{}", outcome.exit, outcome.stdout, outcome.stderr);
                    if pe.number() == victim {
                        assert_eq!(outcome.exit, Exit::Code(0), "{said}");
                        continue;
                    }
                    assert_eq!(outcome.exit, Exit::Code(7), "{said}");
                    let took = outcome.ended - outcome.started;
                    assert!(took < SOON && SOON * 2 < LIMIT, "{took:?}: {said}");
                    assert!(outcome.stdout.contains(&format!("PE {victim} (")), "{said}");
                    assert!(outcome.stdout.contains("between the last world"), "{said}");
                }
            },
        );
    }
}
