//! Between the places of a strided destination, and between the blocks of an alltoallv, lie bytes that are
//! not the call's: what others put there while the call is under way stays. Heaps that the host cannot touch
//! are where that is hard, because it works on copies of their arrays.

use std::time::Duration;

use crate::api_common::place::{self, host_rounds};
use crate::api_common::{seed, seeded, Rng};
use rushmem::{SymSlice, Team, World};

/// Elements of a block: those of the alltoalls lie at even indices, those of the alltoallv at 0 to 3 and 8 to
/// 11. Five is a place of neither.
const BLOCK: usize = 4;
const GAP: usize = 5;

#[test]
fn what_others_put_between_the_places_stays() {
    // On machines without GPUs as if each heap were a GPU's.
    seeded(place::pes(3)).env("RUSHMEM_TEST_APART", "1").threads(|world| {
        let mut rng = Rng::new(seed()).fork(world.my_pe().number());
        let member = world.my_pe().number() < 2;
        let arrays = [0, 1].map(|_| world.alloc::<u64>(4 * BLOCK).unwrap());
        let over = world.alloc::<u64>(1).unwrap();
        let team = world.team().split(member.then_some(0), 0).unwrap();
        world.barrier_all().unwrap();
        match &team {
            Some(team) => {
                calls(team, &arrays, &mut rng);
                over.p(0, 1, world.pe(2).unwrap()).unwrap();
            }
            None => puts(world, &arrays[0], &over, &mut rng),
        }
        world.barrier_all().unwrap();
    });
}

/// The members' part: both calls, with other data each time, so that the bytes of the places change.
fn calls(team: &Team<'_>, [to, from]: &[SymSlice<'_, u64>; 2], rng: &mut Rng) {
    let at = [0, BLOCK];
    for _ in 0..host_rounds(1000) {
        from.write(&[0; 4 * BLOCK].map(|_: u64| rng.next())).unwrap();
        team.alltoalls(to, from, 2, 1, BLOCK).unwrap();
        team.alltoallv(to, &at.map(|at| 2 * at), from, &at, &[BLOCK; 2]).unwrap();
    }
}

/// The third PE's part, as long as the members call: it alone writes to the gap, so that it finds there what
/// it has written last. The pause is for a call to end in.
fn puts(world: &World, to: &SymSlice<'_, u64>, over: &SymSlice<'_, u64>, rng: &mut Rng) {
    let mut value = 0;
    while over.g(0, world.my_pe()).unwrap() == 0 {
        let member = world.pe(rng.below(2) as u32).unwrap();
        value += 1;
        to.p(GAP, value, member).unwrap();
        world.quiet().unwrap();
        std::thread::sleep(Duration::from_micros(rng.below(300) as u64));
        assert_eq!(to.g(GAP, member).unwrap(), value, "what was put into {member}'s gap is lost");
    }
    println!("{value} puts");
}
