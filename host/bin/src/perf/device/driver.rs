//! CUDA itself: graphs of what is put on a stream, and, as a probe, the driver's own call for a copy on one,
//! without rushmem.

use cudarc::driver::sys::{self, CUgraph, CUgraphExec, CUresult, CUstream};
use rushmem::Stream;

use crate::gpu::Gpu;
use crate::job::{Failure, Result};

/// CUDA's context of a GPU, made this thread's own: CUDA's calls below need one.
pub(super) struct Context {
    _gpu: Gpu,
}

impl Context {
    pub(super) fn of(ordinal: u32) -> Result<Context> {
        Ok(Context { _gpu: Gpu::open(ordinal)? })
    }
}

/// A graph that can be launched.
pub(super) struct Graph {
    graph: CUgraph,
    exec: CUgraphExec,
}

impl Graph {
    /// Captures what `queue` puts on the stream, which is not done meanwhile.
    pub(super) fn capture(stream: &Stream<'_>, queue: impl FnOnce() -> Result<()>) -> Result<Graph> {
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
        Ok(graph)
    }

    /// Puts all of it on the stream.
    pub(super) fn launch(&self, stream: &Stream<'_>) -> Result<()> {
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

fn said(call: &str, result: CUresult) -> Result<()> {
    match result {
        CUresult::CUDA_SUCCESS => Ok(()),
        error => Err(Failure::new(format!("{call}: {error:?}"))),
    }
}
