//! Remote memory access: put, get, their strided and single-word forms (OpenSHMEM 1.5, sections 9.5 and 9.6).
//!
//! To host memory all of it is a copy that is complete, locally and remotely, when the call returns, so the nbi forms
//! are the blocking ones; to a GPU's, copy engines do it and quiet waits for them. Bulk goes through the C library's `memmove`, which is what `memcpy` is on
//! the machines we know: it picks the widest and, past the caches, the non-temporal stores, and fences those
//! itself. Single words go as single words, so that a word put is seen whole.
//!
//! `World::route` refuses everything once the job is broken, so a loop around a get that waits for a dead PE ends.

use super::check_private;
use super::engine::Engine;
use crate::error::{err, Result};
use crate::net::Rows;
use crate::word::{copy, copy_word, Word};
use crate::world::{Route, World};

/// Copies `bytes` from private `src` to symmetric `dst` on `pe`.
///
/// # Safety
/// `src` is valid for reads of `bytes`.
pub(crate) unsafe fn put(w: &World, dst: usize, src: *const u8, bytes: usize, pe: i32) -> Result<()> {
    let route = w.route(dst, bytes, pe)?;
    check_private("the source", src as usize, bytes)?;
    // SAFETY: `route` vouches for the far side, the caller for the near one.
    unsafe {
        match route {
            Route::Host(to) => copy(to, src, bytes),
            Route::Gpu(to, engine) => engine.copy(to, src as usize, bytes)?,
            Route::Far(place) => place.put(src as usize, bytes)?,
        }
    }
    Ok(())
}

/// As [`put`], but on GPU memory it may return before it has begun.
///
/// # Safety
/// `src` is valid for reads of `bytes` until the next quiet.
pub(crate) unsafe fn put_nbi(w: &World, dst: usize, src: *const u8, bytes: usize, pe: i32) -> Result<()> {
    let route = w.route(dst, bytes, pe)?;
    check_private("the source", src as usize, bytes)?;
    // SAFETY: as in `put`.
    unsafe {
        match route {
            Route::Host(to) => copy(to, src, bytes),
            Route::Gpu(to, engine) => engine.start_copy(to, src as usize, bytes)?,
            Route::Far(place) => place.put_nbi(src as usize, bytes)?,
        }
    }
    Ok(())
}

/// Copies `bytes` from symmetric `src` on `pe` to private `dst`.
///
/// # Safety
/// `dst` is valid for writes of `bytes`.
pub(crate) unsafe fn get(w: &World, dst: *mut u8, src: usize, bytes: usize, pe: i32) -> Result<()> {
    let route = w.route(src, bytes, pe)?;
    check_private("the destination", dst as usize, bytes)?;
    // SAFETY: `route` vouches for the far side, the caller for the near one.
    unsafe {
        match route {
            Route::Host(from) => copy(dst, from, bytes),
            Route::Gpu(from, engine) => engine.copy(dst as usize, from, bytes)?,
            Route::Far(place) => place.get(dst as usize, bytes)?,
        }
    }
    Ok(())
}

/// As [`get`], but from GPU memory it may return before it has begun.
///
/// # Safety
/// `dst` is valid for writes of `bytes` until the next quiet.
pub(crate) unsafe fn get_nbi(w: &World, dst: *mut u8, src: usize, bytes: usize, pe: i32) -> Result<()> {
    let route = w.route(src, bytes, pe)?;
    check_private("the destination", dst as usize, bytes)?;
    // SAFETY: as in `get`.
    unsafe {
        match route {
            Route::Host(from) => copy(dst, from, bytes),
            Route::Gpu(from, engine) => engine.start_copy(dst as usize, from, bytes)?,
            Route::Far(place) => place.get_nbi(dst as usize, bytes)?,
        }
    }
    Ok(())
}

/// The shape of a strided copy; strides count elements.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Strided {
    /// From one element to the next one at the destination.
    pub(crate) dst_stride: isize,
    /// From one element to the next one at the source.
    pub(crate) src_stride: isize,
    /// Bytes of an element.
    pub(crate) elem: usize,
    /// Number of elements.
    pub(crate) n: usize,
}

impl Strided {
    /// Bytes from the first byte touched to the last one, at a side with this stride.
    pub(crate) fn extent(&self, side: &str, stride: isize) -> Result<usize> {
        if self.elem == 0 {
            return Err(err!(INVALID_ARGUMENT, "an element of 0 bytes cannot be copied"));
        }
        let step = usize::try_from(stride).ok().filter(|s| *s > 0).ok_or_else(|| {
            err!(INVALID_ARGUMENT, "the stride of the {side} is {stride} elements; it must be 1 or more")
        })?;
        if self.n == 0 {
            return Ok(0);
        }
        (self.n - 1)
            .checked_mul(step)
            .and_then(|e| e.checked_add(1))
            .and_then(|e| e.checked_mul(self.elem))
            .filter(|e| *e <= isize::MAX as usize)
            .ok_or_else(|| {
                err!(
                    INVALID_ARGUMENT,
                    "{} elements of {} bytes, {step} elements apart at the {side}, are more than an address space",
                    self.n,
                    self.elem
                )
            })
    }

    /// The same in bytes, for the network.
    pub(super) fn rows(&self, near_stride: isize, far_stride: isize) -> Rows {
        // Both products passed `extent`; one of a single element is not used, whatever it is.
        let step = |stride: isize| stride.wrapping_mul(self.elem as isize);
        Rows { elem: self.elem, near_stride: step(near_stride), far_stride: step(far_stride), n: self.n }
    }

    /// Copies the elements in order.
    ///
    /// # Safety
    /// Each side is valid for its extent.
    pub(super) unsafe fn copy(&self, dst: *mut u8, src: *const u8) {
        if self.n == 0 {
            return;
        }
        if self.dst_stride == 1 && self.src_stride == 1 {
            // SAFETY: with strides of one the extents are exactly these bytes.
            return unsafe { copy(dst, src, self.n * self.elem) };
        }
        // SAFETY: the caller vouches for both extents.
        unsafe {
            match self.elem {
                1 => self.each(dst, src, |d, s| copy_word::<u8>(d, s)),
                2 => self.each(dst, src, |d, s| copy_word::<u16>(d, s)),
                4 => self.each(dst, src, |d, s| copy_word::<u32>(d, s)),
                8 => self.each(dst, src, |d, s| copy_word::<u64>(d, s)),
                16 => self.each(dst, src, |d, s| std::ptr::copy(s, d, 16)),
                bytes => self.each(dst, src, |d, s| std::ptr::copy(s, d, bytes)),
            }
        }
    }

    /// The same where a side is GPU memory.
    ///
    /// # Safety
    /// Each side is valid for its extent.
    unsafe fn copy_by(&self, engine: &Engine, dst: usize, src: usize) -> Result<()> {
        // As in `rows`.
        let step = |stride: isize| (stride as usize).wrapping_mul(self.elem);
        let (dst, src) = ((dst, step(self.dst_stride)), (src, step(self.src_stride)));
        // SAFETY: passed on.
        unsafe { engine.copy_strided(dst, src, self.elem, self.n) }
    }

    /// Calls `move_one` with the addresses of every pair of elements.
    ///
    /// # Safety
    /// Each side is valid for its extent.
    #[inline]
    unsafe fn each(&self, dst: *mut u8, src: *const u8, move_one: impl Fn(*mut u8, *const u8)) {
        // As in `rows`.
        let dst_step = (self.dst_stride as usize).wrapping_mul(self.elem);
        let src_step = (self.src_stride as usize).wrapping_mul(self.elem);
        for i in 0..self.n {
            // SAFETY: element i lies inside the extent.
            unsafe { move_one(dst.add(i * dst_step), src.add(i * src_step)) }
        }
    }
}

/// Strided put: elements of private `src` to elements of symmetric `dst` on `pe`.
///
/// # Safety
/// `src` is valid for reads of its extent.
pub(crate) unsafe fn iput(w: &World, dst: usize, src: *const u8, shape: Strided, pe: i32) -> Result<()> {
    let far = shape.extent("destination", shape.dst_stride)?;
    let near = shape.extent("source", shape.src_stride)?;
    let route = w.route(dst, far, pe)?;
    check_private("the source", src as usize, near)?;
    // SAFETY: `route` vouches for the far extent, the caller for the near one.
    unsafe {
        match route {
            Route::Host(to) => shape.copy(to, src),
            Route::Gpu(to, engine) => shape.copy_by(engine, to, src as usize)?,
            Route::Far(place) => {
                place.put_rows(src as usize, shape.rows(shape.src_stride, shape.dst_stride))?
            }
        }
    }
    Ok(())
}

/// Strided get: elements of symmetric `src` on `pe` to elements of private `dst`.
///
/// # Safety
/// `dst` is valid for writes of its extent.
pub(crate) unsafe fn iget(w: &World, dst: *mut u8, src: usize, shape: Strided, pe: i32) -> Result<()> {
    let near = shape.extent("destination", shape.dst_stride)?;
    let far = shape.extent("source", shape.src_stride)?;
    let route = w.route(src, far, pe)?;
    check_private("the destination", dst as usize, near)?;
    // SAFETY: `route` vouches for the far extent, the caller for the near one.
    unsafe {
        match route {
            Route::Host(from) => shape.copy(dst, from),
            Route::Gpu(from, engine) => shape.copy_by(engine, dst as usize, from)?,
            Route::Far(place) => {
                place.get_rows(dst as usize, shape.rows(shape.dst_stride, shape.src_stride))?
            }
        }
    }
    Ok(())
}

/// Writes the low `bytes` bytes of `bits` to `dst` on `pe`, in one piece if `dst` is aligned.
pub(crate) fn p(w: &World, dst: usize, bits: u64, bytes: usize, pe: i32) -> Result<()> {
    match bytes {
        1 => p_word::<u8>(w, dst, bits, pe),
        2 => p_word::<u16>(w, dst, bits, pe),
        4 => p_word::<u32>(w, dst, bits, pe),
        8 => p_word::<u64>(w, dst, bits, pe),
        _ => Err(bad_width("p", bytes)),
    }
}

/// Reads `bytes` bytes at `src` on `pe`, zero-extended, in one piece if `src` is aligned.
pub(crate) fn g(w: &World, src: usize, bytes: usize, pe: i32) -> Result<u64> {
    match bytes {
        1 => g_word::<u8>(w, src, pe),
        2 => g_word::<u16>(w, src, pe),
        4 => g_word::<u32>(w, src, pe),
        8 => g_word::<u64>(w, src, pe),
        _ => Err(bad_width("g", bytes)),
    }
}

pub(super) fn bad_width(call: &str, bytes: usize) -> crate::error::Error {
    err!(INVALID_ARGUMENT, "{call} moves one value of 1, 2, 4 or 8 bytes, not of {bytes}; use put or get")
}

fn p_word<W: Word>(w: &World, dst: usize, bits: u64, pe: i32) -> Result<()> {
    let value = W::from_bits(bits);
    // SAFETY: `route` vouches for the word's bytes; `value` is ours and holds the same number of bytes.
    unsafe {
        match w.route(dst, size_of::<W>(), pe)? {
            Route::Host(to) => copy_word::<W>(to, (&raw const value).cast()),
            Route::Gpu(to, engine) => engine.store(to, bits, size_of::<W>())?,
            Route::Far(place) => place.store(bits, size_of::<W>())?,
        }
    }
    Ok(())
}

fn g_word<W: Word>(w: &World, src: usize, pe: i32) -> Result<u64> {
    let mut value = W::from_bits(0);
    // SAFETY: as in `p_word`.
    unsafe {
        match w.route(src, size_of::<W>(), pe)? {
            Route::Host(from) => copy_word::<W>((&raw mut value).cast(), from),
            Route::Gpu(from, engine) => return engine.load(from, size_of::<W>()),
            Route::Far(place) => return place.load(size_of::<W>()),
        }
    }
    Ok(value.bits())
}
