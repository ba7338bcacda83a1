//! What `rushmem_module_t *` and `rushmem_kernel_t *` point at: a small cell that is never freed, only emptied, so that
//! a handle that outlived its module or world is an error and not a crash.

use std::sync::{Arc, Mutex, PoisonError};

use crate::error::{err, Result};

/// A cell for a `T` that C holds.
#[repr(C)]
pub(crate) struct Handle<T> {
    /// Tells handles of different kinds apart; at the same place in each.
    magic: u64,
    content: Mutex<Option<Arc<T>>>,
}

/// What can be held by a handle.
pub(crate) trait Handled: Sized {
    /// Its mark.
    const MAGIC: u64;
    /// For texts.
    const WHAT: &'static str;
    /// For texts: how one comes to an end before its world does.
    const GONE: &'static str = "its module was unloaded";
}

impl<T: Handled> Handle<T> {
    /// A full cell. Its few bytes are never freed.
    pub(crate) fn leak(content: Arc<T>) -> &'static Self {
        Box::leak(Box::new(Handle { magic: T::MAGIC, content: Mutex::new(Some(content)) }))
    }

    /// What the handle holds.
    pub(crate) fn get(&self) -> Result<Arc<T>> {
        let content = self.content.lock().unwrap_or_else(PoisonError::into_inner);
        content
            .clone()
            .ok_or_else(|| err!(BAD_HANDLE, "not a {}: {} or its world has ended", T::WHAT, T::GONE))
    }

    /// Uses an empty cell again.
    pub(crate) fn fill(&self, content: Arc<T>) {
        *self.content.lock().unwrap_or_else(PoisonError::into_inner) = Some(content);
    }

    /// The handle is stale from now on.
    pub(crate) fn empty(&self) {
        let content = self.content.lock().unwrap_or_else(PoisonError::into_inner).take();
        // Outside the lock: the content may hold the last reference to much.
        drop(content);
    }

    /// The handle that C's pointer means.
    ///
    /// # Safety
    /// `pointer` is null or was made from a handle.
    pub(crate) unsafe fn from_raw(pointer: *mut std::ffi::c_void) -> Result<&'static Self> {
        // SAFETY: per contract, and all handles begin with their mark.
        let magic = unsafe { pointer.cast::<u64>().as_ref() };
        if magic != Some(&T::MAGIC) {
            return Err(err!(BAD_HANDLE, "not a {}: the handle is null or of another kind", T::WHAT));
        }
        // SAFETY: the mark says that it is one of ours, and these live for ever.
        Ok(unsafe { &*pointer.cast::<Self>() })
    }

    /// The pointer for C.
    pub(crate) fn as_raw<C>(&'static self) -> *mut C {
        std::ptr::from_ref(self).cast_mut().cast()
    }
}
