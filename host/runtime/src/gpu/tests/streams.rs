//! Copies, words, events, callbacks and waits on streams.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::Instant;

use super::*;
use crate::gpu::copy::Strided;
use crate::gpu::event::CudaEvent;
use crate::gpu::memop::MemOp;
use crate::gpu::pinned::PinnedBox;

#[test]
fn copies_of_all_sizes() {
    let Some(mut t) = turn("copies_of_all_sizes") else { return };
    let (a, b) = (t.memory(4 << 20), t.memory(4 << 20));
    for len in [0, 1, 2, 3, 15, 16, 17, 4095, 4097, (1 << 20) + 1, 3 << 20] {
        let (from, to, data) = (t.random.below(64), t.random.below(64), t.random.bytes(len));
        let around = t.random.bytes(len + 128);
        t.write(b.base(), &around);
        t.write(a.base() + from, &data);
        // SAFETY: mapped; `read` waits.
        unsafe { t.stream.copy(b.base() + to, a.base() + from, len) }.unwrap();
        let mut expected = around;
        expected[to..to + len].copy_from_slice(&data);
        assert!(t.read(b.base(), expected.len()) == expected, "{len} bytes from {from} to {to}");
    }
}

#[test]
fn strided_copies() {
    let Some(mut t) = turn("strided_copies") else { return };
    let (a, b) = (t.memory(1 << 20), t.memory(1 << 20));
    for round in 0..60 {
        let size = [1, 2, 4, 8, 16, 24][t.random.below(6)];
        let count = [0, 1, 2, 3, 100, 1000][round % 6];
        let (src, dst) = (size * (1 + t.random.below(9)), size * (1 + t.random.below(9)));
        let (data, around) = (t.random.bytes(size * 9 * 1001), t.random.bytes(size * 9 * 1001));
        t.write(a.base(), &data);
        t.write(b.base(), &around);
        let (from, to) =
            (Strided { at: a.base(), stride: src }, Strided { at: b.base() + size, stride: dst });
        // SAFETY: mapped; `read` waits.
        unsafe { t.stream.copy_strided(to, from, size, count) }.unwrap();
        let mut expected = around;
        for i in 0..count {
            expected[size + i * dst..][..size].copy_from_slice(&data[i * src..][..size]);
        }
        assert!(t.read(b.base(), expected.len()) == expected, "{count} of {size}, {src} -> {dst}");
    }
    let from = Strided { at: a.base(), stride: 4 };
    // SAFETY: refused.
    let e = unsafe { t.stream.copy_strided(Strided { at: b.base(), stride: 8 }, from, 8, 2) }.unwrap_err();
    assert_eq!(e.code, code::INVALID_ARGUMENT);
}

#[test]
fn stores_of_every_width_at_every_alignment() {
    let Some(mut t) = turn("stores_of_every_width_at_every_alignment") else { return };
    let memory = t.memory(4096);
    let around = t.random.bytes(64);
    for bytes in 1..=8 {
        for at in 0..16 {
            let value = t.random.next();
            t.write(memory.base(), &around);
            // SAFETY: mapped; `read` waits.
            unsafe { t.stream.set(memory.base() + at, value, bytes) }.unwrap();
            let mut expected = around.clone();
            expected[at..at + bytes].copy_from_slice(&value.to_le_bytes()[..bytes]);
            assert_eq!(t.read(memory.base(), 64), expected, "{bytes} bytes at {at}");
        }
    }
}

#[test]
fn what_kernels_reach() {
    let Some(t) = turn("what_kernels_reach") else { return };
    let (memory, pageable) = (t.memory(4096), vec![0u64; 64]);
    let pinned = PinnedBox::filled(&t.cuda, 64, 0u64).unwrap();
    assert_eq!(t.stream.reaches(memory.base() + 24), Some(memory.base() + 24));
    let at = pinned.as_ptr().cast::<u64>() as usize;
    assert_eq!(t.stream.reaches(at + 8), Some(pinned.device_address() + 8));
    assert_eq!(t.stream.reaches(pageable.as_ptr() as usize), None);
    assert_eq!(t.stream.reaches(8), None);
}

#[test]
fn strides_past_the_pitch() {
    let Some(mut t) = turn("strides_past_the_pitch") else { return };
    let grain = Allocation::granularity(&t.cuda).unwrap();
    let range = AddressRange::reserve(&t.cuda, (8 << 30) + grain, 0).unwrap();
    let parts: Vec<_> = [0, 4 << 30, 8 << 30]
        .map(|at| {
            let part = Arc::new(Allocation::create(&t.cuda, grain).unwrap());
            range.map(at, &part, &[&t.cuda]).unwrap()
        })
        .into();
    assert!(t.cuda.facts().max_pitch < 4 << 30);
    let (own, data) = (t.memory(64), t.random.bytes(24));
    t.write(own.base(), &data);
    let (from, to) =
        (Strided { at: own.base(), stride: 8 }, Strided { at: range.base() + 8, stride: 4 << 30 });
    // SAFETY: each element's place is mapped; `read` waits.
    unsafe { t.stream.copy_strided(to, from, 8, 3) }.unwrap();
    for (i, part) in parts.iter().enumerate() {
        assert_eq!(t.read(part.base() + 8, 8), data[8 * i..][..8]);
    }
}

#[test]
fn words_order_what_streams_do() {
    let Some(mut t) = turn("words_order_what_streams_do") else { return };
    if !t.cuda.facts().stream_words {
        eprintln!("SKIP words_order_what_streams_do: {} has no stream words", t.cuda);
        return;
    }
    let other = Stream::new(&t.cuda, Priority::High).unwrap();
    let words = t.memory(4096);
    let data = t.memory(1 << 20);
    t.write(words.base(), &[0; 64]);
    let seen = PinnedBox::new(&t.cuda, AtomicU64::new(0)).unwrap();
    for round in 1..200u64 {
        let bytes = t.random.bytes(1 << 12);
        let pinned = PinnedBox::<[u8]>::filled(&t.cuda, bytes.len(), 0).unwrap();
        let (sig, ack) = (words.base(), words.base() + 8);
        // The reader is put first, so that it does wait.
        // SAFETY: mapped and pinned; waited for at the end of the round.
        unsafe {
            other.words(&[MemOp::Wait64 { at: sig, at_least: round }]).unwrap();
            other.copy(pinned.device_address(), data.base(), bytes.len()).unwrap();
            other.words(&[MemOp::Write64 { at: seen.device_address(), value: round }]).unwrap();
            other.words(&[MemOp::Write32 { at: ack, value: round as u32 }]).unwrap();
            t.stream.copy(data.base(), bytes.as_ptr() as usize, bytes.len()).unwrap();
            t.stream.words(&[MemOp::Write64 { at: sig, value: round }]).unwrap();
            // The other half of it is never written.
            t.stream.words(&[MemOp::Wait64 { at: ack, at_least: round }]).unwrap();
        }
        let start = Instant::now();
        while seen.load(Ordering::Acquire) != round {
            assert!(start.elapsed() < LIMIT);
        }
        // The word came after the data, without any wait for a stream.
        assert!(pinned[..] == bytes[..], "round {round}");
        t.finish();
    }
    finish(&other);
}

#[test]
fn a_stream_waits_for_the_host() {
    let Some(t) = turn("a_stream_waits_for_the_host") else { return };
    if !t.cuda.facts().stream_words {
        eprintln!("SKIP a_stream_waits_for_the_host: {} has no stream words", t.cuda);
        return;
    }
    let word = PinnedBox::new(&t.cuda, AtomicU64::new(0)).unwrap();
    let done = PinnedBox::new(&t.cuda, AtomicU32::new(0)).unwrap();
    let at = word.device_address();
    // Past the wrap too.
    for (at_least, before, after) in [(10, 9, 10), (10, 9, 11), (5, u64::MAX - 3, 6)] {
        word.store(before, Ordering::Release);
        done.store(0, Ordering::Release);
        let ops = [MemOp::Wait64 { at, at_least }, MemOp::Write32 { at: done.device_address(), value: 1 }];
        // SAFETY: pinned until waited for.
        unsafe { t.stream.words(&ops) }.unwrap();
        std::thread::sleep(Duration::from_millis(20));
        assert!(
            !t.stream.query().unwrap() && done.load(Ordering::Acquire) == 0,
            "{before} is not {at_least}"
        );
        // A limit ends a wait, and so does a death; neither ends the work.
        let waiting = || "for a word".to_owned();
        let e = t.stream.synchronize(&healthy(), Some(Duration::from_millis(10)), &waiting).unwrap_err();
        assert_eq!(e.code, code::TIMEOUT);
        let health = healthy();
        std::thread::scope(|s| {
            s.spawn(|| {
                std::thread::sleep(Duration::from_millis(10));
                health.break_job("PE 3 is gone".into());
            });
            let e = t.stream.synchronize(&health, Some(LIMIT), &waiting).unwrap_err();
            assert!(e.code == code::PEER_DEAD && e.message.contains("PE 3"), "{e}");
        });
        word.store(after, Ordering::Release);
        t.finish();
        assert_eq!(done.load(Ordering::Acquire), 1);
    }
}

#[test]
fn more_words_than_fit_a_call() {
    let Some(t) = turn("more_words_than_fit_a_call") else { return };
    if !t.cuda.facts().stream_words {
        eprintln!("SKIP more_words_than_fit_a_call: {} has no stream words", t.cuda);
        return;
    }
    let words = t.memory(8 * 1000);
    let ops: Vec<_> = (0..1000)
        .map(|i| MemOp::Write64 { at: words.base() + 8 * i, value: i as u64 * 0x1_0001_0001 })
        .collect();
    // SAFETY: mapped; `read` waits.
    unsafe { t.stream.words(&ops) }.unwrap();
    let expected: Vec<u8> = (0..1000u64).flat_map(|i| (i * 0x1_0001_0001).to_le_bytes()).collect();
    assert!(t.read(words.base(), expected.len()) == expected);
    // SAFETY: nothing to do.
    unsafe { t.stream.words(&[]) }.unwrap();
}

#[test]
fn events_order_and_measure() {
    let Some(mut t) = turn("events_order_and_measure") else { return };
    let other = Stream::new(&t.cuda, Priority::High).unwrap();
    let (a, b) = (t.memory(64 << 20), t.memory(64 << 20));
    let (start, end) = (CudaEvent::new(&t.cuda, true).unwrap(), CudaEvent::new(&t.cuda, true).unwrap());
    let copied = CudaEvent::new(&t.cuda, false).unwrap();
    assert!(copied.query().unwrap());
    let data = t.random.bytes(a.bytes());
    t.write(a.base(), &data);
    start.record(&t.stream).unwrap();
    // SAFETY: mapped; waited for.
    unsafe { t.stream.copy(b.base(), a.base(), a.bytes()) }.unwrap();
    end.record(&t.stream).unwrap();
    copied.record(&t.stream).unwrap();
    other.wait_for(&copied).unwrap();
    let mut last = vec![0; 64];
    // SAFETY: mapped, and a buffer as long; waited for.
    unsafe { other.copy(last.as_mut_ptr() as usize, b.base() + b.bytes() - 64, 64) }.unwrap();
    finish(&other);
    assert_eq!(last, data[data.len() - 64..]);
    assert!(copied.query().unwrap() && end.query().unwrap() && !t.stream.as_raw().is_null());
    let ms = end.since(&start).unwrap();
    eprintln!("64 MiB within {}: {ms} ms, {:.0} GB/s", t.cuda, a.bytes() as f32 / ms / 1e6);
    assert!(ms > 0.0 && ms < 1000.0);
    // A caller's stream.
    // SAFETY: of the same context, alive to the end.
    let foreign = unsafe { Stream::foreign(&t.cuda, other.as_raw()) };
    assert!(foreign.query().unwrap() && !foreign.is_capturing().unwrap());
    drop(foreign);
    assert!(other.query().unwrap());
}

#[test]
fn callbacks_run_once_even_when_they_panic() {
    let Some(t) = turn("callbacks_run_once_even_when_they_panic") else { return };
    let (tx, rx) = mpsc::channel();
    for i in 0..10 {
        let tx = tx.clone();
        t.stream.callback(move || tx.send(i).unwrap()).unwrap();
        t.stream.callback(|| panic!("on purpose")).unwrap();
    }
    t.finish();
    assert_eq!(rx.try_iter().collect::<Vec<_>>(), (0..10).collect::<Vec<_>>());
    t.cuda.check().unwrap();
}
