//! The cells that handles of the C ABI point at: `rushmem_world_t *`, modules, kernels, events. All lie in
//! one range of addresses that holds nothing else, so that a pointer is known to be a handle, or not to be
//! one, before it is followed: garbage is an error and not a crash. A look-up is two loads of this module's
//! own, a comparison, and the mark in the cell.
//!
//! Cells are never given back, so a handle that outlived what it stood for is an error, too, and never
//! another thing's. The range is only reserved; it becomes memory as it fills.

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::error::{err, Error, Result};

/// Bytes of a cell, and how they are aligned.
pub(crate) const CELL: usize = 32;
/// Address space for them: eight million.
const RESERVED: usize = 256 << 20;
/// It becomes memory in pieces of this size.
const STEP: usize = 64 << 10;

/// Where the cells begin; 0 before the first. Set once.
static BASE: AtomicUsize = AtomicUsize::new(0);
/// Bytes behind it that are memory. What is not a cell yet has no mark.
static MAPPED: AtomicUsize = AtomicUsize::new(0);
/// Bytes behind it that are taken.
static TAKEN: Mutex<usize> = Mutex::new(0);

/// What is in a cell: `T` behind a mark that says so.
#[repr(C, align(32))]
pub(crate) struct Cell<T> {
    mark: AtomicU64,
    pub(crate) content: T,
}

impl<T: Send + Sync> Cell<T> {
    /// A new cell of what `mark` stands for. It lives for ever.
    pub(crate) fn make(mark: u64, content: T) -> Result<&'static Cell<T>> {
        const { assert!(size_of::<Cell<T>>() == CELL && align_of::<Cell<T>>() == CELL) };
        let at: *mut Cell<T> = (take()? as *mut c_void).cast();
        // SAFETY: a cell's memory, aligned, that no other call got. Its mark comes last, lest a wild pointer
        // to it count as a handle too soon.
        unsafe {
            at.write(Cell { mark: AtomicU64::new(0), content });
            (*at).mark.store(mark, Ordering::Release);
            Ok(&*at)
        }
    }

    /// The cell that `pointer` points at, where it is one that was made with `mark`: each mark is of one `T`.
    ///
    /// # Safety
    /// Cells of `mark` are made of `T`.
    #[inline]
    pub(crate) unsafe fn find(pointer: *const c_void, mark: u64) -> Option<&'static Cell<T>> {
        // In this order: the base is there before there is memory behind it.
        let mapped = MAPPED.load(Ordering::Acquire);
        let offset = (pointer as usize).wrapping_sub(BASE.load(Ordering::Relaxed));
        if offset >= mapped || offset % CELL != 0 {
            return None;
        }
        // SAFETY: in the memory of the cells (which is empty as long as there is no base), at the start of
        // one.
        let is = unsafe { (*pointer.cast::<AtomicU64>()).load(Ordering::Acquire) };
        // SAFETY: the mark was stored behind a `Cell<T>`, by the caller's word.
        (is == mark).then(|| unsafe { &*pointer.cast() })
    }

    /// The pointer for C.
    pub(crate) fn as_raw<C>(&'static self) -> *mut C {
        std::ptr::from_ref(self).cast_mut().cast()
    }
}

/// The next cell's address.
fn take() -> Result<usize> {
    let mut taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
    if *taken == RESERVED {
        return Err(err!(
            UNSUPPORTED,
            "this process has made {} handles, which is all it can",
            RESERVED / CELL
        ));
    }
    if BASE.load(Ordering::Relaxed) == 0 {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a fresh mapping wherever the kernel likes.
        let base = unsafe { libc::mmap(null_mut(), RESERVED, libc::PROT_NONE, flags, -1, 0) };
        if base == libc::MAP_FAILED {
            return Err(Error::os("reserving address space for handles"));
        }
        BASE.store(base as usize, Ordering::Relaxed);
    }
    let base = BASE.load(Ordering::Relaxed);
    let mapped = MAPPED.load(Ordering::Relaxed);
    if *taken == mapped {
        // SAFETY: a part of the range above that nobody uses yet.
        let rc = unsafe {
            libc::mprotect((base + mapped) as *mut c_void, STEP, libc::PROT_READ | libc::PROT_WRITE)
        };
        if rc != 0 {
            return Err(Error::os("memory for handles"));
        }
        // Release: a thread that sees that there is memory sees where.
        MAPPED.store(mapped + STEP, Ordering::Release);
    }
    *taken += CELL;
    Ok(base + *taken - CELL)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MARK: u64 = 0x7465_7374_7465_7374;

    fn find(pointer: usize) -> Option<u64> {
        // SAFETY: cells of this mark are made below, of this type.
        unsafe { Cell::<AtomicU64>::find(pointer as *const c_void, MARK) }
            .map(|cell| cell.content.load(Ordering::Relaxed))
    }

    #[test]
    fn only_what_was_made_is_found() {
        let cells: Vec<_> =
            (0..5000u64).map(|i| Cell::make(MARK, AtomicU64::new(i)).expect("there is room")).collect();
        for (i, cell) in (0u64..).zip(&cells) {
            let at = cell.as_raw::<c_void>() as usize;
            assert_eq!(find(at), Some(i));
            for wrong in [1, 8, 16, 31] {
                assert_eq!(find(at + wrong), None);
            }
            // SAFETY: no cell is of this mark.
            assert!(unsafe { Cell::<AtomicU64>::find(at as *const c_void, MARK + 1) }.is_none());
        }
        let base = BASE.load(Ordering::Relaxed);
        let local = 0u64;
        let around =
            [base - CELL, base + RESERVED - CELL, base + RESERVED, base + MAPPED.load(Ordering::Relaxed)];
        let garbage = [
            0,
            1,
            8,
            CELL,
            usize::MAX,
            usize::MAX - 31,
            &raw const local as usize,
            find as *const () as usize,
        ];
        for pointer in garbage.into_iter().chain(around) {
            assert_eq!(find(pointer), None, "{pointer:#x}");
        }
    }
}
