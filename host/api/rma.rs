//! Remote memory access: put, get, p, g and their strided forms (OpenSHMEM 1.5, section 9.6).
//!
//! The blocking forms return when the source may be used again (put, p) or the data has come (get, g).
//! A put is *complete* at the target after [`World::quiet`](crate::World::quiet) or a barrier, and *ordered*
//! before later puts, atomics and signals to the same PE by [`World::fence`](crate::World::fence).

use crate::error::out_of_bounds;
use crate::near;
use crate::slice::SymRef;
use crate::{Error, ErrorCode, Pe, Result, Symmetric};

impl<T: Symmetric> SymRef<'_, T> {
    /// Copies `src` to `pe`'s elements `0..src.len()`.
    ///
    /// # Errors
    /// [`OutOfBounds`](ErrorCode::OutOfBounds) when `src` is longer than this view,
    /// [`BadPe`](ErrorCode::BadPe) when there is no such PE. Nothing is written then.
    #[inline]
    pub fn put(&self, src: &[T], pe: Pe) -> Result<()> {
        if src.len() <= self.len() {
            if let Some(to) = self.near(0, pe) {
                // SAFETY: `pe`'s copy of a live allocation, of which `src.len()` elements were just checked.
                unsafe { near::copy_in(to.cast(), src.as_ptr().cast(), size_of_val(src)) };
                return Ok(());
            }
        }
        self.again().put_slow(src.as_ptr(), src.len(), pe)
    }

    /// Copies all of `src`, symmetric memory of this PE, to `pe`'s elements `0..src.len()`. Errors as for
    /// [`put`](SymRef::put).
    #[inline]
    pub fn put_from(&self, src: &SymRef<'_, T>, pe: Pe) -> Result<()> {
        if src.len() <= self.len() {
            if let Some(to) = self.near(0, pe) {
                // SAFETY: as in `put`; the source is this PE's copy of a live allocation.
                unsafe { near::copy(to.cast(), src.as_ptr().cast(), src.bytes()) };
                return Ok(());
            }
        }
        self.again().put_slow(src.as_ptr(), src.len(), pe)
    }

    /// Copies `pe`'s elements `0..dst.len()` to `dst`. Errors as for [`put`](SymRef::put).
    #[inline]
    pub fn get(&self, dst: &mut [T], pe: Pe) -> Result<()> {
        if dst.len() <= self.len() {
            if let Some(from) = self.near_unbroken(0, pe) {
                // SAFETY: `pe`'s copy of a live allocation, of which `dst.len()` elements were just checked.
                unsafe { near::copy_out(dst.as_mut_ptr().cast(), from.cast(), size_of_val(dst)) };
                return Ok(());
            }
        }
        self.again().get_slow(dst.as_mut_ptr(), dst.len(), pe)
    }

    /// Copies all of `pe`'s elements to this PE's `dst`, which is symmetric too. Errors as for
    /// [`put`](SymRef::put), with `dst` shorter than this view.
    #[inline]
    pub fn get_into(&self, dst: &SymRef<'_, T>, pe: Pe) -> Result<()> {
        if dst.len() < self.len() {
            return Err(out_of_bounds(format_args!("{} elements at the start", self.len()), dst.len()));
        }
        if let Some(from) = self.near_unbroken(0, pe) {
            // SAFETY: both sides are copies of live allocations, long enough as just checked.
            unsafe { near::copy(dst.as_ptr().cast(), from.cast(), self.bytes()) };
            return Ok(());
        }
        self.again().get_slow(dst.as_ptr(), self.len(), pe)
    }

    /// Stores `value` into `pe`'s element `index`. One aligned word of 1, 2, 4 or 8 bytes is never torn.
    ///
    /// # Errors
    /// [`OutOfBounds`](ErrorCode::OutOfBounds) or [`BadPe`](ErrorCode::BadPe); nothing is written then.
    #[inline(always)]
    pub fn p(&self, index: usize, value: T, pe: Pe) -> Result<()> {
        if index < self.len() {
            if let Some(to) = self.near(index, pe) {
                // SAFETY: `pe`'s copy of one element of a live allocation; a `Symmetric` type has no padding.
                if unsafe { near::store_word(to, value) } {
                    return Ok(());
                }
            }
        }
        self.again().p_slow(index, value, pe)
    }

    /// Loads `pe`'s element `index`. One aligned word of 1, 2, 4 or 8 bytes is never torn. Errors as for
    /// [`p`](SymRef::p).
    #[inline(always)]
    pub fn g(&self, index: usize, pe: Pe) -> Result<T> {
        if index < self.len() {
            if let Some(from) = self.near_unbroken(index, pe) {
                // SAFETY: `pe`'s copy of one element of a live allocation; every bit pattern is a `T`.
                if let Some(value) = unsafe { near::load_word(from) } {
                    return Ok(value);
                }
            }
        }
        self.again().g_slow(index, pe)
    }

    /// Copies `n` elements of `src`, `src_stride` apart, to `pe`'s elements, `dst_stride` apart; both start at
    /// element 0, strides are in elements and at least 1.
    ///
    /// # Errors
    /// [`OutOfBounds`](ErrorCode::OutOfBounds) when either side is too short,
    /// [`InvalidArgument`](ErrorCode::InvalidArgument) for a stride of 0, [`BadPe`](ErrorCode::BadPe).
    /// Nothing is written then.
    pub fn iput(&self, src: &[T], dst_stride: usize, src_stride: usize, n: usize, pe: Pe) -> Result<()> {
        strided("iput's destination", self.len(), dst_stride, n)?;
        strided("iput's source", src.len(), src_stride, n)?;
        let (world, size) = (self.world(), size_of::<T>());
        let (to, from) = (self.as_ptr().cast(), src.as_ptr().cast());
        // SAFETY: both sides hold `n` elements at their strides, as just checked.
        world.check(unsafe {
            (world.runtime().iput)(
                world.as_raw(),
                to,
                from,
                dst_stride as isize,
                src_stride as isize,
                size,
                n,
                pe.raw(),
            )
        })
    }

    /// Copies `n` of `pe`'s elements, `src_stride` apart, to elements of `dst`, `dst_stride` apart. As
    /// [`iput`](SymRef::iput), the other way.
    pub fn iget(&self, dst: &mut [T], dst_stride: usize, src_stride: usize, n: usize, pe: Pe) -> Result<()> {
        strided("iget's destination", dst.len(), dst_stride, n)?;
        strided("iget's source", self.len(), src_stride, n)?;
        let (world, size) = (self.world(), size_of::<T>());
        let (to, from) = (dst.as_mut_ptr().cast(), self.as_ptr().cast());
        // SAFETY: both sides hold `n` elements at their strides, as just checked.
        world.check(unsafe {
            (world.runtime().iget)(
                world.as_raw(),
                to,
                from,
                dst_stride as isize,
                src_stride as isize,
                size,
                n,
                pe.raw(),
            )
        })
    }

    #[cold]
    #[inline(never)]
    fn put_slow(self, src: *const T, n: usize, pe: Pe) -> Result<()> {
        if n > self.len() {
            return Err(out_of_bounds(format_args!("a put of {n} elements at the start"), self.len()));
        }
        let (world, bytes) = (self.world(), n * size_of::<T>());
        // SAFETY: `src` holds `n` elements, and so does this view, as just checked.
        world.check(unsafe {
            (world.runtime().put)(world.as_raw(), self.as_ptr().cast(), src.cast(), bytes, pe.raw())
        })
    }

    #[cold]
    #[inline(never)]
    fn get_slow(self, dst: *mut T, n: usize, pe: Pe) -> Result<()> {
        if n > self.len() {
            return Err(out_of_bounds(format_args!("a get of {n} elements at the start"), self.len()));
        }
        let (world, bytes) = (self.world(), n * size_of::<T>());
        // SAFETY: `dst` holds `n` elements, and so does this view, as just checked.
        world.check(unsafe {
            (world.runtime().get)(world.as_raw(), dst.cast(), self.as_ptr().cast(), bytes, pe.raw())
        })
    }

    #[cold]
    #[inline(never)]
    fn p_slow(self, index: usize, value: T, pe: Pe) -> Result<()> {
        self.element(index)?.put(std::slice::from_ref(&value), pe)
    }

    #[cold]
    #[inline(never)]
    fn g_slow(self, index: usize, pe: Pe) -> Result<T> {
        let mut value = T::new_zeroed();
        self.element(index)?.get(std::slice::from_mut(&mut value), pe)?;
        Ok(value)
    }

    /// The view of one element.
    pub(crate) fn element(&self, index: usize) -> Result<SymRef<'_, T>> {
        if index >= self.len() {
            return Err(out_of_bounds(format_args!("index {index}"), self.len()));
        }
        Ok(SymRef::new(self.world(), self.as_ptr().wrapping_add(index), 1))
    }
}

/// Whether `n` elements, `stride` apart, fit into `len`.
pub(crate) fn strided(what: &str, len: usize, stride: usize, n: usize) -> Result<()> {
    if stride == 0 || isize::try_from(stride).is_err() {
        return Err(Error::new(ErrorCode::InvalidArgument, format!("{what}: a stride of {stride} elements")));
    }
    let needed = n.checked_sub(1).map_or(Some(0), |gaps| gaps.checked_mul(stride)?.checked_add(1));
    match needed {
        Some(needed) if needed <= len => Ok(()),
        _ => Err(Error::new(
            ErrorCode::OutOfBounds,
            format!("{what} has {len} elements, too few for {n} elements {stride} apart"),
        )),
    }
}
