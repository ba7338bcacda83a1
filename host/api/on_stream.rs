//! Operations on streams: each is its namesake without `_on`, carried out in the stream's turn. They return at once;
//! arguments are checked when the call is made, and an error means that nothing was put on the stream. What goes wrong
//! later is told by [`Stream::synchronize`] or an [`Event`](crate::Event).
//!
//! On a GPU all of them can be captured into a CUDA graph. Addresses are recorded then, and what is at them is read each time
//! the graph is launched; there CUDA's own rules for copies of pageable host memory (an ordinary slice) hold. Outside of graphs
//! such copies go through pinned buffers of ours, and no call waits for its stream.
//!
//! A transfer between symmetric memory on both sides is safe: that memory lives as long as the world, which waits for its
//! streams. Private memory must outlive the transfer, which the borrow checker cannot see: those forms are `unsafe`.

use crate::error::out_of_bounds;
use crate::rma::strided;
use crate::signal::{SignalOp, SignalRef};
use crate::slice::SymRef;
use crate::stream::Stream;
use crate::{AtomicInt, Cmp, Error, ErrorCode, Pe, Result, Symmetric, World};

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

    /// [`p`](SymRef::p) in the stream's turn; `value` is taken now. One aligned word of 1, 2, 4 or 8 bytes is never torn.
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

    /// [`put_signal`](SymRef::put_signal) in the stream's turn: who sees the signal sees the data, and what was on the stream
    /// before.
    ///
    /// # Safety
    /// Until the work is done, `src` lives and is not written.
    pub unsafe fn put_signal_on(
        &self,
        src: &[T],
        signal: &SignalRef<'_>,
        op: SignalOp,
        value: u64,
        pe: Pe,
        stream: &Stream<'_>,
    ) -> Result<()> {
        self.put_signal_on_raw((src.as_ptr(), src.len()), signal, (op, value), pe, stream)
    }

    /// [`put_signal_from`](SymRef::put_signal_from) in the stream's turn.
    pub fn put_signal_from_on(
        &self,
        src: &SymRef<'_, T>,
        signal: &SignalRef<'_>,
        op: SignalOp,
        value: u64,
        pe: Pe,
        stream: &Stream<'_>,
    ) -> Result<()> {
        self.same_world(src)?;
        self.put_signal_on_raw((src.as_ptr(), src.len()), signal, (op, value), pe, stream)
    }

    /// Memory of another world may end before this world's streams do.
    fn same_world(&self, other: &SymRef<'_, T>) -> Result<()> {
        if std::ptr::eq(self.world(), other.world()) {
            return Ok(());
        }
        Err(Error::new(
            ErrorCode::InvalidArgument,
            "the two sides of the transfer belong to different worlds",
        ))
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
        // SAFETY: both sides hold `n` elements at their strides; the source lives long enough, as the callers say.
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
        // SAFETY: both sides hold `n` elements at their strides; the destination lives long enough, as the callers say.
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

    /// `src` points at `n` elements that live until the work is done.
    fn put_signal_on_raw(
        &self,
        (src, n): (*const T, usize),
        signal: &SignalRef<'_>,
        (op, value): (SignalOp, u64),
        pe: Pe,
        stream: &Stream<'_>,
    ) -> Result<()> {
        let (world, bytes) = (self.world(), self.checked_bytes(n)?);
        let (to, word, raw) = (self.as_ptr().cast(), signal.as_ptr(), stream.of(world)?);
        // SAFETY: both sides hold `n` elements; the source lives long enough, as the callers say.
        world.check(unsafe {
            (world.runtime().put_signal_on_stream)(
                world.as_raw(),
                to,
                src.cast(),
                bytes,
                word,
                value,
                op.raw(),
                pe.raw(),
                raw,
            )
        })
    }
}

impl<T: AtomicInt> SymRef<'_, T> {
    /// Holds the stream back until this PE's own element `index` compares so: what is behind it on the stream sees what its
    /// writer did before. A wait that stalls is reported on standard error.
    ///
    /// # Errors
    /// [`OutOfBounds`](ErrorCode::OutOfBounds) now; the death of a PE and `RUSHMEM_WAIT_TIMEOUT` make the stream's work fail.
    pub fn wait_until_on(&self, index: usize, cmp: Cmp, value: T, stream: &Stream<'_>) -> Result<()> {
        let (world, element) = (self.world(), self.element(index)?);
        let raw = stream.of(world)?;
        let ivar = element.as_ptr().cast_const().cast();
        // SAFETY: a live handle, a stream of its world and a live allocation.
        world.check(unsafe {
            (world.runtime().wait_until_on_stream)(
                world.as_raw(),
                T::TYPE,
                ivar,
                cmp.raw(),
                value.to_bits64(),
                raw,
            )
        })
    }
}

impl SignalRef<'_> {
    /// [`signal_op`](SignalRef::signal_op) in the stream's turn: who sees the update sees what was on the stream before.
    pub fn signal_op_on(&self, op: SignalOp, value: u64, pe: Pe, stream: &Stream<'_>) -> Result<()> {
        let world = self.word().world();
        let raw = stream.of(world)?;
        // SAFETY: a live handle, a stream of its world and a live allocation.
        world.check(unsafe {
            (world.runtime().signal_op_on_stream)(
                world.as_raw(),
                self.as_ptr(),
                value,
                op.raw(),
                pe.raw(),
                raw,
            )
        })
    }

    /// Holds the stream back until this PE's own word compares so: what is behind it on the stream sees what the signal
    /// announced. Otherwise as [`SymRef::wait_until_on`].
    pub fn wait_until_on(&self, cmp: Cmp, value: u64, stream: &Stream<'_>) -> Result<()> {
        let world = self.word().world();
        let raw = stream.of(world)?;
        // SAFETY: a live handle, a stream of its world and a live allocation.
        world.check(unsafe {
            (world.runtime().signal_wait_until_on_stream)(
                world.as_raw(),
                self.as_ptr(),
                cmp.raw(),
                value,
                raw,
            )
        })
    }
}

impl World {
    /// Orders the operations on the stream before the fence, on each PE, before those behind it. To PEs whose memory is
    /// mapped the stream's own order does that already.
    pub fn fence_on(&self, stream: &Stream<'_>) -> Result<()> {
        let raw = stream.of(self)?;
        // SAFETY: a live handle and a stream of its world.
        self.check(unsafe { (self.runtime().fence_on_stream)(self.as_raw(), raw) })
    }

    /// Completes the operations on the stream before it at their PEs, before what is behind it begins. To PEs whose memory
    /// is mapped the stream's own order does that already.
    pub fn quiet_on(&self, stream: &Stream<'_>) -> Result<()> {
        let raw = stream.of(self)?;
        // SAFETY: a live handle and a stream of its world.
        self.check(unsafe { (self.runtime().quiet_on_stream)(self.as_raw(), raw) })
    }

    /// Holds the stream back until every PE has come to its own call, on a stream or in a kernel
    /// (`rushmem::sync_all`). Collective. A PE has one such call under way at a time, in kernels and on all its streams
    /// together. The host's [`sync_all`](World::sync_all) is another matter and does not meet it.
    ///
    /// # Errors
    /// The death of a PE and `RUSHMEM_WAIT_TIMEOUT` make the stream's work fail.
    pub fn sync_all_on(&self, stream: &Stream<'_>) -> Result<()> {
        let raw = stream.of(self)?;
        // SAFETY: a live handle and a stream of its world.
        self.check(unsafe { (self.runtime().sync_all_on_stream)(self.as_raw(), raw) })
    }

    /// [`quiet_on`](World::quiet_on), then [`sync_all_on`](World::sync_all_on): what any PE had on its stream before, every
    /// PE sees behind it. Collective.
    pub fn barrier_all_on(&self, stream: &Stream<'_>) -> Result<()> {
        let raw = stream.of(self)?;
        // SAFETY: a live handle and a stream of its world.
        self.check(unsafe { (self.runtime().barrier_all_on_stream)(self.as_raw(), raw) })
    }
}
