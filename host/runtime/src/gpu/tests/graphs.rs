//! Whatever goes on a stream can be recorded into a CUDA graph and replayed.

use cudarc::driver::sys;

use super::kernels::{arg, load, shape};
use super::*;
use crate::gpu::driver::cu;
use crate::gpu::launch::Shape;
use crate::gpu::memop::MemOp;

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
