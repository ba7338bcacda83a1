//! Litmus tests of streams: what other PEs may see of operations that a stream has ordered, while no host
//! looks on. Kernels of the same streams make the data and look at it.

use crate::*;

/// How a message's flag goes out after its data.
#[derive(Clone, Copy, Debug)]
enum Announce {
    PutSignal,
    FenceP,
    FenceAdd,
    QuietP,
}

/// A flag seen means that all of the data is seen: messages of `words` words round the ring of PEs, each
/// stream by itself.
fn message_passing(world: &World, announce: Announce, words: usize, rounds: usize) {
    let module = world.load(KERNELS).unwrap();
    let (make, check) = (module.kernel("make").unwrap(), module.kernel("check").unwrap());
    let memory = || world.alloc::<u64>(words).unwrap();
    let (outbox, inbox, wrong) = (memory(), memory(), world.alloc::<u32>(1).unwrap());
    let (arrived, taken) = (world.signal().unwrap(), world.signal().unwrap());
    let (left, right, stream) = (world.left(), world.right(), world.stream().unwrap());
    let (launch, n) = (Launch::new(1, 64), words as u64);
    for round in 1..=rounds as u64 {
        let first = |pe: Pe| (u64::from(pe.number()) << 32 | round) << 20;
        // SAFETY: the outbox is free, as the message before has been taken.
        unsafe { make.launch_on(launch, (&outbox, n, first(world.my_pe())), &stream) }.unwrap();
        if let Announce::PutSignal = announce {
            inbox.put_signal_from_on(&outbox, &arrived, SignalOp::Set, round, right, &stream).unwrap();
        } else {
            inbox.put_from_on(&outbox, right, &stream).unwrap();
            match announce {
                Announce::QuietP => world.quiet_on(&stream).unwrap(),
                _ => world.fence_on(&stream).unwrap(),
            }
            match announce {
                Announce::FenceAdd => arrived.signal_op_on(SignalOp::Add, 1, right, &stream).unwrap(),
                _ => arrived.word().p_on(0, round, right, &stream).unwrap(),
            }
        }
        arrived.wait_until_on(Cmp::Ge, round, &stream).unwrap();
        // SAFETY: the left-hand PE writes again when its word has arrived.
        unsafe { check.launch_on(launch, (&inbox, n, first(left), &wrong), &stream) }.unwrap();
        taken.signal_op_on(SignalOp::Set, round, left, &stream).unwrap();
        taken.wait_until_on(Cmp::Ge, round, &stream).unwrap();
    }
    stream.synchronize().unwrap();
    assert_eq!(wrong.to_vec().unwrap(), [0], "{announce:?}: stale words of {words} in {rounds} rounds");
    assert_eq!(arrived.fetch().unwrap(), rounds as u64);
    world.barrier_all().unwrap();
}

#[test]
fn a_flag_on_a_stream_is_never_seen_before_its_data() {
    at_counts(&[2, 3, 4], |world, _| {
        for announce in [Announce::PutSignal, Announce::FenceP, Announce::FenceAdd, Announce::QuietP] {
            // Around what decides how a copy travels: 512 bytes, 8 KiB, and 60 KiB, the longest piece.
            for (words, rounds) in [(8, 60), (65, 60), (1009, 30), (7681, 15)] {
                message_passing(world, announce, words, place::litmus_rounds(rounds));
            }
        }
    });
}

/// Store buffering: each of two PEs' streams puts to a cell of the other's, completes that, and reads its
/// own. Not both may find nothing.
#[test]
fn streams_of_two_pes_cannot_both_miss_a_completed_put() {
    const CELLS: usize = 16;
    both(2, |world, _| {
        let batches = place::litmus_rounds(40);
        for words in [1, 65] {
            let (x, news) = (world.alloc::<u64>(CELLS * words).unwrap(), world.alloc::<u64>(words).unwrap());
            let (seen, others) =
                (world.alloc::<u64>(CELLS * batches).unwrap(), world.alloc::<u64>(CELLS * batches).unwrap());
            let (stream, other) = (world.default_stream(), world.right());
            for batch in 0..batches {
                news.write(&vec![batch as u64 + 1; words]).unwrap();
                world.sync_all_on(&stream).unwrap();
                for cell in 0..CELLS {
                    let there = x.slice(cell * words..(cell + 1) * words).unwrap();
                    let at = batch * CELLS + cell;
                    there.put_from_on(&news, other, &stream).unwrap();
                    world.quiet_on(&stream).unwrap();
                    let last = there.slice(words - 1..).unwrap();
                    last.get_into_on(&seen.slice(at..at + 1).unwrap(), world.my_pe(), &stream).unwrap();
                }
                stream.synchronize().unwrap();
            }
            others.put_from_on(&seen, other, &stream).unwrap();
            world.barrier_all_on(&stream).unwrap();
            stream.synchronize().unwrap();
            let pairs = seen.to_vec().unwrap().into_iter().zip(others.to_vec().unwrap());
            for (at, (mine, theirs)) in pairs.enumerate() {
                let new = (at / CELLS) as u64 + 1;
                assert!(
                    mine == new || theirs == new,
                    "cell {at}: {mine} here, {theirs} there, of {words} words"
                );
            }
            world.barrier_all().unwrap();
        }
    });
}
