//! Signals and ordering: what a signal announces is there, for every sender and every form of waiting.

use std::time::Duration;

use rushmem::{Cmp, ErrorCode, Pe, SignalOp};
use rushmem_test_support::api_common::place::host_rounds;
use rushmem_test_support::api_common::{at_all_counts, both};

#[test]
fn a_signal_is_never_seen_before_its_data() {
    at_all_counts(|world, rng| {
        const MOST: usize = 3000;
        let (inbox, arrived, taken) =
            (world.alloc::<u64>(MOST).unwrap(), world.signal().unwrap(), world.signal().unwrap());
        for round in 1..=host_rounds(200) as u64 {
            let n = [1, 2, 8, 9, 64, MOST][rng.fork(round).below(6)];
            let data = |pe: Pe| rng.fork(round << 32 | u64::from(pe.number())).words(n);
            let (op, value) = if round % 2 == 0 { (SignalOp::Set, round) } else { (SignalOp::Add, 1) };
            inbox.put_signal(&data(world.my_pe()), &arrived, op, value, world.right()).unwrap();
            assert_eq!(arrived.wait_until(Cmp::Ge, round).unwrap(), round);
            let mut got = vec![0; n];
            inbox.read(&mut got).unwrap();
            assert!(got == data(world.left()), "round {round}, {n} words");
            // The sender may overwrite the inbox only when this one has been read.
            taken.add(1, world.left()).unwrap();
            taken.wait_until(Cmp::Ge, round).unwrap();
        }
        world.barrier_all().unwrap();
    });
}

#[test]
fn symmetric_and_non_blocking_puts_signal_too() {
    at_all_counts(|world, rng| {
        let data = |pe: Pe, form: u64| rng.fork(form << 32 | u64::from(pe.number())).words(500);
        let (src, dst) = (world.alloc::<u64>(500).unwrap(), world.alloc::<u64>(500).unwrap());
        let signals = world.signals(3).unwrap();
        let right = world.right();
        for form in 0..3u64 {
            let (signal, mine) = (signals.at(form as usize).unwrap(), data(world.my_pe(), form));
            src.write(&mine).unwrap();
            match form {
                0 => dst.put_signal_from(&src, &signal, SignalOp::Set, 9, right).unwrap(),
                1 => dst.put_signal_from_nbi(&src, &signal, SignalOp::Add, 9, right).unwrap(),
                _ => world.nbi(|s| s.put_signal(&dst, &mine, &signal, SignalOp::Set, 9, right)).unwrap(),
            }
            signal.wait_until(Cmp::Eq, 9).unwrap();
            assert!(dst.to_vec().unwrap() == data(world.left(), form), "form {form}");
            world.barrier_all().unwrap();
        }
        assert_eq!(signals.words().to_vec().unwrap(), [9; 3]);
        signals.free().unwrap();
    });
}

#[test]
fn one_signal_counts_the_elements_of_all_senders() {
    at_all_counts(|world, rng| {
        const MOST: usize = 700;
        let n = world.n_pes() as usize;
        let (me, stream) = (world.my_pe(), world.default_stream());
        let (table, source) = (world.alloc::<u64>(MOST * n).unwrap(), world.alloc::<u64>(3 * MOST).unwrap());
        let counted = world.signal().unwrap();
        let mut total = 0;
        for round in 0..host_rounds(30).max(6) as u64 {
            let rows = [0, 1, 2, 33, MOST][rng.fork(round).below(5)];
            // A sender's column, of which it has every third element; and the number that it adds, its own.
            let column =
                |pe: Pe| rng.fork(round << 32 | u64::from(pe.number()) | 1 << 24).words(3 * rows + 1);
            let worth = |pe: Pe| 1 + rows as u64 * u64::from(pe.number() + 1);
            let mine = column(me);
            if rows > 0 {
                source.put(&mine[..3 * rows], me).unwrap();
            }
            for pe in world.pes() {
                let to = table.slice(me.number() as usize..).unwrap();
                match round % 3 {
                    0 => to.iput_signal(&mine, n, 3, rows, &counted, SignalOp::Add, worth(me), pe).unwrap(),
                    1 => stream
                        .iput_signal(&to, &source, n, 3, rows, &counted, SignalOp::Add, worth(me), pe)
                        .unwrap(),
                    // SAFETY: the source lives until synchronize.
                    _ => unsafe {
                        to.iput_signal_on(&mine, n, 3, rows, &counted, SignalOp::Add, worth(me), pe, &stream)
                            .unwrap();
                    },
                }
            }
            total += world.pes().map(worth).sum::<u64>();
            assert_eq!(counted.wait_until(Cmp::Ge, total).unwrap(), total, "round {round}");
            let seen = table.to_vec().unwrap();
            for pe in world.pes() {
                let expected = column(pe);
                for row in 0..rows {
                    let at = row * n + pe.number() as usize;
                    assert_eq!(seen[at], expected[3 * row], "round {round}, row {row} of {rows} of {pe}");
                }
            }
            stream.synchronize().unwrap();
            world.barrier_all().unwrap();
        }
        // What is refused writes nothing.
        let before = (table.to_vec().unwrap(), counted.fetch().unwrap());
        let refused = |stride, n, pe| {
            let put = table.iput_signal(&[7; 9], stride, 1, n, &counted, SignalOp::Add, 1, pe);
            put.unwrap_err().code()
        };
        assert_eq!(refused(0, 2, me), ErrorCode::InvalidArgument);
        assert_eq!(refused(1, 10, me), ErrorCode::OutOfBounds);
        assert_eq!(refused(1, 9, Pe::new(99)), ErrorCode::BadPe);
        assert_eq!((table.to_vec().unwrap(), counted.fetch().unwrap()), before);
        world.barrier_all().unwrap();
        counted.free().unwrap();
    });
}

#[test]
fn puts_before_a_fence_are_seen_before_puts_after_it() {
    both(2, |world, _| {
        // PE 0 writes data, then flag; PE 1 waits for the flag with a plain word wait.
        let (data, flag) = (world.alloc::<u64>(16).unwrap(), world.alloc::<u64>(1).unwrap());
        let ready = world.alloc::<u64>(1).unwrap();
        for round in 1..=host_rounds(2000) as u64 {
            if world.my_pe().number() == 0 {
                data.put(&[round; 16], world.right()).unwrap();
                world.fence().unwrap();
                flag.p(0, round, world.right()).unwrap();
                ready.wait_until(0, Cmp::Ge, round).unwrap();
            } else {
                flag.wait_until(0, Cmp::Eq, round).unwrap();
                assert_eq!(data.to_vec().unwrap(), [round; 16]);
                ready.p(0, round, world.left()).unwrap();
            }
        }
        world.barrier_all().unwrap();
    });
}

#[test]
fn store_buffering_does_not_survive_quiet() {
    both(2, |world, _| {
        // Each writes its own flag and, after a quiet, reads the other's: not both can miss.
        let flags = world.alloc::<u64>(1).unwrap();
        let seen = world.alloc::<u64>(1).unwrap();
        let me = world.my_pe();
        for round in 1..=host_rounds(1000) as u64 {
            flags.p(0, round, me).unwrap();
            world.quiet().unwrap();
            seen.p(0, flags.g(0, world.right()).unwrap(), me).unwrap();
            world.barrier_all().unwrap();
            let both = world.pes().map(|pe| seen.g(0, pe).unwrap()).collect::<Vec<_>>();
            assert!(both.contains(&round), "round {round}: each missed the other's flag: {both:?}");
            world.barrier_all().unwrap();
        }
    });
}

#[test]
fn signals_compare_count_and_time_out() {
    both(2, |world, _| {
        let signal = world.signal().unwrap();
        let (me, other) = (world.my_pe(), world.right());
        assert_eq!(signal.fetch().unwrap(), 0);
        assert_eq!(signal.test(Cmp::Ne, 0).unwrap(), None);
        world.barrier_all().unwrap();
        signal.signal_op(SignalOp::Set, u64::MAX, other).unwrap();
        // Unsigned: the largest value is greater than 1.
        assert_eq!(signal.wait_until(Cmp::Gt, 1).unwrap(), u64::MAX);
        world.barrier_all().unwrap();
        signal.add(3, other).unwrap();
        assert_eq!(signal.wait_until(Cmp::Lt, 5).unwrap(), 2);
        assert_eq!(signal.test(Cmp::Le, 2).unwrap(), Some(2));
        world.barrier_all().unwrap();

        let error = signal.wait_until_timeout(Cmp::Eq, 77, Duration::from_millis(30)).unwrap_err();
        assert_eq!(error.code(), ErrorCode::Timeout);
        assert!(error.message().contains("77") && error.message().contains(&me.to_string()), "{error}");
        assert_eq!(signal.wait_until_timeout(Cmp::Eq, 2, Duration::from_millis(30)).unwrap(), 2);

        assert_eq!(signal.set(1, Pe::new(2)).unwrap_err().code(), ErrorCode::BadPe);
        let memory = world.alloc::<u8>(4).unwrap();
        let put =
            |bytes: &[u8], pe| memory.put_signal(bytes, &signal, SignalOp::Set, 5, pe).unwrap_err().code();
        assert_eq!(put(&[1; 5], other), ErrorCode::OutOfBounds);
        assert_eq!(put(&[1; 4], Pe::new(9)), ErrorCode::BadPe);
        world.barrier_all().unwrap();
        assert_eq!((signal.fetch().unwrap(), memory.to_vec().unwrap()), (2, vec![0; 4]));
        world.barrier_all().unwrap();
        signal.free().unwrap();
    });
}
