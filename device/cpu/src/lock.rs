//! Locks of what is whole between any two statements, so that a panic of another holder spoils nothing.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks it.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
