//! Several streams of a PE: a pool of them, what their events tell, and that they run side by side.

use crate::*;

#[test]
fn a_pool_of_streams_with_completion_handles() {
    both(2, |world, rng| {
        const PARTS: usize = 12;
        const N: usize = 5000;
        let (inbox, outbox) =
            (world.alloc::<u64>(PARTS * N).unwrap(), world.alloc::<u64>(PARTS * N).unwrap());
        let data = |pe: Pe| rng.fork(pe.number()).words(PARTS * N);
        outbox.write(&data(world.my_pe())).unwrap();
        let mut raws = Vec::new();
        let mut done: Vec<Event> = Vec::new();
        for i in 0..PARTS {
            let stream = world.pool_stream().unwrap();
            let part = i * N..(i + 1) * N;
            let (to, from) = (inbox.slice(part.clone()).unwrap(), outbox.slice(part).unwrap());
            to.put_from_on(&from, world.right(), &stream).unwrap();
            done.push(stream.record().unwrap());
            raws.push(stream.as_raw());
        }
        // Four streams by default, in turn.
        assert_eq!(raws[..4], raws[4..8]);
        let mut different = raws.clone();
        different.sort();
        different.dedup();
        assert_eq!(different.len(), 4);
        done.pop().unwrap().wait().unwrap();
        while !done.iter().all(|event| event.is_done().unwrap()) {
            std::thread::yield_now();
        }
        world.barrier_all().unwrap();
        assert!(inbox.to_vec().unwrap() == data(world.left()));
        world.barrier_all().unwrap();
    });
}

#[test]
fn an_event_comes_when_its_work_has_ended_and_no_sooner() {
    both(2, |world, _| {
        let gate = world.signal().unwrap();
        let stream = world.stream().unwrap();
        let early = stream.record().unwrap();
        stream.record().unwrap().wait().unwrap();
        gate.wait_until_on(Cmp::Ge, 1, &stream).unwrap();
        let first = stream.record().unwrap();
        gate.wait_until_on(Cmp::Ge, 2, &stream).unwrap();
        let second = stream.record().unwrap();
        std::thread::sleep(Duration::from_millis(30));
        assert!(early.is_done().unwrap() && !first.is_done().unwrap() && !second.is_done().unwrap());
        world.barrier_all().unwrap();
        gate.signal_op(SignalOp::Set, 1, world.right()).unwrap();
        first.wait().unwrap();
        assert!(!second.is_done().unwrap());
        stream.destroy().unwrap();
        world.barrier_all().unwrap();
        gate.signal_op(SignalOp::Set, 2, world.right()).unwrap();
        second.wait().unwrap();
        world.synchronize().unwrap();
        world.barrier_all().unwrap();
    });
}

#[test]
fn streams_run_beside_one_another() {
    both(2, |world, _| {
        let module = world.load(KERNELS).unwrap();
        let (wait, make) = (module.kernel("wait_for").unwrap(), module.kernel("make").unwrap());
        let (gate, words) = (world.signal().unwrap(), world.alloc::<u64>(8).unwrap());
        let (blocked, free) = (world.stream().unwrap(), world.stream().unwrap());
        // One stream waits in a kernel for what the other one does behind a kernel of its own.
        // SAFETY: a word that is only updated atomically; eight words of this PE.
        unsafe {
            wait.launch_on(Launch::new(1, 1), (&gate, 1u64), &blocked).unwrap();
            make.launch_on(Launch::new(1, 8), (&words, 8u64, 100u64), &free).unwrap();
        }
        gate.signal_op_on(SignalOp::Set, 1, world.my_pe(), &free).unwrap();
        free.synchronize().unwrap();
        blocked.synchronize().unwrap();
        assert_eq!(words.to_vec().unwrap(), (100..108).collect::<Vec<_>>());
        // And the other way round, with a wait that is no kernel of the program's.
        gate.wait_until_on(Cmp::Eq, 5, &free).unwrap();
        let over = free.record().unwrap();
        assert!(!over.is_done().unwrap());
        gate.signal_op_on(SignalOp::Add, 4, world.my_pe(), &blocked).unwrap();
        over.wait().unwrap();
        world.synchronize().unwrap();
        world.barrier_all().unwrap();
    });
}
