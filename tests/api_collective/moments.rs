//! PEs that die, or stand still for a while, at other moments than in the middle of a collective: while the
//! job starts, at its end, with copies in flight, two at a time.

use std::time::{Duration, Instant};

use crate::api_common::kill::{ended, one_of, ready, until_it_fails};
use crate::api_common::{longer, place, Rng};
use rushmem::{Sum, World};

/// Elements of an array.
const LARGE: usize = 60_000;
/// A start waits so long for PEs that never come, in seconds.
const START: &str = "3";

/// Whether processes may be killed here, with a reason if not.
fn may_kill(name: &str) -> bool {
    place::processes(name)
}

fn world() -> World {
    World::init().expect("nobody dies during start-up here")
}

/// From before the first message of a PE to after the first barrier.
#[test]
fn killed_while_the_job_starts() {
    if !may_kill("killed_while_the_job_starts") {
        return;
    }
    for _ in 0..longer(3) {
        let start = place::pes(3).env("RUSHMEM_INIT_TIMEOUT", START);
        one_of(3).with(start).within(Duration::from_millis(60)).noticed_within(Duration::from_secs(8)).kills(
            || {
                ready();
                match World::init() {
                    Ok(world) => until_it_fails(|| world.barrier_all()),
                    Err(error) => ended(&error),
                }
            },
        );
    }
}

/// One waits in `finalize` for the others.
#[test]
fn killed_while_the_others_finalize() {
    if !may_kill("killed_while_the_others_finalize") {
        return;
    }
    for _ in 0..longer(2) {
        one_of(3).within(Duration::from_millis(100)).kills(|| {
            let world = world();
            let to = world.alloc::<u64>(LARGE).unwrap();
            to.put(&vec![1; LARGE], world.right()).unwrap();
            ready();
            // By then one is dead: who came at once, and waits, or who was to come later.
            std::thread::sleep(Duration::from_millis(if world.my_pe().number() == 0 { 0 } else { 500 }));
            ended(&world.finalize().expect_err("a PE is dead"))
        });
    }
}

/// Puts, gets and signals in flight to all PEs, and quiet.
fn traffic(world: &World) -> ! {
    let n = world.n_pes() as usize;
    let (to, from) = (world.alloc::<u64>(n * LARGE).unwrap(), world.alloc::<u64>(LARGE).unwrap());
    let signal = world.signal().unwrap();
    let (source, mut got) = (vec![7u64; LARGE], vec![0; LARGE]);
    let me = world.my_pe().index();
    until_it_fails(|| {
        for pe in world.pes() {
            let part = to.slice(me * LARGE..(me + 1) * LARGE)?;
            // SAFETY: the source is never written to, and lives as long as the process.
            unsafe { part.put_nbi(&source, pe) }?;
            signal.add(1, pe)?;
            world.fence()?;
        }
        from.get(&mut got, world.left())?;
        world.quiet()
    })
}

#[test]
fn killed_in_the_middle_of_a_quiet() {
    if may_kill("killed_in_the_middle_of_a_quiet") {
        for _ in 0..longer(2) {
            one_of(3).kills(|| traffic(&world()));
        }
    }
}

/// Connections are made when they are first used: these are.
#[test]
fn killed_while_the_first_connections_are_made() {
    if may_kill("killed_while_the_first_connections_are_made") {
        for _ in 0..longer(3) {
            one_of(4).within(Duration::from_millis(6)).kills(|| traffic(&world()));
        }
    }
}

#[test]
fn two_are_killed_at_once() {
    if !may_kill("two_are_killed_at_once") {
        return;
    }
    for _ in 0..longer(2) {
        one_of(4).victims(2).kills(|| {
            let world = world();
            let (to, from) = (world.alloc(LARGE).unwrap(), world.alloc::<u64>(LARGE).unwrap());
            until_it_fails(|| world.team().reduce(&to, &from, Sum))
        });
    }
}

/// It stops in the middle of a reduction; nobody is given up, and no sum is wrong.
#[test]
fn stopped_for_seconds_in_a_collective() {
    if !may_kill("stopped_for_seconds_in_a_collective") {
        return;
    }
    one_of(3).stops(Duration::from_secs(3), || {
        let world = world();
        {
            let (to, from) = (world.alloc(LARGE)?, world.alloc::<u64>(LARGE)?);
            let (n, mut rng) = (u64::from(world.n_pes()), Rng::new(1));
            ready();
            let began = Instant::now();
            let mut who_goes_on = [1];
            // All end with the same round, longer after the first than it takes to be stopped.
            while who_goes_on[0] > 0 {
                let value = rng.next() >> 8;
                from.write(&vec![value; LARGE])?;
                world.team().reduce(&to, &from, Sum)?;
                assert!(to.to_vec()?.iter().all(|sum| *sum == n * value));
                who_goes_on = [u64::from(began.elapsed() < Duration::from_secs(4))];
                world.team().reduce_in_place(&mut who_goes_on, Sum)?;
            }
        }
        world.finalize()
    });
}
