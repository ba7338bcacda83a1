//! Streams: operations in order with kernels, between PEs, in a pool with completion handles, side by side;
//! what is refused at the call, and how failures are announced.

mod collective_faults;
mod collectives;
mod failures;
mod litmus;
mod meeting;
mod numbers;
mod queues;
mod rows;

use std::time::{Duration, Instant};

use rushmem::testing::{self, Exit};
use rushmem::zerocopy::{FromBytes, Immutable, IntoBytes};
use rushmem::{Cmp, ErrorCode, Event, Launch, Pe, SignalOp, Stream, Symmetric, World};
use rushmem_test_support::api_common::{at_all_counts, at_counts, both, place, Rng};

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
    let (launch, n, rounds) = (Launch::new(1, 64), N as u64, place::litmus_rounds(20) as u64);
    for round in 1..=rounds {
        let (mine, theirs) = (base(me, round), base(left, round));
        // SAFETY: the stream keeps each kernel apart from what it works on next.
        unsafe { make.launch_on(launch, (&outbox, n, mine), stream) }.unwrap();
        inbox.put_from_on(&outbox, right, stream).unwrap();
        world.fence_on(stream).unwrap();
        arrived.signal_op_on(SignalOp::Add, 1, right, stream).unwrap();
        arrived.wait_until_on(Cmp::Ge, round, stream).unwrap();
        // SAFETY: the stream runs the kernel behind the wait; the left-hand PE writes again after its word
        // has arrived.
        unsafe { check.launch_on(launch, (&inbox, n, theirs, &wrong), stream) }.unwrap();
        world.quiet_on(stream).unwrap();
        inbox.get_into_on(&back, right, stream).unwrap();
        // SAFETY: the stream runs the kernel behind the get; what came back is what this PE put.
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
        let (me, n, laps) =
            (world.my_pe().number(), u64::from(world.n_pes()), place::litmus_rounds(40) as u64);
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
        let mut announced = 0;
        for (round, n) in (0u64..).zip(SIZES) {
            let data =
                |pe: Pe, part: u64| rng.fork(round << 40 | part << 32 | u64::from(pe.number())).bytes(n);
            let shift = rng.fork(round).below(17);
            let (to, from) =
                (inbox.slice(shift..shift + n).unwrap(), outbox.slice(3 * shift..3 * shift + n).unwrap());
            // Both come out right, and nothing beside them.
            let expect = |part: u64, announced: u64| {
                stream.synchronize().unwrap();
                arrived.wait_until(Cmp::Ge, announced).unwrap();
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
            expect(1, announced);
            let private = data(me, 2);
            announced += 1;
            // SAFETY: `private` lives, unchanged, until `expect` has synchronised.
            unsafe { to.put_signal_on(&private, &arrived, SignalOp::Add, 1, right, &stream) }.unwrap();
            expect(2, announced);
            from.write(&data(me, 3)).unwrap();
            to.put_from_on(&from, right, &stream).unwrap();
            expect(3, announced);
            from.write(&data(me, 4)).unwrap();
            announced += 1;
            to.put_signal_from_on(&from, &arrived, SignalOp::Set, announced, right, &stream).unwrap();
            expect(4, announced);
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
        for round in 1..=place::litmus_rounds(30) as u64 {
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
                // The others' streams put the next round's words once all have read these.
                world.barrier_all().unwrap();
            }
        }
        stream.synchronize().unwrap();
        world.barrier_all().unwrap();
    });
}
