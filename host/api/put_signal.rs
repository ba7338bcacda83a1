//! Data and the signal that announces it, in one operation (OpenSHMEM 1.5, section 9.8.3): who sees the
//! signal sees the data. At once, non-blocking, and in a stream's turn.

use crate::error::out_of_bounds;
use crate::near;
use crate::signal::{SignalOp, SignalRef};
use crate::slice::SymRef;
use crate::stream::Stream;
use crate::{Pe, Result, Symmetric};

impl<T: Symmetric> SymRef<'_, T> {
    /// Copies `src` to `pe`'s elements `0..src.len()`, then updates `pe`'s `signal`: who sees the signal sees
    /// the data. Returns when `src` may be used again. Errors as for [`put`](SymRef::put).
    pub fn put_signal(
        &self,
        src: &[T],
        signal: &SignalRef<'_>,
        op: SignalOp,
        value: u64,
        pe: Pe,
    ) -> Result<()> {
        self.put_signal_raw(src.as_ptr(), src.len(), signal, op, value, pe)
    }

    /// [`put_signal`](SymRef::put_signal) of all of `src`, symmetric memory of this PE.
    pub fn put_signal_from(
        &self,
        src: &SymRef<'_, T>,
        signal: &SignalRef<'_>,
        op: SignalOp,
        value: u64,
        pe: Pe,
    ) -> Result<()> {
        self.put_signal_raw(src.as_ptr(), src.len(), signal, op, value, pe)
    }

    /// `src` points at `n` elements that live through the call.
    #[inline]
    fn put_signal_raw(
        &self,
        src: *const T,
        n: usize,
        signal: &SignalRef<'_>,
        op: SignalOp,
        value: u64,
        pe: Pe,
    ) -> Result<()> {
        let (world, bytes) = (self.world(), n.saturating_mul(size_of::<T>()));
        if n > self.len() {
            return Err(out_of_bounds(format_args!("a put of {n} elements at the start"), self.len()));
        }
        if let Some((to, word)) = self.near(0, pe).zip(signal.word().near(0, pe)) {
            // SAFETY: `pe`'s copies of live allocations, with the length just checked.
            unsafe {
                near::copy_in(to.cast(), src.cast(), bytes);
                op.apply(word, value);
            }
            return Ok(());
        }
        let (to, word) = (self.as_ptr().cast(), signal.as_ptr());
        // SAFETY: a live handle and live allocations, with the length just checked.
        world.check(unsafe {
            (world.runtime().put_signal)(
                world.as_raw(),
                to,
                src.cast(),
                bytes,
                word,
                value,
                op.raw(),
                pe.raw(),
            )
        })
    }
}

/// Non-blocking forms: the next quiet completes them.
impl<T: Symmetric> SymRef<'_, T> {
    /// Starts a [`put_signal_from`](SymRef::put_signal_from): the signal still comes after the data.
    pub fn put_signal_from_nbi(
        &self,
        src: &SymRef<'_, T>,
        signal: &SignalRef<'_>,
        op: SignalOp,
        value: u64,
        pe: Pe,
    ) -> Result<()> {
        self.put_signal_nbi_raw(src.as_ptr(), src.len(), signal, op, value, pe)
    }

    /// `src` points at `n` elements that live until the next quiet.
    pub(crate) fn put_signal_nbi_raw(
        &self,
        src: *const T,
        n: usize,
        signal: &SignalRef<'_>,
        op: SignalOp,
        value: u64,
        pe: Pe,
    ) -> Result<()> {
        let (world, bytes) = (self.world(), self.checked_bytes(n)?);
        let (to, word) = (self.as_ptr().cast(), signal.as_ptr());
        // SAFETY: both sides hold `n` elements; the source lives until the quiet, as the callers say.
        world.check(unsafe {
            (world.runtime().put_signal_nbi)(
                world.as_raw(),
                to,
                src.cast(),
                bytes,
                word,
                value,
                op.raw(),
                pe.raw(),
            )
        })
    }
}

/// Forms in a stream's turn.
impl<T: Symmetric> SymRef<'_, T> {
    /// [`put_signal`](SymRef::put_signal) in the stream's turn: who sees the signal sees the data, and what
    /// was on the stream before.
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

/// The form between symmetric memory on both sides. With private memory: [`SymRef::put_signal_on`].
impl Stream<'_> {
    /// [`SymRef::put_signal_from`] in the stream's turn: who sees the signal sees the data, and what was on
    /// the stream before.
    pub fn put_signal<T: Symmetric>(
        &self,
        dst: &SymRef<'_, T>,
        src: &SymRef<'_, T>,
        signal: &SignalRef<'_>,
        op: SignalOp,
        value: u64,
        pe: Pe,
    ) -> Result<()> {
        dst.put_signal_from_on(src, signal, op, value, pe, self)
    }
}
