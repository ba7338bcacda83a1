//! Calls into the runtime: without the GIL, so that other threads of Python go on; a signal (Ctrl-C) ends
//! what waits; and no call is inside a world that ends.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicU32, Ordering};

use pyo3::prelude::*;

thread_local! {
    /// The gate of the world in whose call this thread is.
    static INSIDE: Cell<*const Gate> = const { Cell::new(std::ptr::null()) };
    /// What a signal's handler has raised meanwhile.
    static RAISED: RefCell<Option<PyErr>> = const { RefCell::new(None) };
}

/// What the runtime's waits ask: whether to end. Threads that are in no call of Python's say no.
///
/// # Safety
/// None: it takes nothing. The type is that of `rushmem_on_wait`.
pub(crate) unsafe extern "C" fn ask() -> i32 {
    let gate = INSIDE.with(Cell::get);
    // SAFETY: null, or the gate of a world that a frame of this thread's holds.
    let Some(gate) = (unsafe { gate.as_ref() }) else { return 0 };
    if gate.is_interrupted() {
        return 1;
    }
    // Only the main thread runs Python's signal handlers.
    // SAFETY: both take nothing and touch nothing.
    if unsafe { libc::gettid() != libc::getpid() } {
        return 0;
    }
    match Python::try_attach(|py| py.check_signals()) {
        Some(Err(error)) => {
            RAISED.with(|raised| *raised.borrow_mut() = Some(error));
            1
        }
        _ => 0,
    }
}

/// Runs `f` without the GIL, as a call of the gate's world. An exception of a signal's handler comes first.
pub(crate) fn outside<T: Send>(py: Python<'_>, gate: &Gate, f: impl FnOnce() -> T + Send) -> PyResult<T> {
    let result = py.detach(|| {
        let before = INSIDE.with(|inside| inside.replace(gate));
        let result = f();
        INSIDE.with(|inside| inside.set(before));
        result
    });
    match RAISED.with(|raised| raised.borrow_mut().take()) {
        Some(error) => Err(error),
        None => Ok(result),
    }
}

const INTERRUPTED: u32 = 1 << 29;
const ENDING: u32 = 1 << 30;
const ENDED: u32 = 1 << 31;

/// Counts the calls inside a world, and closes.
#[derive(Default)]
pub(crate) struct Gate(AtomicU32);

/// A call inside.
pub(crate) struct Inside<'a>(&'a Gate);

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.0 .0.fetch_sub(1, Ordering::Release);
    }
}

impl Gate {
    /// `None` once the world ends.
    #[inline]
    pub(crate) fn enter(&self) -> Option<Inside<'_>> {
        let before = self.0.fetch_add(1, Ordering::Acquire);
        let inside = Inside(self);
        (before & (ENDING | ENDED) == 0).then_some(inside)
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.0.load(Ordering::Acquire) & ENDED != 0
    }

    fn is_interrupted(&self) -> bool {
        self.0.load(Ordering::Relaxed) & INTERRUPTED != 0
    }

    /// Closes, where no call is inside.
    pub(crate) fn close(&self) -> bool {
        self.0.compare_exchange(0, ENDING, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Closes, and ends what waits inside; whether this call is the one that closes it.
    pub(crate) fn close_by_force(&self) -> bool {
        self.0.fetch_or(ENDING | INTERRUPTED, Ordering::AcqRel) & (ENDING | ENDED) == 0
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.load(Ordering::Acquire) & (INTERRUPTED - 1) == 0
    }

    /// For good.
    pub(crate) fn end(&self) {
        self.0.fetch_or(ENDED, Ordering::AcqRel);
    }
}
