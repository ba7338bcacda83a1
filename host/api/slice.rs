//! Symmetric memory by type: the allocation that is owned, and the view that does the work.
//!
//! Neither ever hands out `&T` or `&mut T`: a peer may write at any time, and a reference would promise the
//! compiler that nobody does. There are copies in and out, single-word operations, and raw
//! pointers.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Bound, Deref, RangeBounds};

use crate::error::out_of_bounds;
use crate::near::{self, Near};
use crate::{forked, Pe, Result, Symmetric, World};

/// A symmetric allocation: `len` elements at the same place in every PE's heap.
///
/// Everything that can be done with it is a method of [`SymRef`], to which it dereferences.
///
/// Dropping it frees nothing: [`free`](SymSlice::free) is collective, and a collective call hidden in a drop
/// would make PEs that drop in different orders, or while unwinding, wait for each other for ever. What is
/// never freed lives until the world ends.
#[must_use = "the memory stays allocated until free() or the end of the world"]
pub struct SymSlice<'w, T: Symmetric> {
    view: SymRef<'w, T>,
}

impl<'w, T: Symmetric> SymSlice<'w, T> {
    pub(crate) fn new(view: SymRef<'w, T>) -> Self {
        SymSlice { view }
    }

    pub(crate) fn into_view(self) -> SymRef<'w, T> {
        self.view
    }

    /// Frees the allocation on every PE. Collective, in the same order as other allocations and frees; it is
    /// a [`barrier_all`](World::barrier_all), so no PE's earlier access can meet the memory's next owner.
    /// Kernels that use the memory must have ended, and so must operations on streams
    /// ([`World::synchronize`]).
    pub fn free(self) -> Result<()> {
        let world = self.view.world;
        // SAFETY: a live handle and an allocation of its own, freed once: `self` is consumed and every view
        // of it has ended, because a view borrows it.
        world.check(unsafe { (world.runtime().free)(world.as_raw(), self.view.ptr.cast()) })
    }
}

impl<'w, T: Symmetric> Deref for SymSlice<'w, T> {
    type Target = SymRef<'w, T>;
    fn deref(&self) -> &SymRef<'w, T> {
        &self.view
    }
}

impl<T: Symmetric> fmt::Debug for SymSlice<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.view.fmt(f)
    }
}

/// A view of symmetric memory: a [`SymSlice`] or a part of one. It borrows its allocation, which cannot be
/// freed while the view is in use.
pub struct SymRef<'a, T: Symmetric> {
    world: &'a World,
    ptr: *mut T,
    len: usize,
    near: Near,
    elements: PhantomData<T>,
}

// SAFETY: the pointer is an address for copies and atomics, valid from any thread while the world lives; no
// reference is ever made from it, and a `Symmetric` type is `Send`.
unsafe impl<T: Symmetric> Send for SymRef<'_, T> {}
// SAFETY: an address for copies and atomics, of which no reference is made; `near.rs` deals with accesses
// that race.
unsafe impl<T: Symmetric> Sync for SymRef<'_, T> {}

impl<'a, T: Symmetric> SymRef<'a, T> {
    pub(crate) fn new(world: &'a World, ptr: *mut T, len: usize) -> Self {
        SymRef { world, ptr, len, near: world.near(), elements: PhantomData }
    }

    /// Where `pe`'s copy of element `index`, which is in bounds, is mapped here, for a PE of the run around
    /// this one; the runtime knows the other near PEs.
    #[inline(always)]
    pub(crate) fn near(&self, index: usize, pe: Pe) -> Option<*mut T> {
        self.near.at(self.ptr.wrapping_add(index), pe)
    }

    /// [`SymRef::near`] for what may be called in a loop until something changes: `None` in a broken job.
    #[inline(always)]
    pub(crate) fn near_unbroken(&self, index: usize, pe: Pe) -> Option<*mut T> {
        if self.world.is_broken() {
            None
        } else {
            self.near(index, pe)
        }
    }

    /// The same view again, by value, for the slow paths: a method that took `&self` out of line would force
    /// every view whose fast path may end there into memory, where each store of a loop might be to it.
    #[inline(always)]
    pub(crate) fn again(&self) -> SymRef<'a, T> {
        SymRef { world: self.world, ptr: self.ptr, len: self.len, near: self.near, elements: PhantomData }
    }

    /// The world that the memory belongs to.
    #[inline(always)]
    pub fn world(&self) -> &'a World {
        self.world
    }

    /// Number of elements (on each PE).
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Size in bytes (on each PE).
    pub fn bytes(&self) -> usize {
        self.len * size_of::<T>()
    }

    /// The symmetric address: where this PE's copy is, and what every operation and kernel takes. Null when
    /// empty. Reading or writing through it races with peers unless a protocol of yours says otherwise.
    #[inline(always)]
    pub fn as_ptr(&self) -> *mut T {
        self.ptr
    }

    /// Where `pe`'s copy is mapped in this process; `None` where it is not mapped, or there is no such PE
    /// (OpenSHMEM 1.5, `shmem_ptr`).
    pub fn ptr_at(&self, pe: Pe) -> Option<*mut T> {
        if self.len == 0 {
            return None;
        }
        if let Some(near) = self.near(0, pe) {
            return Some(near);
        }
        let mut out = std::ptr::null_mut();
        // SAFETY: a live handle, a live allocation and a place for the answer.
        let code =
            unsafe { (self.world.runtime().ptr)(self.world.as_raw(), self.ptr.cast(), pe.raw(), &mut out) };
        (code == 0 && !out.is_null()).then(|| out.cast())
    }

    /// A part of this view.
    ///
    /// # Errors
    /// [`OutOfBounds`](crate::ErrorCode::OutOfBounds) when the range starts after it ends or ends past the
    /// view.
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Result<SymRef<'_, T>> {
        let start = match range.start_bound() {
            Bound::Included(start) => *start,
            Bound::Excluded(before) => before.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(last) => last.saturating_add(1),
            Bound::Excluded(end) => *end,
            Bound::Unbounded => self.len,
        };
        if start > end || end > self.len {
            return Err(out_of_bounds(format_args!("range {start}..{end}"), self.len));
        }
        Ok(SymRef::new(self.world, self.ptr.wrapping_add(start), end - start))
    }

    /// Copies `src` to this PE's own elements `0..src.len()`.
    pub fn write(&self, src: &[T]) -> Result<()> {
        self.put(src, self.world.my_pe())
    }

    /// Copies this PE's own elements `0..dst.len()` out.
    pub fn read(&self, dst: &mut [T]) -> Result<()> {
        self.get(dst, self.world.my_pe())
    }

    /// A copy of all of this PE's own elements.
    ///
    /// # Errors
    /// None where the heap is in host memory, whatever has become of the job (but for a child of fork); on a
    /// GPU those of [`read`](SymRef::read).
    pub fn to_vec(&self) -> Result<Vec<T>> {
        let mut copy = vec![T::new_zeroed(); self.len];
        if self.world.is_host_heap() && !forked::is_child() {
            // SAFETY: this PE's own elements, and as many in the copy. Not `read`: that fails in a broken
            // job.
            unsafe { near::copy(copy.as_mut_ptr().cast(), self.ptr.cast(), self.bytes()) };
        } else {
            self.read(&mut copy)?;
        }
        Ok(copy)
    }

    /// Sets each of this PE's own elements to `value`. Errors as for [`write`](SymRef::write).
    pub fn fill(&self, value: T) -> Result<()> {
        // Element by element would be one word at a time; a block of copies goes as fast as memory.
        let largest = if self.world.is_host_heap() { 4096 } else { 1 << 20 };
        let block = vec![value; self.len.min(largest / size_of::<T>() + 1)];
        let mut start = 0;
        while start < self.len {
            let n = block.len().min(self.len - start);
            let part = SymRef::new(self.world, self.ptr.wrapping_add(start), n);
            part.write(&block[..n])?;
            start += n;
        }
        Ok(())
    }
}

impl<T: Symmetric> fmt::Debug for SymRef<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let element = std::any::type_name::<T>();
        write!(f, "[{element}; {}] at {:p} of {}", self.len, self.ptr, self.world.my_pe())
    }
}
