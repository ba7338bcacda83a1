//! Data and the signal that announces it, in one operation (OpenSHMEM 1.5, section 9.8.3): a PE
//! that sees the signal sees the data. At once, non-blocking, and in a stream's turn.

use crate::near;
use crate::signal::{SignalOp, SignalRef, Signalled};
use crate::slice::SymRef;
use crate::stream::Stream;
use crate::{Pe, Result, Symmetric};

/// In which form a transfer is asked for.
#[derive(Clone, Copy)]
pub(crate) enum When<'a> {
    /// At once, returning when the source may be used again.
    Now,
    /// At once; the next quiet completes it.
    Nbi,
    /// In the stream's turn.
    On(&'a Stream<'a>),
}

impl<T: Symmetric> SymRef<'_, T> {
    /// Copies `src` to `pe`'s elements `0..src.len()`, then updates `pe`'s `signal`: a PE that sees the
    /// signal sees the data. Returns when `src` may be used again. Errors as for [`put`](SymRef::put).
    pub fn put_signal(
        &self,
        src: &[T],
        signal: &SignalRef<'_>,
        op: SignalOp,
        value: u64,
        pe: Pe,
    ) -> Result<()> {
        self.put_signal_now((src.as_ptr(), src.len()), (signal, op, value), pe)
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
        self.put_signal_now((src.as_ptr(), src.len()), (signal, op, value), pe)
    }

    #[inline]
    fn put_signal_now(&self, src: (*const T, usize), signal: Signalled<'_>, pe: Pe) -> Result<()> {
        let ((data, n), (word, op, value)) = (src, signal);
        if n <= self.len() {
            if let Some((to, word)) = self.near(0, pe).zip(word.word().near(0, pe)) {
                // SAFETY: `pe`'s copies of live allocations, with the length just checked.
                unsafe {
                    near::copy_in(to.cast(), data.cast(), n * size_of::<T>());
                    op.apply(word, value);
                }
                return Ok(());
            }
        }
        self.put_signal_raw(src, signal, pe, When::Now)
    }

    /// `src` points at so many elements, which live as long as the call's form asks.
    pub(crate) fn put_signal_raw(
        &self,
        (src, n): (*const T, usize),
        (signal, op, value): Signalled<'_>,
        pe: Pe,
        when: When<'_>,
    ) -> Result<()> {
        let (world, bytes) = (self.world(), self.checked_bytes(n)?);
        let (runtime, w, to, src) = (world.runtime(), world.as_raw(), self.as_ptr().cast(), src.cast());
        let (word, op, pe) = (signal.as_ptr(), op.raw(), pe.raw());
        // SAFETY: a live handle and signal; both sides hold `n` elements, and the source lives long enough,
        // as the callers say.
        world.check(unsafe {
            match when {
                When::Now => (runtime.put_signal)(w, to, src, bytes, word, value, op, pe),
                When::Nbi => (runtime.put_signal_nbi)(w, to, src, bytes, word, value, op, pe),
                When::On(stream) => {
                    let stream = stream.of(world)?;
                    (runtime.put_signal_on_stream)(w, to, src, bytes, word, value, op, pe, stream)
                }
            }
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
        self.put_signal_raw((src.as_ptr(), src.len()), (signal, op, value), pe, When::Nbi)
    }
}

/// Forms in a stream's turn.
impl<T: Symmetric> SymRef<'_, T> {
    /// [`put_signal`](SymRef::put_signal) in the stream's turn: a PE that sees the signal sees the data, and
    /// what was on the stream before.
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
        self.put_signal_raw((src.as_ptr(), src.len()), (signal, op, value), pe, When::On(stream))
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
        self.put_signal_raw((src.as_ptr(), src.len()), (signal, op, value), pe, When::On(stream))
    }
}

/// The form between symmetric memory on both sides. With private memory: [`SymRef::put_signal_on`].
impl Stream<'_> {
    /// [`SymRef::put_signal_from`] in the stream's turn: a PE that sees the signal sees the data, and what
    /// was on the stream before.
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
