//! wait_until and test: all six comparisons, one word and several, with exclusions and vectors. Tests are
//! compared with a plain model on random words; waits with words that another PE sets one after the other.

use std::time::{Duration, Instant};

use proptest::prelude::*;
use rushmem::{AtomicInt, Cmp, ErrorCode, World};
use rushmem_test_support::api_common::{at_all_counts, both};

const CMPS: [Cmp; 6] = [Cmp::Eq, Cmp::Ne, Cmp::Gt, Cmp::Ge, Cmp::Lt, Cmp::Le];

/// Compares a test of `words` with the model, for every comparison.
fn tests_agree<T: AtomicInt>(world: &World, words: &[T], values: &[T], excluded: &[bool]) {
    let slice = world.alloc::<T>(words.len()).unwrap();
    slice.write(words).unwrap();
    for cmp in CMPS {
        let value = values[0];
        for (i, word) in words.iter().enumerate() {
            assert_eq!(
                slice.test(i, cmp, value).unwrap(),
                cmp.holds(word, &value),
                "{word:?} {cmp:?} {value:?}"
            );
        }
        for with_exclusions in [false, true] {
            let members: Vec<usize> =
                (0..words.len()).filter(|i| !(with_exclusions && excluded[*i])).collect();
            let ivars = || if with_exclusions { slice.ivars().excluding(excluded) } else { slice.ivars() };
            let context = format!("{words:?} {cmp:?} {values:?} members {members:?}");

            let same: Vec<usize> =
                members.iter().copied().filter(|i| cmp.holds(&words[*i], &value)).collect();
            assert_eq!(ivars().test_all(cmp, value).unwrap(), same == members, "{context}");
            assert_eq!(ivars().test_some(cmp, value).unwrap(), same, "{context}");
            let any = ivars().test_any(cmp, value).unwrap();
            assert!(any.map_or(same.is_empty(), |i| same.contains(&i)), "{context}: any {any:?}");

            let each: Vec<usize> =
                members.iter().copied().filter(|i| cmp.holds(&words[*i], &values[*i])).collect();
            assert_eq!(ivars().test_all_vector(cmp, values).unwrap(), each == members, "{context}");
            assert_eq!(ivars().test_some_vector(cmp, values).unwrap(), each, "{context}");
            let any = ivars().test_any_vector(cmp, values).unwrap();
            assert!(any.map_or(each.is_empty(), |i| each.contains(&i)), "{context}: any {any:?}");

            // Waits that hold already return at once, with the same answers.
            if same == members {
                ivars().wait_until_all(cmp, value).unwrap();
            }
            if each == members {
                ivars().wait_until_all_vector(cmp, values).unwrap();
            }
            if !same.is_empty() || members.is_empty() {
                assert_eq!(ivars().wait_until_some(cmp, value).unwrap(), same, "{context}");
                let any = ivars().wait_until_any(cmp, value).unwrap();
                assert!(any.map_or(members.is_empty(), |i| same.contains(&i)), "{context}: any {any:?}");
            }
            if !each.is_empty() || members.is_empty() {
                assert_eq!(ivars().wait_until_some_vector(cmp, values).unwrap(), each, "{context}");
                let any = ivars().wait_until_any_vector(cmp, values).unwrap();
                assert!(any.map_or(members.is_empty(), |i| each.contains(&i)), "{context}: any {any:?}");
            }
        }
    }
    slice.free().unwrap();
}

#[test]
fn tests_agree_with_a_model_on_random_words() {
    let world = World::init().unwrap();
    // Few different values, so that they often meet, and the extremes, where signedness shows.
    let word =
        prop_oneof![Just(0u64), Just(1), Just(u64::MAX), Just(1 << 63), Just(1 << 31), Just(u64::MAX >> 1)];
    let row = (word.clone(), word, any::<bool>());
    proptest!(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() }, |(
        rows in proptest::collection::vec(row, 1..9),
    )| {
        let (mut words, mut values, mut excluded) = (vec![], vec![], vec![]);
        for (word, value, out) in rows {
            words.push(word);
            values.push(value);
            excluded.push(out);
        }
        let cut = |all: &[u64]| all.iter().map(|w| *w as u32).collect::<Vec<u32>>();
        tests_agree::<u64>(&world, &words, &values, &excluded);
        tests_agree::<u32>(&world, &cut(&words), &cut(&values), &excluded);
        let signed = |all: &[u64]| all.iter().map(|w| *w as i64).collect::<Vec<_>>();
        tests_agree::<i64>(&world, &signed(&words), &signed(&values), &excluded);
        let signed = |all: &[u64]| all.iter().map(|w| *w as i32).collect::<Vec<_>>();
        tests_agree::<i32>(&world, &signed(&words), &signed(&values), &excluded);
    });
    world.finalize().unwrap();
}

#[test]
fn no_words_mean_nothing_to_wait_for() {
    let world = World::init().unwrap();
    let none = world.alloc::<u32>(0).unwrap();
    let some = world.alloc::<u32>(3).unwrap();
    let excluded = some.slice(..).unwrap();
    none.ivars().wait_until_all(Cmp::Eq, 1).unwrap();
    assert_eq!(none.ivars().wait_until_any(Cmp::Eq, 1).unwrap(), None);
    assert_eq!(none.ivars().wait_until_some(Cmp::Eq, 1).unwrap(), []);
    assert!(none.ivars().test_all(Cmp::Eq, 1).unwrap());
    let all_out = || excluded.ivars().excluding(&[true; 3]);
    all_out().wait_until_all(Cmp::Eq, 1).unwrap();
    assert_eq!(all_out().wait_until_any(Cmp::Eq, 1).unwrap(), None);
    assert_eq!(all_out().wait_until_some_vector(Cmp::Eq, &[1; 3]).unwrap(), []);
    let code = excluded.ivars().excluding(&[true; 2]).wait_until_all(Cmp::Eq, 1).unwrap_err().code();
    assert_eq!(code, ErrorCode::InvalidArgument);
    let code = excluded.ivars().test_all_vector(Cmp::Eq, &[1; 4]).unwrap_err().code();
    assert_eq!(code, ErrorCode::InvalidArgument);
    assert_eq!(some.test(3, Cmp::Eq, 0).unwrap_err().code(), ErrorCode::OutOfBounds);
    assert_eq!(some.wait_until(3, Cmp::Eq, 0).unwrap_err().code(), ErrorCode::OutOfBounds);
    world.finalize().unwrap();
}

#[test]
fn waits_see_what_the_left_hand_pe_sets_one_after_the_other() {
    at_all_counts(|world, rng| {
        const N: usize = 12;
        let (words, go) = (world.alloc::<i64>(N).unwrap(), world.alloc::<i32>(1).unwrap());
        // Sets the right-hand PE's words to -(i + 1) in random order, with pauses, on a thread of its own:
        // with one PE there is nobody else to do it.
        let mut choice = rng.fork(world.my_pe().number());
        let mut order: Vec<usize> = (0..N).collect();
        (1..N).rev().for_each(|i| order.swap(i, choice.below(i + 1)));
        let right = world.right();
        let set_all = |pause: Duration| {
            for i in &order {
                std::thread::sleep(pause);
                words.p(*i, -(*i as i64 + 1), right).unwrap();
            }
        };
        let pause = Duration::from_micros(300);
        let targets: Vec<i64> = (1..=N as i64).map(|i| -i).collect();
        for round in 1..=6 {
            words.fill(0).unwrap();
            world.barrier_all().unwrap();
            std::thread::scope(|scope| {
                scope.spawn(|| set_all(pause));
                match round {
                    1 => words.ivars().wait_until_all(Cmp::Lt, 0).unwrap(),
                    2 => words.ivars().wait_until_all_vector(Cmp::Eq, &targets).unwrap(),
                    3 | 4 => {
                        let mut done = [false; N];
                        let next = |done: &[bool]| match round {
                            3 => words.ivars().excluding(done).wait_until_any(Cmp::Ne, 0),
                            _ => words.ivars().excluding(done).wait_until_any_vector(Cmp::Eq, &targets),
                        };
                        while let Some(i) = next(&done).unwrap() {
                            assert!(!std::mem::replace(&mut done[i], true), "{i} was excluded");
                        }
                        assert_eq!(done, [true; N]);
                    }
                    _ => {
                        let mut done = [false; N];
                        while done != [true; N] {
                            let ivars = words.ivars().excluding(&done);
                            let some = match round {
                                5 => ivars.wait_until_some(Cmp::Le, -1).unwrap(),
                                _ => ivars.wait_until_some_vector(Cmp::Eq, &targets).unwrap(),
                            };
                            assert!(!some.is_empty());
                            for i in some {
                                assert!(!std::mem::replace(&mut done[i], true), "{i} was excluded");
                            }
                        }
                    }
                }
            });
            words.wait_until(N - 1, Cmp::Eq, -(N as i64)).unwrap();
            assert_eq!(words.to_vec().unwrap(), targets);
            world.barrier_all().unwrap();
        }
        go.p(0, i32::MIN, right).unwrap();
        go.wait_until(0, Cmp::Lt, -1).unwrap();
        world.barrier_all().unwrap();
    });
}

#[test]
fn a_wait_ends_at_its_limit_and_says_what_it_waited_for() {
    both(2, |world, _| {
        let words = world.alloc::<u32>(4).unwrap();
        let start = Instant::now();
        let error =
            words.ivars().timeout(Duration::from_millis(50)).wait_until_all(Cmp::Eq, 4242).unwrap_err();
        assert!(start.elapsed() >= Duration::from_millis(50));
        assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
        assert_eq!(error.code(), ErrorCode::Timeout);
        let text = error.to_string();
        assert!(text.contains("4242") && text.contains(&world.my_pe().to_string()), "{text}");
        let any = words.ivars().timeout(Duration::from_millis(10)).wait_until_any(Cmp::Gt, 0);
        assert_eq!(any.unwrap_err().code(), ErrorCode::Timeout);
        let some = words.ivars().timeout(Duration::ZERO).wait_until_some_vector(Cmp::Gt, &[0; 4]);
        assert_eq!(some.unwrap_err().code(), ErrorCode::Timeout);
        world.barrier_all().unwrap();
    });
}
