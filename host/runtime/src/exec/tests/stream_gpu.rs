//! Streams of GPUs: operations captured into CUDA graphs and replayed, streams of the caller's own. PEs are
//! threads, spread over the GPUs that there are. Skips aloud without one.

use std::ffi::c_void;

use cudarc::driver::sys::{self, CUstreamCaptureMode as Mode};

use super::calls;
use super::calls::on_stream::*;
use crate::error::{code, Result};
use crate::fake::worlds_with;
use crate::gpu::driver::cu;
use crate::gpu::Cuda;
use crate::node::control::Call;
use crate::op::signal::SignalOp;
use crate::op::strided::Strides;
use crate::testing::random::Random;
use crate::world::World;
use rushmem_abi::c::*;

const SOURCE: &str = "extern \"C\" __global__ void bump(unsigned char *at, unsigned long long n) {
  for (unsigned long long i = threadIdx.x; i < n; i += blockDim.x) at[i] += 1;
}";

/// Runs `f` on two PEs with GPUs; false after saying that there are none.
pub(super) fn on_gpus(test: &str, f: impl Fn(&World, &Cuda) + Sync) -> bool {
    if Cuda::count().unwrap_or(0) == 0 {
        eprintln!("SKIP {test}: no GPU");
        return false;
    }
    worlds_with(2, &[("RUSHMEM_DEVICE", "cuda")], |w| {
        // The same primary context that the world has.
        let cuda = Cuda::open(w.view().gpu as usize).unwrap();
        enter(&cuda);
        f(w, &cuda);
        w.finalize().unwrap();
    });
    true
}

pub(super) fn alloc(w: &World, bytes: usize) -> usize {
    w.alloc(bytes, 64).unwrap().unwrap()
}

pub(super) fn barrier(w: &World) {
    crate::exec::order::quiet(w).unwrap();
    w.sync_all(Call::BarrierAll).unwrap();
}

pub(super) fn write(w: &World, at: usize, bytes: &[u8]) {
    // SAFETY: live on both sides.
    unsafe { calls::put(w, at, bytes.as_ptr(), bytes.len(), w.my_pe()) }.unwrap();
}

pub(super) fn read(w: &World, at: usize, len: usize) -> Vec<u8> {
    let mut bytes = vec![0x5a; len];
    // SAFETY: live on both sides.
    unsafe { calls::get(w, bytes.as_mut_ptr(), at, len, w.my_pe()) }.unwrap();
    bytes
}

/// Fresh data for a PE and a round, which the other PE can make too.
pub(super) fn data(seed: u64, pe: i32, round: u64, len: usize) -> Vec<u8> {
    Random::seeded(seed ^ (pe as u64) << 48 ^ round << 32).bytes(len)
}

/// A stream of the caller's own.
pub(super) fn foreign(cuda: &Cuda) -> sys::CUstream {
    let _current = cuda.current().unwrap();
    let mut raw = std::ptr::null_mut();
    let flags = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
    // SAFETY: writes the stream, which `destroy` ends.
    unsafe { cu!(cuStreamCreate(&mut raw, flags)) }.unwrap();
    raw
}

pub(super) fn destroy(cuda: &Cuda, raw: sys::CUstream) {
    let _current = cuda.current().unwrap();
    // SAFETY: made by `foreign`, its work waited for.
    unsafe { cu!(cuStreamDestroy_v2(raw)) }.unwrap();
}

/// What `f` puts on the stream, as a graph.
///
/// # Safety
/// What is recorded stays valid until the last replay.
pub(super) unsafe fn capture(
    raw: sys::CUstream,
    mode: Mode,
    f: impl FnOnce() -> Result<()>,
) -> Result<sys::CUgraph> {
    let mut graph = std::ptr::null_mut();
    // SAFETY: a stream that lives; the caller holds its context current.
    unsafe {
        cu!(cuStreamBeginCapture_v2(raw, mode))?;
        let put = f();
        let ended = cu!(cuStreamEndCapture(raw, &mut graph));
        put.and(ended)?;
    }
    Ok(graph)
}

pub(super) fn instantiate(graph: sys::CUgraph) -> sys::CUgraphExec {
    let mut exec = std::ptr::null_mut();
    // SAFETY: a graph that `capture` made, ended here.
    unsafe {
        cu!(cuGraphInstantiateWithFlags(&mut exec, graph, 0)).unwrap();
        cu!(cuGraphDestroy(graph)).unwrap();
    }
    exec
}

/// Makes the PE's context the thread's, as a program does that uses CUDA itself: nothing is relaxed for it.
fn enter(cuda: &Cuda) {
    let mut context = std::ptr::null_mut();
    let guard = cuda.current().unwrap();
    // SAFETY: writes the context, which the world keeps alive.
    unsafe { cu!(cuCtxGetCurrent(&mut context)) }.unwrap();
    drop(guard);
    // SAFETY: a live context.
    unsafe { cu!(cuCtxSetCurrent(context)) }.unwrap();
}

#[test]
fn everything_is_captured_and_replayed() {
    let name = "everything_is_captured_and_replayed";
    let seed = Random::new(name).next();
    on_gpus(name, |w, cuda| {
        const BIG: usize = 200_001;
        const SMALL: usize = 5000;
        let (me, other) = (w.my_pe(), 1 - w.my_pe());
        let (outbox, inbox, small, late, back) =
            (alloc(w, BIG), alloc(w, BIG), alloc(w, SMALL), alloc(w, BIG), alloc(w, BIG));
        let (table, bytes, signals) = (alloc(w, 3 * SMALL), alloc(w, 16), alloc(w, 16));
        let kernel = match w.kernels().load("bump.cu", SOURCE, vec![]) {
            Ok(module) => Some(module.get().unwrap().kernel("bump").unwrap().get().unwrap()),
            Err(e) => {
                eprintln!("SKIP {name}, its kernel: {e}");
                None
            }
        };
        let shape = Strides { dst_stride: 3, src_stride: 2, elem: 8, n: SMALL / 8 };
        // The world's own stream, then one of the caller's; GLOBAL is the mode that forbids most.
        for (round, mode) in
            [(0, Mode::CU_STREAM_CAPTURE_MODE_GLOBAL), (10, Mode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)]
        {
            let own = round == 0;
            let raw: sys::CUstream =
                if own { w.kernels().create_stream().unwrap().cast() } else { foreign(cuda) };
            let on: *mut c_void = raw.cast();
            write(w, signals, &[0; 16]);
            barrier(w);
            let record = || -> Result<()> {
                // SAFETY: symmetric memory that lives, and a stream that does.
                unsafe {
                    if let Some(kernel) = &kernel {
                        let (at, n) = (outbox, BIG as u64);
                        let config = rushmem_launch_t {
                            size: size_of::<rushmem_launch_t>() as u32,
                            flags: 0,
                            grid: [1; 3],
                            block: [256, 1, 1],
                            shared_bytes: 0,
                            stream: on,
                            cluster: [0; 3],
                            reserved: 0,
                        };
                        let args = [(&raw const at).cast(), (&raw const n).cast()];
                        kernel.launch(&config, &args, None)?;
                    }
                    put(w, inbox, outbox, BIG, other, on)?;
                    put_signal(w, small, outbox, SMALL, signals, SignalOp::Add(1), other, on)?;
                    put_signal(w, late, outbox, BIG, signals + 8, SignalOp::Set(7), other, on)?;
                    fence(w, on)?;
                    signal_wait_until(w, signals, RUSHMEM_CMP_EQ, 1, on)?;
                    wait_until(w, RUSHMEM_INT64, signals + 8, RUSHMEM_CMP_GE, 7, on)?;
                    get(w, back, inbox, BIG, other, on)?;
                    iput(w, table, outbox, shape, other, on)?;
                    p(w, bytes, 0x0102_0304_0506_0708, 8, other, on)?;
                    p(w, bytes + 8, 0x1112_1314, 4, other, on)?;
                    p(w, bytes + 12, 0x2122, 2, other, on)?;
                    p(w, bytes + 15, 0x31, 1, other, on)?;
                    quiet(w, on)?;
                    sync_all(w, "barrier_all", true, on)?;
                    // For the next replay; nobody signals before the second barrier.
                    p(w, signals, 0, 8, me, on)?;
                    signal_op(w, signals + 8, SignalOp::Set(0), me, on)?;
                    sync_all(w, "barrier_all", true, on)?;
                    // What tells of work that runs has nothing to tell here, and does no harm.
                    assert_eq!(w.kernels().record(on).map(drop).unwrap_err().code, code::UNSUPPORTED);
                    assert_eq!(w.kernels().synchronize_stream(on).unwrap_err().code, code::UNSUPPORTED);
                }
                if own {
                    // Host operations beside the capture, on streams that are not recorded.
                    assert_eq!(w.finalize().unwrap_err().code, code::BUSY);
                    write(w, bytes, &[0; 16]);
                    let other_stream = w.kernels().create_stream()?;
                    w.kernels().destroy_stream(other_stream)?;
                }
                Ok(())
            };
            // SAFETY: a stream that lives; what is recorded uses memory that outlives the graph's launches.
            let graph = unsafe { capture(raw, mode, record) }.unwrap();
            // While a PE captures in the global mode, the program must not make calls that may interfere.
            barrier(w);
            let exec = instantiate(graph);
            // The first launch would do it, and may wait for what runs in the context: the other PE's graph.
            // SAFETY: a graph and a stream that live.
            unsafe { cu!(cuGraphUpload(exec, raw)) }.unwrap();
            // SAFETY: a stream that lives.
            unsafe { w.kernels().synchronize_stream(on) }.unwrap();
            for replay in round + 1..=round + 3 {
                let mine = data(seed, me, replay, BIG);
                write(w, outbox, &mine);
                write(w, table, &[0xee; 3 * SMALL]);
                write(w, bytes, &[0; 16]);
                barrier(w);
                // SAFETY: instantiated above.
                unsafe { cu!(cuGraphLaunch(exec, raw)) }.unwrap();
                // SAFETY: a stream that lives.
                unsafe { w.kernels().synchronize_stream(on) }.unwrap();
                let bumped = |bytes: Vec<u8>| -> Vec<u8> {
                    let step = u8::from(kernel.is_some());
                    bytes.into_iter().map(|b| b.wrapping_add(step)).collect()
                };
                let (mine, theirs) = (bumped(mine), bumped(data(seed, other, replay, BIG)));
                assert!(read(w, inbox, BIG) == theirs, "put, replay {replay}");
                assert!(read(w, small, SMALL) == theirs[..SMALL], "small put_signal, replay {replay}");
                assert!(read(w, late, BIG) == theirs, "large put_signal, replay {replay}");
                assert!(read(w, back, BIG) == mine, "get, replay {replay}");
                let seen = read(w, table, 3 * SMALL);
                for (i, element) in seen.chunks(8).enumerate() {
                    let (k, filler) = (i / 3, [0xee; 8]);
                    let expected =
                        if i % 3 == 0 && k < SMALL / 8 { &theirs[16 * k..16 * k + 8] } else { &filler[..] };
                    assert_eq!(element[..], expected[..element.len()], "iput, element {i}, replay {replay}");
                }
                let words = [0x08, 7, 6, 5, 4, 3, 2, 1, 0x14, 0x13, 0x12, 0x11, 0x22, 0x21, 0, 0x31];
                assert_eq!(read(w, bytes, 16), words, "p, replay {replay}");
                barrier(w);
            }
            // SAFETY: made above, all replays are done.
            unsafe { cu!(cuGraphExecDestroy(exec)) }.unwrap();
            if own {
                w.kernels().destroy_stream(on).unwrap();
            } else {
                destroy(cuda, raw);
            }
            barrier(w);
        }
        for at in [outbox, inbox, small, late, back, table, bytes, signals] {
            w.free(Some(at)).unwrap();
        }
    });
}

/// What CUDA makes of pageable memory in a graph: its address is recorded, its contents are those of the
/// launch.
#[test]
fn pageable_memory_is_read_when_the_graph_is_launched() {
    let name = "pageable_memory_is_read_when_the_graph_is_launched";
    let seed = Random::new(name).next();
    on_gpus(name, |w, cuda| {
        for len in [100, 100_000] {
            let (inbox, signal) = (alloc(w, len), alloc(w, 8));
            let (me, other) = (w.my_pe(), 1 - w.my_pe());
            let raw = foreign(cuda);
            let on: *mut c_void = raw.cast();
            let mut private = vec![0u8; len];
            let src = private.as_mut_ptr();
            // SAFETY: `private` lives until the last replay is done, and is only used by its pointer.
            let graph = unsafe {
                capture(raw, Mode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, || {
                    put_signal(w, inbox, src as usize, len, signal, SignalOp::Add(1), other, on)
                })
            };
            let exec = instantiate(graph.unwrap());
            for replay in 1..=3 {
                let mine = data(seed, me, replay, len);
                // SAFETY: `private` is used by this pointer alone, and no copy is in flight.
                unsafe { src.copy_from_nonoverlapping(mine.as_ptr(), len) };
                // SAFETY: instantiated above; a stream that lives.
                unsafe {
                    cu!(cuGraphLaunch(exec, raw)).unwrap();
                    w.kernels().synchronize_stream(on).unwrap();
                }
                calls::signal_wait_until(w, signal, RUSHMEM_CMP_GE, replay).unwrap();
                assert!(
                    read(w, inbox, len) == data(seed, other, replay, len),
                    "{len} bytes, replay {replay}"
                );
                barrier(w);
            }
            // SAFETY: made above, all replays are done.
            unsafe { cu!(cuGraphExecDestroy(exec)) }.unwrap();
            destroy(cuda, raw);
            drop(private);
            w.free(Some(inbox)).unwrap();
            w.free(Some(signal)).unwrap();
        }
    });
}

#[test]
fn a_stream_of_the_callers_own_keeps_its_order_and_has_events() {
    let name = "a_stream_of_the_callers_own_keeps_its_order_and_has_events";
    let seed = Random::new(name).next();
    on_gpus(name, |w, cuda| {
        const LEN: usize = 70_001;
        let (inbox, signals) = (alloc(w, LEN), alloc(w, 16));
        let (me, other) = (w.my_pe(), 1 - w.my_pe());
        let raw = foreign(cuda);
        let on: *mut c_void = raw.cast();
        // CU_STREAM_PER_THREAD.
        let of_the_thread = 2 as *mut c_void;
        for (round, on) in (1u64..).zip([on, on, of_the_thread]) {
            let mine = data(seed, me, round, LEN);
            // SAFETY: `mine` lives until the event has come; streams of the primary context.
            unsafe {
                put_signal(w, inbox, mine.as_ptr() as usize, LEN, signals, SignalOp::Set(round), other, on)
                    .unwrap();
                signal_wait_until(w, signals, RUSHMEM_CMP_GE, round, on).unwrap();
                let event = w.kernels().record(on).unwrap();
                event.get().unwrap().wait().unwrap();
                assert!(event.get().unwrap().test().unwrap());
                event.free().unwrap();
                w.kernels().synchronize_stream(on).unwrap();
            }
            assert!(read(w, inbox, LEN) == data(seed, other, round, LEN), "round {round}");
            barrier(w);
        }
        // What the world did not make it does not end.
        assert_eq!(w.kernels().destroy_stream(on).unwrap_err().code, code::BAD_HANDLE);
        destroy(cuda, raw);
        w.free(Some(inbox)).unwrap();
        w.free(Some(signals)).unwrap();
    });
}
