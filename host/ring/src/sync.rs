//! Atomics and cells: the standard library's, with the layout that kernels see, or loom's.

#[cfg(loom)]
pub(crate) use loom::sync::atomic::fence;
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::fence;

/// A word that several threads access at once.
#[cfg(loom)]
pub use loom::sync::atomic::AtomicU64;
/// A word that several threads access at once.
#[cfg(not(loom))]
pub use std::sync::atomic::AtomicU64;

/// A word that belongs to one thread at a time, by protocol: loom fails where it does not.
#[derive(Debug)]
#[cfg_attr(not(loom), repr(transparent))]
pub(crate) struct Cell(
    #[cfg(loom)] loom::cell::UnsafeCell<u64>,
    #[cfg(not(loom))] std::cell::UnsafeCell<u64>,
);

// SAFETY: only accessed by `read` and `write`, whose callers own it.
unsafe impl Sync for Cell {}

impl Cell {
    pub(crate) fn new(value: u64) -> Cell {
        #[cfg(loom)]
        return Cell(loom::cell::UnsafeCell::new(value));
        #[cfg(not(loom))]
        return Cell(std::cell::UnsafeCell::new(value));
    }

    /// # Safety
    /// Nobody writes it meanwhile.
    pub(crate) unsafe fn read(&self) -> u64 {
        #[cfg(loom)]
        // SAFETY: per contract.
        return self.0.with(|at| unsafe { *at });
        #[cfg(not(loom))]
        // SAFETY: per contract.
        return unsafe { *self.0.get() };
    }

    /// # Safety
    /// Nobody else accesses it meanwhile.
    pub(crate) unsafe fn write(&self, value: u64) {
        #[cfg(loom)]
        // SAFETY: per contract.
        self.0.with_mut(|at| unsafe { *at = value });
        #[cfg(not(loom))]
        // SAFETY: per contract.
        unsafe {
            *self.0.get() = value;
        }
    }
}
