//! Strided puts and gets: elements at regular distances on either side (OpenSHMEM 1.5, section 9.6).

use super::{check_private, Local, Reach, Reached};
use crate::error::{err, Result};
use crate::word::{copy, copy_word};

/// A strided transfer, in either direction.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Elements {
    /// The first element on the other PE.
    pub(crate) remote: usize,
    /// The first element on this one.
    pub(crate) local: Local,
    pub(crate) strides: Strides,
}

/// The shape of a strided copy; strides count elements.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Strides {
    /// From one element to the next one at the destination.
    pub(crate) dst_stride: isize,
    /// From one element to the next one at the source.
    pub(crate) src_stride: isize,
    /// Bytes of an element.
    pub(crate) elem: usize,
    /// Number of elements.
    pub(crate) n: usize,
}

impl Elements {
    #[inline]
    pub(super) fn check_put(self, on: &impl Reach, pe: i32) -> Result<(Elements, Reached)> {
        let there = self.strides.extent("destination", self.strides.dst_stride)?;
        let here = self.strides.extent("source", self.strides.src_stride)?;
        self.check(on, pe, there, here, "the source")
    }

    #[inline]
    pub(super) fn check_get(self, on: &impl Reach, pe: i32) -> Result<(Elements, Reached)> {
        let here = self.strides.extent("destination", self.strides.dst_stride)?;
        let there = self.strides.extent("source", self.strides.src_stride)?;
        self.check(on, pe, there, here, "the destination")
    }

    fn check(
        self,
        on: &impl Reach,
        pe: i32,
        there: usize,
        here: usize,
        side: &'static str,
    ) -> Result<(Elements, Reached)> {
        let Elements { remote, local, strides } = self;
        let (remote, way) = on.reach(remote, there, pe)?;
        check_private(side, local.at, here)?;
        Ok((Elements { remote, local, strides }, way))
    }
}

impl Strides {
    /// What is touched at a side with this stride, which passed [`Strides::extent`]: offset and length in
    /// bytes of each element, or of all of them where they lie side by side.
    pub(crate) fn parts(&self, stride: isize) -> impl Iterator<Item = (usize, usize)> {
        let (count, bytes) =
            if stride == 1 { (self.n.min(1), self.n * self.elem) } else { (self.n, self.elem) };
        let step = self.step(stride) as usize;
        (0..count).map(move |i| (i * step, bytes))
    }

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
                    "{} elements of {} bytes, {step} elements apart at the {side}, are more than an address \
                     space",
                    self.n,
                    self.elem
                )
            })
    }

    /// Bytes from one element to the next one where the stride is `stride`. Both products passed
    /// [`Strides::extent`]; that of a single element is not used, whatever it is.
    pub(crate) fn step(&self, stride: isize) -> isize {
        stride.wrapping_mul(self.elem as isize)
    }

    /// Copies the elements in order.
    ///
    /// # Safety
    /// Each side is valid for its extent.
    pub(crate) unsafe fn copy(&self, dst: *mut u8, src: *const u8) {
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

    /// Calls `move_one` with the addresses of every pair of elements.
    ///
    /// # Safety
    /// Each side is valid for its extent.
    #[inline]
    unsafe fn each(&self, dst: *mut u8, src: *const u8, move_one: impl Fn(*mut u8, *const u8)) {
        let (dst_step, src_step) = (self.step(self.dst_stride) as usize, self.step(self.src_stride) as usize);
        for i in 0..self.n {
            // SAFETY: element i lies inside the extent.
            unsafe { move_one(dst.add(i * dst_step), src.add(i * src_step)) }
        }
    }
}
