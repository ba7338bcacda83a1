//! Atomics: each operation against its arithmetic, at full width, and all of them under contention.

use rushmem_test_support::api_common;

use api_common::at_all_counts;
use api_common::place::host_rounds;
use rushmem::{AtomicInt, ErrorCode, Pe, World};

/// Every operation on the middle one of three words, against the arithmetic of `u64` cut to the type's width.
macro_rules! agrees_with_its_arithmetic {
    ($world:ident, $rng:ident, $($type:ty)*) => {{$({
        let slice = $world.alloc::<$type>(3).unwrap();
        let word = slice.at(1, $world.right());
        let mut rng = $rng.fork($world.my_pe().number());
        let mut model: $type = 0;
        let name = stringify!($type);
        for round in 0..host_rounds(400) {
            let v = rng.next() as $type;
            match rng.below(14) {
                0 => assert_eq!(word.fetch().unwrap(), model, "{name} {round}"),
                1 => { word.set(v).unwrap(); model = v }
                2 => { assert_eq!(word.swap(v).unwrap(), model, "{name} {round}"); model = v }
                3 => { assert_eq!(word.compare_swap(model, v).unwrap(), model); model = v }
                4 => assert_eq!(word.compare_swap(model.wrapping_add(1), v).unwrap(), model),
                5 => { word.add(v).unwrap(); model = model.wrapping_add(v) }
                6 => { assert_eq!(word.fetch_add(v).unwrap(), model); model = model.wrapping_add(v) }
                7 => { word.inc().unwrap(); model = model.wrapping_add(1) }
                8 => { assert_eq!(word.fetch_inc().unwrap(), model); model = model.wrapping_add(1) }
                9 => { word.and(v).unwrap(); model &= v }
                10 => { assert_eq!(word.fetch_and(v).unwrap(), model); model &= v }
                11 => { word.or(v).unwrap(); model |= v }
                12 => { assert_eq!(word.fetch_or(v).unwrap(), model); model |= v }
                _ => {
                    word.xor(v).unwrap();
                    assert_eq!(word.fetch_xor(v).unwrap(), model ^ v);
                }
            }
            assert_eq!(word.g().unwrap(), model, "{name} {round}");
        }
        $world.barrier_all().unwrap();
        let all = slice.to_vec().unwrap();
        assert_eq!((all[0], all[2]), (0, 0), "{name}: the neighbours are untouched");
    })*}};
}

#[test]
fn every_operation_agrees_with_its_arithmetic() {
    at_all_counts(|world, rng| agrees_with_its_arithmetic!(world, rng, i32 u32 i64 u64));
}

#[test]
fn floats_are_fetched_set_and_swapped_bit_for_bit() {
    at_all_counts(|world, _| {
        let (singles, doubles) = (world.alloc::<f32>(1).unwrap(), world.alloc::<f64>(1).unwrap());
        let (single, double) = (singles.at(0, world.right()), doubles.at(0, world.right()));
        single.set(-0.0).unwrap();
        assert_eq!(single.swap(f32::NAN).unwrap().to_bits(), (-0.0f32).to_bits());
        assert_eq!(single.fetch().unwrap().to_bits(), f32::NAN.to_bits());
        double.set(f64::MIN_POSITIVE / 2.0).unwrap();
        assert_eq!(double.swap(1.5).unwrap(), f64::MIN_POSITIVE / 2.0);
        assert_eq!(double.fetch().unwrap(), 1.5);
        world.barrier_all().unwrap();
    });
}

/// Of each contended test.
fn rounds() -> usize {
    host_rounds(2000)
}

/// All PEs add to one word of PE 0: the old values are each number once, and the sum is right.
fn contended<T: AtomicInt + TryInto<usize>>(world: &World) {
    let (root, rounds) = (Pe::new(0), rounds());
    let counter = world.alloc::<T>(1).unwrap();
    let mine = world.alloc::<u64>(rounds).unwrap();
    for i in 0..rounds {
        let ticket = counter.at(0, root).fetch_inc().unwrap();
        let ticket: usize = ticket.try_into().unwrap_or_else(|_| panic!("small and not negative"));
        mine.p(i, ticket as u64, world.my_pe()).unwrap();
    }
    world.barrier_all().unwrap();
    let total = rounds * world.n_pes() as usize;
    if world.my_pe() == root {
        let mut seen = vec![false; total];
        for pe in world.pes() {
            let mut tickets = vec![0; rounds];
            mine.get(&mut tickets, pe).unwrap();
            assert!(tickets.is_sorted(), "{pe}'s tickets grow");
            for ticket in tickets {
                assert!(
                    !std::mem::replace(&mut seen[ticket as usize], true),
                    "ticket {ticket} was given twice"
                );
            }
        }
        assert!(seen.iter().all(|s| *s), "the tickets are all numbers below {total}");
    }
    world.barrier_all().unwrap();
    counter.free().unwrap();
    mine.free().unwrap();
}

#[test]
fn concurrent_fetch_incs_hand_out_each_number_once() {
    at_all_counts(|world, _| {
        contended::<i32>(world);
        contended::<u64>(world);
    });
}

#[test]
fn concurrent_adds_swaps_and_bits_lose_nothing() {
    at_all_counts(|world, rng| {
        let (root, rounds) = (Pe::new(0), rounds());
        let words = world.alloc::<u64>(5).unwrap();
        let (sum, flips, set, cleared, slot) =
            (words.at(0, root), words.at(1, root), words.at(2, root), words.at(3, root), words.at(4, root));
        if world.my_pe() == root {
            cleared.set(u64::MAX).unwrap();
        }
        world.barrier_all().unwrap();
        // Wider than 32 bits: a 64-bit atomic done in halves would lose carries.
        let addends = |pe: Pe| rng.fork(pe.number()).words(rounds);
        let bit = 1 << (world.my_pe().number() * 7 % 64);
        let mut taken = 0u64;
        for (i, addend) in addends(world.my_pe()).into_iter().enumerate() {
            sum.add(addend).unwrap();
            flips.xor(addend).unwrap();
            set.or(bit).unwrap();
            cleared.and(!bit).unwrap();
            // Each value put into the slot is taken out by exactly one swap, or is still there at the end.
            taken =
                taken.wrapping_add(slot.swap(u64::from(world.my_pe().number()) << 32 | i as u64).unwrap());
        }
        let all_taken = world.alloc::<u64>(1).unwrap();
        all_taken.at(0, root).add(taken).unwrap();
        world.barrier_all().unwrap();
        let expected: Vec<u64> = world.pes().flat_map(addends).collect();
        assert_eq!(sum.fetch().unwrap(), expected.iter().fold(0u64, |a, b| a.wrapping_add(*b)));
        assert_eq!(flips.fetch().unwrap(), expected.iter().fold(0, |a, b| a ^ b));
        let bits = world.pes().fold(0, |bits, pe| bits | 1u64 << (pe.number() * 7 % 64));
        assert_eq!((set.fetch().unwrap(), cleared.fetch().unwrap()), (bits, !bits));
        let given =
            world.pes().flat_map(|pe| (0..rounds as u64).map(move |i| u64::from(pe.number()) << 32 | i));
        let given = given.fold(0u64, |a, b| a.wrapping_add(b));
        assert_eq!(all_taken.at(0, root).fetch().unwrap().wrapping_add(slot.fetch().unwrap()), given);
        world.barrier_all().unwrap();
    });
}

#[test]
fn a_lock_made_of_compare_swap_excludes() {
    at_all_counts(|world, _| {
        let root = Pe::new(0);
        let lock = world.alloc::<u32>(1).unwrap();
        // Two words that are one apart from each other whenever the lock is free.
        let pair = world.alloc::<u64>(2).unwrap();
        let me = world.my_pe().number() + 1;
        let rounds = host_rounds(200) as u64;
        for _ in 0..rounds {
            while lock.at(0, root).compare_swap(0, me).unwrap() != 0 {
                std::thread::yield_now();
            }
            let (a, b) = (pair.g(0, root).unwrap(), pair.g(1, root).unwrap());
            assert_eq!(a * 2, b);
            pair.p(0, a + 1, root).unwrap();
            pair.p(1, b + 2, root).unwrap();
            world.quiet().unwrap();
            assert_eq!(lock.at(0, root).swap(0).unwrap(), me);
        }
        world.barrier_all().unwrap();
        assert_eq!(pair.g(0, root).unwrap(), rounds * u64::from(world.n_pes()));
        world.barrier_all().unwrap();
    });
}

#[test]
fn bad_targets_are_errors() {
    api_common::both(2, |world, _| {
        let words = world.alloc::<i64>(2).unwrap();
        let code = |result: rushmem::Result<i64>| result.unwrap_err().code();
        for pe in [Pe::new(2), Pe::new(u32::MAX)] {
            assert_eq!(code(words.at(0, pe).fetch()), ErrorCode::BadPe);
            assert_eq!(code(words.at(0, pe).fetch_add(1)), ErrorCode::BadPe);
            assert_eq!(code(words.at(0, pe).set(1).map(|()| 0)), ErrorCode::BadPe);
        }
        for index in [2, usize::MAX] {
            assert_eq!(code(words.at(index, world.right()).swap(1)), ErrorCode::OutOfBounds);
            assert_eq!(code(words.at(index, world.right()).compare_swap(0, 1)), ErrorCode::OutOfBounds);
        }
        world.barrier_all().unwrap();
        assert_eq!(words.to_vec().unwrap(), [0, 0]);
        world.barrier_all().unwrap();
    });
}
