//! Remote memory access: put, get, p and g (OpenSHMEM 1.5, section 9.6), their non-blocking forms (section
//! 9.6.2) and those in a stream's turn.
//!
//! The blocking forms return when the source may be used again (put, p) or the data has come (get, g).
//! A put is *complete* at the target after [`World::quiet`](crate::World::quiet) or a barrier, and *ordered*
//! before later puts, atomics and signals to the same PE by [`World::fence`](crate::World::fence).

use crate::error::out_of_bounds;
use crate::near;
use crate::slice::SymRef;
use crate::stream::Stream;
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
                // SAFETY: `pe`'s copy of a live allocation, of which `src.len()` elements were just checked;
                // the source is this PE's copy of one.
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
}

/// Non-blocking forms: the next quiet completes them.
impl<T: Symmetric> SymRef<'_, T> {
    /// Starts a [`put`](SymRef::put).
    ///
    /// # Safety
    /// Until the next quiet or barrier of this world, `src` lives and is not written.
    pub unsafe fn put_nbi(&self, src: &[T], pe: Pe) -> Result<()> {
        self.put_nbi_raw(src.as_ptr(), src.len(), pe)
    }

    /// Starts a [`get`](SymRef::get).
    ///
    /// # Safety
    /// Until the next quiet or barrier of this world, `dst` lives and is neither read nor written.
    pub unsafe fn get_nbi(&self, dst: &mut [T], pe: Pe) -> Result<()> {
        self.get_nbi_raw(dst.as_mut_ptr(), dst.len(), pe)
    }

    /// Starts a [`put_from`](SymRef::put_from). The source's contents at any time until the next quiet may be
    /// what arrives.
    pub fn put_from_nbi(&self, src: &SymRef<'_, T>, pe: Pe) -> Result<()> {
        self.put_nbi_raw(src.as_ptr(), src.len(), pe)
    }

    /// Starts a [`get_into`](SymRef::get_into). The data is there after the next quiet.
    pub fn get_into_nbi(&self, dst: &SymRef<'_, T>, pe: Pe) -> Result<()> {
        if dst.len() < self.len() {
            return Err(out_of_bounds(format_args!("{} elements at the start", self.len()), dst.len()));
        }
        self.get_nbi_raw(dst.as_ptr(), self.len(), pe)
    }

    /// `src` points at `n` elements that live until the next quiet.
    pub(crate) fn put_nbi_raw(&self, src: *const T, n: usize, pe: Pe) -> Result<()> {
        let (world, bytes) = (self.world(), self.checked_bytes(n)?);
        // SAFETY: both sides hold `n` elements; the source lives until the quiet, as the callers say.
        world.check(unsafe {
            (world.runtime().put_nbi)(world.as_raw(), self.as_ptr().cast(), src.cast(), bytes, pe.raw())
        })
    }

    /// `dst` points at `n` elements that live until the next quiet.
    pub(crate) fn get_nbi_raw(&self, dst: *mut T, n: usize, pe: Pe) -> Result<()> {
        let (world, bytes) = (self.world(), self.checked_bytes(n)?);
        // SAFETY: both sides hold `n` elements; the destination lives until the quiet, as the callers say.
        world.check(unsafe {
            (world.runtime().get_nbi)(world.as_raw(), dst.cast(), self.as_ptr().cast(), bytes, pe.raw())
        })
    }
}

/// Forms in a stream's turn.
impl<T: Symmetric> SymRef<'_, T> {
    /// [`put`](SymRef::put) in the stream's turn.
    ///
    /// # Safety
    /// Until the work is done, `src` lives and is not written.
    pub unsafe fn put_on(&self, src: &[T], pe: Pe, stream: &Stream<'_>) -> Result<()> {
        self.put_on_raw(src.as_ptr(), src.len(), pe, stream)
    }

    /// [`put_from`](SymRef::put_from) in the stream's turn: what `src` holds then is what arrives.
    pub fn put_from_on(&self, src: &SymRef<'_, T>, pe: Pe, stream: &Stream<'_>) -> Result<()> {
        self.same_world(src)?;
        self.put_on_raw(src.as_ptr(), src.len(), pe, stream)
    }

    /// [`get`](SymRef::get) in the stream's turn.
    ///
    /// # Safety
    /// Until the work is done, `dst` lives and is neither read nor written.
    pub unsafe fn get_on(&self, dst: &mut [T], pe: Pe, stream: &Stream<'_>) -> Result<()> {
        self.get_on_raw(dst.as_mut_ptr(), dst.len(), pe, stream)
    }

    /// [`get_into`](SymRef::get_into) in the stream's turn.
    pub fn get_into_on(&self, dst: &SymRef<'_, T>, pe: Pe, stream: &Stream<'_>) -> Result<()> {
        self.same_world(dst)?;
        if dst.len() < self.len() {
            return Err(out_of_bounds(format_args!("{} elements at the start", self.len()), dst.len()));
        }
        self.get_on_raw(dst.as_ptr(), self.len(), pe, stream)
    }

    /// [`p`](SymRef::p) in the stream's turn; `value` is taken now. One aligned word of 1, 2, 4 or 8 bytes is
    /// never torn.
    pub fn p_on(&self, index: usize, value: T, pe: Pe, stream: &Stream<'_>) -> Result<()> {
        let (world, element) = (self.world(), self.element(index)?);
        let (raw, bytes) = (stream.of(world)?, value.as_bytes());
        let mut done = 0;
        // Elements of other sizes go in pieces. The first of them finds whatever is wrong.
        while done < bytes.len() {
            let rest = &bytes[done..];
            let (bits, n) = match *rest {
                [a, b, c, d, e, f, g, h, ..] => (u64::from_ne_bytes([a, b, c, d, e, f, g, h]), 8),
                [a, b, c, d, ..] => (u32::from_ne_bytes([a, b, c, d]).into(), 4),
                [a, b, ..] => (u16::from_ne_bytes([a, b]).into(), 2),
                [a] => (a.into(), 1),
                [] => return Ok(()),
            };
            let to = element.as_ptr().cast::<u8>().wrapping_add(done);
            // SAFETY: a live handle and a stream of its world; the runtime checks the rest.
            world.check(unsafe {
                (world.runtime().p_on_stream)(world.as_raw(), to.cast(), bits, n, pe.raw(), raw)
            })?;
            done += n;
        }
        Ok(())
    }

    /// `src` points at `n` elements that live until the work is done.
    fn put_on_raw(&self, src: *const T, n: usize, pe: Pe, stream: &Stream<'_>) -> Result<()> {
        let (world, bytes) = (self.world(), self.checked_bytes(n)?);
        let (to, raw) = (self.as_ptr().cast(), stream.of(world)?);
        // SAFETY: both sides hold `n` elements; the source lives long enough, as the callers say.
        world.check(unsafe {
            (world.runtime().put_on_stream)(world.as_raw(), to, src.cast(), bytes, pe.raw(), raw)
        })
    }

    /// `dst` points at `n` elements that live until the work is done.
    fn get_on_raw(&self, dst: *mut T, n: usize, pe: Pe, stream: &Stream<'_>) -> Result<()> {
        let (world, bytes) = (self.world(), self.checked_bytes(n)?);
        let (from, raw) = (self.as_ptr().cast_const().cast(), stream.of(world)?);
        // SAFETY: both sides hold `n` elements; the destination lives long enough, as the callers say.
        world.check(unsafe {
            (world.runtime().get_on_stream)(world.as_raw(), dst.cast(), from, bytes, pe.raw(), raw)
        })
    }
}

/// The forms between symmetric memory on both sides, which are safe: that memory lives as long as the world,
/// which waits for its streams. With private memory: [`SymRef::put_on`], [`SymRef::get_on`].
impl Stream<'_> {
    /// [`SymRef::put_from`] in the stream's turn: all of `src` goes to `pe`'s `dst`. What `src` holds then is
    /// what arrives.
    pub fn put<T: Symmetric>(&self, dst: &SymRef<'_, T>, src: &SymRef<'_, T>, pe: Pe) -> Result<()> {
        dst.put_from_on(src, pe, self)
    }

    /// [`SymRef::get_into`] in the stream's turn: all of `pe`'s `src` comes to this PE's `dst`.
    pub fn get<T: Symmetric>(&self, dst: &SymRef<'_, T>, src: &SymRef<'_, T>, pe: Pe) -> Result<()> {
        src.get_into_on(dst, pe, self)
    }

    /// [`SymRef::p`] in the stream's turn; `value` is taken now.
    pub fn p<T: Symmetric>(&self, dst: &SymRef<'_, T>, index: usize, value: T, pe: Pe) -> Result<()> {
        dst.p_on(index, value, pe, self)
    }
}

/// What takes the calls that are not near, out of line.
impl<T: Symmetric> SymRef<'_, T> {
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

    pub(crate) fn checked_bytes(&self, n: usize) -> Result<usize> {
        if n > self.len() {
            return Err(out_of_bounds(format_args!("{n} elements at the start"), self.len()));
        }
        Ok(n * size_of::<T>())
    }

    /// Memory of another world may end before this world's streams do.
    pub(crate) fn same_world(&self, other: &SymRef<'_, T>) -> Result<()> {
        if std::ptr::eq(self.world(), other.world()) {
            return Ok(());
        }
        Err(Error::new(
            ErrorCode::InvalidArgument,
            "the two sides of the transfer belong to different worlds",
        ))
    }
}
