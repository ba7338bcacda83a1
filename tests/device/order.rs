//! Signals, syncs and barriers inside kernels, and litmus tests of the orderings they promise.

use crate::api_common::at_all_counts;
use crate::*;
use rushmem_test_support::arguments::{Columns, Exchange, Litmus, Syncs};

const SIGNALS: &str = kernels!("signals.cu");
const SYNC: &str = kernels!("sync.cu");
const LITMUS: &str = kernels!("litmus.cu");

#[test]
fn data_comes_with_its_signal_at_every_scope() {
    at_all_counts(|world, rng| {
        let bench = Bench::new(world, SIGNALS);
        let (dst, src) = (world.alloc::<u8>(5000).unwrap(), world.alloc::<u8>(5000).unwrap());
        let (signal, ack) = (world.signal().unwrap(), world.signal().unwrap());
        for scope in SCOPES {
            for (i, bytes) in [0usize, 1, 17, 4097].into_iter().enumerate() {
                signal.set(0, world.my_pe()).unwrap();
                ack.set(0, world.my_pe()).unwrap();
                let exchange = Exchange { bytes, scope, rounds: rounds(24) as i32, seed: rng.next() };
                let args = (&bench.report, &dst, &src, &signal, &ack, ByValue(exchange));
                bench.run("signals_exchange", Launch::new(1, BLOCK_SIZES[i % 3]), args);
            }
        }
    });
}

#[test]
fn one_signal_announces_the_columns_of_all_pes() {
    at_all_counts(|world, rng| {
        let bench = Bench::new(world, SIGNALS);
        const MOST: usize = 150;
        let table = world.alloc::<u32>(MOST * world.n_pes() as usize).unwrap();
        let src = world.alloc::<u32>(2 * MOST).unwrap();
        let signal = world.signal().unwrap();
        for scope in SCOPES {
            for (i, rows) in [0, 1, 33, MOST as i32].into_iter().enumerate() {
                signal.set(0, world.my_pe()).unwrap();
                let seed = rng.fork(i as u64).next();
                let columns = Columns { rows, scope, rounds: rounds(16) as i32, seed };
                let args = (&bench.report, &table, &src, &signal, ByValue(columns));
                bench.run("signals_columns", Launch::new(1, BLOCK_SIZES[i % 3]), args);
            }
        }
    });
}

#[test]
fn a_token_goes_round_the_ring() {
    at_all_counts(|world, _| {
        let bench = Bench::new(world, SIGNALS);
        let (token, signal) = (world.alloc::<u64>(1).unwrap(), world.signal().unwrap());
        let laps = rounds(100) as i32;
        bench.run("signals_ring", Launch::new(1, 1), (&bench.report, &token, &signal, laps));
        let laps = laps as u64 * u64::from(world.n_pes());
        let expected = if world.my_pe().number() == 0 {
            laps
        } else {
            laps - u64::from(world.n_pes() - world.my_pe().number())
        };
        assert_eq!(token.to_vec().unwrap(), [expected]);
    });
}

#[test]
fn many_senders_add_to_one_signal() {
    at_all_counts(|world, _| {
        let bench = Bench::new(world, SIGNALS);
        for threads in BLOCK_SIZES {
            let signal = world.signal().unwrap();
            bench.run("signals_gather", Launch::new(1, threads), (&bench.report, &signal, rounds(20) as i32));
        }
    });
}

/// At each scope, and (3) with PEs of one job at different ones.
fn meet(barrier: i32) {
    at_all_counts(|world, rng| {
        let bench = Bench::new(world, SYNC);
        let n = world.n_pes() as usize;
        for scope in [THREAD, WARP, BLOCK, 3] {
            let threads = BLOCK_SIZES[rng.below(3)];
            let entered = world.alloc::<u64>(n).unwrap();
            let data = world.alloc::<u64>(2 * n * threads as usize).unwrap();
            let syncs = Syncs { scope, barrier, rounds: rounds(100) as i32, seed: rng.next() };
            let args = (&bench.report, &entered, &data, ByValue(syncs));
            bench.run("sync_rounds", Launch::new(1, threads), args);
        }
    });
}

#[test]
fn nobody_leaves_a_sync_before_all_have_entered() {
    meet(0);
}

#[test]
fn after_a_barrier_all_puts_are_there() {
    meet(1);
}

#[test]
fn blocks_take_turns_at_syncs_of_every_scope() {
    at_all_counts(|world, rng| {
        let bench = Bench::new(world, SYNC);
        for barrier in [0, 1] {
            let (entered, turn) =
                (world.alloc::<u64>(world.n_pes() as usize).unwrap(), world.alloc::<u64>(1).unwrap());
            // Fewer and more threads than there are PEs.
            let shape = Launch::new(3, [2, 33, 70][rng.below(3)]);
            let args = (&bench.report, &entered, &turn, barrier, rounds(60) as i32, rng.next());
            bench.run("sync_relay", shape, args);
        }
    });
}

#[test]
fn more_pes_than_threads_meet_in_a_sync() {
    api_common::both(11, |world, rng| {
        let bench = Bench::new(world, SYNC);
        for scope in SCOPES {
            let (entered, data) = (world.alloc::<u64>(11).unwrap(), world.alloc::<u64>(66).unwrap());
            let syncs = Syncs { scope, barrier: 1, rounds: rounds(30) as i32, seed: rng.next() };
            let args = (&bench.report, &entered, &data, ByValue(syncs));
            bench.run("sync_rounds", Launch::new(1, 3), args);
        }
    });
}

#[test]
fn syncs_go_on_from_launch_to_launch_and_source_to_source() {
    at_all_counts(|world, rng| {
        let (first, second) = (Bench::new(world, SYNC), Bench::new(world, SIGNALS));
        let n = world.n_pes() as usize;
        let (entered, data) = (world.alloc::<u64>(n).unwrap(), world.alloc::<u64>(2 * n * 5).unwrap());
        let signal = world.signal().unwrap();
        for _ in 0..rounds(10) {
            entered.fill(0).unwrap();
            data.fill(0).unwrap();
            signal.set(0, world.my_pe()).unwrap();
            let syncs = Syncs { scope: 3, barrier: 1, rounds: 3, seed: rng.next() };
            let args = (&first.report, &entered, &data, ByValue(syncs));
            first.run("sync_rounds", Launch::new(1, 5), args);
            second.run("signals_gather", Launch::new(1, 3), (&second.report, &signal, 2));
        }
    });
}

#[test]
fn a_flag_is_never_seen_before_its_data() {
    at_all_counts(|world, _| {
        let bench = Bench::new(world, LITMUS);
        let (data, flag, ack) = (
            world.alloc::<u64>(16).unwrap(),
            world.alloc::<u64>(16).unwrap(),
            world.alloc::<u64>(1).unwrap(),
        );
        for form in 0..7 {
            for (words, threads) in [(1usize, 1), (5, 33), (16, 8)] {
                for memory in [&data, &flag, &ack] {
                    memory.fill(0).unwrap();
                }
                let litmus = Litmus { words, form, rounds: litmus_rounds(150) as i32 };
                let args = (&bench.report, &data, &flag, &ack, ByValue(litmus));
                bench.run("litmus_message_passing", Launch::new(1, threads), args);
            }
        }
    });
}

#[test]
fn a_flag_is_never_seen_before_a_large_copy() {
    at_all_counts(|world, _| {
        let bench = Bench::new(world, LITMUS);
        // Around what decides how a copy travels: 512 bytes, 8 KiB, and 60 KiB, the longest piece.
        for (words, threads, many) in [(65usize, 1, 100), (1009, 40, 40), (7681, 64, 20)] {
            let memory = || world.alloc::<u64>(words).unwrap();
            let word = || world.alloc::<u64>(1).unwrap();
            let (data, source, flag, ack) = (memory(), memory(), word(), word());
            for form in 0..5 {
                for memory in [&data, &flag, &ack] {
                    memory.fill(0).unwrap();
                }
                let litmus = Litmus { words, form, rounds: litmus_rounds(many) as i32 };
                let args = (&bench.report, &data, &source, &flag, &ack, ByValue(litmus));
                bench.run("litmus_bulk", Launch::new(1, threads), args);
            }
        }
    });
}

#[test]
fn two_pes_cannot_both_miss_a_completed_put() {
    at_counts(&[2, 3, 4], |world, _| {
        let bench = Bench::new(world, LITMUS);
        for (words, form, many) in [(1usize, 0, 2000), (1, 1, 2000), (65, 0, 400), (7681, 0, 40)] {
            let rounds = litmus_rounds(many);
            let x = world.alloc::<u64>(rounds * words).unwrap();
            let (ones, seen) = (world.alloc::<u64>(words).unwrap(), world.alloc::<u64>(rounds).unwrap());
            ones.fill(1).unwrap();
            let litmus = Litmus { words, form, rounds: rounds as i32 };
            let args = (&bench.report, &x, &ones, &seen, ByValue(litmus));
            bench.run("litmus_store_buffering", Launch::new(1, 1), args);
            for memory in [x, ones, seen] {
                memory.free().unwrap();
            }
        }
    });
}
