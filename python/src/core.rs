//! A world as this package holds it: one PE's membership of a job, with its ends.
//!
//! Arrays, teams, streams and kernels hold it, so it lives as long as the last of them; its job may end
//! before. Then they are refused, and the memory stays mapped for the arrays that Python still sees.

use std::ffi::CString;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use pyo3::prelude::*;
use rushmem_abi::c::*;

use crate::call::{outside, Gate, Inside};
use crate::error::{self, Failure};
use crate::keep::{lock, Keep};
use crate::table::{text, Table};

/// How long calls of other threads may take to leave a world that is aborted.
const LEAVE: Duration = Duration::from_secs(2);

/// One PE's membership of one job.
pub(crate) struct Core {
    pub(crate) table: &'static Table,
    /// The handle, as a number: it crosses threads.
    raw: usize,
    pub(crate) view: rushmem_view_t,
    pub(crate) gate: Gate,
    /// What it keeps for arrays, streams and calls.
    pub(crate) keep: Keep,
    /// What keeps the memory mapped past the world's end; 0 once given back.
    memory: Mutex<usize>,
    /// Why the world has ended, for texts.
    why: Mutex<String>,
}

// SAFETY: the view is constant, and its pointer is to a word that is read by the runtime alone.
unsafe impl Send for Core {}
// SAFETY: the C ABI takes a world from several threads at once; the rest is behind locks.
unsafe impl Sync for Core {}

/// Worlds that have not ended, for the end of the interpreter.
static LIVE: Mutex<Vec<Weak<Core>>> = Mutex::new(Vec::new());

/// A world was aborted after another PE's death.
static FOLLOWS: AtomicBool = AtomicBool::new(false);

/// Whether that has happened; once.
pub(crate) fn take_follows() -> bool {
    FOLLOWS.swap(false, Ordering::Relaxed)
}

/// Whether this process is in a job. Takes no lock: for children of fork.
pub(crate) fn any_joined() -> bool {
    JOINED.load(Ordering::Relaxed) != 0
}

/// Worlds that were joined and have not ended.
static JOINED: AtomicUsize = AtomicUsize::new(0);

/// Whether this process is a child of fork of one that was in a job.
fn is_child() -> bool {
    crate::FORKED.load(Ordering::Relaxed)
}

/// The worlds that have not ended, the latest first.
pub(crate) fn live() -> Vec<Arc<Core>> {
    let mut live = lock(&LIVE);
    live.retain(|core| core.strong_count() > 0);
    live.iter().rev().filter_map(Weak::upgrade).filter(|core| !core.gate.has_ended()).collect()
}

impl Core {
    /// Of a world that was just joined.
    pub(crate) fn new(table: &'static Table, raw: usize) -> Result<Arc<Core>, Failure> {
        let (w, mut memory) = (raw as *mut rushmem_world_t, std::ptr::null_mut());
        let mut view = std::mem::MaybeUninit::<rushmem_view_t>::uninit();
        // SAFETY: a live handle, and places for the answers.
        Failure::check(table, unsafe { (table.view)(w, view.as_mut_ptr()) })?;
        // SAFETY: a live handle, and a place for the claim.
        Failure::check(table, unsafe { (table.others.memory_keep)(w, &mut memory) })?;
        let core = Arc::new(Core {
            table,
            raw,
            // SAFETY: filled by the successful call.
            view: unsafe { view.assume_init() },
            gate: Gate::default(),
            keep: Keep::default(),
            memory: Mutex::new(memory as usize),
            why: Mutex::default(),
        });
        lock(&LIVE).push(Arc::downgrade(&core));
        JOINED.fetch_add(1, Ordering::Relaxed);
        Ok(core)
    }

    /// The handle.
    pub(crate) fn raw(&self) -> *mut rushmem_world_t {
        self.raw as *mut rushmem_world_t
    }

    pub(crate) fn is_gpu(&self) -> bool {
        self.view.device == RUSHMEM_DEVICE_CUDA
    }

    /// `PE 1 of 4`.
    pub(crate) fn who(&self) -> String {
        format!("PE {} of {}", self.view.my_pe, self.view.n_pes)
    }

    /// Enters a call; refused once the world has ended.
    pub(crate) fn enter(&self, py: Python<'_>) -> PyResult<Inside<'_>> {
        self.gate.enter().ok_or_else(|| {
            let text = format!("this world has ended: {}", *lock(&self.why));
            error::of(py, RUSHMEM_ERR_BAD_HANDLE, &text)
        })
    }

    /// One call into the runtime, without the GIL; its error as an exception.
    pub(crate) fn call(
        &self,
        py: Python<'_>,
        f: impl FnOnce(&'static Table, *mut rushmem_world_t) -> i32 + Send,
    ) -> PyResult<()> {
        self.run(py, || Failure::check(self.table, f(self.table, self.raw())))
    }

    /// Several calls into the runtime as one.
    pub(crate) fn run<T: Send>(
        &self,
        py: Python<'_>,
        f: impl FnOnce() -> Result<T, Failure> + Send,
    ) -> PyResult<T> {
        let _inside = self.enter(py)?;
        outside(py, &self.gate, f)?.map_err(|failure| failure.raise(py))
    }

    /// Leaves the job in good order. Collective. The world is gone afterwards, also where it fails.
    pub(crate) fn finalize(&self, py: Python<'_>) -> PyResult<()> {
        if self.gate.has_ended() {
            return Ok(());
        }
        if is_child() {
            // SAFETY: a live handle, which is the parent's: the runtime has the text.
            return self.call(py, |table, w| unsafe { (table.check)(w) });
        }
        if !self.gate.close() {
            let text = format!("finalize: another thread is inside a call of the world of {}", self.who());
            return Err(error::of(py, RUSHMEM_ERR_BUSY, &text));
        }
        let left = outside(py, &self.gate, || {
            // SAFETY: a live handle that no other thread uses, as the gate is closed.
            let work = Failure::check(self.table, unsafe { (self.table.synchronize)(self.raw()) });
            // SAFETY: a live handle that no other thread uses, as the gate is closed.
            let left = Failure::check(self.table, unsafe { (self.table.finalize)(self.raw()) });
            if let Err(Failure(_, why)) = &left {
                self.abort_raw(&format!("finalize failed: {why}"));
            }
            work.and(left)
        });
        self.ended("it was finalised");
        left?.map_err(|failure| failure.raise(py))
    }

    /// Leaves the job at once because of `why`: the others' calls end with that text. Local.
    pub(crate) fn abort(&self, py: Python<'_>, why: &str) {
        if is_child() {
            return;
        }
        // SAFETY: a live handle, or one that is refused.
        let broken = unsafe { (self.table.check)(self.raw()) } == RUSHMEM_ERR_PEER_DEAD;
        FOLLOWS.fetch_or(broken, Ordering::Relaxed);
        self.end_by_force(py, || self.abort_raw(why), &format!("it was aborted: {why}"));
    }

    /// Leaves the job alone, as the end of a program does. Local.
    pub(crate) fn leave(&self, py: Python<'_>, why: &str) {
        if is_child() {
            return;
        }
        if self.view.n_pes == 1 && self.gate.close() {
            py.detach(|| {
                // SAFETY: a live handle that no other thread uses, as the gate is closed.
                unsafe { (self.table.synchronize)(self.raw()) };
                // SAFETY: a live handle that no other thread uses, as the gate is closed.
                let code = unsafe { (self.table.finalize)(self.raw()) };
                if code != RUSHMEM_OK {
                    self.abort_raw(why);
                }
            });
            return self.ended(why);
        }
        let text = CString::new(why.replace('\0', " ")).expect("no NUL is left");
        let leave = || {
            // SAFETY: a live handle that no other thread uses; the text outlives the call.
            unsafe { (self.table.leave)(self.raw(), text.as_ptr()) };
        };
        self.end_by_force(py, leave, why);
    }

    fn end_by_force(&self, py: Python<'_>, end: impl FnOnce() + Send, why: &str) {
        if !self.gate.close_by_force() {
            return;
        }
        py.detach(|| {
            let start = Instant::now();
            while !self.gate.is_empty() && start.elapsed() < LEAVE {
                std::thread::sleep(Duration::from_millis(1));
            }
            // Where a call does not leave, the runtime's own handler of exit says goodbye.
            if self.gate.is_empty() {
                end();
            }
        });
        self.ended(why);
    }

    fn abort_raw(&self, why: &str) {
        let why = CString::new(why.replace('\0', " ")).expect("no NUL is left");
        // SAFETY: a live handle, or one that is refused; the text outlives the call.
        unsafe { (self.table.abort)(self.raw(), why.as_ptr()) };
    }

    fn ended(&self, why: &str) {
        *lock(&self.why) = why.to_owned();
        self.gate.end();
        JOINED.fetch_sub(1, Ordering::Relaxed);
        self.keep.let_go();
        if self.keep.allocations.exports_nothing() {
            self.drop_memory();
        }
    }

    /// Without arrays of a world that has ended, nobody looks at its memory.
    pub(crate) fn allocation_dropped(&self) {
        if self.gate.has_ended() && self.keep.allocations.exports_nothing() {
            self.drop_memory();
        }
    }

    fn drop_memory(&self) {
        let memory = std::mem::take(&mut *lock(&self.memory));
        if memory != 0 {
            // SAFETY: the claim that `new` made, given back once; no array is left that shows the memory, or
            // the world lives.
            unsafe { (self.table.others.memory_drop)(memory as *mut rushmem_memory_t) };
        }
    }

    /// The device for people.
    pub(crate) fn device_name(&self) -> String {
        let mut name = std::ptr::null();
        // SAFETY: a live handle and a place for the pointer, whose text is copied here.
        unsafe {
            match (self.table.device_name)(self.raw(), &mut name) {
                RUSHMEM_OK => text(name),
                _ => String::new(),
            }
        }
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        // In a child of fork the world is its parent's to leave.
        if !self.gate.has_ended() && !is_child() {
            let why = "its World was dropped without finalize()";
            Python::try_attach(|py| {
                if self.view.n_pes > 1 {
                    eprintln!(
                        "rushmem: {} leaves the job: {why}; use `with rushmem.init() as world`, or keep it until \
                         world.finalize()",
                        self.who()
                    );
                }
                self.leave(py, why);
            });
        }
        self.drop_memory();
    }
}
