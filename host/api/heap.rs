//! The symmetric heap: collective allocation, and user memory that becomes symmetric.

use std::ffi::c_void;
use std::ops::Deref;

use rushmem_abi::c::rushmem_heap_info_t;

use crate::slice::{SymRef, SymSlice};
use crate::{Result, Symmetric, World};

/// Every allocation is aligned to this at least: a cache line, so that two of them never share one.
const DEFAULT_ALIGN: usize = 64;

impl World {
    /// Allocates `n` elements on every PE, zeroed, aligned to 64 bytes (or to `T`, if that is more).
    /// Collective, with the same `n` and the same size of `T` on every PE; it is a
    /// [`barrier_all`](World::barrier_all), which completes what was put before it.
    ///
    /// # Errors
    /// On every PE alike: [`Mismatch`](crate::ErrorCode::Mismatch) when PEs ask for different sizes,
    /// [`HeapExhausted`](crate::ErrorCode::HeapExhausted) when the heap cannot grow that far. Nothing is
    /// allocated then.
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

    /// Makes `n` elements of the caller's memory symmetric: each PE gives a region of its own, of one size
    /// and one kind. The contents stay. Collective.
    ///
    /// What can be registered depends on where the heap is ([`World::device`]). In host memory: ordinary
    /// memory, in whole pages. In a GPU's: memory of that GPU, either whole allocations of `cuMemCreate` that
    /// can be shared by descriptor, or any part of an allocation of `cuMemAlloc` or `cudaMalloc`, at a
    /// multiple of 16 bytes. The latter serves operations of the host and on streams; kernels cannot use its
    /// symmetric address ([`Registered::in_kernels`]).
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorCode::InvalidArgument) when the address or the size is no multiple of
    /// what they must be, or cuts an allocation; [`Unsupported`](crate::ErrorCode::Unsupported) for memory
    /// that cannot be shared (the message says why, and what can be);
    /// [`Mismatch`](crate::ErrorCode::Mismatch) when PEs give different sizes or kinds. Nothing is registered
    /// then, on any PE.
    ///
    /// # Safety
    /// - `[first, first + n)` is the caller's, mapped, readable and writable, and stays so until
    ///   [`Registered::unregister`] or, without it, the end of the world.
    /// - From this call until then no reference (`&T`, `&mut T`, a slice) to the region is used: peers may
    ///   write it at any time. Use the returned value, or raw pointers.
    /// - Kernels and work on streams that use the region have ended before [`Registered::unregister`].
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
// SAFETY: the region's address is only handed to the runtime, which takes it from several threads at once.
unsafe impl<T: Symmetric> Sync for Registered<'_, T> {}

impl<'w, T: Symmetric> Deref for Registered<'w, T> {
    type Target = SymRef<'w, T>;
    fn deref(&self) -> &SymRef<'w, T> {
        &self.view
    }
}

impl<T: Symmetric> Registered<'_, T> {
    /// The caller's own address of the region, as it was registered.
    pub fn region(&self) -> *mut T {
        self.region.cast()
    }

    /// Whether kernels may use the region's symmetric address, as they use a [`SymSlice`]'s.
    ///
    /// They may not where it is memory of `cuMemAlloc`: the PEs' copies are not a fixed distance apart, and a
    /// kernel that uses the symmetric address faults. Pass it [`region`](Registered::region) for this PE's
    /// own copy, and [`ptr_at`](SymRef::ptr_at) for another PE's: good for loads and stores, and for the
    /// device library's operations with this PE itself as their target
    /// (`rushmem::put(p, src, n, rushmem::my_pe())`).
    pub fn in_kernels(&self) -> bool {
        self.view.ptr_at(self.view.world().my_pe()) == Some(self.view.as_ptr())
    }

    /// Gives the region back: it is the caller's ordinary memory again, with its present contents.
    /// Collective. Kernels and streams that use the region have ended; when this returns, no other PE has it
    /// mapped any more.
    ///
    /// # Errors
    /// [`BadAddress`](crate::ErrorCode::BadAddress) also where GPU memory was freed while it was registered.
    pub fn unregister(self) -> Result<()> {
        let world = self.view.world();
        // SAFETY: a live handle; the region was registered and is given back once, `self` is consumed.
        world.check(unsafe { (world.runtime().unregister)(world.as_raw(), self.region) })
    }
}
