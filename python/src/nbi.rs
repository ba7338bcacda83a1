//! Non-blocking puts and gets, and communication contexts (OpenSHMEM 1.5, sections 9.5 and 9.6.2).
//!
//! Such a call may return before its source may change, or before its data has come. Python sees no quiet, so
//! the world holds what these calls read and write until a quiet has completed them: buffers can neither be
//! freed nor, where numpy knows that they are held, moved.

use std::cell::RefCell;
use std::sync::Arc;

use pyo3::prelude::*;
use rushmem_abi::c::*;

use crate::array::Array;
use crate::core::Core;
use crate::error::{self, Failure};
use crate::operand::{For, Operand};
use crate::rma::{check_sides, signal_op};

thread_local! {
    /// The contexts that this thread is in: the world's handle as a number, and the context. The last counts.
    static ENTERED: RefCell<Vec<(usize, u64)>> = const { RefCell::new(Vec::new()) };
}

/// The context of this thread's operations on a world.
fn current(core: &Core) -> u64 {
    let last = ENTERED.with(|entered| entered.borrow().last().copied());
    last.filter(|(world, _)| *world == core.raw() as usize)
        .map_or(RUSHMEM_CONTEXT_DEFAULT, |(_, number)| number)
}

impl Core {
    /// Carries out what completes the operations of one context, or of all, and then lets go of what they
    /// held. What is begun meanwhile is held on.
    pub(crate) fn complete(
        &self,
        py: Python<'_>,
        context: Option<u64>,
        f: impl FnOnce() -> i32 + Send,
    ) -> PyResult<()> {
        let all = std::mem::take(&mut *self.keep.pending());
        let (done, kept): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|(of, _)| context.is_none_or(|one| one == *of));
        self.keep.pending().extend(kept);
        let completed = self.run(py, || Failure::check(self.table, f()));
        if completed.is_err() {
            self.keep.pending().extend(done);
        }
        completed
    }

    /// One non-blocking call, whose memory is held.
    fn begin(&self, py: Python<'_>, operand: Operand, f: impl FnOnce() -> i32 + Send) -> PyResult<()> {
        let context = current(self);
        let begun = self.run(py, || Failure::check(self.table, f()));
        // Also where it fails: a part may be under way.
        self.keep.pending().push((context, Box::new(operand)));
        begun
    }
}

fn dense(py: Python<'_>, array: &Array, other: &Operand, what: &str) -> PyResult<usize> {
    check_sides(py, array, other, what)?;
    other.check_dense(py, what)?;
    if !array.is_dense() {
        return Err(error::invalid(py, "non-blocking calls take arrays without gaps"));
    }
    array.symmetric(py)
}

#[pymethods]
impl Array {
    /// `put` that may return before `src` may be changed. The world holds `src` until `world.quiet()`,
    /// `world.barrier_all()` or its context's quiet, which complete it. Neither array has gaps.
    fn put_nbi(&self, py: Python<'_>, src: &Bound<'_, PyAny>, pe: i32) -> PyResult<()> {
        let (core, src) = (&*self.memory.core, Operand::of(src, "src", For::Reading)?);
        let (at, from, bytes) = (dense(py, self, &src, "src")?, src.at, src.bytes());
        core.begin(py, src, move || {
            // SAFETY: a live handle; the source is held until a quiet; what is not symmetric is refused.
            unsafe { (core.table.put_nbi)(core.raw(), at as *mut _, from as *const _, bytes, pe) }
        })
    }

    /// `get` that may return before the data is in `out`, which is complete after a quiet.
    fn get_nbi(&self, py: Python<'_>, pe: i32, out: &Bound<'_, PyAny>) -> PyResult<()> {
        let (core, out) = (&*self.memory.core, Operand::of(out, "out", For::Writing)?);
        let (at, to, bytes) = (dense(py, self, &out, "out")?, out.at, out.bytes());
        core.begin(py, out, move || {
            // SAFETY: a live handle; the destination is held until a quiet; what is not symmetric is refused.
            unsafe { (core.table.get_nbi)(core.raw(), to as *mut _, at as *const _, bytes, pe) }
        })
    }

    /// `put_signal` that may return before `src` may be changed.
    #[pyo3(signature = (src, signal, value, pe, *, op="set"))]
    fn put_signal_nbi(
        &self,
        py: Python<'_>,
        src: &Bound<'_, PyAny>,
        signal: &Bound<'_, Array>,
        value: u64,
        pe: i32,
        op: &str,
    ) -> PyResult<()> {
        let (core, src) = (&*self.memory.core, Operand::of(src, "src", For::Reading)?);
        let (at, from, bytes) = (dense(py, self, &src, "src")?, src.at, src.bytes());
        let (sig, sig_op) = (signal.get().signal(py)?, signal_op(op)?);
        core.begin(py, src, move || {
            let (dst, src, sig) = (at as *mut _, from as *const _, sig as *mut u64);
            // SAFETY: a live handle; the source is held until a quiet; what is not symmetric is refused.
            unsafe { (core.table.put_signal_nbi)(core.raw(), dst, src, bytes, sig, value, sig_op, pe) }
        })
    }
}

/// A communication context: an order and a completion of its own. `with context:` makes this thread's
/// operations on PEs whose memory is not mapped the context's.
#[pyclass(frozen, weakref, module = "rushmem", name = "Context")]
pub(crate) struct Context {
    core: Arc<Core>,
    number: u64,
}

impl Context {
    pub(crate) fn create(py: Python<'_>, core: &Arc<Core>) -> PyResult<Context> {
        let mut number = 0;
        let out = &mut number;
        // SAFETY: a live handle, and room for a number.
        core.call(py, move |table, w| unsafe { (table.context_create)(w, out) })?;
        Ok(Context { core: Arc::clone(core), number })
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        if self.core.gate.has_ended() {
            return;
        }
        // No `with` is left, as it holds the object. It completes the context's operations; the context ends
        // with the world where that fails.
        Python::try_attach(|py| {
            let (core, number) = (&self.core, self.number);
            let _ = core.complete(py, Some(number), || {
                // SAFETY: a live handle, and a context that is ended once.
                unsafe { (core.table.context_destroy)(core.raw(), number) }
            });
        });
    }
}

#[pymethods]
impl Context {
    /// Orders the context's puts, atomics and signals to each PE. Completes nothing.
    fn fence(&self, py: Python<'_>) -> PyResult<()> {
        // SAFETY: a live handle, and a context that lives as long as this object.
        self.core.call(py, |table, w| unsafe { (table.context_fence)(w, self.number) })
    }

    /// Waits until every operation of the context is complete and visible to every PE.
    fn quiet(&self, py: Python<'_>) -> PyResult<()> {
        let core = &self.core;
        core.complete(py, Some(self.number), || {
            // SAFETY: a live handle, and a context that lives as long as this object.
            unsafe { (core.table.context_quiet)(core.raw(), self.number) }
        })
    }

    fn __enter__<'py>(slf: Bound<'py, Self>, py: Python<'py>) -> PyResult<Bound<'py, Self>> {
        let this = slf.get();
        // SAFETY: a live handle, and a context that lives as long as this object. The call does not change
        // threads.
        this.core.call(py, |table, w| unsafe { (table.context_enter)(w, this.number) })?;
        ENTERED.with(|entered| entered.borrow_mut().push((this.core.raw() as usize, this.number)));
        Ok(slf)
    }

    #[pyo3(signature = (_kind, _exception, _traceback))]
    fn __exit__(
        &self,
        py: Python<'_>,
        _kind: &Bound<'_, PyAny>,
        _exception: &Bound<'_, PyAny>,
        _traceback: &Bound<'_, PyAny>,
    ) -> PyResult<bool> {
        ENTERED.with(|entered| entered.borrow_mut().pop());
        if !self.core.gate.has_ended() {
            let before = current(&self.core);
            // SAFETY: a live handle; a number that is no context's is refused.
            self.core.call(py, |table, w| unsafe { (table.context_enter)(w, before) })?;
        }
        Ok(false)
    }
}
