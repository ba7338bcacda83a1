//! Gates on a GPU: streams that wait for the host, side by side.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Instant;

use super::*;
use crate::gpu::memop::MemOp;
use crate::gpu::pinned::PinnedBox;
use crate::net::gpu::gate::Gates;

/// Each of several streams has a call made, whose gate another thread opens later, the last one first. A
/// driver that made one call at a time for as long as its stream has to wait would never come to the second.
#[test]
fn streams_wait_at_gates_side_by_side_and_in_any_order() {
    let Some(mut t) = turn("streams_wait_at_gates_side_by_side_and_in_any_order") else { return };
    if !t.cuda.facts().stream_words {
        eprintln!("SKIP streams_wait_at_gates_side_by_side_and_in_any_order: {} has no stream words", t.cuda);
        return;
    }
    const STREAMS: usize = 3;
    let gates = Arc::new(Gates::new(&t.cuda).unwrap());
    let streams: Vec<Stream> =
        (0..STREAMS).map(|_| Stream::new(&t.cuda, Priority::Normal).unwrap()).collect();
    let seen = PinnedBox::<[u64]>::filled(&t.cuda, STREAMS, 0).unwrap();
    let passed = |i: usize| {
        // SAFETY: an aligned word, which the GPU's front end writes.
        unsafe { std::ptr::read_volatile(seen.as_ptr().cast::<u64>().add(i)) }
    };
    for round in 1..=400u64 {
        let (called, calls) = mpsc::channel();
        for (i, stream) in streams.iter().enumerate() {
            let gate = gates.take().unwrap();
            let (wait, called) = (gate.wait(), called.clone());
            stream.callback(move || called.send((i, gate)).unwrap()).unwrap();
            let write = MemOp::Write64 { at: seen.device_address() + 8 * i, value: round };
            // SAFETY: words of pinned memory, waited for below.
            unsafe { stream.words(&[wait, write]) }.unwrap();
        }
        let mut shut: Vec<_> =
            (0..STREAMS).map(|_| calls.recv_timeout(LIMIT).expect("all calls are made")).collect();
        for i in 0..STREAMS {
            assert_eq!(passed(i), round - 1, "stream {i} went through a shut gate in round {round}");
        }
        // In another order each time.
        while !shut.is_empty() {
            let (i, gate) = shut.swap_remove(t.random.below(shut.len()));
            drop(gate);
            let start = Instant::now();
            while passed(i) != round {
                assert!(start.elapsed() < LIMIT, "stream {i} does not go on in round {round}");
            }
            for (other, _) in &shut {
                assert_eq!(passed(*other), round - 1, "stream {other} went through a shut gate");
            }
        }
    }
    for stream in &streams {
        finish(stream);
    }
}

/// Gates are used again and again by several threads, and none is lost.
#[test]
fn gates_come_back() {
    let Some(t) = turn("gates_come_back") else { return };
    let gates = Arc::new(Gates::new(&t.cuda).unwrap());
    let mut all = Vec::new();
    while let Some(gate) = gates.take() {
        all.push(gate);
    }
    let n = all.len();
    assert!(n >= 256, "{n} gates");
    all.clear();
    let taken = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..10_000 {
                    if let Some(gate) = gates.take() {
                        taken.fetch_add(1, Ordering::Relaxed);
                        drop(gate);
                    }
                }
            });
        }
    });
    assert_eq!(taken.into_inner(), 40_000);
    assert_eq!(std::iter::from_fn(|| gates.take()).fuse().collect::<Vec<_>>().len(), n);
}
