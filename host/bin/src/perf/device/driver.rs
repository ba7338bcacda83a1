//! CUDA itself: graphs of what is put on a stream, and, as a probe, the driver's own call for a copy on one,
//! without rushmem.

use std::ffi::CStr;

use cudarc::driver::sys::{self, CUfunction, CUgraph, CUgraphExec, CUmodule, CUresult, CUstream};
use rushmem::Stream;

use crate::gpu::Gpu;
use crate::job::{Failure, Result};

/// CUDA's context of a GPU, made this thread's own: CUDA's calls below need one.
pub(crate) struct Context {
    _gpu: Gpu,
}

impl Context {
    pub(crate) fn of(ordinal: u32) -> Result<Context> {
        Ok(Context { _gpu: Gpu::open(ordinal)? })
    }
}

/// A graph that can be launched.
pub(crate) struct Graph {
    graph: CUgraph,
    exec: CUgraphExec,
}

impl Graph {
    /// Captures what `queue` puts on the stream, which is not done meanwhile.
    pub(crate) fn capture(stream: &Stream<'_>, queue: impl FnOnce() -> Result<()>) -> Result<Graph> {
        let raw: CUstream = stream.as_raw().cast();
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: a live stream of the current context.
        said("cuStreamBeginCapture", unsafe { sys::cuStreamBeginCapture_v2(raw, mode) })?;
        let queued = queue();
        let mut graph = std::ptr::null_mut();
        // SAFETY: a live stream of the current context, in capture; a place for the answer.
        let ended = unsafe { sys::cuStreamEndCapture(raw, &mut graph) };
        queued?;
        said("cuStreamEndCapture", ended)?;
        let mut exec = std::ptr::null_mut();
        // SAFETY: a graph that was just made, a place for the answer.
        let made = unsafe { sys::cuGraphInstantiateWithFlags(&mut exec, graph, 0) };
        let graph = Graph { graph, exec };
        said("cuGraphInstantiateWithFlags", made)?;
        // Where the other PE's graph already waits for this one's, on the same GPU, the first launch would
        // wait for it to upload (docs/gpu-findings.md).
        // SAFETY: a live graph and a live stream of one context.
        said("cuGraphUpload", unsafe { sys::cuGraphUpload(graph.exec, raw) })?;
        // SAFETY: a live stream of the current context.
        said("cuStreamSynchronize", unsafe { sys::cuStreamSynchronize(raw) })?;
        Ok(graph)
    }

    /// Puts all of it on the stream.
    pub(crate) fn launch(&self, stream: &Stream<'_>) -> Result<()> {
        // SAFETY: a live graph and a live stream of one context.
        said("cuGraphLaunch", unsafe { sys::cuGraphLaunch(self.exec, stream.as_raw().cast()) })
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        // A drop cannot return a failure.
        // SAFETY: made in `capture`, and destroyed once; a graph may go while it runs.
        unsafe {
            if !self.exec.is_null() {
                sys::cuGraphExecDestroy(self.exec);
            }
            sys::cuGraphDestroy(self.graph);
        }
    }
}

/// A copy between GPUs' memories as a program without rushmem would put it on a stream: the call that a put
/// or get comes down to.
pub(super) struct BareCopy {
    to: u64,
    from: u64,
    bytes: usize,
}

impl BareCopy {
    /// None where the other side is not mapped.
    pub(super) fn new(to: Option<*mut u8>, from: Option<*mut u8>, bytes: usize) -> Option<BareCopy> {
        Some(BareCopy { to: to?.addr() as u64, from: from?.addr() as u64, bytes })
    }

    /// Puts it on a stream of the current context.
    pub(super) fn queue(&self, stream: &Stream<'_>) -> Result<()> {
        let (to, from, raw) = (self.to, self.from, stream.as_raw().cast());
        // SAFETY: two parts of live allocations, one of them a peer's, that are mapped on this GPU and stay
        // until the stream has been waited for.
        said("cuMemcpyDtoDAsync", unsafe { sys::cuMemcpyDtoDAsync_v2(to, from, self.bytes, raw) })
    }
}

/// An empty kernel: what any launch of that many blocks and threads takes.
pub(crate) struct Empty {
    module: CUmodule,
    function: CUfunction,
    blocks: u32,
    threads: u32,
}

impl Empty {
    /// Loads it into the current context.
    pub(crate) fn new(blocks: u32, threads: u32) -> Result<Empty> {
        const EMPTY: &CStr =
            c".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry empty() { ret; }\n";
        let (mut module, mut function) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: PTX, which is a C string; a place for the answer.
        said("cuModuleLoadData", unsafe { sys::cuModuleLoadData(&mut module, EMPTY.as_ptr().cast()) })?;
        // SAFETY: a module that was just loaded, a C string, a place for the answer.
        let found = unsafe { sys::cuModuleGetFunction(&mut function, module, c"empty".as_ptr()) };
        let empty = Empty { module, function, blocks, threads };
        said("cuModuleGetFunction", found)?;
        Ok(empty)
    }

    /// Puts it on a stream of the current context.
    pub(crate) fn queue(&self, stream: &Stream<'_>) -> Result<()> {
        let (blocks, threads, none) = (self.blocks, self.threads, std::ptr::null_mut());
        let raw = stream.as_raw().cast();
        // SAFETY: a kernel without parameters, loaded as long as this lives.
        let launched = unsafe {
            sys::cuLaunchKernel(
                self.function,
                blocks,
                1,
                1,
                threads,
                1,
                1,
                0,
                raw,
                none,
                std::ptr::null_mut(),
            )
        };
        said("cuLaunchKernel", launched)
    }
}

impl Drop for Empty {
    fn drop(&mut self) {
        // A drop cannot return a failure.
        // SAFETY: loaded in `new`, and unloaded once; its streams have been waited for.
        unsafe { sys::cuModuleUnload(self.module) };
    }
}

fn said(call: &str, result: CUresult) -> Result<()> {
    match result {
        CUresult::CUDA_SUCCESS => Ok(()),
        error => Err(Failure::new(format!("{call}: {error:?}"))),
    }
}
