//! The symmetric heap: collective allocation, and user memory that becomes symmetric.

use std::ffi::c_void;
use std::ops::Deref;

use rushmem_host::capi::types::rushmem_heap_info_t;

use crate::signal::{Signal, Signals};
use crate::slice::{SymRef, SymSlice};
use crate::{Error, ErrorCode, Result, Symmetric, World};

/// Every allocation is aligned to this at least: a cache line, so that two of them never share one.
const DEFAULT_ALIGN: usize = 64;

impl World {
    /// Allocates `n` elements on every PE, zeroed, aligned to 64 bytes (or to `T`, if that is more).
    /// Collective, with the same `n` and the same size of `T` on every PE; it is a barrier.
    ///
    /// # Errors
    /// On every PE alike: [`ErrorCode::Mismatch`] when PEs ask for different sizes,
    /// [`ErrorCode::HeapExhausted`] when the heap cannot grow that far. Nothing is allocated then.
    pub fn alloc<T: Symmetric>(&self, n: usize) -> Result<SymSlice<'_, T>> {
        self.alloc_aligned(n, DEFAULT_ALIGN)
    }

    /// [`World::alloc`] with an alignment in bytes, a power of two.
    pub fn alloc_aligned<T: Symmetric>(&self, n: usize, align: usize) -> Result<SymSlice<'_, T>> {
        const { assert!(size_of::<T>() > 0, "an element of symmetric memory has a size") };
        // A size that overflows is passed on as one that no heap can hold: the call is collective, and a PE
        // that returned here by itself would leave the others waiting.
        let bytes = n.saturating_mul(size_of::<T>());
        let mut ptr = std::ptr::null_mut();
        // SAFETY: a live handle and a place for the answer.
        self.check(unsafe {
            (self.runtime().alloc)(self.as_raw(), bytes, align.max(align_of::<T>()), &mut ptr)
        })?;
        Ok(SymSlice::new(SymRef::new(self, ptr.cast(), n)))
    }

    /// One signal word on every PE, zero. Collective.
    pub fn signal(&self) -> Result<Signal<'_>> {
        self.alloc(1).map(Signal::new)
    }

    /// `n` signal words on every PE, zero. Collective.
    pub fn signals(&self, n: usize) -> Result<Signals<'_>> {
        self.alloc(n).map(Signals::new)
    }

    /// The heap in numbers. Local.
    pub fn heap_info(&self) -> Result<HeapInfo> {
        let mut info = rushmem_heap_info_t::default();
        // SAFETY: a live handle and a place for the answer.
        self.check(unsafe { (self.runtime().heap_info)(self.as_raw(), &mut info) })?;
        Ok(HeapInfo {
            used: info.used,
            committed: info.committed,
            max: info.max,
            allocations: info.allocations,
        })
    }

    /// Makes `n` elements of the caller's memory symmetric: each PE gives a region of its own, of one size.
    /// The contents stay. Collective.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidArgument`] when the address or the size in bytes is no multiple of the page size;
    /// [`ErrorCode::Mismatch`] when PEs give different sizes.
    ///
    /// # Safety
    /// - `[first, first + n)` is mapped, private to the caller, readable and writable, and stays so until
    ///   [`Registered::unregister`] or, without it, the end of the world.
    /// - From this call until then no reference (`&T`, `&mut T`, a slice) to the region is used: peers may
    ///   write it at any time. Use the returned value, or raw pointers.
    pub unsafe fn register<T: Symmetric>(&self, first: *mut T, n: usize) -> Result<Registered<'_, T>> {
        const { assert!(size_of::<T>() > 0, "an element of symmetric memory has a size") };
        let bytes = n.saturating_mul(size_of::<T>());
        let mut alias = std::ptr::null_mut();
        // SAFETY: a live handle and a place for the answer; the caller vouches for the region.
        self.check(unsafe { (self.runtime().register)(self.as_raw(), first.cast(), bytes, &mut alias) })?;
        Ok(Registered { region: first.cast(), view: SymRef::new(self, alias.cast(), n) })
    }
}

/// The symmetric heap in numbers, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct HeapInfo {
    /// Handed out and not yet freed, rounded up to the allocation granule.
    pub used: u64,
    /// Backed by memory now.
    pub committed: u64,
    /// The limit of growth.
    pub max: u64,
    /// Live allocations.
    pub allocations: u64,
}

/// User memory that is symmetric: everything that a [`SymRef`] can, by way of the region's symmetric address.
#[must_use = "the region stays registered until unregister() or the end of the world"]
pub struct Registered<'w, T: Symmetric> {
    region: *mut c_void,
    view: SymRef<'w, T>,
}

// SAFETY: the region's address is only handed to the runtime, which takes it from any thread.
unsafe impl<T: Symmetric> Send for Registered<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Symmetric> Sync for Registered<'_, T> {}

impl<'w, T: Symmetric> Deref for Registered<'w, T> {
    type Target = SymRef<'w, T>;
    fn deref(&self) -> &SymRef<'w, T> {
        &self.view
    }
}

impl<T: Symmetric> Registered<'_, T> {
    /// Gives the region back: it is the caller's ordinary memory again, with its present contents.
    /// Collective.
    pub fn unregister(self) -> Result<()> {
        let world = self.view.world();
        // SAFETY: a live handle; the region was registered and is given back once, `self` is consumed.
        world.check(unsafe { (world.runtime().unregister)(world.as_raw(), self.region) })
    }
}

pub(crate) fn out_of_bounds(what: std::fmt::Arguments<'_>, len: usize) -> Error {
    Error::new(ErrorCode::OutOfBounds, format!("{what} of a symmetric slice of {len} elements"))
}
