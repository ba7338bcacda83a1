//! Collectives in which one member is held (tests/kernels/held.cu).

use crate::*;

const HELD: &str = kernels!("held.cu");

/// Without the look at the lines (`make_room`) PE 0 never finds what PE 2 sent to it first.
#[test]
fn an_exchange_waits_until_its_places_are_free() {
    at_counts(&[3], |world, _| {
        let bench = Bench::made_quickly(world, HELD);
        let (flag, data) = (world.alloc::<u64>(1).unwrap(), world.alloc::<u64>(1).unwrap());
        bench.run("collectives_held", Launch::new(1, 1), (&bench.report, &flag, &data));
    });
}

/// Without the look at the lines (`make_wide_room`) PE 0 replaces what PE 1 has not taken yet, and which that
/// one waits for then for ever.
#[test]
fn wide_packets_wait_until_their_places_are_free() {
    const NAME: &str = "wide_packets_wait_until_their_places_are_free";
    if !all_mapped(5) {
        return skip(NAME, "a team has wide packets only where all its members' memory is mapped");
    }
    at_counts(&[2, 3, 5], |world, _| {
        let bench = Bench::made_quickly(world, HELD);
        let n = 5000;
        let (flag, data) = (world.alloc::<u64>(1).unwrap(), world.alloc::<u64>(1).unwrap());
        let dst = world.alloc::<u64>(n * world.n_pes() as usize).unwrap();
        let src = world.alloc::<u64>(n).unwrap();
        bench.run(
            "collectives_wide_held",
            Launch::new(1, 64),
            (&bench.report, &flag, &data, &dst, &src, n as u64),
        );
    });
}
