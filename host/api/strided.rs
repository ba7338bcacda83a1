//! Strided puts and gets: elements at regular distances on either side (OpenSHMEM 1.5, section 9.6), at once
//! and in a stream's turn. Strides are in elements and at least 1.

use std::fmt;

use crate::signal::{SignalOp, SignalRef, Signalled};
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
        let strides = Strides { dst: dst_stride, src: src_stride, n };
        self.iput_raw((src.as_ptr(), src.len()), strides, None, pe, None)
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
        let strides = Strides { dst: dst_stride, src: src_stride, n };
        self.iput_raw((src.as_ptr(), src.len()), strides, Some((signal, op, value)), pe, None)
    }

    /// Copies `n` of `pe`'s elements, `src_stride` apart, to elements of `dst`, `dst_stride` apart. As
    /// [`iput`](SymRef::iput), the other way.
    pub fn iget(&self, dst: &mut [T], dst_stride: usize, src_stride: usize, n: usize, pe: Pe) -> Result<()> {
        let strides = Strides { dst: dst_stride, src: src_stride, n };
        self.iget_raw((dst.as_mut_ptr(), dst.len()), strides, pe, None)
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
        let strides = Strides { dst: dst_stride, src: src_stride, n };
        self.iput_raw((src.as_ptr(), src.len()), strides, None, pe, Some(stream))
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
        let strides = Strides { dst: dst_stride, src: src_stride, n };
        self.iput_raw((src.as_ptr(), src.len()), strides, None, pe, Some(stream))
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
        let strides = Strides { dst: dst_stride, src: src_stride, n };
        self.iput_raw((src.as_ptr(), src.len()), strides, Some((signal, op, value)), pe, Some(stream))
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
        let strides = Strides { dst: dst_stride, src: src_stride, n };
        self.iget_raw((dst.as_mut_ptr(), dst.len()), strides, pe, Some(stream))
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
        let strides = Strides { dst: dst_stride, src: src_stride, n };
        self.iget_raw((dst.as_ptr(), dst.len()), strides, pe, Some(stream))
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
        let strides = Strides { dst: dst_stride, src: src_stride, n };
        let src = (src.as_ptr().cast_const(), src.len());
        dst.iput_raw(src, strides, Some((signal, op, value)), pe, Some(self))
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

/// What all forms come to: the check of both sides, and the call.
impl<T: Symmetric> SymRef<'_, T> {
    /// `src` points at so many elements, which live until the call returns or the stream's work is done.
    fn iput_raw(
        &self,
        (src, len): (*const T, usize),
        strides: Strides,
        signal: Option<Signalled<'_>>,
        pe: Pe,
        stream: Option<&Stream<'_>>,
    ) -> Result<()> {
        let name = if signal.is_some() { "iput_signal" } else { "iput" };
        let (dst_stride, src_stride) = strides.within(name, self.len(), len)?;
        let (world, size, n, pe) = (self.world(), size_of::<T>(), strides.n, pe.raw());
        let (runtime, w, to, src) = (world.runtime(), world.as_raw(), self.as_ptr().cast(), src.cast());
        let stream = stream.map(|stream| stream.of(world)).transpose()?;
        let signal = signal.map(|(signal, op, value)| (signal.as_ptr(), value, op.raw()));
        // SAFETY: a live handle and signal; both sides hold `n` elements at their strides, as just checked,
        // and the source lives long enough, as the callers say.
        world.check(unsafe {
            match (signal, stream) {
                (None, None) => (runtime.iput)(w, to, src, dst_stride, src_stride, size, n, pe),
                (None, Some(on)) => {
                    (runtime.iput_on_stream)(w, to, src, dst_stride, src_stride, size, n, pe, on)
                }
                (Some((sig, value, op)), None) => {
                    (runtime.iput_signal)(w, to, src, dst_stride, src_stride, size, n, sig, value, op, pe)
                }
                (Some((sig, value, op)), Some(on)) => (runtime.iput_signal_on_stream)(
                    w, to, src, dst_stride, src_stride, size, n, sig, value, op, pe, on,
                ),
            }
        })
    }

    /// `dst` points at so many elements, which live until the call returns or the stream's work is done.
    fn iget_raw(
        &self,
        (dst, len): (*mut T, usize),
        strides: Strides,
        pe: Pe,
        stream: Option<&Stream<'_>>,
    ) -> Result<()> {
        let (dst_stride, src_stride) = strides.within("iget", len, self.len())?;
        let (world, size, n, pe) = (self.world(), size_of::<T>(), strides.n, pe.raw());
        let (runtime, w, to, src) = (world.runtime(), world.as_raw(), dst.cast(), self.as_ptr().cast());
        // SAFETY: a live handle; both sides hold `n` elements at their strides, as just checked, and the
        // destination lives long enough, as the callers say.
        world.check(unsafe {
            match stream.map(|stream| stream.of(world)).transpose()? {
                None => (runtime.iget)(w, to, src, dst_stride, src_stride, size, n, pe),
                Some(on) => (runtime.iget_on_stream)(w, to, src, dst_stride, src_stride, size, n, pe, on),
            }
        })
    }
}

/// The elements of a strided transfer: their distances on both sides, and how many they are.
#[derive(Clone, Copy)]
struct Strides {
    dst: usize,
    src: usize,
    n: usize,
}

impl Strides {
    /// The distances, where both sides have all elements of the operation `name`.
    fn within(self, name: &str, dst_len: usize, src_len: usize) -> Result<(isize, isize)> {
        let dst = self.side(format_args!("{name}'s destination"), dst_len, self.dst)?;
        Ok((dst, self.side(format_args!("{name}'s source"), src_len, self.src)?))
    }

    fn side(self, what: fmt::Arguments<'_>, len: usize, stride: usize) -> Result<isize> {
        let n = self.n;
        let Some(distance) = isize::try_from(stride).ok().filter(|distance| *distance > 0) else {
            let text = format!("{what}: a stride of {stride} elements");
            return Err(Error::new(ErrorCode::InvalidArgument, text));
        };
        let needed = n.checked_sub(1).map_or(Some(0), |gaps| gaps.checked_mul(stride)?.checked_add(1));
        match needed {
            Some(needed) if needed <= len => Ok(distance),
            _ => Err(Error::new(
                ErrorCode::OutOfBounds,
                format!("{what} has {len} elements, too few for {n} elements {stride} apart"),
            )),
        }
    }
}
