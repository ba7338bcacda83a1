//! Collectives on streams of GPUs, captured into CUDA graphs and replayed. PEs are threads, spread over the
//! GPUs that there are. Skips aloud without one.

use std::time::Duration;

use cudarc::driver::sys::{self, CUstreamCaptureMode as Mode};

use super::stream_gpu::{alloc, barrier, capture, destroy, foreign, instantiate, on_gpus, read, write};
use crate::error::{code, Result};
use crate::exec::{collective_on_stream, prepare_collective, SlotSet};
use crate::gpu::driver::cu;
use crate::op::team_call::TeamCall;
use crate::testing::random::Random;
use crate::world::World;
use rushmem_abi::c::{RUSHMEM_MAX, RUSHMEM_SUM, RUSHMEM_UINT64};

/// Rounds of five collectives in a graph.
const ROUNDS: usize = 10;

/// Arrays of two blocks of `n` words.
#[derive(Clone, Copy)]
struct Arrays {
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    n: usize,
}

impl Arrays {
    /// One round: b = alltoall(a), c = inscan(b), a = alltoall(c), d = reduce(a), and a barrier.
    fn calls(&self) -> [TeamCall; 5] {
        let Arrays { a, b, c, d, n } = *self;
        let (r#type, op) = (RUSHMEM_UINT64, RUSHMEM_SUM);
        [
            TeamCall::Alltoall { dst: b, src: a, bytes: 8 * n },
            TeamCall::Inscan { dst: c, src: b, n: 2 * n, r#type, op },
            TeamCall::Barrier {},
            TeamCall::Alltoall { dst: a, src: c, bytes: 8 * n },
            TeamCall::Reduce { dst: d, src: a, n: 2 * n, r#type, op },
        ]
    }
}

/// The same on both PEs' arrays `a`; what each has of it, and of `d`.
fn model(mut a: [Vec<u64>; 2], rounds: usize) -> ([Vec<u64>; 2], Vec<u64>) {
    let n = a[0].len() / 2;
    let alltoall = |from: &[Vec<u64>; 2]| -> [Vec<u64>; 2] {
        [0, 1].map(|me| from.iter().flat_map(|m| m[me * n..(me + 1) * n].iter().copied()).collect())
    };
    for _ in 0..rounds {
        let [first, second] = alltoall(&a);
        let scanned = first.iter().zip(&second).map(|(x, y)| x.wrapping_add(*y)).collect();
        a = alltoall(&[first, scanned]);
    }
    let d = a[0].iter().zip(&a[1]).map(|(x, y)| x.wrapping_add(*y)).collect();
    (a, d)
}

fn put(w: &World, call: &TeamCall, raw: sys::CUstream) -> Result<()> {
    let slots = SlotSet { team: w.team().raw(), name: "the world".into(), set: 0 };
    // SAFETY: symmetric memory that lives until the stream has been waited for, as the stream does.
    unsafe { collective_on_stream(w, &slots, call, raw.cast()) }
}

fn bytes(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// Fifty collectives in a graph, replayed a thousand times; larger ones, by many blocks, a hundred times.
#[test]
fn collectives_are_captured_and_replayed() {
    let name = "collectives_are_captured_and_replayed";
    let seed = Random::new(name).next();
    on_gpus(name, |w, cuda| {
        let me = w.my_pe() as usize;
        for (n, replays) in [(100, 1000), (30_000, 100)] {
            let array = || alloc(w, 16 * n);
            let arrays = Arrays { a: array(), b: array(), c: array(), d: array(), n };
            let first = [0, 1].map(|pe: u64| -> Vec<u64> {
                let mut random = Random::seeded(seed ^ pe << 32 ^ n as u64);
                (0..2 * n).map(|_| random.next()).collect()
            });
            write(w, arrays.a, &bytes(&first[me]));
            let raw = foreign(cuda);
            let record = || (0..ROUNDS).flat_map(|_| arrays.calls()).try_for_each(|call| put(w, &call, raw));
            if n == 100 {
                // Nothing is loaded while a stream is captured, and the error says what to do.
                // SAFETY: nothing was recorded.
                let refused = unsafe { capture(raw, Mode::CU_STREAM_CAPTURE_MODE_GLOBAL, record) };
                let refused = refused.map(drop).unwrap_err();
                assert_eq!(refused.code, code::UNSUPPORTED, "{refused}");
                assert!(refused.message.contains("rushmem_team_prepare"), "{refused}");
                for (collective, what) in [("alltoall", 0), ("barrier", 0), ("inscan", 3), ("reduce", 3)] {
                    prepare_collective(w, collective, RUSHMEM_SUM, what).unwrap();
                }
            }
            barrier(w);
            // SAFETY: symmetric memory that lives until the last replay has ended.
            let graph = unsafe { capture(raw, Mode::CU_STREAM_CAPTURE_MODE_GLOBAL, record) }.unwrap();
            // In this mode nothing of the process may allocate while a PE captures, and PEs may share one.
            barrier(w);
            let exec = instantiate(graph);
            for _ in 0..replays {
                // SAFETY: a live graph and a live stream.
                unsafe { cu!(cuGraphLaunch(exec, raw)) }.unwrap();
            }
            // SAFETY: a stream that lives.
            unsafe { w.synchronize_stream(raw.cast()) }.unwrap();
            let (a, d) = model(first, ROUNDS * replays);
            assert!(read(w, arrays.a, 16 * n) == bytes(&a[me]), "{n} words, {replays} replays");
            assert!(read(w, arrays.d, 16 * n) == bytes(&d), "{n} words, {replays} replays");
            // SAFETY: made above, and its last launch has ended.
            unsafe { cu!(cuGraphExecDestroy(exec)) }.unwrap();
            destroy(cuda, raw);
            barrier(w);
        }
    });
}

/// The first call of a kind needs its code loaded. Where PEs share a GPU, the one that comes late finds it
/// loaded: the driver would hold it back until the other's kernel has ended, which waits for this one.
#[test]
fn first_calls_of_pes_that_share_a_gpu_need_no_preparation() {
    let name = "first_calls_of_pes_that_share_a_gpu_need_no_preparation";
    on_gpus(name, |w, cuda| {
        let n = 2000;
        let (a, b) = (alloc(w, 8 * n), alloc(w, 8 * n));
        let raw = foreign(cuda);
        for (late, op) in [(0, RUSHMEM_SUM), (1, RUSHMEM_MAX)] {
            let mine: Vec<u64> = (0..n as u64).map(|i| i * (1 + w.my_pe() as u64)).collect();
            write(w, a, &bytes(&mine));
            barrier(w);
            if w.my_pe() == late {
                std::thread::sleep(Duration::from_millis(500));
            }
            put(w, &TeamCall::Reduce { dst: b, src: a, n, r#type: RUSHMEM_UINT64, op }, raw).unwrap();
            // SAFETY: a stream that lives.
            unsafe { w.synchronize_stream(raw.cast()) }.unwrap();
            let factor = if op == RUSHMEM_SUM { 3 } else { 2 };
            let expected: Vec<u64> = (0..n as u64).map(|i| i * factor).collect();
            assert!(read(w, b, 8 * n) == bytes(&expected), "operator {op}");
            barrier(w);
        }
        destroy(cuda, raw);
    });
}
