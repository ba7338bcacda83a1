//! What is refused at the call, and how the failures of work on a stream are reported.

use crate::*;

#[test]
fn what_is_wrong_is_said_at_the_call_and_nothing_is_put_on_the_stream() {
    both(2, |world, _| {
        let (words, wide) = (world.alloc::<u32>(16).unwrap(), world.alloc::<u64>(4).unwrap());
        let (source, signal) = (world.alloc::<u32>(32).unwrap(), world.signal().unwrap());
        let stream = world.stream().unwrap();
        let (nobody, right) = (Pe::new(world.n_pes()), world.right());
        let private = [0u32; 32];
        let mut into = [0u32; 32];
        let short = source.slice(..16).unwrap();
        let code = |result: rushmem::Result<()>| result.unwrap_err().code();
        assert_eq!(code(words.put_from_on(&short, nobody, &stream)), ErrorCode::BadPe);
        assert_eq!(code(words.put_from_on(&source, right, &stream)), ErrorCode::OutOfBounds);
        assert_eq!(code(words.get_into_on(&source, nobody, &stream)), ErrorCode::BadPe);
        assert_eq!(code(source.get_into_on(&words, right, &stream)), ErrorCode::OutOfBounds);
        assert_eq!(code(words.p_on(0, 1, nobody, &stream)), ErrorCode::BadPe);
        assert_eq!(code(words.p_on(16, 1, right, &stream)), ErrorCode::OutOfBounds);
        assert_eq!(code(words.iput_from_on(&source, 2, 1, 9, right, &stream)), ErrorCode::OutOfBounds);
        assert_eq!(code(words.iget_into_on(&source, 1, 2, 9, right, &stream)), ErrorCode::OutOfBounds);
        assert_eq!(code(words.iget_into_on(&source, 0, 2, 2, right, &stream)), ErrorCode::InvalidArgument);
        assert_eq!(code(words.iput_from_on(&source, 1, 1, 4, nobody, &stream)), ErrorCode::BadPe);
        assert_eq!(code(signal.signal_op_on(SignalOp::Set, 1, nobody, &stream)), ErrorCode::BadPe);
        assert_eq!(code(wide.wait_until_on(4, Cmp::Eq, 0, &stream)), ErrorCode::OutOfBounds);
        let signalled = words.put_signal_from_on(&short, &signal, SignalOp::Set, 1, nobody, &stream);
        assert_eq!(code(signalled), ErrorCode::BadPe);
        // SAFETY: all of it is refused.
        unsafe {
            assert_eq!(code(words.put_on(&private, right, &stream)), ErrorCode::OutOfBounds);
            assert_eq!(code(words.get_on(&mut into, right, &stream)), ErrorCode::OutOfBounds);
            assert_eq!(code(words.get_on(&mut into[..3], nobody, &stream)), ErrorCode::BadPe);
        }
        let done = stream.record().unwrap();
        assert!(done.is_done().unwrap(), "nothing was put on the stream");
        stream.synchronize().unwrap();
        world.synchronize().unwrap();
        assert_eq!((words.to_vec().unwrap(), signal.fetch().unwrap()), (vec![0; 16], 0));
        world.barrier_all().unwrap();
    });
}

#[test]
fn a_stream_of_another_world_is_refused() {
    let (one, other) = (World::init().unwrap(), World::init().unwrap());
    {
        let (words, theirs) = (one.alloc::<u64>(4).unwrap(), other.alloc::<u64>(4).unwrap());
        let (mine, foreign) = (one.stream().unwrap(), other.stream().unwrap());
        let me = one.my_pe();
        let code = |result: rushmem::Result<()>| result.unwrap_err().code();
        assert_eq!(code(words.p_on(0, 1, me, &foreign)), ErrorCode::InvalidArgument);
        assert_eq!(code(words.put_from_on(&theirs, me, &mine)), ErrorCode::InvalidArgument);
        assert_eq!(code(one.barrier_all_on(&foreign)), ErrorCode::InvalidArgument);
        theirs.p_on(0, 7, me, &foreign).unwrap();
        other.synchronize().unwrap();
        assert_eq!(theirs.to_vec().unwrap()[0], 7);
    }
    other.finalize().unwrap();
    one.finalize().unwrap();
}

#[test]
fn a_raw_stream_is_the_same_stream() {
    let world = World::init().unwrap();
    {
        let (gate, words) = (world.signal().unwrap(), world.alloc::<u64>(1).unwrap());
        let (stream, me) = (world.stream().unwrap(), world.my_pe());
        // SAFETY: `stream` lives as long.
        let again = unsafe { world.stream_from_raw(stream.as_raw()) };
        gate.wait_until_on(Cmp::Eq, 1, &stream).unwrap();
        words.p_on(0, 3, me, &again).unwrap();
        let done = again.record().unwrap();
        std::thread::sleep(Duration::from_millis(10));
        assert!(!done.is_done().unwrap());
        gate.signal_op(SignalOp::Set, 1, me).unwrap();
        done.wait().unwrap();
        assert_eq!(words.to_vec().unwrap(), [3]);
        // Null is the default stream, and so is its number.
        // SAFETY: the default stream lives as long as the world.
        let (null, default) = unsafe {
            (
                world.stream_from_raw(std::ptr::null_mut()),
                world.stream_from_raw(world.default_stream().as_raw()),
            )
        };
        gate.wait_until_on(Cmp::Eq, 2, &null).unwrap();
        words.p_on(0, 4, me, &default).unwrap();
        let done = world.default_stream().record().unwrap();
        assert!(!done.is_done().unwrap());
        gate.signal_op_on(SignalOp::Set, 2, me, &stream).unwrap();
        done.wait().unwrap();
        assert_eq!(words.to_vec().unwrap(), [4]);
    }
    world.finalize().unwrap();
}

#[test]
fn a_wait_on_a_stream_keeps_to_the_limit_of_waits() {
    testing::pes(1).env("RUSHMEM_WAIT_TIMEOUT", "0.2").supervise(
        |_| {
            let world = World::init().unwrap();
            let signal = world.signal().unwrap();
            let stream = world.stream().unwrap();
            signal.wait_until_on(Cmp::Eq, 77, &stream).unwrap();
            signal.signal_op_on(SignalOp::Set, 1, world.my_pe(), &stream).unwrap();
            let done = stream.record().unwrap();
            let start = Instant::now();
            let error = done.wait().unwrap_err();
            assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
            assert_eq!(error.code(), ErrorCode::Timeout, "{error}");
            assert!(error.message().contains("signal_wait_until"), "{error}");
            // `synchronize` reports it as well.
            assert_eq!(stream.synchronize().unwrap_err().code(), ErrorCode::Timeout);
            println!("REPORTED {error}");
            let _ = world.finalize();
        },
        |job| {
            let outcome = job.outcome(Pe::new(0));
            assert!(outcome.stdout.contains("REPORTED"), "{outcome:?}");
        },
    );
}

#[test]
fn streams_that_wait_end_when_a_pe_is_killed() {
    if !place::processes("streams_that_wait_end_when_a_pe_is_killed") {
        return;
    }
    testing::pes(4).supervise(
        |pe| {
            let world = World::init().unwrap();
            let signal = world.signal().unwrap();
            let stream = world.stream().unwrap();
            match pe.number() {
                0 => signal.wait_until_on(Cmp::Ne, 0, &stream).unwrap(),
                1 => signal.word().wait_until_on(0, Cmp::Eq, 9, &stream).unwrap(),
                _ => world.barrier_all_on(&stream).unwrap(),
            }
            let done = stream.record().unwrap();
            println!("READY");
            let error = match pe.number() {
                1 => done.wait(),
                _ => stream.synchronize().inspect_err(|_| drop(done)),
            };
            let error = error.unwrap_err();
            assert_eq!(error.code(), ErrorCode::PeerDead, "{error}");
            // Nothing more is taken, and another call reports it again or finds nothing left.
            assert!(signal.signal_op_on(SignalOp::Set, 1, world.my_pe(), &stream).is_err());
            println!("REPORTED {error}");
            assert_eq!(world.finalize().unwrap_err().code(), ErrorCode::PeerDead);
        },
        |job| {
            let (victim, limit) = (Pe::new(3), Duration::from_secs(30));
            (0..4).for_each(|pe| drop(job.wait_for_line(Pe::new(pe), "READY", limit)));
            let killed = job.kill(victim);
            for pe in 0..3 {
                let outcome = job.outcome(Pe::new(pe));
                assert_eq!(outcome.exit, Exit::Done, "{outcome:?}");
                assert!(
                    outcome.stdout.contains("REPORTED") && outcome.stdout.contains("PE 3"),
                    "{outcome:?}"
                );
                assert!(outcome.ended - killed < Duration::from_secs(10), "{:?}", outcome.ended - killed);
            }
        },
    );
}
