//! Whatever goes on a stream can be recorded into a CUDA graph and replayed.

use cudarc::driver::sys;

use super::kernels::{arg, load, shape};
use super::*;
use crate::gpu::driver::cu;
use crate::gpu::launch::Shape;
use crate::gpu::memop::MemOp;
use crate::gpu::module::Module;

pub(in crate::gpu) const SOURCE: &str =
    "__global__ void add(unsigned int *at, unsigned int v) { at[threadIdx.x] += v; }";

#[test]
fn everything_is_captured() {
    let name = "everything_is_captured";
    let Some(mut t) = turn(name) else { return };
    let Some(module) = load(name, &t, SOURCE, &[]) else { return };
    if !t.cuda.facts().stream_words {
        eprintln!("SKIP {name}: {} has no stream words", t.cuda);
        return;
    }
    let (a, b) = (t.memory(4096), t.memory(4096));
    let (at, v) = (b.base() as u64, 5u32);
    let _current = t.cuda.current().unwrap();
    let add = module.kernel("add").unwrap();
    let raw: sys::CUstream = t.stream.as_raw().cast();
    let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    let (mut graph, mut exec) = (std::ptr::null_mut(), std::ptr::null_mut());
    // SAFETY: what is recorded stays valid until the last replay is done.
    unsafe {
        cu!(cuStreamBeginCapture_v2(raw, mode)).unwrap();
        assert!(t.stream.is_capturing().unwrap());
        t.stream.fill(b.base(), 0, 4096).unwrap();
        t.stream.copy(b.base(), a.base(), 256).unwrap();
        add.launch(&shape(1, 32), &[arg(&at), arg(&v)], &t.stream).unwrap();
        add.launch(&Shape { cooperative: true, ..shape(1, 32) }, &[arg(&at), arg(&v)], &t.stream).unwrap();
        t.stream.words(&[MemOp::Write64 { at: b.base() + 1024, value: 77 }]).unwrap();
        t.stream.words(&[MemOp::Wait64 { at: b.base() + 1024, at_least: 77 }]).unwrap();
        t.stream.copy(b.base() + 2048, b.base(), 256).unwrap();
        cu!(cuStreamEndCapture(raw, &mut graph)).unwrap();
        assert!(!t.stream.is_capturing().unwrap());
        cu!(cuGraphInstantiateWithFlags(&mut exec, graph, 0)).unwrap();
    }
    for _ in 0..3 {
        let data = t.random.bytes(256);
        t.write(a.base(), &data);
        // SAFETY: instantiated above.
        unsafe { cu!(cuGraphLaunch(exec, raw)) }.unwrap();
        let mut expected = data;
        for word in expected[..128].chunks_mut(4) {
            let sum = u32::from_le_bytes(word.try_into().unwrap()).wrapping_add(10);
            word.copy_from_slice(&sum.to_le_bytes());
        }
        assert!(t.read(b.base() + 2048, 256) == expected);
        assert_eq!(t.read(b.base() + 1024, 8), 77u64.to_le_bytes());
    }
    // SAFETY: made above, all replays are done.
    unsafe {
        cu!(cuGraphExecDestroy(exec)).unwrap();
        cu!(cuGraphDestroy(graph)).unwrap();
    }
}

pub(in crate::gpu) const EARLY: &str = r#"
/* Every block but the last leaves at once; the last one writes when all others are long gone. */
__global__ void late(unsigned int *at, unsigned int n, unsigned int v) {
  if (blockIdx.x != gridDim.x - 1) return;
  for (int i = 0; i < 200; ++i) __nanosleep(1000);
  for (unsigned int i = threadIdx.x; i < n; i += blockDim.x) at[i] += v;
}
__global__ void early(unsigned int *to, const unsigned int *at, unsigned int n) {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
  for (unsigned int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) to[i] = at[i];
}
"#;

/// A kernel that starts early sees all that the one before it wrote, and the next one waits for it: on a
/// stream and in a graph, behind kernels and behind copies.
#[test]
fn what_starts_early_sees_what_was_written_before() {
    let name = "what_starts_early_sees_what_was_written_before";
    let Some(mut t) = turn(name) else { return };
    if !t.cuda.facts().early_launches {
        eprintln!("SKIP {name}: {} starts no kernel early", t.cuda);
        return;
    }
    let Some(module) = load(name, &t, EARLY, &[]) else { return };
    const N: usize = 100_000;
    let (a, b, c) = (t.memory(4 * N), t.memory(4 * N), t.memory(4 * N));
    let (from, to, n, v) = (a.base() as u64, b.base() as u64, N as u32, 3u32);
    let early = Shape { early: true, ..shape(64, 128) };
    let _current = t.cuda.current().unwrap();
    let (late_kernel, early_kernel) = (module.kernel("late").unwrap(), module.kernel("early").unwrap());
    let raw: sys::CUstream = t.stream.as_raw().cast();
    // SAFETY: memory that lives to the end of the test, values that match the kernels' parameters.
    let round = || unsafe {
        late_kernel.launch(&shape(64, 256), &[arg(&from), arg(&n), arg(&v)], &t.stream).unwrap();
        early_kernel.launch(&early, &[arg(&to), arg(&from), arg(&n)], &t.stream).unwrap();
        t.stream.copy(c.base(), b.base(), 4 * N).unwrap();
        // Behind a copy: as other kernels. Behind an early one: that one is waited for, too.
        early_kernel.launch(&early, &[arg(&to), arg(&from), arg(&n)], &t.stream).unwrap();
        late_kernel.launch(&shape(64, 256), &[arg(&from), arg(&n), arg(&v)], &t.stream).unwrap();
    };
    let mut expected = t.random.bytes(4 * N);
    t.write(a.base(), &expected);
    let check = |t: &Turn, expected: &mut Vec<u8>| {
        let plus = |bytes: &[u8]| -> Vec<u8> {
            let words = bytes.chunks(4).map(|w| u32::from_le_bytes(w.try_into().unwrap()).wrapping_add(v));
            words.flat_map(u32::to_le_bytes).collect()
        };
        let once = plus(expected);
        assert!(t.read(c.base(), 4 * N) == once, "the copy behind the early kernel");
        assert!(t.read(b.base(), 4 * N) == once, "the early kernel behind a copy");
        *expected = plus(&once);
        assert!(t.read(a.base(), 4 * N) == *expected, "the kernel behind an early one");
    };
    for _ in 0..20 {
        round();
        check(&t, &mut expected);
    }
    let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    let (mut graph, mut exec) = (std::ptr::null_mut(), std::ptr::null_mut());
    // SAFETY: what is recorded stays valid until the last replay is done.
    unsafe {
        cu!(cuStreamBeginCapture_v2(raw, mode)).unwrap();
        round();
        cu!(cuStreamEndCapture(raw, &mut graph)).unwrap();
        cu!(cuGraphInstantiateWithFlags(&mut exec, graph, 0)).unwrap();
    }
    for _ in 0..20 {
        // SAFETY: instantiated above.
        unsafe { cu!(cuGraphLaunch(exec, raw)) }.unwrap();
        check(&t, &mut expected);
    }
    // SAFETY: made above, all replays are done.
    unsafe {
        cu!(cuGraphExecDestroy(exec)).unwrap();
        cu!(cuGraphDestroy(graph)).unwrap();
    }
}

/// The same as [`EARLY`]'s second kernel, a thread an element, as nvcc makes it for GPUs that have no early
/// launches: nothing waits in it.
const OF_AN_OLDER_GPU: &str = r#"
.version 7.0
.target sm_80
.address_size 64
.visible .entry early(.param .u64 to, .param .u64 at, .param .u32 n) {
  .reg .pred %p;
  .reg .b32 %r<6>;
  .reg .b64 %d<6>;
  ld.param.u64 %d1, [to];
  ld.param.u64 %d2, [at];
  ld.param.u32 %r1, [n];
  mov.u32 %r2, %ctaid.x;
  mov.u32 %r3, %ntid.x;
  mov.u32 %r4, %tid.x;
  mad.lo.u32 %r5, %r2, %r3, %r4;
  setp.ge.u32 %p, %r5, %r1;
  @%p ret;
  mul.wide.u32 %d3, %r5, 4;
  add.u64 %d4, %d1, %d3;
  add.u64 %d5, %d2, %d3;
  ld.global.u32 %r0, [%d5];
  st.global.u32 [%d4], %r0;
  ret;
}
"#;

/// Code that cannot wait by itself starts as other kernels do, also where it is to start early.
#[test]
fn code_for_an_older_gpu_does_not_start_early() {
    let name = "code_for_an_older_gpu_does_not_start_early";
    let Some(t) = turn(name) else { return };
    let Some(module) = load(name, &t, EARLY, &[]) else { return };
    let old = match Module::load(&t.cuda, None, "old.ptx", OF_AN_OLDER_GPU.as_bytes(), &[]) {
        Ok(module) => module,
        Err(e) => {
            eprintln!("SKIP {name}: the driver takes no PTX: {e}");
            return;
        }
    };
    const N: usize = 1 << 16;
    let (late, early, old) =
        (module.kernel("late").unwrap(), module.kernel("early").unwrap(), old.kernel("early").unwrap());
    assert_eq!(early.starts_early(), t.cuda.facts().early_launches);
    assert!(!old.starts_early());
    let (a, b) = (t.memory(4 * N), t.memory(4 * N));
    let (from, to, n, v) = (a.base() as u64, b.base() as u64, N as u32, 1u32);
    t.write(a.base(), &vec![0; 4 * N]);
    let _current = t.cuda.current().unwrap();
    for round in 1..=20u32 {
        let one_a_thread = Shape { early: true, ..shape(N as u32 / 256, 256) };
        // SAFETY: memory that lives to the end of the test, values that match the kernels' parameters.
        unsafe {
            late.launch(&shape(64, 256), &[arg(&from), arg(&n), arg(&v)], &t.stream).unwrap();
            old.launch(&one_a_thread, &[arg(&to), arg(&from), arg(&n)], &t.stream).unwrap();
        }
        assert!(t.read(b.base(), 4 * N) == round.to_le_bytes().repeat(N), "round {round}");
    }
}
