//! What `rushmem_module_t *` and `rushmem_kernel_t *` point at: a small cell that is never freed, only
//! emptied, so that a handle that outlived its module or world is an error and not a crash.

use std::ffi::c_void;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::error::{err, Result};
use crate::handles::Cell;

/// What a handle of a `T` that C holds points at.
pub(crate) type Handle<T> = Cell<HandleContent<T>>;

/// What is in the cell, if anything.
pub(crate) struct HandleContent<T>(Mutex<Option<Arc<T>>>);

/// What can be held by a handle.
pub(crate) trait Handled: Sized {
    /// Its mark.
    const MAGIC: u64;
    /// For texts.
    const WHAT: &'static str;
    /// For texts: how one comes to an end before its world does.
    const GONE: &'static str = "its module was unloaded";
}

impl<T: Handled + Send + Sync> Handle<T> {
    /// A full cell. Its few bytes are never freed.
    pub(crate) fn hold(content: Arc<T>) -> Result<&'static Self> {
        Cell::make(T::MAGIC, HandleContent(Mutex::new(Some(content))))
    }

    fn lock(&self) -> MutexGuard<'_, Option<Arc<T>>> {
        self.content.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the handle holds.
    pub(crate) fn get(&self) -> Result<Arc<T>> {
        let content = self.lock().clone();
        content.ok_or_else(|| err!(BAD_HANDLE, "not a {}: {} or its world has ended", T::WHAT, T::GONE))
    }

    /// Uses an empty cell again.
    pub(crate) fn fill(&self, content: Arc<T>) {
        *self.lock() = Some(content);
    }

    /// The handle is stale from now on.
    pub(crate) fn empty(&self) {
        let content = self.lock().take();
        // Outside the lock: the content may hold the last reference to much.
        drop(content);
    }

    /// The handle that C's pointer means; any other pointer is an error.
    pub(crate) fn from_raw(pointer: *mut c_void) -> Result<&'static Self> {
        // SAFETY: only `hold` makes cells of this mark, of which each `T` has its own.
        unsafe { Cell::find(pointer, T::MAGIC) }.ok_or_else(|| {
            err!(BAD_HANDLE, "not a {}: the handle is null, of another kind, or none of rushmem's", T::WHAT)
        })
    }
}
