//! Staging on a GPU: data of far PEs through pinned chunks, also while the GPU is full of waiting threads.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::far_mailbox::SOURCE;
use super::kernels::{arg, load, shape};
use super::pes::Pes;
use super::*;
use crate::gpu::launch::Shape;
use crate::gpu::memop::MemOp;
use crate::gpu::pinned::PinnedBox;
use crate::gpu::plain::Plain;
use crate::net::gpu::chunks::{Chunk, Course, LARGE, LARGE_CHUNKS, SMALL, SMALL_CHUNKS};
use crate::net::gpu::staging::{Staging, Ticket};
use crate::net::memory::span::Span;

/// What a transfer has on its way: chunk, ticket, where in the data, how much.
type Flight = (Chunk, Ticket, usize, usize);

/// A time limit for loops.
struct Until(Instant);

impl Until {
    fn new() -> Until {
        Until(Instant::now() + LIMIT)
    }

    fn check(&self) {
        assert!(Instant::now() < self.0, "it takes longer than {LIMIT:?}");
    }
}

/// Moves all of `data` to `span`, several chunks at a time.
fn put(staging: &mut Staging, span: &Span, data: &[u8]) {
    assert_eq!(span.bytes(), data.len());
    let (until, mut sent, mut flights) = (Until::new(), 0, Vec::<Flight>::new());
    while sent < data.len() || !flights.is_empty() {
        until.check();
        if sent < data.len() {
            if let Some(chunk) = staging.try_chunk(data.len() - sent, Course::Arriving) {
                let len = chunk.bytes().min(data.len() - sent);
                // SAFETY: the chunk is ours, and as long.
                unsafe { chunk.as_ptr().copy_from_nonoverlapping(data[sent..].as_ptr(), len) };
                // SAFETY: mapped; waited for before anything goes.
                let ticket = unsafe { staging.copy_in(span, sent, &chunk, len) }.unwrap();
                flights.push((chunk, ticket, sent, len));
                sent += len;
            }
        }
        let (done, left) = flights.into_iter().partition(|flight| staging.done(flight.1).unwrap());
        flights = left;
        let done: Vec<Flight> = done;
        done.into_iter().for_each(|flight| staging.give_back(flight.0));
    }
}

/// The bytes of `span`, several chunks at a time.
fn get(staging: &mut Staging, span: &Span) -> Vec<u8> {
    let (until, mut asked, mut flights) = (Until::new(), 0, Vec::<Flight>::new());
    let mut data = vec![0xa5; span.bytes()];
    while asked < data.len() || !flights.is_empty() {
        until.check();
        if asked < data.len() {
            if let Some(chunk) = staging.try_chunk(data.len() - asked, Course::Leaving) {
                let len = chunk.bytes().min(data.len() - asked);
                // SAFETY: mapped; waited for before anything goes.
                let ticket = unsafe { staging.copy_out(&chunk, span, asked, len) }.unwrap();
                flights.push((chunk, ticket, asked, len));
                asked += len;
            }
        }
        let (done, left) = flights.into_iter().partition(|flight| staging.done(flight.1).unwrap());
        flights = left;
        let done: Vec<Flight> = done;
        for (chunk, _, at, len) in done {
            // SAFETY: the chunk is ours, as long, and its copy is done.
            unsafe { data[at..].as_mut_ptr().copy_from_nonoverlapping(chunk.as_ptr(), len) };
            staging.give_back(chunk);
        }
    }
    data
}

fn wait(staging: &mut Staging, ticket: Ticket) {
    let until = Until::new();
    while !staging.done(ticket).unwrap() {
        until.check();
    }
}

#[test]
fn round_trips() {
    let Some(mut t) = turn("round_trips") else { return };
    let mut staging = Staging::new(&t.cuda).unwrap();
    let room = 20 * LARGE;
    let mapping = t.memory(room);
    let plain = Plain::holding(&t.cuda, &vec![0; room]).unwrap();
    let edges = [SMALL, LARGE, 3 * LARGE, 17 * LARGE];
    let sizes = [0, 1, 2, 3, 4096].into_iter().chain(edges.into_iter().flat_map(|n| [n - 1, n, n + 1]));
    for bytes in sizes {
        for base in [mapping.base(), plain.base()] {
            let off = t.random.below(64);
            let (data, around) = (t.random.bytes(bytes), t.random.bytes(64));
            t.write(base, &around);
            t.write(base + off + bytes, &around);
            put(&mut staging, &Span::contiguous(base + off, bytes), &data);
            assert!(t.read(base + off, bytes) == data, "{bytes} bytes into the GPU, off by {off}");
            assert!(get(&mut staging, &Span::contiguous(base + off, bytes)) == data, "{bytes} out of it");
            assert_eq!(t.read(base, off), around[..off]);
            assert_eq!(t.read(base + off + bytes, 64), around);
        }
    }
}

#[test]
fn strided_round_trips() {
    let Some(mut t) = turn("strided_round_trips") else { return };
    let mut staging = Staging::new(&t.cuda).unwrap();
    let room = 8 << 20;
    let mapping = t.memory(room);
    for (elem, most) in
        [(1, 40_000), (2, 1000), (4, 70_000), (8, 100_000), (12, 1), (640, 1500), (LARGE + 5, 3)]
    {
        for (gap, down) in [(0, false), (elem, false), (3 * elem, false), (1, false), (0, true), (5, true)] {
            let (stride, off) = (elem + gap, t.random.below(32));
            // Downwards each element is a copy by itself.
            let count = most.min((room - 64) / stride).min(if down { 600 } else { usize::MAX });
            let step = if down { -(stride as isize) } else { stride as isize };
            let first = if down { off + (count - 1) * stride } else { off };
            let span = Span { at: mapping.base() + first, stride: step, elem, count };
            let mut expected = t.random.bytes(room);
            t.write(mapping.base(), &expected);
            let data = t.random.bytes(span.bytes());
            put(&mut staging, &span, &data);
            for (i, element) in data.chunks(elem).enumerate() {
                let at = first.wrapping_add_signed(i as isize * step);
                expected[at..][..elem].copy_from_slice(element);
            }
            assert!(t.read(mapping.base(), room) == expected, "{span:?} into the GPU");
            assert!(get(&mut staging, &span) == data, "{span:?} out of it");
        }
    }
}

#[test]
fn words_are_stored_after_what_came_before() {
    let Some(mut t) = turn("words_are_stored_after_what_came_before") else { return };
    let mut staging = Staging::new(&t.cuda).unwrap();
    let mapping = t.memory(1 << 20);
    let mut expected = t.random.bytes(1 << 16);
    t.write(mapping.base(), &expected);
    let mut last = None;
    let until = Until::new();
    for round in 0..4000 {
        let bytes = [1usize, 2, 4, 8][round % 4];
        let mut at = t.random.below((1 << 16) - 8);
        if t.random.below(4) != 0 {
            at = at / bytes * bytes;
        }
        let bits = t.random.next();
        expected[at..at + bytes].copy_from_slice(&bits.to_le_bytes()[..bytes]);
        last = loop {
            until.check();
            // SAFETY: mapped; waited for below.
            if let Some(ticket) = unsafe { staging.store(mapping.base() + at, bits, bytes) }.unwrap() {
                break Some(ticket);
            }
        };
    }
    wait(&mut staging, last.unwrap());
    assert!(t.read(mapping.base(), 1 << 16) == expected);
    // Much data, then a word: who sees the word (out of the GPU, by the other stream) finds the data there.
    let flag = mapping.base() + (1 << 20) - 8;
    for round in 1..=50u64 {
        let data = round.to_le_bytes().repeat(LARGE / 8);
        let chunk = staging.try_chunk(LARGE, Course::Arriving).unwrap();
        // SAFETY: the chunk is ours, and as long.
        unsafe { chunk.as_ptr().copy_from_nonoverlapping(data.as_ptr(), LARGE) };
        let span = Span::contiguous(mapping.base(), LARGE);
        // SAFETY: mapped; waited for below.
        let copied = unsafe { staging.copy_in(&span, 0, &chunk, LARGE) }.unwrap();
        // SAFETY: mapped; waited for below.
        let stored = unsafe { staging.store(flag, round, 8) }.unwrap().unwrap();
        while get(&mut staging, &Span::contiguous(flag, 8)) != round.to_le_bytes() {
            until.check();
        }
        assert!(get(&mut staging, &span) == data, "round {round}");
        wait(&mut staging, stored);
        assert!(staging.done(copied).unwrap(), "before the store");
        staging.give_back(chunk);
    }
}

#[test]
fn chunks_run_out_and_come_back() {
    let Some(t) = turn("chunks_run_out_and_come_back") else { return };
    let mut staging = Staging::new(&t.cuda).unwrap();
    for _ in 0..3 {
        let take = |staging: &mut Staging, bytes: usize| -> Vec<Chunk> {
            std::iter::from_fn(|| staging.try_chunk(bytes, Course::Arriving)).collect()
        };
        let large = take(&mut staging, usize::MAX);
        assert_eq!(large.len(), LARGE_CHUNKS);
        assert!(large.iter().all(|chunk| chunk.bytes() == LARGE));
        let small = take(&mut staging, 1);
        assert_eq!(small.len(), SMALL_CHUNKS);
        assert!(small.iter().all(|chunk| chunk.bytes() == SMALL));
        let mut all: Vec<_> =
            large.iter().chain(&small).map(|chunk| (chunk.as_ptr() as usize, chunk.bytes())).collect();
        all.sort();
        assert!(all.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0), "chunks overlap");
        for chunk in large.into_iter().chain(small) {
            staging.give_back(chunk);
        }
        // Little may have a large one where there is no small one.
        let some = take(&mut staging, 1);
        assert_eq!(some.len(), SMALL_CHUNKS + LARGE_CHUNKS);
        some.into_iter().for_each(|chunk| staging.give_back(chunk));
    }
}

/// The first use of all, with its pinning, while every thread that the GPU can hold waits for what comes
/// last.
#[test]
fn a_full_gpu_is_no_hindrance() {
    let name = "a_full_gpu_is_no_hindrance";
    let Some(mut t) = turn(name) else { return };
    if !t.cuda.facts().stream_words {
        eprintln!("SKIP {name}: {} has no stream words", t.cuda);
        return;
    }
    let Some(module) = load(name, &t, SOURCE, &[]) else { return };
    let (pes, stream) = (Pes::new(&t, 1), Stream::new(&t.cuda, Priority::Normal).unwrap());
    module.upload(&pes.state(0), &t.stream).unwrap();
    let memory = t.memory(4 * LARGE);
    let mut staging = Staging::new(&t.cuda).unwrap();
    let kernel = module.kernel("full").unwrap();
    let most = kernel.max_blocks([1024, 1, 1], 0, None).unwrap();
    let (arrived, sig) = (pes.free(0), pes.free(0) + 64);
    let args = [arrived as u64, sig as u64, 1];
    let args: Vec<_> = args.iter().map(arg).collect();
    let full = Shape { cooperative: true, ..shape(most as u32, 1024) };
    // SAFETY: the parameters are words, the addresses mapped; waited for below.
    unsafe { kernel.launch(&full, &args, &stream) }.unwrap();
    let until = Until::new();
    while t.read(arrived, 8) != (most * 1024).to_le_bytes() {
        until.check();
    }
    let start = Instant::now();
    for bytes in [1, SMALL, 3 * LARGE + 17] {
        let data = t.random.bytes(bytes);
        let span = Span::contiguous(memory.base() + 3, bytes);
        put(&mut staging, &span, &data);
        assert!(get(&mut staging, &span) == data, "{bytes} bytes");
    }
    let first = t.random.bytes(2);
    // SAFETY: mapped; waited for below.
    let small = unsafe { staging.store(memory.base(), u64::from(first[0]) | 0xff00, 1) }.unwrap().unwrap();
    wait(&mut staging, small);
    assert!(!stream.query().unwrap(), "the kernel waits yet");
    // SAFETY: mapped; waited for below.
    let signal = unsafe { staging.store(sig, 1, 8) }.unwrap().unwrap();
    wait(&mut staging, signal);
    finish(&stream);
    let took = start.elapsed();
    assert!(took < Duration::from_secs(2), "{took:?}");
    assert_eq!(t.read(memory.base(), 1), first[..1]);
}

#[test]
fn bulk_is_pipelined() {
    let Some(mut t) = turn("bulk_is_pipelined") else { return };
    let mut staging = Staging::new(&t.cuda).unwrap();
    let bytes = 256 << 20;
    let memory = t.memory(bytes);
    let data = t.random.bytes(bytes);
    let span = Span::contiguous(memory.base(), bytes);
    for round in 0..2 {
        let start = Instant::now();
        put(&mut staging, &span, &data);
        let into = start.elapsed();
        let back = get(&mut staging, &span);
        let out = start.elapsed() - into;
        assert!(back == data);
        let rate = |time: Duration| bytes as f64 / time.as_secs_f64() / 1e9;
        // The host's own copies between chunks and data are most of it.
        println!("FAR_GPU staging, round {round}: {:.1} GB/s in, {:.1} GB/s out", rate(into), rate(out));
    }
}

/// A copy between a stream and pageable memory waits in the driver, with a lock of the context, until the
/// stream comes to it. What moves data for other PEs must go on meanwhile: the stream may wait for just that.
#[test]
fn goes_on_while_a_copy_of_pageable_memory_waits_in_the_driver() {
    let Some(mut t) = turn("goes_on_while_a_copy_of_pageable_memory_waits_in_the_driver") else { return };
    if !t.cuda.facts().stream_words {
        eprintln!(
            "SKIP goes_on_while_a_copy_of_pageable_memory_waits_in_the_driver: streams cannot wait for words"
        );
        return;
    }
    let mut staging = Staging::new(&t.cuda).unwrap();
    let room = 40 * LARGE;
    let mapping = t.memory(room + 64);
    let gate = PinnedBox::new(&t.cuda, AtomicU64::new(0)).unwrap();
    let (device, waiting, released) = (gate.device_address(), AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|threads| {
        let (t, gate, waiting, released) = (&mut t, &gate, &waiting, &released);
        let stream = Stream::new(&t.cuda, Priority::Normal).unwrap();
        let source = mapping.base() + room;
        threads.spawn(move || {
            let mut pageable = vec![0u8; 64];
            // SAFETY: the word and the memory live until the threads have ended; the stream is waited for.
            unsafe {
                stream.words(&[MemOp::Wait64 { at: device, at_least: 1 }]).unwrap();
                waiting.store(true, Ordering::Release);
                stream.copy(pageable.as_mut_ptr() as usize, source, pageable.len()).unwrap();
            }
            finish(&stream);
        });
        // Whatever happens, that ends in time.
        threads.spawn(move || {
            let until = Instant::now() + Duration::from_secs(10);
            while Instant::now() < until && !released.load(Ordering::Acquire) {
                std::thread::sleep(Duration::from_millis(5));
            }
            gate.store(1, Ordering::Release);
        });
        while !waiting.load(Ordering::Acquire) {
            std::hint::spin_loop();
        }
        std::thread::sleep(Duration::from_millis(50));
        let started = Instant::now();
        for bytes in [1, SMALL, SMALL + 1, LARGE, room] {
            let data = t.random.bytes(bytes);
            let span = Span::contiguous(mapping.base(), bytes);
            put(&mut staging, &span, &data);
            assert!(get(&mut staging, &span) == data, "{bytes} bytes");
        }
        for i in 0..2000u64 {
            let until = Until::new();
            // SAFETY: mapped; waited for by the read behind it.
            while unsafe { staging.store(mapping.base(), i, 8) }.unwrap().is_none() {
                until.check();
            }
        }
        let last = get(&mut staging, &Span::contiguous(mapping.base(), 8));
        let took = started.elapsed();
        released.store(true, Ordering::Release);
        assert!(took < Duration::from_secs(8), "it stood still until the copy was let go: {took:?}");
        // The two directions are two streams; the stores may be on their way still.
        assert!(u64::from_le_bytes(last.try_into().unwrap()) <= 1999);
    });
}
