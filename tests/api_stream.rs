//! Streams: operations in order with kernels, between PEs, in a pool with completion handles, side by side; what is refused
//! at the call, and how failures are told.

mod api_common;

use std::time::{Duration, Instant};

use api_common::{at_all_counts, both, place, Rng};
use rushmem::testing::{self, Exit};
use rushmem::zerocopy::{FromBytes, Immutable, IntoBytes};
use rushmem::{Cmp, ErrorCode, Event, Launch, Pe, SignalOp, Stream, Symmetric, World};

const KERNELS: &str = r#"
#include <rushmem/rushmem.cuh>
extern "C" __global__ void make(uint64_t *out, uint64_t n, uint64_t first) {
  for (uint64_t i = threadIdx.x; i < n; i += blockDim.x) out[i] = first + i;
}
extern "C" __global__ void check(const uint64_t *in, uint64_t n, uint64_t first, uint32_t *wrong) {
  for (uint64_t i = threadIdx.x; i < n; i += blockDim.x) if (in[i] != first + i) atomicAdd(wrong, 1u);
}
extern "C" __global__ void hop(uint64_t *out, const uint64_t *in) { *out = *in + 1; }
extern "C" __global__ void sync_pes() { rushmem::sync_all<rushmem::block>(); }
extern "C" __global__ void wait_for(uint64_t *word, uint64_t value) { rushmem::wait_until(word, rushmem::cmp::ge, value); }
"#;

/// Sizes around what changes how data goes: nothing, words, one launch (8 KiB), pageable copies (64 KiB).
const SIZES: [usize; 14] = [0, 1, 2, 3, 7, 8, 9, 1000, 8191, 8192, 8193, 65536, 65537, 300_001];

/// Rounds of kernel, put, signal, wait, kernel, get and signal, all of them on `stream`.
fn in_order(world: &World, rng: &Rng, stream: &Stream<'_>) {
    const N: usize = 500;
    let module = world.load(KERNELS).unwrap();
    let (make, check) = (module.kernel("make").unwrap(), module.kernel("check").unwrap());
    let words = || world.alloc::<u64>(N).unwrap();
    let (outbox, inbox, back) = (words(), words(), words());
    let wrong = world.alloc::<u32>(1).unwrap();
    let (arrived, taken) = (world.signal().unwrap(), world.signal().unwrap());
    let base = |pe: Pe, round: u64| rng.fork(round << 32 | u64::from(pe.number())).next() >> 1;
    let (me, left, right) = (world.my_pe(), world.left(), world.right());
    let (launch, n, rounds) = (Launch::new(1, 64), N as u64, place::rounds(20) as u64);
    for round in 1..=rounds {
        let (mine, theirs) = (base(me, round), base(left, round));
        // SAFETY: the stream keeps each kernel apart from what it works on next.
        unsafe { make.launch_on(launch, (&outbox, n, mine), stream) }.unwrap();
        inbox.put_from_on(&outbox, right, stream).unwrap();
        arrived.signal_op_on(SignalOp::Add, 1, right, stream).unwrap();
        arrived.wait_until_on(Cmp::Ge, round, stream).unwrap();
        // SAFETY: as above; the left-hand PE writes again after its word has been told.
        unsafe { check.launch_on(launch, (&inbox, n, theirs, &wrong), stream) }.unwrap();
        inbox.get_into_on(&back, right, stream).unwrap();
        // SAFETY: as above; what came back is what this PE put.
        unsafe { check.launch_on(launch, (&back, n, mine, &wrong), stream) }.unwrap();
        taken.signal_op_on(SignalOp::Set, round, left, stream).unwrap();
        taken.wait_until_on(Cmp::Ge, round, stream).unwrap();
    }
    stream.synchronize().unwrap();
    assert_eq!(wrong.to_vec().unwrap(), [0], "{stream:?}");
    assert_eq!(arrived.fetch().unwrap(), rounds);
    world.barrier_all().unwrap();
}

#[test]
fn operations_and_kernels_keep_the_order_of_their_stream() {
    at_all_counts(|world, rng| in_order(world, rng, &world.default_stream()));
    both(2, |world, rng| {
        in_order(world, rng, &world.stream().unwrap());
        in_order(world, rng, &world.pool_stream().unwrap());
    });
}

#[test]
fn a_ring_of_signals_that_only_streams_drive() {
    at_all_counts(|world, _| {
        let module = world.load(KERNELS).unwrap();
        let hop = module.kernel("hop").unwrap();
        let (inbox, outbox) = (world.alloc::<u64>(1).unwrap(), world.alloc::<u64>(1).unwrap());
        let arrived = world.signal().unwrap();
        let (me, n, laps) = (world.my_pe().number(), u64::from(world.n_pes()), place::rounds(40) as u64);
        let stream = world.default_stream();
        for lap in 1..=laps {
            // PE 0 sends the token off; with that, everybody waits for the left-hand PE.
            if me != 0 || lap > 1 {
                arrived.wait_until_on(Cmp::Ge, lap - u64::from(me == 0), &stream).unwrap();
            }
            // SAFETY: one word each, between a signal that came and one that goes.
            unsafe { hop.launch_on(Launch::new(1, 1), (&outbox, &inbox), &stream) }.unwrap();
            let (op, value) = if lap % 2 == 0 { (SignalOp::Set, lap) } else { (SignalOp::Add, 1) };
            inbox.put_signal_from_on(&outbox, &arrived, op, value, world.right(), &stream).unwrap();
        }
        arrived.wait_until_on(Cmp::Ge, laps, &stream).unwrap();
        stream.synchronize().unwrap();
        let hops = if me == 0 { n * laps } else { n * (laps - 1) + u64::from(me) };
        assert_eq!(inbox.to_vec().unwrap(), [hops]);
        world.barrier_all().unwrap();
    });
}

#[test]
fn puts_and_gets_of_every_size_from_every_kind_of_memory() {
    both(2, |world, rng| {
        let most = SIZES.iter().max().unwrap() + 64;
        let (inbox, outbox) = (world.alloc::<u8>(most).unwrap(), world.alloc::<u8>(most).unwrap());
        let arrived = world.signal().unwrap();
        let (me, left, right) = (world.my_pe(), world.left(), world.right());
        let stream = world.stream().unwrap();
        let mut told = 0;
        for (round, n) in (0u64..).zip(SIZES) {
            let data =
                |pe: Pe, part: u64| rng.fork(round << 40 | part << 32 | u64::from(pe.number())).bytes(n);
            let shift = rng.fork(round).below(17);
            let (to, from) =
                (inbox.slice(shift..shift + n).unwrap(), outbox.slice(3 * shift..3 * shift + n).unwrap());
            // Both come out right, and nothing beside them.
            let expect = |part: u64, told: u64| {
                stream.synchronize().unwrap();
                arrived.wait_until(Cmp::Ge, told).unwrap();
                world.barrier_all().unwrap();
                let mut whole = vec![0xee; most];
                whole[shift..shift + n].copy_from_slice(&data(left, part));
                assert!(inbox.to_vec().unwrap() == whole, "{n} bytes, part {part}");
                let mut back = vec![0; n];
                // SAFETY: `back` lives until synchronize.
                unsafe { to.get_on(&mut back, right, &stream) }.unwrap();
                stream.synchronize().unwrap();
                assert!(back == data(me, part), "{n} bytes, part {part}");
                world.barrier_all().unwrap();
                inbox.fill(0xee).unwrap();
                world.barrier_all().unwrap();
            };
            inbox.fill(0xee).unwrap();
            world.barrier_all().unwrap();

            let private = data(me, 1);
            // SAFETY: `private` lives, unchanged, until `expect` has synchronised.
            unsafe { to.put_on(&private, right, &stream) }.unwrap();
            expect(1, told);
            let private = data(me, 2);
            told += 1;
            // SAFETY: as above.
            unsafe { to.put_signal_on(&private, &arrived, SignalOp::Add, 1, right, &stream) }.unwrap();
            expect(2, told);
            from.write(&data(me, 3)).unwrap();
            to.put_from_on(&from, right, &stream).unwrap();
            expect(3, told);
            from.write(&data(me, 4)).unwrap();
            told += 1;
            to.put_signal_from_on(&from, &arrived, SignalOp::Set, told, right, &stream).unwrap();
            expect(4, told);
        }
    });
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, PartialEq, Debug)]
#[repr(C)]
struct Odd {
    a: [u32; 5],
    b: [u16; 3],
    c: [u8; 2],
}

/// Puts single elements of one type to the right-hand PE.
fn elements<T: Symmetric + PartialEq + std::fmt::Debug>(world: &World, make: impl Fn(u64) -> T) {
    const N: usize = 9;
    let words = world.alloc::<T>(N).unwrap();
    let stream = world.pool_stream().unwrap();
    let value = |pe: Pe, i: usize| make(u64::from(pe.number()) << 8 | i as u64);
    for i in (0..N).rev() {
        words.p_on(i, value(world.my_pe(), i), world.right(), &stream).unwrap();
    }
    world.barrier_all_on(&stream).unwrap();
    stream.synchronize().unwrap();
    let expected: Vec<T> = (0..N).map(|i| value(world.left(), i)).collect();
    assert_eq!(words.to_vec().unwrap(), expected);
    world.barrier_all().unwrap();
    words.free().unwrap();
}

#[test]
fn single_elements_of_every_width() {
    both(2, |world, _| {
        elements(world, |x| x as u8);
        elements(world, |x| x as i16);
        elements(world, |x| x as f32);
        elements(world, |x| x as f64 * 0.5);
        elements(world, |x| [x as u8, 7, 9]);
        elements(world, |x| [x as u16; 3]);
        elements(world, |x| [x as u32, !x as u32]);
        elements(world, |x| Odd { a: [x as u32; 5], b: [x as u16; 3], c: [1, x as u8] });
        elements(world, |x| [x; 4]);
    });
}

#[test]
fn strided_copies() {
    both(2, |world, rng| {
        const N: usize = 300;
        fn strided<T: Symmetric + PartialEq + std::fmt::Debug>(
            world: &World,
            make: impl Fn(Pe, usize) -> T,
            none: T,
        ) {
            let (table, source) = (world.alloc::<T>(3 * N).unwrap(), world.alloc::<T>(2 * N).unwrap());
            let back = world.alloc::<T>(4 * N).unwrap();
            let stream = world.default_stream();
            let (me, left, right) = (world.my_pe(), world.left(), world.right());
            for (private, (to, from)) in
                [(false, (3, 2)), (true, (3, 2)), (false, (1, 1)), (true, (1, 2)), (true, (2, 1))]
            {
                table.fill(none).unwrap();
                back.fill(none).unwrap();
                world.barrier_all().unwrap();
                let mine: Vec<T> = (0..2 * N).map(|i| make(me, i)).collect();
                let mut got = vec![none; 4 * N];
                if private {
                    // SAFETY: both live until synchronize.
                    unsafe {
                        table.iput_on(&mine, to, from, N, right, &stream).unwrap();
                        world.barrier_all_on(&stream).unwrap();
                        table.iget_on(&mut got, 4, to, N, right, &stream).unwrap();
                    }
                } else {
                    source.write(&mine).unwrap();
                    table.iput_from_on(&source, to, from, N, right, &stream).unwrap();
                    world.barrier_all_on(&stream).unwrap();
                    table.iget_into_on(&back, 4, to, N, right, &stream).unwrap();
                }
                stream.synchronize().unwrap();
                if !private {
                    got = back.to_vec().unwrap();
                }
                for (i, seen) in table.to_vec().unwrap().into_iter().enumerate() {
                    let expected = if i % to == 0 && i / to < N { make(left, i / to * from) } else { none };
                    assert_eq!(seen, expected, "table[{i}], strides {to} and {from}");
                }
                for (i, seen) in got.into_iter().enumerate() {
                    let expected = if i % 4 == 0 { make(me, i / 4 * from) } else { none };
                    assert_eq!(seen, expected, "back[{i}], strides {to} and {from}");
                }
                world.barrier_all().unwrap();
            }
            // Nothing is nothing, whatever the strides.
            table.iput_from_on(&source, 5, 7, 0, right, &stream).unwrap();
            stream.synchronize().unwrap();
            for part in [back, source, table] {
                part.free().unwrap();
            }
        }
        let word = |pe: Pe, i: usize| rng.fork((i as u64) << 8 | u64::from(pe.number())).next() | 1;
        strided(world, |pe, i| word(pe, i) as u8 | 1, 0u8);
        strided(world, word, 0u64);
        strided(world, |pe, i| [word(pe, i) as u16 | 1; 3], [0; 3]);
        strided(world, |pe, i| [word(pe, i); 200], [0; 200]);
    });
}

#[test]
fn waits_compare_by_the_words_own_type() {
    both(2, |world, _| {
        let (a, b) = (world.alloc::<i32>(2).unwrap(), world.alloc::<u32>(2).unwrap());
        let (c, d) = (world.alloc::<i64>(2).unwrap(), world.alloc::<u64>(2).unwrap());
        let (stream, right) = (world.default_stream(), world.right());
        a.fill(i32::MAX).unwrap();
        world.barrier_all().unwrap();
        // Each wait is only met by the step that the left-hand PE makes after its own wait before.
        a.p_on(1, -5, right, &stream).unwrap();
        a.wait_until_on(1, Cmp::Lt, 0, &stream).unwrap();
        b.p_on(1, u32::MAX, right, &stream).unwrap();
        b.wait_until_on(1, Cmp::Gt, 1 << 31, &stream).unwrap();
        c.p_on(1, i64::MIN, right, &stream).unwrap();
        c.wait_until_on(1, Cmp::Le, -(1 << 40), &stream).unwrap();
        d.p_on(1, 1 << 63, right, &stream).unwrap();
        d.wait_until_on(1, Cmp::Ne, 0, &stream).unwrap();
        d.wait_until_on(1, Cmp::Eq, 1 << 63, &stream).unwrap();
        d.wait_until_on(1, Cmp::Ge, 1 << 63, &stream).unwrap();
        stream.synchronize().unwrap();
        assert_eq!((a.to_vec().unwrap()[1], d.to_vec().unwrap()[1]), (-5, 1 << 63));
        world.barrier_all().unwrap();
    });
}

#[test]
fn barriers_on_streams_meet_those_of_kernels() {
    at_all_counts(|world, _| {
        let module = world.load(KERNELS).unwrap();
        let sync = module.kernel("sync_pes").unwrap();
        let counts = world.alloc::<u64>(world.n_pes() as usize).unwrap();
        let (me, stream) = (world.my_pe(), world.default_stream());
        for round in 1..=place::rounds(30) as u64 {
            // Everybody puts into everybody's row, and what has come is there behind the barrier.
            for pe in world.pes() {
                counts.p_on(me.number() as usize, round, pe, &stream).unwrap();
            }
            match round % 3 {
                0 => world.barrier_all_on(&stream).unwrap(),
                // The other half is in a kernel.
                1 if me.number() % 2 == 0 => world.barrier_all_on(&stream).unwrap(),
                // SAFETY: the kernel syncs and touches nothing else.
                1 => unsafe { sync.launch_on(Launch::new(1, 64), (), &stream) }.unwrap(),
                _ => {
                    world.quiet_on(&stream).unwrap();
                    world.sync_all_on(&stream).unwrap();
                }
            }
            world.fence_on(&stream).unwrap();
            for pe in 0..world.n_pes() as usize {
                counts.wait_until_on(pe, Cmp::Ge, round, &stream).unwrap();
            }
            if round % 5 == 0 {
                stream.synchronize().unwrap();
                assert!(counts.to_vec().unwrap().iter().all(|count| *count >= round));
            }
        }
        stream.synchronize().unwrap();
        world.barrier_all().unwrap();
    });
}

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
            // Who synchronises is told as well.
            assert_eq!(stream.synchronize().unwrap_err().code(), ErrorCode::Timeout);
            println!("TOLD {error}");
            let _ = world.finalize();
        },
        |job| {
            let outcome = job.outcome(Pe::new(0));
            assert!(outcome.stdout.contains("TOLD"), "{outcome:?}");
        },
    );
}

#[test]
fn streams_that_wait_end_when_a_pe_is_killed() {
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
            // Nothing more is taken, and whoever asks again is told again or finds nothing left.
            assert!(signal.signal_op_on(SignalOp::Set, 1, world.my_pe(), &stream).is_err());
            println!("TOLD {error}");
            assert_eq!(world.finalize().unwrap_err().code(), ErrorCode::PeerDead);
        },
        |job| {
            let (victim, limit) = (Pe::new(3), Duration::from_secs(30));
            (0..4).for_each(|pe| drop(job.wait_for_line(Pe::new(pe), "READY", limit)));
            let killed = job.kill(victim);
            for pe in 0..3 {
                let outcome = job.outcome(Pe::new(pe));
                assert_eq!(outcome.exit, Exit::Done, "{outcome:?}");
                assert!(outcome.stdout.contains("TOLD") && outcome.stdout.contains("PE 3"), "{outcome:?}");
                assert!(outcome.ended - killed < Duration::from_secs(10), "{:?}", outcome.ended - killed);
            }
        },
    );
}
