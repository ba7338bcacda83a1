//! Copies between a GPU's streams and pageable memory: they wait in their stream, and never in the call.
//! Skips aloud without a GPU.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::calls;
use super::calls::on_stream::*;
use super::stream_gpu::{alloc, barrier, data, on_gpus, read, write};
use crate::gpu::memop::MemOp;
use crate::gpu::pinned::PinnedBox;
use crate::gpu::stream::{Priority, Stream};
use crate::gpu::Cuda;
use crate::op::signal::SignalOp;
use crate::op::strided::Strides;
use crate::testing::random::Random;
use rushmem_abi::c::*;

/// A call that waits for its stream would wait for ever here: what the stream waits for comes from the same
/// thread, afterwards.
const SOON: Duration = Duration::from_secs(5);

#[test]
fn copies_wait_in_their_stream_alone() {
    let name = "copies_wait_in_their_stream_alone";
    let seed = Random::new(name).next();
    on_gpus(name, |w, _| {
        const MOST: usize = (3 << 20) + 5;
        let (inbox, small, table) = (alloc(w, MOST), alloc(w, MOST), alloc(w, 3 * MOST));
        let (go, signal) = (alloc(w, 8), alloc(w, 8));
        write(w, go, &[0; 8]);
        write(w, signal, &[0; 8]);
        barrier(w);
        let (me, other) = (w.my_pe(), 1 - w.my_pe());
        let on = w.kernels().create_stream().unwrap();
        for (round, len) in (1u64..).zip([1, 8, 5000, 8193, 65_537, (512 << 10) + 1, MOST]) {
            let mine = data(seed, me, round, len);
            let mut back = vec![0u8; len];
            let elements = len / 8;
            let mut rows = vec![0u8; 2 * len];
            let (from, to) = (mine.as_ptr() as usize, back.as_mut_ptr() as usize);
            let put_rows = Strides { dst_stride: 3, src_stride: 1, elem: 8, n: elements };
            let get_rows = Strides { dst_stride: 2, src_stride: 3, elem: 8, n: elements };
            let started = Instant::now();
            // SAFETY: symmetric memory that lives, a stream that does, and slices that outlive its work.
            unsafe {
                wait_until(w, RUSHMEM_UINT64, go, RUSHMEM_CMP_GE, round, on).unwrap();
                put(w, inbox, from, len, other, on).unwrap();
                put_signal(w, small, from, len, signal, SignalOp::Set(round), other, on).unwrap();
                get(w, to, inbox, len, other, on).unwrap();
                iput(w, table, from, put_rows, other, on).unwrap();
                iget(w, rows.as_mut_ptr() as usize, table, get_rows, other, on).unwrap();
            }
            // What takes the driver's lock of the context is free to do so meanwhile.
            // SAFETY: a stream that lives.
            let event = unsafe { w.kernels().record(on) }.unwrap();
            assert!(!event.get().unwrap().test().unwrap(), "the stream waits");
            assert!(started.elapsed() < SOON, "calls with {len} bytes took {:?}", started.elapsed());
            write(w, go, &round.to_le_bytes());
            event.get().unwrap().wait().unwrap();
            event.free().unwrap();
            // SAFETY: a stream that lives.
            unsafe { w.kernels().synchronize_stream(on) }.unwrap();
            assert!(back == mine, "get of {len} bytes");
            for i in 0..elements {
                assert_eq!(rows[16 * i..][..8], mine[8 * i..][..8], "element {i} of {elements}");
            }
            calls::signal_wait_until(w, signal, RUSHMEM_CMP_GE, round).unwrap();
            assert!(read(w, small, len) == data(seed, other, round, len), "put_signal of {len} bytes");
            barrier(w);
        }
        w.kernels().destroy_stream(on).unwrap();
        for at in [inbox, small, table, go, signal] {
            w.free(Some(at)).unwrap();
        }
    });
}

/// More copies than there are buffers: the call waits, and goes on as buffers come back. Each piece comes in
/// its turn.
#[test]
fn more_copies_than_buffers_come_in_their_turn() {
    let name = "more_copies_than_buffers_come_in_their_turn";
    let seed = Random::new(name).next();
    on_gpus(name, |w, _| {
        const LEN: usize = 600_000;
        let inbox = alloc(w, LEN);
        barrier(w);
        let (me, other) = (w.my_pe(), 1 - w.my_pe());
        let on = w.kernels().create_stream().unwrap();
        let sent: Vec<_> = (0..200).map(|round| data(seed, me, round, LEN)).collect();
        let mut back = vec![vec![0u8; LEN]; sent.len()];
        for (mine, back) in sent.iter().zip(&mut back) {
            // SAFETY: sources and destinations of LEN bytes, which live until the stream is synchronised.
            unsafe {
                put(w, inbox, mine.as_ptr() as usize, LEN, other, on).unwrap();
                get(w, back.as_mut_ptr() as usize, inbox, LEN, other, on).unwrap();
            }
        }
        // SAFETY: a stream that lives.
        unsafe { w.kernels().synchronize_stream(on) }.unwrap();
        assert!(back == sent);
        w.kernels().destroy_stream(on).unwrap();
        barrier(w);
        w.free(Some(inbox)).unwrap();
    });
}

/// The engine's stream may be held up by other streams of the process. A call that waits for it must not keep
/// other threads from the driver: what holds it up may be waiting for them.
#[test]
fn host_copies_never_wait_in_the_driver() {
    let name = "host_copies_never_wait_in_the_driver";
    let seed = Random::new(name).next();
    on_gpus(name, |w, _| {
        const MOST: usize = (1 << 20) + 5;
        let inbox = alloc(w, MOST);
        // The same primary context that the world has.
        let cuda = Cuda::open(w.view().gpu as usize).unwrap();
        for (round, len) in (1u64..).zip([1, 4096, 65_537, MOST]) {
            let (me, other) = (w.my_pe(), 1 - w.my_pe());
            let mine = data(seed, me, round, len);
            let gate = PinnedBox::new(&cuda, AtomicU64::new(0)).unwrap();
            let (open, here) = (gate.device_address(), Instant::now());
            barrier(w);
            // SAFETY: the word lives until the stream has run, below.
            unsafe { w.engine().unwrap().stream().words(&[MemOp::Wait64 { at: open, at_least: 1 }]) }
                .unwrap();
            std::thread::scope(|threads| {
                // SAFETY: symmetric memory of that length, and a slice that outlives the call.
                let put = threads.spawn(|| unsafe { calls::put(w, inbox, mine.as_ptr(), len, other) });
                // Whatever happens, that ends in time.
                threads.spawn(|| {
                    while here.elapsed() < 2 * SOON && gate.load(Ordering::Acquire) == 0 {
                        std::thread::sleep(Duration::from_millis(5));
                    }
                    gate.store(1, Ordering::Release);
                });
                std::thread::sleep(Duration::from_millis(50));
                let started = Instant::now();
                // It takes the driver's lock of the context.
                drop(Stream::new(&cuda, Priority::Normal).unwrap());
                let took = started.elapsed();
                gate.store(1, Ordering::Release);
                assert!(took < SOON, "a new stream took {took:?} beside a put of {len} bytes");
                put.join().unwrap().unwrap();
            });
            barrier(w);
            assert!(read(w, inbox, len) == data(seed, other, round, len), "put of {len} bytes");
            barrier(w);
        }
        w.free(Some(inbox)).unwrap();
    });
}
