//! Streams: what an operation's `stream` may be, and streams of one's own.

use std::sync::Arc;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use rushmem_abi::c::RUSHMEM_ERR_UNSUPPORTED;

use crate::core::Core;
use crate::error::Failure;
use crate::keep::{lock, Lot};
use crate::operand::{Loan, Operand};

/// What CUDA calls the legacy default stream where a handle is meant (`cudaStreamLegacy`): torch's default
/// stream is 0, which to the C ABI is the world's own.
pub(crate) const LEGACY: usize = 1;

/// Of a stream that has so many lots to pass, those of later calls become lots of `LOT` objects: the runtime
/// looks through its events when one is freed.
const LOTS: usize = 16;
const LOT: usize = 32;

/// A stream of the world's device.
#[pyclass(frozen, weakref, module = "rushmem", name = "Stream")]
pub(crate) struct Stream {
    core: Arc<Core>,
    handle: usize,
    is_own: bool,
}

impl Stream {
    pub(crate) fn create(py: Python<'_>, core: &Arc<Core>) -> PyResult<Stream> {
        let mut handle = 0_usize;
        let out = &mut handle;
        core.call(py, move |table, w| {
            // SAFETY: a live handle and a place for the answer.
            unsafe { (table.stream_create)(w, std::ptr::from_mut(out).cast()) }
        })?;
        core.stream_begins(handle);
        Ok(Stream { core: Arc::clone(core), handle, is_own: true })
    }

    pub(crate) fn default(py: Python<'_>, core: &Arc<Core>) -> PyResult<Stream> {
        let mut handle = 0_usize;
        let out = &mut handle;
        core.call(py, move |table, w| {
            // SAFETY: a live handle and a place for the answer.
            unsafe { (table.stream_default)(w, std::ptr::from_mut(out).cast()) }
        })?;
        Ok(Stream { core: Arc::clone(core), handle, is_own: false })
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if let (true, Some(_inside)) = (self.is_own, self.core.gate.enter()) {
            self.core.stream_ends(self.handle);
            // SAFETY: a live handle, and a stream that it made; what is on it still runs to its end.
            unsafe { (self.core.table.stream_destroy)(self.core.raw(), self.handle as *mut _) };
        }
    }
}

#[pymethods]
impl Stream {
    /// Its handle: on a GPU the `CUstream`.
    #[getter]
    fn handle(&self) -> usize {
        self.handle
    }

    /// The same, by torch's name: `torch.cuda.ExternalStream(stream.cuda_stream)`.
    #[getter]
    fn cuda_stream(&self) -> usize {
        self.handle
    }

    /// The same, as `cuda.core` has it.
    fn __cuda_stream__(&self) -> (u32, usize) {
        (0, self.handle)
    }

    /// Waits for all work on the stream; raises its first failure since the last call.
    fn synchronize(&self, py: Python<'_>) -> PyResult<()> {
        synchronize(py, &self.core, self.handle)
    }

    fn __repr__(&self) -> String {
        format!("rushmem.Stream({:#x}, {})", self.handle, self.core.who())
    }
}

/// Waits for all work on a stream, and lets go of what it held.
pub(crate) fn synchronize(py: Python<'_>, core: &Core, stream: usize) -> PyResult<()> {
    // SAFETY: a live handle; what is no stream of it is refused.
    let done = core.call(py, |table, w| unsafe { (table.stream_synchronize)(w, stream as *mut _) });
    release(core);
    done
}

/// The stream that an argument means; `None` for none.
pub(crate) fn handle(core: &Core, stream: Option<&Bound<'_, PyAny>>) -> PyResult<Option<usize>> {
    let Some(stream) = stream else { return Ok(None) };
    if let Ok(stream) = stream.cast::<Stream>() {
        return Ok(Some(stream.get().handle));
    }
    let known = |handle: usize| Some(if handle == 0 && core.is_gpu() { LEGACY } else { handle });
    if let Ok(handle) = stream.extract::<usize>() {
        return Ok(known(handle));
    }
    let py = stream.py();
    // torch's, and cupy's.
    for name in [pyo3::intern!(py, "cuda_stream"), pyo3::intern!(py, "ptr")] {
        if let Some(handle) = stream.getattr_opt(name)? {
            return Ok(known(handle.extract()?));
        }
    }
    if let Some(protocol) = stream.getattr_opt("__cuda_stream__")? {
        let (_, handle): (u32, usize) = protocol.call0()?.extract()?;
        return Ok(known(handle));
    }
    Err(PyTypeError::new_err(format!(
        "{} is no stream: rushmem.Stream, torch.cuda.Stream, cupy.cuda.Stream and handles are",
        stream.get_type().name()?
    )))
}

/// The stream of `__dlpack__`: -1 is none; 1 and 2 are CUDA's default streams.
pub(crate) fn dlpack_handle(stream: &Bound<'_, PyAny>) -> Option<usize> {
    stream.extract::<isize>().ok().filter(|handle| *handle > 0).map(|handle| handle as usize)
}

/// Puts an operation on a stream, which then holds its operands.
pub(crate) fn put_on(
    py: Python<'_>,
    core: &Core,
    stream: usize,
    operands: impl IntoIterator<Item = Operand>,
    f: impl FnOnce() -> i32 + Send,
) -> PyResult<()> {
    core.run(py, || Failure::check(core.table, f()))?;
    let mut loan = Loan::default();
    for operand in operands {
        operand.lend(py, stream, &mut loan)?;
    }
    lend(py, core, stream, loan)
}

/// Holds objects until the stream has passed what it was given so far. A graph that is being captured holds
/// what is in host memory, for as long as the world lives, as nothing else does; of a GPU's memory it has the
/// address, as of torch's own operations.
pub(crate) fn lend(py: Python<'_>, core: &Core, stream: usize, loan: Loan) -> PyResult<()> {
    let Loan { host: mut objects, mut device } = loan;
    let mut outcome = Ok(());
    if !objects.is_empty() || !device.is_empty() {
        let recorded = core.record_event(stream);
        if recorded != Err(RUSHMEM_ERR_UNSUPPORTED) {
            objects.append(&mut device);
        }
        let mut borrowed = lock(&core.keep.borrowed);
        match recorded {
            Ok(event) => {
                let queue = borrowed.until.entry(stream).or_default();
                let is_behind = queue.len() >= LOTS;
                match queue.back_mut().filter(|lot| is_behind && lot.objects.len() < LOT) {
                    Some(lot) => {
                        core.free_event(std::mem::replace(&mut lot.event, event));
                        lot.objects.append(&mut objects);
                    }
                    None => queue.push_back(Lot { event, objects }),
                }
            }
            Err(RUSHMEM_ERR_UNSUPPORTED) => borrowed.captured.append(&mut objects),
            Err(code) => {
                borrowed.captured.append(&mut objects);
                outcome = Failure::check(core.table, code);
            }
        }
    }
    release(core);
    outcome.map_err(|failure| failure.raise(py))
}

/// Lets go of what streams have passed. Waits for nothing.
pub(crate) fn release(core: &Core) {
    let mut passed = Vec::new();
    lock(&core.keep.borrowed).until.retain(|_, queue| {
        while let Some(lot) = queue.pop_front() {
            if !core.has_passed(lot.event) {
                queue.push_front(lot);
                break;
            }
            core.free_event(lot.event);
            passed.push(lot);
        }
        !queue.is_empty()
    });
    // Not under the lock: objects may do anything when they die.
    drop(passed);
}
