//! A stream of a GPU, and what becomes of an operation on it. Bulk is for the copy engines and single words
//! are for the front end, which need no SM; what is left is done by service kernels. Nothing here waits,
//! allocates on the GPU or asks for more than can be captured into a graph.

use std::sync::Arc;

use super::pageable::{Direction, PageableCopy};
use super::Work;
use crate::error::{err, Result};
use crate::exec::gpu::{rows, signal_on, GpuEngine};
use crate::exec::net;
use crate::exec::{Executor, Form};
use crate::gpu::copy::Strided as Rows;
use crate::gpu::memop::MemOp;
use crate::gpu::stream::Stream;
use crate::net::engine::{Done, Engine};
use crate::net::{Far, Lane};
use crate::op::movement::Movement;
use crate::op::rma::Contiguous;
use crate::op::strided::{Elements, Strides};
use crate::op::{Local, Op};

/// A put with a signal of at most this many bytes is one launch, a longer one a copy and a word: one block
/// moves this much in the time that the second operation would take.
const ONE_LAUNCH: usize = 8 << 10;
/// Strided copies of elements of at most this many bytes are for a kernel: a copy engine takes them one row
/// at a time.
const SHORT_ROW: usize = 1 << 10;

/// Puts `work` on the stream.
///
/// # Safety
/// Its addresses are valid until it is done.
pub(super) unsafe fn start(
    work: &Work,
    stream: &Stream,
    engine: &GpuEngine,
    far: Option<&Arc<Far>>,
) -> Result<()> {
    match *work {
        // SAFETY: checked, and the caller vouches for local memory.
        Work::Near { op, .. } => unsafe { GpuStream { stream, engine }.run(op, Form::Nbi) }.map(drop),
        Work::Net { pe, op } => {
            // SAFETY: checked, and the caller vouches for local memory.
            send(stream, net::of(far)?, move |engine, done| unsafe {
                net::begin(op, Lane::to(pe), engine, done)
            })
        }
        // SAFETY: the word has been checked.
        Work::Wait { wait, .. } => unsafe { engine.service().wait(stream, &wait) },
        // To mapped PEs the stream's own order is all that it takes; see the module above.
        Work::Fence => far.map_or(Ok(()), |far| {
            send(stream, far, |engine, done| {
                engine.fence(Lane::DEFAULT);
                engine.complete(done);
                Ok(())
            })
        }),
        Work::Quiet => far.map_or(Ok(()), |far| send(stream, far, |engine, done| engine.quiet(None, done))),
        Work::Sync => engine.service().sync(stream),
    }
}

/// The executor of mapped GPU memory, in the stream's turn.
struct GpuStream<'a> {
    stream: &'a Stream,
    engine: &'a GpuEngine,
}

impl Executor for GpuStream<'_> {
    unsafe fn run(&self, op: Op, _form: Form) -> Result<u64> {
        let stream = self.stream;
        let service = self.engine.service();
        // SAFETY: the check vouches for the other PE's side of each operation, the caller for this one's.
        unsafe {
            match op {
                Op::Put(data) => self.transfer(Direction::IntoGpu, data)?,
                Op::Get(data) => self.transfer(Direction::OutOfGpu, data)?,
                Op::P { at, bits, bytes } => {
                    match MemOp::store(at, bits, bytes).filter(|_| stream.cuda().facts().stream_words) {
                        Some(op) => stream.words(&[op])?,
                        None => stream.set(at, bits, bytes)?,
                    }
                }
                Op::Signal(s) => signal_on(service, stream, s.at, s.op)?,
                Op::PutSignal(data, s) => match self.one_launch(data) {
                    Some((t, src)) => service.put_signal(stream, t.remote, src, t.bytes, &s)?,
                    // The stream keeps them in order, and the signal releases what was before it.
                    None => {
                        self.transfer(Direction::IntoGpu, data)?;
                        signal_on(service, stream, s.at, s.op)?;
                    }
                },
                // They give a value, which nobody would wait for here.
                Op::G { .. } | Op::Atomic(_) => {
                    return Err(err!(UNSUPPORTED, "{} has no form on a stream", op.name()))
                }
            }
        }
        Ok(0)
    }
}

impl GpuStream<'_> {
    /// Where a kernel of this GPU finds the caller's memory; `None` where it cannot reach it, as ordinary
    /// host memory.
    fn reach(&self, local: Local) -> Option<usize> {
        if local.symmetric {
            return Some(local.at);
        }
        self.stream.reaches(local.at)
    }

    /// The same for elements that had better be copied by a kernel.
    fn reach_elements(&self, local: Local, strides: &Strides) -> Option<usize> {
        let packed = strides.n == 1 || (strides.dst_stride == 1 && strides.src_stride == 1);
        if packed || strides.elem > SHORT_ROW || !self.engine.service().works() {
            return None;
        }
        self.reach(local)
    }

    /// What one launch puts and signals, and where it finds the source.
    fn one_launch(&self, data: Movement) -> Option<(Contiguous, usize)> {
        match data {
            Movement::Bytes(t) if t.bytes <= ONE_LAUNCH && self.engine.service().works() => {
                Some((t, self.reach(t.local)?))
            }
            _ => None,
        }
    }

    /// Copies between symmetric memory and the caller's: bytes by a copy engine; elements by a kernel where
    /// `reach_elements` says so, else by a copy engine.
    ///
    /// # Safety
    /// Both sides are valid until it is done.
    unsafe fn transfer(&self, direction: Direction, data: Movement) -> Result<()> {
        let (remote, local) = (data.remote(), data.local());
        let ends = |mine| match direction {
            Direction::IntoGpu => (remote, mine),
            Direction::OutOfGpu => (mine, remote),
        };
        let (dst, src) = ends(local.at);
        // SAFETY: the caller vouches for both sides.
        unsafe {
            match data {
                // What is symmetric is GPU memory here.
                Movement::Bytes(t) if local.symmetric => self.stream.copy_on_gpus(dst, src, t.bytes),
                Movement::Bytes(t) => {
                    let (to, from) = (packed(dst, t.bytes), packed(src, t.bytes));
                    self.copy(direction, local, to, from, t.bytes, 1)
                }
                Movement::Elements(Elements { strides, .. }) => match self.reach_elements(local, &strides) {
                    Some(mine) => {
                        let (dst, src) = ends(mine);
                        self.engine.service().copy_strided(self.stream, dst, src, &strides)
                    }
                    None => {
                        let (to, from) = rows(dst, src, &strides);
                        self.copy(direction, local, to, from, strides.elem, strides.n)
                    }
                },
            }
        }
    }

    /// A copy of elements by a copy engine, through a pinned buffer where the caller's side is pageable
    /// memory.
    ///
    /// # Safety
    /// Every element of both sides is valid until it is done.
    unsafe fn copy(
        &self,
        direction: Direction,
        local: Local,
        dst: Rows,
        src: Rows,
        size: usize,
        count: usize,
    ) -> Result<()> {
        let pageable = self.engine.pageable();
        if local.symmetric || !pageable.takes(self.stream, local.at)? {
            // SAFETY: the caller vouches for both sides.
            return unsafe { self.stream.copy_strided(dst, src, size, count) };
        }
        let (gpu, host) = match direction {
            Direction::IntoGpu => (dst, src),
            Direction::OutOfGpu => (src, dst),
        };
        // SAFETY: the caller vouches for both sides.
        unsafe { pageable.copy(self.stream, &PageableCopy { direction, gpu, host, size, count }) }
    }
}

/// Bytes as one element.
fn packed(at: usize, bytes: usize) -> Rows {
    Rows { at, stride: bytes }
}

/// Has the engine begin `what` when the stream comes to it, and holds the stream back until that is done. A
/// failure breaks the job, and every later call says why.
fn send(
    stream: &Stream,
    far: &Arc<Far>,
    what: impl Fn(&mut Engine, Done) -> Result<()> + Clone + Send + Sync + 'static,
) -> Result<()> {
    let far = Arc::clone(far);
    // A graph may be launched again and again, and instances of it side by side: its gate would have to count
    // what nobody tells it.
    let gate = if stream.is_capturing()? { None } else { far.gate() };
    let Some(gate) = gate else {
        return stream.call(move || drop(far.submit_and_wait(what.clone())));
    };
    let wait = gate.wait();
    stream.callback(move || far.submit(what, move |_| drop(gate)))?;
    // SAFETY: the gates live as long as a stream may wait; atomics and the front end alone access them.
    unsafe { stream.words(&[wait]) }
}
