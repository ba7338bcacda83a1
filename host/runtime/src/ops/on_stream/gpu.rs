//! What becomes of an operation on a GPU's stream. Bulk is for the copy engines and single words are for the front end, which
//! need no SM; what is left is done by service kernels. Nothing here waits, allocates on the GPU or asks for more than can
//! be captured into a graph.

use std::sync::Arc;

use super::pageable::{Direction, Pageable};
use super::{Given, Work};
use crate::error::{err, Result};
use crate::gpu::copy::Strided as Rows;
use crate::gpu::memop::MemOp;
use crate::gpu::stream::Stream;
use crate::kernel::service::Task;
use crate::net::engine::{Done, Engine};
use crate::net::Far;
use crate::ops::engine::{signal_on, Engine as GpuEngine};

/// A put with a signal of at most this many bytes is one launch, a longer one a copy and a word: one block moves this much
/// in the time that the second operation would take.
const ONE_LAUNCH: usize = 8 << 10;
/// Strided copies of elements of at most this many bytes are for a kernel: a copy engine takes them one row at a time.
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
    let service = engine.service();
    // SAFETY, for each: passed on.
    match *work {
        // SAFETY: as above; what is symmetric is GPU memory here.
        Work::Copy { dst, src, bytes, given } => unsafe {
            if given.symmetric {
                stream.copy_on_gpus(dst, src, bytes)
            } else {
                let (to, from) = (Rows { at: dst, stride: bytes }, Rows { at: src, stride: bytes });
                copy(stream, engine.pageable(), given, to, from, bytes, 1)
            }
        },
        Work::CopyStrided { dst, src, shape, given } => {
            let packed = shape.n == 1 || (shape.dst_stride == 1 && shape.src_stride == 1);
            let reached = (!packed && shape.elem <= SHORT_ROW && service.works())
                .then(|| reach(stream, given))
                .flatten();
            if let Some(reached) = reached {
                let (dst, src) = if given.at == src { (dst, reached) } else { (reached, src) };
                let (dst_stride, src_stride) = (shape.dst_stride, shape.src_stride);
                let task =
                    Task::CopyStrided { dst, src, dst_stride, src_stride, elem: shape.elem, n: shape.n };
                // SAFETY: as above.
                return unsafe { service.start(&task, stream) };
            }
            // Both products passed `extent`; one of a single element is not used, whatever it is.
            let step = |stride: isize| (stride as usize).wrapping_mul(shape.elem);
            let to = Rows { at: dst, stride: step(shape.dst_stride) };
            let from = Rows { at: src, stride: step(shape.src_stride) };
            // SAFETY: as above.
            unsafe { copy(stream, engine.pageable(), given, to, from, shape.elem, shape.n) }
        }
        Work::Store { at, bits, bytes } => {
            match MemOp::store(at, bits, bytes).filter(|_| stream.cuda().facts().stream_words) {
                // SAFETY: as above.
                Some(op) => unsafe { stream.words(&[op]) },
                // SAFETY: as above.
                None => unsafe { stream.set(at, bits, bytes) },
            }
        }
        Work::PutSignal { dst, src, bytes, given, sig, op } => {
            let (value, add) = op.parts();
            let reached = (bytes <= ONE_LAUNCH && service.works()).then(|| reach(stream, given)).flatten();
            if let Some(src) = reached {
                // SAFETY: as above.
                return unsafe {
                    service.start(&Task::PutSignal { dst, src, bytes, sig, value, add }, stream)
                };
            }
            // SAFETY: as above.
            unsafe {
                let (to, from) = (Rows { at: dst, stride: bytes }, Rows { at: src, stride: bytes });
                copy(stream, engine.pageable(), given, to, from, bytes, 1)?;
                signal_on(service, stream, sig, value, add)
            }
        }
        Work::Signal { sig, op } => {
            let (value, add) = op.parts();
            // SAFETY: as above.
            unsafe { signal_on(service, stream, sig, value, add) }
        }
        Work::Wait { at, kind, cmp, value, .. } => {
            let task =
                Task::Wait { at, bytes: kind.bytes(), signed: kind.is_signed(), cmp: cmp.code(), value };
            // SAFETY: as above.
            unsafe { service.start(&task, stream) }
        }
        Work::Far(errand) => {
            let far = far.ok_or_else(|| err!(INTERNAL, "a far operation in a world without a network"))?;
            // SAFETY: as above.
            send(stream, far, move |engine, done| unsafe { errand.begin(engine, done) })
        }
        // To mapped PEs the stream's own order is all that it takes; see the module above.
        Work::Fence | Work::Quiet => {
            let Some(far) = far else { return Ok(()) };
            let fence = matches!(work, Work::Fence);
            send(stream, far, move |engine, done| {
                if !fence {
                    return engine.quiet(done);
                }
                engine.fence();
                engine.tell(done);
                Ok(())
            })
        }
        // SAFETY: no addresses of the caller's.
        Work::Sync => unsafe { service.start(&Task::Sync, stream) },
    }
}

/// Has the engine begin `what` when the stream comes to it, and holds the stream back until that is done. A failure breaks the job, and
/// every later call says why.
fn send(
    stream: &Stream,
    far: &Arc<Far>,
    what: impl Fn(&mut Engine, Done) -> Result<()> + Clone + Send + Sync + 'static,
) -> Result<()> {
    let far = Arc::clone(far);
    // A graph may be launched again and again, and instances of it side by side: its gate would have to count what nobody tells it.
    let gate = if stream.is_capturing()? { None } else { far.gate() };
    let Some(gate) = gate else {
        return stream.call(move || drop(far.leave(what.clone())));
    };
    let wait = gate.wait();
    stream.callback(move || far.leave_then(what, move |_| drop(gate)))?;
    // SAFETY: the gates live as long as a stream may wait; atomics and the front end alone access them.
    unsafe { stream.words(&[wait]) }
}

/// Copies elements at regular distances, one side of which the caller has given.
///
/// # Safety
/// As for [`start`].
unsafe fn copy(
    stream: &Stream,
    pageable: &Pageable,
    given: Given,
    dst: Rows,
    src: Rows,
    size: usize,
    count: usize,
) -> Result<()> {
    if given.symmetric || !pageable.takes(stream, given.at)? {
        // SAFETY: per contract.
        return unsafe { stream.copy_strided(dst, src, size, count) };
    }
    let (direction, gpu, host) = match given.at == src.at {
        true => (Direction::IntoGpu, dst, src),
        false => (Direction::OutOfGpu, src, dst),
    };
    // SAFETY: per contract.
    unsafe { pageable.copy(stream, direction, gpu, host, size, count) }
}

/// Where a kernel of this GPU finds the caller's memory; `None` where it cannot reach it, as ordinary host memory.
fn reach(stream: &Stream, given: Given) -> Option<usize> {
    if given.symmetric {
        return Some(given.at);
    }
    stream.reaches(given.at)
}
