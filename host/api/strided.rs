//! Strided puts and gets: elements at regular distances on either side (OpenSHMEM 1.5, section 9.6), at once
//! and in a stream's turn. Strides are in elements and at least 1.

use crate::signal::{SignalOp, SignalRef};
use crate::slice::SymRef;
use crate::stream::Stream;
use crate::{Error, ErrorCode, Pe, Result, Symmetric};

impl<T: Symmetric> SymRef<'_, T> {
    /// Copies `n` elements of `src`, `src_stride` apart, to `pe`'s elements, `dst_stride` apart; both start
    /// at element 0, strides are in elements and at least 1.
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

    /// [`iput`](SymRef::iput), then an update of `pe`'s `signal`: a PE that sees the signal sees all
    /// elements. With [`SignalOp::Add`] it counts, so that a receiver can wait for elements of several
    /// senders. Errors as for `iput`.
    #[allow(clippy::too_many_arguments, reason = "the operation has that many")]
    pub fn iput_signal(
        &self,
        src: &[T],
        dst_stride: usize,
        src_stride: usize,
        n: usize,
        signal: &SignalRef<'_>,
        op: SignalOp,
        value: u64,
        pe: Pe,
    ) -> Result<()> {
        strided("iput_signal's destination", self.len(), dst_stride, n)?;
        strided("iput_signal's source", src.len(), src_stride, n)?;
        let (world, size) = (self.world(), size_of::<T>());
        let (to, from) = (self.as_ptr().cast(), src.as_ptr().cast());
        // SAFETY: both sides hold `n` elements at their strides, as just checked; the signal is a live word.
        world.check(unsafe {
            (world.runtime().iput_signal)(
                world.as_raw(),
                to,
                from,
                dst_stride as isize,
                src_stride as isize,
                size,
                n,
                signal.as_ptr(),
                value,
                op.raw(),
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
}

/// Forms in a stream's turn.
impl<T: Symmetric> SymRef<'_, T> {
    /// [`iput`](SymRef::iput) in the stream's turn.
    ///
    /// # Safety
    /// Until the work is done, `src` lives and is not written.
    pub unsafe fn iput_on(
        &self,
        src: &[T],
        dst_stride: usize,
        src_stride: usize,
        n: usize,
        pe: Pe,
        stream: &Stream<'_>,
    ) -> Result<()> {
        self.iput_on_raw((src.as_ptr(), src.len()), (dst_stride, src_stride), n, pe, stream)
    }

    /// [`iput_on`](SymRef::iput_on) of this PE's `src`, which is symmetric too.
    pub fn iput_from_on(
        &self,
        src: &SymRef<'_, T>,
        dst_stride: usize,
        src_stride: usize,
        n: usize,
        pe: Pe,
        stream: &Stream<'_>,
    ) -> Result<()> {
        self.same_world(src)?;
        self.iput_on_raw((src.as_ptr(), src.len()), (dst_stride, src_stride), n, pe, stream)
    }

    /// [`iput_signal`](SymRef::iput_signal) in the stream's turn: a PE that sees the signal sees the
    /// elements, and what was on the stream before.
    ///
    /// # Safety
    /// Until the work is done, `src` lives and is not written.
    #[allow(clippy::too_many_arguments, reason = "the operation has that many")]
    pub unsafe fn iput_signal_on(
        &self,
        src: &[T],
        dst_stride: usize,
        src_stride: usize,
        n: usize,
        signal: &SignalRef<'_>,
        op: SignalOp,
        value: u64,
        pe: Pe,
        stream: &Stream<'_>,
    ) -> Result<()> {
        let (src, signal) = ((src.as_ptr(), src.len()), (signal, op, value));
        self.iput_signal_on_raw(src, (dst_stride, src_stride), n, signal, pe, stream)
    }

    /// [`iget`](SymRef::iget) in the stream's turn.
    ///
    /// # Safety
    /// Until the work is done, `dst` lives and is neither read nor written.
    pub unsafe fn iget_on(
        &self,
        dst: &mut [T],
        dst_stride: usize,
        src_stride: usize,
        n: usize,
        pe: Pe,
        stream: &Stream<'_>,
    ) -> Result<()> {
        self.iget_on_raw((dst.as_mut_ptr(), dst.len()), (dst_stride, src_stride), n, pe, stream)
    }

    /// [`iget_on`](SymRef::iget_on) into this PE's `dst`, which is symmetric too.
    pub fn iget_into_on(
        &self,
        dst: &SymRef<'_, T>,
        dst_stride: usize,
        src_stride: usize,
        n: usize,
        pe: Pe,
        stream: &Stream<'_>,
    ) -> Result<()> {
        self.same_world(dst)?;
        self.iget_on_raw((dst.as_ptr(), dst.len()), (dst_stride, src_stride), n, pe, stream)
    }

    /// `src` points at as many elements as said, which live until the work is done.
    fn iput_on_raw(
        &self,
        (src, len): (*const T, usize),
        (dst_stride, src_stride): (usize, usize),
        n: usize,
        pe: Pe,
        stream: &Stream<'_>,
    ) -> Result<()> {
        strided("iput's destination", self.len(), dst_stride, n)?;
        strided("iput's source", len, src_stride, n)?;
        let (world, size) = (self.world(), size_of::<T>());
        let (to, raw) = (self.as_ptr().cast(), stream.of(world)?);
        let (dst_stride, src_stride) = (dst_stride as isize, src_stride as isize);
        // SAFETY: both sides hold `n` elements at their strides; the source lives long enough, as the callers
        // say.
        world.check(unsafe {
            (world.runtime().iput_on_stream)(
                world.as_raw(),
                to,
                src.cast(),
                dst_stride,
                src_stride,
                size,
                n,
                pe.raw(),
                raw,
            )
        })
    }

    /// `src` points at as many elements as said, which live until the work is done.
    fn iput_signal_on_raw(
        &self,
        (src, len): (*const T, usize),
        (dst_stride, src_stride): (usize, usize),
        n: usize,
        (signal, op, value): (&SignalRef<'_>, SignalOp, u64),
        pe: Pe,
        stream: &Stream<'_>,
    ) -> Result<()> {
        strided("iput_signal's destination", self.len(), dst_stride, n)?;
        strided("iput_signal's source", len, src_stride, n)?;
        let (world, size) = (self.world(), size_of::<T>());
        let (to, raw) = (self.as_ptr().cast(), stream.of(world)?);
        let (dst_stride, src_stride) = (dst_stride as isize, src_stride as isize);
        // SAFETY: both sides hold `n` elements at their strides; the source lives long enough, as the callers
        // say.
        world.check(unsafe {
            (world.runtime().iput_signal_on_stream)(
                world.as_raw(),
                to,
                src.cast(),
                dst_stride,
                src_stride,
                size,
                n,
                signal.as_ptr(),
                value,
                op.raw(),
                pe.raw(),
                raw,
            )
        })
    }

    /// `dst` points at as many elements as said, which live until the work is done.
    fn iget_on_raw(
        &self,
        (dst, len): (*mut T, usize),
        (dst_stride, src_stride): (usize, usize),
        n: usize,
        pe: Pe,
        stream: &Stream<'_>,
    ) -> Result<()> {
        strided("iget's destination", len, dst_stride, n)?;
        strided("iget's source", self.len(), src_stride, n)?;
        let (world, size) = (self.world(), size_of::<T>());
        let (from, raw) = (self.as_ptr().cast_const().cast(), stream.of(world)?);
        let (dst_stride, src_stride) = (dst_stride as isize, src_stride as isize);
        // SAFETY: both sides hold `n` elements at their strides; the destination lives long enough, as the
        // callers say.
        world.check(unsafe {
            (world.runtime().iget_on_stream)(
                world.as_raw(),
                dst.cast(),
                from,
                dst_stride,
                src_stride,
                size,
                n,
                pe.raw(),
                raw,
            )
        })
    }
}

/// The forms between symmetric memory on both sides. With private memory: [`SymRef::iput_on`],
/// [`SymRef::iget_on`].
impl Stream<'_> {
    /// [`SymRef::iput`] of this PE's `src`, which is symmetric too, in the stream's turn.
    pub fn iput<T: Symmetric>(
        &self,
        dst: &SymRef<'_, T>,
        src: &SymRef<'_, T>,
        dst_stride: usize,
        src_stride: usize,
        n: usize,
        pe: Pe,
    ) -> Result<()> {
        dst.iput_from_on(src, dst_stride, src_stride, n, pe, self)
    }

    /// [`SymRef::iput_signal`] of this PE's `src`, which is symmetric too, in the stream's turn.
    #[allow(clippy::too_many_arguments, reason = "the operation has that many")]
    pub fn iput_signal<T: Symmetric>(
        &self,
        dst: &SymRef<'_, T>,
        src: &SymRef<'_, T>,
        dst_stride: usize,
        src_stride: usize,
        n: usize,
        signal: &SignalRef<'_>,
        op: SignalOp,
        value: u64,
        pe: Pe,
    ) -> Result<()> {
        dst.same_world(src)?;
        let (src, signal) = ((src.as_ptr().cast_const(), src.len()), (signal, op, value));
        dst.iput_signal_on_raw(src, (dst_stride, src_stride), n, signal, pe, self)
    }

    /// [`SymRef::iget`] into this PE's `dst`, which is symmetric too, in the stream's turn.
    pub fn iget<T: Symmetric>(
        &self,
        dst: &SymRef<'_, T>,
        src: &SymRef<'_, T>,
        dst_stride: usize,
        src_stride: usize,
        n: usize,
        pe: Pe,
    ) -> Result<()> {
        src.iget_into_on(dst, dst_stride, src_stride, n, pe, self)
    }
}

/// Whether `n` elements, `stride` apart, fit into `len`.
fn strided(what: &str, len: usize, stride: usize, n: usize) -> Result<()> {
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
