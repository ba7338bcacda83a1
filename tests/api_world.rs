//! Worlds are values: several PEs in a process, two worlds at once, one after another, dropped, abandoned.

use std::time::Duration;

use rushmem::testing::{self, Exit};
use rushmem::{Cmp, ErrorCode, Pe, Uid, World};
use rushmem_test_support::api_common::at_all_counts;
use rushmem_test_support::api_common::way::way_to;

/// Sends a number round the ring and checks it: the world works.
fn ring(world: &World) {
    let token = world.alloc::<u64>(1).unwrap();
    let n = u64::from(world.n_pes());
    if world.my_pe().number() == 0 {
        token.p(0, 1, world.right()).unwrap();
        token.wait_until(0, Cmp::Eq, n).unwrap();
    } else {
        let mine = u64::from(world.my_pe().number());
        token.wait_until(0, Cmp::Eq, mine).unwrap();
        token.p(0, mine + 1, world.right()).unwrap();
    }
    token.free().unwrap();
}

#[test]
fn a_world_knows_its_pes() {
    at_all_counts(|world, _| {
        let (n, me) = (world.n_pes(), world.my_pe());
        assert_eq!(world.pes().map(Pe::number).collect::<Vec<_>>(), (0..n).collect::<Vec<_>>());
        assert_eq!(world.pe(me.number()).unwrap(), me);
        assert_eq!((world.right().number() + n - 1) % n, me.number());
        assert_eq!((world.left().number() + 1) % n, me.number());
        for pe in world.pes() {
            let peer = world.peer(pe).unwrap();
            assert_eq!((peer.pe, peer.transport.as_str()), (pe, way_to(me.number(), pe.number())));
            assert!(peer.pid > 0 && !peer.host.is_empty() && !peer.reason.is_empty(), "{peer:?}");
        }
        assert_eq!(format!("{world:?}"), format!("World({me} of {n})"));
        ring(world);
    });
}

#[test]
fn a_world_of_one_needs_nobody() {
    let world = World::init().unwrap();
    assert_eq!((world.my_pe(), world.n_pes()), (Pe::new(0), 1));
    assert_eq!((world.left(), world.right()), (Pe::new(0), Pe::new(0)));
    ring(&world);
    world.finalize().unwrap();
}

#[test]
fn a_process_may_start_again_after_it_has_finalised() {
    for n in [1, 2, 4] {
        // The parent process makes an ID for each world of the job before the PEs start.
        let uids: Vec<String> = (0..4).map(|_| Uid::create().unwrap().to_string()).collect();
        testing::pes(n).env("UIDS", uids.join(",")).supervise(
            |pe| {
                let uids = std::env::var("UIDS").unwrap();
                for uid in uids.split(',') {
                    let world = World::builder().uid(&uid.parse().unwrap(), pe.number(), n).init().unwrap();
                    assert_eq!((world.my_pe(), world.n_pes()), (pe, n));
                    ring(&world);
                    world.finalize().unwrap();
                }
            },
            |job| job.outcomes().iter().for_each(|outcome| assert_eq!(outcome.exit, Exit::Done)),
        );
    }
}

/// A world of `n` threads of this process, each running `f`.
fn world_of_threads(n: u32, f: impl Fn(&World) + Sync) {
    let uid = Uid::create().unwrap();
    std::thread::scope(|scope| {
        for rank in 0..n {
            let (uid, f) = (&uid, &f);
            scope.spawn(move || {
                let world = World::builder().uid(uid, rank, n).init().unwrap();
                f(&world);
                world.finalize().unwrap();
            });
        }
    });
}

#[test]
fn several_worlds_of_threads_live_in_one_process_at_once() {
    testing::pes(1).supervise(
        |_| {
            std::thread::scope(|scope| {
                for n in [3, 1, 2, 3] {
                    scope.spawn(move || {
                        for _ in 0..3 {
                            world_of_threads(n, |world| {
                                assert_eq!(world.n_pes(), n);
                                (0..5).for_each(|_| ring(world));
                            });
                        }
                    });
                }
            });
        },
        |job| assert_eq!(job.outcome(Pe::new(0)).exit, Exit::Done),
    );
}

#[test]
fn one_pe_may_belong_to_two_worlds_at_the_same_time() {
    let uids = [Uid::create().unwrap().to_string(), Uid::create().unwrap().to_string()].join(",");
    testing::pes(2).env("UIDS", uids).run(|world| {
        let uids = std::env::var("UIDS").unwrap();
        let (one, other) = uids.split_once(',').unwrap();
        let (rank, n) = (world.my_pe().number(), world.n_pes());
        let one = World::builder().uid(&one.parse().unwrap(), rank, n).heap_max(1 << 26).init().unwrap();
        // In the second one the PEs have swapped their numbers.
        let other = World::builder().uid(&other.parse().unwrap(), n - 1 - rank, n).init().unwrap();
        assert_eq!(one.my_pe(), other.right());
        let (a, b) = (one.alloc::<u64>(9).unwrap(), other.alloc::<u64>(9).unwrap());
        a.put(&[1; 9], one.right()).unwrap();
        b.put(&[2; 9], other.right()).unwrap();
        one.barrier_all().unwrap();
        other.barrier_all().unwrap();
        assert_eq!((a.to_vec().unwrap(), b.to_vec().unwrap()), (vec![1; 9], vec![2; 9]));
        ring(world);
        ring(&other);
        ring(&one);
        other.finalize().unwrap();
        ring(&one);
        one.finalize().unwrap();
        ring(world);
    });
}

#[test]
fn an_address_serves_as_well_as_an_id_in_any_start_order() {
    // A port that was free a moment ago.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    testing::pes(3).env("PORT", port.to_string()).supervise(
        |pe| {
            // Rank 0, which listens, comes last.
            std::thread::sleep(Duration::from_millis(if pe.number() == 0 { 200 } else { 0 }));
            let address = format!("127.0.0.1:{}", std::env::var("PORT").unwrap());
            let world = World::builder().address(&address, pe.number(), 3).init().unwrap();
            ring(&world);
            world.finalize().unwrap();
        },
        |job| job.outcomes().iter().for_each(|outcome| assert_eq!(outcome.exit, Exit::Done)),
    );
}

#[test]
fn dropped_worlds_leave_in_peace_and_an_unwinding_one_names_itself() {
    testing::pes(2).supervise(
        |_| ring(&World::init().unwrap()),
        |job| job.outcomes().iter().for_each(|outcome| assert_eq!(outcome.exit, Exit::Done)),
    );
    testing::pes(3).supervise(
        |pe| {
            let world = World::init().unwrap();
            if pe.number() == 1 {
                panic!("PE 1 has had enough");
            }
            let word = world.alloc::<u64>(1);
            let error = match word {
                Ok(word) => word.wait_until(0, Cmp::Ne, 0).unwrap_err(),
                Err(error) => error,
            };
            assert_eq!(error.code(), ErrorCode::PeerDead, "{error}");
            println!("REPORTED {error}");
            // Everything else that could go on for ever ends as well.
            assert_eq!(world.barrier_all().unwrap_err().code(), ErrorCode::PeerDead);
            assert_eq!(world.finalize().unwrap_err().code(), ErrorCode::PeerDead);
        },
        |job| {
            for pe in [0, 2] {
                let outcome = job.outcome(Pe::new(pe));
                assert_eq!(outcome.exit, Exit::Done, "{outcome:?}");
                assert!(outcome.stdout.contains("PE 1"), "{outcome:?}");
            }
            assert_eq!(job.outcome(Pe::new(1)).exit, Exit::Code(101));
        },
    );
}

#[test]
fn polling_loops_end_when_a_pe_is_killed() {
    testing::pes(4).supervise(
        |pe| {
            let world = World::init().unwrap();
            let (words, signal) = (world.alloc::<u64>(1).unwrap(), world.signal().unwrap());
            println!("READY");
            let victim = Pe::new(3);
            let error = loop {
                let polled = match pe.number() {
                    0 => words.g(0, victim).map(|word| word != 0),
                    1 => signal.test(Cmp::Ne, 0).map(|seen| seen.is_some()),
                    2 => words.at(0, victim).compare_swap(1, 2).map(|old| old == 1),
                    _ => words.test(0, Cmp::Ne, 0),
                };
                match polled {
                    Ok(false) => std::thread::yield_now(),
                    Ok(true) => panic!("nobody writes"),
                    Err(error) => break error,
                }
            };
            assert_eq!(error.code(), ErrorCode::PeerDead, "{error}");
            println!("REPORTED {error}");
        },
        |job| {
            let (victim, limit) = (Pe::new(3), Duration::from_secs(20));
            (0..4).for_each(|pe| drop(job.wait_for_line(Pe::new(pe), "READY", limit)));
            let killed = job.kill(victim);
            for pe in 0..3 {
                let outcome = job.outcome(Pe::new(pe));
                assert_eq!(outcome.exit, Exit::Done, "{outcome:?}");
                assert!(
                    outcome.stdout.contains("REPORTED") && outcome.stdout.contains("PE 3"),
                    "{outcome:?}"
                );
                assert!(outcome.ended - killed < Duration::from_secs(5), "{:?}", outcome.ended - killed);
            }
        },
    );
}

#[test]
fn wrong_ways_to_start_are_errors() {
    let code = |result: rushmem::Result<World>| result.map(drop).unwrap_err().code();
    let uid = Uid::create().unwrap();
    assert_eq!(code(World::builder().uid(&uid, 2, 2).init()), ErrorCode::InvalidArgument);
    assert_eq!(code(World::builder().uid(&uid, 0, 0).init()), ErrorCode::InvalidArgument);
    assert_eq!(code(World::builder().uid(&uid, u32::MAX, 2).init()), ErrorCode::InvalidArgument);
    assert_eq!(code(World::builder().address("127.0.0.1\0:1", 0, 1).init()), ErrorCode::InvalidArgument);
    assert_eq!(code(World::builder().heap_max(1).init()), ErrorCode::InvalidArgument);
}

#[test]
fn a_bad_variable_is_an_error_that_names_it() {
    testing::pes(1).env("RUSHMEM_HEAP_MAX", "plenty").supervise(
        |_| {
            let error = World::init().unwrap_err();
            assert_eq!(error.code(), ErrorCode::Environment);
            assert!(error.message().contains("RUSHMEM_HEAP_MAX"), "{error}");
        },
        |job| assert_eq!(job.outcome(Pe::new(0)).exit, Exit::Done),
    );
}

#[test]
fn a_missing_library_is_an_error_that_lists_the_paths() {
    testing::pes(1).env("RUSHMEM_HOST_LIB", "/nowhere/librushmem_host.so").supervise(
        |_| {
            let error = World::init().unwrap_err();
            assert_eq!(error.code(), ErrorCode::LibraryNotFound);
            assert!(error.message().contains("/nowhere/librushmem_host.so"), "{error}");
            // A mistake that is mended is no mistake any more.
            #[allow(
                clippy::disallowed_methods,
                reason = "the runtime is not loaded, so no other thread runs"
            )]
            std::env::remove_var("RUSHMEM_HOST_LIB");
            World::init().unwrap().finalize().unwrap();
        },
        |job| assert_eq!(job.outcome(Pe::new(0)).exit, Exit::Done),
    );
}
