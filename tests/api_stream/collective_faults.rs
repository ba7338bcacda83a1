//! Collectives on streams that must not end well: what is refused at the call, members whose calls differ, a
//! slot set in use, a PE that dies. Errors name the collective, the team and the PE.

use rushmem::{Prepared, Sum};
use rushmem_test_support::api_common::place::{all_mapped, processes};

use crate::*;

const LIMIT: Duration = Duration::from_secs(60);
/// 64-bit words of calls by one block, and by several in each way that they have between two members: a word
/// a thread, packets or wide ones, and direct.
const LENGTHS: [usize; 5] = [2, 100, 2048, 40_000, 200_000];
/// The launches of these, on each device: on the CPU one thread would make them all.
const LAUNCHES: (&str, &str) = ("RUSHMEM_COLLECTIVES", "reduce=1x32,512:4x32;broadcast=1x32,512:4x32");

/// The length that this job is about.
fn length() -> usize {
    std::env::var("LENGTH").unwrap().parse().unwrap()
}

#[test]
fn what_is_wrong_with_a_collective_is_said_at_the_call() {
    both(2, |world, _| {
        let (stream, team) = (world.stream().unwrap(), world.team());
        let part = world.team().split_strided(0, 1, 1).unwrap();
        let (x, y) = (world.alloc::<f32>(64).unwrap(), world.alloc::<f32>(64).unwrap());
        let said = |result: rushmem::Result<()>, code: ErrorCode, text: &str| {
            let error = result.unwrap_err();
            assert!(error.code() == code && error.message().contains(text), "{error:?}: {code:?}, {text}");
        };
        let (first, last) = (x.slice(..40).unwrap(), x.slice(20..60).unwrap());
        let (argument, bounds) = (ErrorCode::InvalidArgument, ErrorCode::OutOfBounds);
        said(stream.broadcast(&team, &y, &x, 2), ErrorCode::BadPe, "broadcast of the world on a stream");
        said(stream.broadcast(&team, &first, &last, 0), argument, "overlap");
        said(stream.broadcast(&team, &first, &x, 0), bounds, "64 elements");
        said(stream.fcollect(&team, &x, &y), bounds, "2 blocks of 64");
        said(stream.reduce(&team, &first, &last, Sum), argument, "reduce of the world on a stream");
        said(stream.reduce(&team, &y.slice(..1).unwrap(), &x, Sum), bounds, "64 elements");
        said(stream.alltoall(&team, &y, &x.slice(..7).unwrap()), argument, "no whole blocks");
        said(stream.alltoalls(&team, &y, &x, (1, 10), 4), bounds, "4 elements for each member, 10 apart");
        said(stream.alltoalls(&team, &y, &x, (0, 1), 4), argument, "strides are at least 1");
        said(stream.sync(team.on(99)), argument, "sync of the world on a stream: slot set 99");
        if let Some(part) = part {
            said(stream.barrier(part.on(1)), argument, "slot set 1 of 1");
            part.free().unwrap();
        }
        let done = stream.record().unwrap();
        assert!(done.is_done().unwrap(), "nothing was put on the stream");
        stream.synchronize().unwrap();
        // Nothing to do is nothing, on any member.
        stream.reduce(&team, &y.slice(..0).unwrap(), &x.slice(..0).unwrap(), Sum).unwrap();
        stream.synchronize().unwrap();
        world.barrier_all().unwrap();
    });
}

#[test]
fn a_team_of_another_world_is_refused() {
    let (one, other) = (World::init().unwrap(), World::init().unwrap());
    {
        let (mine, theirs) = (one.alloc::<u32>(4).unwrap(), other.alloc::<u32>(4).unwrap());
        let stream = one.stream().unwrap();
        let code = |result: rushmem::Result<()>| result.unwrap_err().code();
        assert_eq!(code(stream.sync(&other.team())), ErrorCode::InvalidArgument);
        assert_eq!(code(stream.reduce(&one.team(), &mine, &theirs, Sum)), ErrorCode::InvalidArgument);
        assert_eq!(code(stream.fcollect(&one.team(), &theirs, &mine)), ErrorCode::InvalidArgument);
    }
    other.finalize().unwrap();
    one.finalize().unwrap();
}

/// A team of both PEs, its stream, and arrays.
fn with_team(f: impl FnOnce(&World, &rushmem::Team<'_>, &Stream<'_>, &rushmem::SymRef<'_, u64>)) {
    let world = World::init().unwrap();
    let team = world.team().split_strided(0, 1, world.n_pes()).unwrap().unwrap();
    let stream = world.stream().unwrap();
    let x = world.alloc::<u64>(2 * LENGTHS[LENGTHS.len() - 1]).unwrap();
    team.prepare(&[Prepared::reduce::<u64, _>(Sum), Prepared::fcollect(), Prepared::broadcast()]).unwrap();
    world.barrier_all().unwrap();
    f(&world, &team, &stream, &x);
    // The job is broken, or this PE's stream has failed: nobody frees the team.
    std::mem::forget(team);
}

#[test]
fn members_whose_calls_on_streams_differ_get_an_error_each() {
    const NAME: &str = "members_whose_calls_on_streams_differ_get_an_error_each";
    if !processes(NAME) {
        return;
    }
    if !all_mapped(2) {
        return place::skip(NAME, "of a member that is not mapped, and waits too, nothing is known");
    }
    let cases = LENGTHS.into_iter().flat_map(|n| [(n, "another size"), (n, "another collective")]);
    for (n, how) in cases {
        let pes = testing::pes(2).env("HOW", how).env("LENGTH", n.to_string());
        pes.env(LAUNCHES.0, LAUNCHES.1).env("RUSHMEM_WAIT_TIMEOUT", "50").supervise(
            |_| {
                with_team(|world, team, stream, x| {
                    let second = world.my_pe().number() == 1;
                    let n = length();
                    let (few, many) = (x.slice(..n).unwrap(), x.slice(..n + 1).unwrap());
                    if !second {
                        stream.reduce(team, &few, &few, Sum).unwrap();
                    } else if std::env::var("HOW").unwrap() == "another size" {
                        stream.reduce(team, &many, &many, Sum).unwrap();
                    } else {
                        stream.broadcast(team, &few, &few, 0).unwrap();
                    }
                    let error = stream.synchronize().unwrap_err();
                    // The other PE may hear of the first one's end instead.
                    println!("ENDED {:?} {error}", error.code());
                });
            },
            |job| {
                let ends = [0, 1].map(|pe| job.wait_for_line(Pe::new(pe), "ENDED", LIMIT));
                let told = ends.iter().find(|end| end.contains("Mismatch"));
                let told = told.unwrap_or_else(|| panic!("{ends:?}"));
                assert!(told.contains("of team 1 on a stream") && told.contains("different calls"), "{told}");
            },
        );
    }
}

/// Two streams of one PE in one slot set, while the other PE stays away: the second call is the error, and
/// ends by itself.
#[test]
fn two_streams_in_one_slot_set_are_an_error() {
    if !processes("two_streams_in_one_slot_set_are_an_error") {
        return;
    }
    for n in LENGTHS {
        let pes = testing::pes(2).env("LENGTH", n.to_string()).env(LAUNCHES.0, LAUNCHES.1);
        pes.env("RUSHMEM_WAIT_TIMEOUT", "50").supervise(
            |_| {
                with_team(|world, team, stream, x| {
                    if world.my_pe().number() == 1 {
                        return std::thread::sleep(LIMIT);
                    }
                    let n = length();
                    let (a, b) = (x.slice(..n).unwrap(), x.slice(n..2 * n).unwrap());
                    let other = world.stream().unwrap();
                    stream.reduce(team, &a, &a, Sum).unwrap();
                    other.reduce(team, &b, &b, Sum).unwrap();
                    let ends = [stream.record().unwrap(), other.record().unwrap()];
                    let end = loop {
                        match (ends[0].is_done(), ends[1].is_done()) {
                            (Ok(false), Ok(false)) => std::thread::sleep(Duration::from_millis(1)),
                            (one, two) => break format!("{one:?} {two:?}"),
                        }
                    };
                    println!("ENDED {end}");
                });
            },
            |job| {
                let end = job.wait_for_line(Pe::new(0), "ENDED", LIMIT / 3);
                for part in ["RUSHMEM_ERR_BUSY", "reduce of team 1 on a stream"] {
                    assert!(end.contains(part), "{n}: {end}");
                }
            },
        );
    }
}

#[test]
fn a_pe_that_is_killed_in_a_collective_on_a_stream_is_named() {
    if !processes("a_pe_that_is_killed_in_a_collective_on_a_stream_is_named") {
        return;
    }
    testing::pes(3).supervise(
        |_| {
            with_team(|_, team, stream, x| {
                println!("READY");
                // On a GPU, so many that the queue never ends meanwhile.
                let mut error = None;
                while error.is_none() {
                    for _ in 0..20 {
                        error = error.or(stream.reduce(team, x, x, Sum).err());
                    }
                    error = error.or(stream.synchronize().err());
                }
                let error = error.unwrap();
                println!("ENDED {:?} {error}", error.code());
            });
        },
        |job| {
            for pe in 0..3 {
                job.wait_for_line(Pe::new(pe), "READY", LIMIT);
            }
            std::thread::sleep(Duration::from_millis(150));
            let since = job.kill(Pe::new(1));
            for pe in [0, 2] {
                let end = job.wait_for_line(Pe::new(pe), "ENDED", LIMIT);
                assert!(end.contains("PeerDead") && end.contains("PE 1"), "{end}");
            }
            assert!(since.elapsed() < Duration::from_secs(5), "{:?}", since.elapsed());
        },
    );
}

#[test]
fn a_pe_that_never_comes_is_reported_with_the_collective_and_the_team() {
    if !processes("a_pe_that_never_comes_is_reported_with_the_collective_and_the_team") {
        return;
    }
    testing::pes(2).env("RUSHMEM_STALL_REPORT", "0.2").env("RUSHMEM_WAIT_TIMEOUT", "1").supervise(
        |_| {
            with_team(|world, team, stream, x| {
                if world.my_pe().number() == 0 {
                    stream.fcollect(team, x, &x.slice(..300).unwrap()).unwrap();
                    let error = stream.synchronize().unwrap_err();
                    println!("ENDED {error}");
                }
                std::thread::sleep(Duration::from_secs(3));
            });
        },
        |job| {
            let end = job.wait_for_line(Pe::new(0), "ENDED", LIMIT);
            for part in
                ["fcollect of team 1 on a stream", "RUSHMEM_WAIT_TIMEOUT", "for PE 1 to come to a fcollect"]
            {
                assert!(end.contains(part), "{part:?} is not in: {end}");
            }
        },
    );
}
