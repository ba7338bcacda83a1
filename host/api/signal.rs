//! Signals: one word that a peer updates after its data has arrived (OpenSHMEM 1.5, section 9.8).
//!
//! A signal is never seen before the data that it announces: a PE that has waited for it may read that data.

use std::fmt;
use std::ops::Deref;
use std::time::Duration;

use rushmem_abi::c::{RUSHMEM_SIGNAL_ADD, RUSHMEM_SIGNAL_SET};

use crate::element::Word;
use crate::slice::{SymRef, SymSlice};
use crate::stream::Stream;
use crate::wait::Cmp;
use crate::{Pe, Result, World};

/// What a signal operation does to the word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SignalOp {
    /// The word becomes the value.
    Set,
    /// The value is added to the word, wrapping.
    Add,
}

impl SignalOp {
    pub(crate) fn raw(self) -> i32 {
        match self {
            SignalOp::Set => RUSHMEM_SIGNAL_SET,
            SignalOp::Add => RUSHMEM_SIGNAL_ADD,
        }
    }

    /// Does it, releasing what came before.
    ///
    /// # Safety
    /// `word` is a signal word of a live mapping.
    #[inline(always)]
    pub(crate) unsafe fn apply(self, word: *mut u64, value: u64) {
        match self {
            // SAFETY: by the caller's word.
            SignalOp::Set => unsafe { u64::store(word, value) },
            SignalOp::Add => {
                // SAFETY: by the caller's word.
                unsafe { u64::fetch_add(word, value) };
            }
        }
    }
}

impl World {
    /// One signal word on every PE, zero. Collective.
    pub fn signal(&self) -> Result<Signal<'_>> {
        self.alloc(1).map(Signal::new)
    }

    /// `n` signal words on every PE, zero. Collective.
    pub fn signals(&self, n: usize) -> Result<Signals<'_>> {
        self.alloc(n).map(Signals::new)
    }
}

/// A signal word on every PE, made by [`World::signal`](crate::World::signal). Like a
/// [`SymSlice`], it is freed by [`free`](Signal::free) or with the world.
#[must_use = "the word stays allocated until free() or the end of the world"]
#[derive(Debug)]
pub struct Signal<'w>(SignalRef<'w>);

impl<'w> Signal<'w> {
    fn new(words: SymSlice<'w, u64>) -> Self {
        Signal(SignalRef { word: words.into_view() })
    }

    /// Frees the word on every PE. Collective.
    pub fn free(self) -> Result<()> {
        SymSlice::new(self.0.word).free()
    }
}

impl<'w> Deref for Signal<'w> {
    type Target = SignalRef<'w>;
    fn deref(&self) -> &SignalRef<'w> {
        &self.0
    }
}

/// Several signal words on every PE, made by [`World::signals`](crate::World::signals).
#[must_use = "the words stay allocated until free() or the end of the world"]
#[derive(Debug)]
pub struct Signals<'w>(SymSlice<'w, u64>);

impl<'w> Signals<'w> {
    fn new(words: SymSlice<'w, u64>) -> Self {
        Signals(words)
    }

    /// Number of words.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// One of the words.
    ///
    /// # Errors
    /// [`OutOfBounds`](crate::ErrorCode::OutOfBounds) past the end.
    pub fn at(&self, index: usize) -> Result<SignalRef<'_>> {
        Ok(SignalRef { word: self.0.element(index)? })
    }

    /// The words as symmetric memory: to wait on several of them ([`SymRef::ivars`]), or for a kernel.
    pub fn words(&self) -> &SymRef<'w, u64> {
        &self.0
    }

    /// Frees the words on every PE. Collective.
    pub fn free(self) -> Result<()> {
        self.0.free()
    }
}

/// One signal word: a [`Signal`], or one of [`Signals`].
pub struct SignalRef<'a> {
    word: SymRef<'a, u64>,
}

/// A signal word, and what is done to it behind an operation's data.
pub(crate) type Signalled<'a> = (&'a SignalRef<'a>, SignalOp, u64);

impl fmt::Debug for SignalRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "signal at {:p} of {}", self.as_ptr(), self.word.world().my_pe())
    }
}

impl<'a> SignalRef<'a> {
    /// The symmetric address, as kernels take it.
    pub fn as_ptr(&self) -> *mut u64 {
        self.word.as_ptr()
    }

    /// The word as symmetric memory.
    pub fn word(&self) -> &SymRef<'a, u64> {
        &self.word
    }

    /// Updates `pe`'s word, after this PE's earlier puts to it: like a fence and then the update.
    ///
    /// # Errors
    /// [`BadPe`](crate::ErrorCode::BadPe) when there is no such PE.
    #[inline]
    pub fn signal_op(&self, op: SignalOp, value: u64, pe: Pe) -> Result<()> {
        let world = self.word.world();
        if let Some(word) = self.word.near(0, pe) {
            // SAFETY: `pe`'s copy of a live allocation of one word.
            unsafe { op.apply(word, value) };
            return Ok(());
        }
        // SAFETY: a live handle and a live allocation.
        world.check(unsafe {
            (world.runtime().signal_op)(world.as_raw(), self.as_ptr(), value, op.raw(), pe.raw())
        })
    }

    /// [`signal_op`](SignalRef::signal_op) with [`SignalOp::Set`].
    #[inline]
    pub fn set(&self, value: u64, pe: Pe) -> Result<()> {
        self.signal_op(SignalOp::Set, value, pe)
    }

    /// [`signal_op`](SignalRef::signal_op) with [`SignalOp::Add`].
    #[inline]
    pub fn add(&self, value: u64, pe: Pe) -> Result<()> {
        self.signal_op(SignalOp::Add, value, pe)
    }

    /// The present value of this PE's own word. What was put before the signal that it shows is visible.
    ///
    /// # Errors
    /// [`PeerDead`](crate::ErrorCode::PeerDead) once a PE of the job has died, so that a loop around it ends.
    #[inline]
    pub fn fetch(&self) -> Result<u64> {
        self.word.at(0, self.word.world().my_pe()).fetch()
    }

    /// The present value of this PE's own word if it compares so. Errors as for [`fetch`](SignalRef::fetch),
    /// where it does not compare so.
    #[inline]
    pub fn test(&self, cmp: Cmp, value: u64) -> Result<Option<u64>> {
        if !self.word.world().is_host_heap() {
            return Ok(Some(self.fetch()?).filter(|seen| cmp.holds(seen, &value)));
        }
        // SAFETY: this PE's own copy of a live allocation of one word.
        let seen = unsafe { u64::load(self.as_ptr()) };
        if cmp.holds(&seen, &value) {
            Ok(Some(seen))
        } else if self.word.world().is_broken() {
            self.fetch().map(|_| None)
        } else {
            Ok(None)
        }
    }

    /// Waits until this PE's own word compares so, and gives the value seen. A wait that stalls is reported
    /// on standard error (`RUSHMEM_STALL_REPORT`).
    ///
    /// # Errors
    /// [`PeerDead`](crate::ErrorCode::PeerDead) once a PE of the job has died;
    /// [`Timeout`](crate::ErrorCode::Timeout) after `RUSHMEM_WAIT_TIMEOUT`, if that is set.
    #[inline]
    pub fn wait_until(&self, cmp: Cmp, value: u64) -> Result<u64> {
        if self.word.world().is_host_heap() {
            if let Some(seen) = self.test(cmp, value)? {
                return Ok(seen);
            }
        }
        let (world, mut seen) = (self.word.world(), 0);
        // SAFETY: a live handle, a live allocation and a place for the answer.
        world.check(unsafe {
            (world.runtime().signal_wait_until)(world.as_raw(), self.as_ptr(), cmp.raw(), value, &mut seen)
        })?;
        Ok(seen)
    }

    /// [`wait_until`](SignalRef::wait_until) with a limit of its own.
    pub fn wait_until_timeout(&self, cmp: Cmp, value: u64, limit: Duration) -> Result<u64> {
        // Another PE may change the word between the wait and the fetch; then wait again.
        loop {
            self.word.ivars().timeout(limit).wait_until_all(cmp, value)?;
            if let Some(seen) = self.test(cmp, value)? {
                return Ok(seen);
            }
        }
    }
}

/// Forms in a stream's turn.
impl SignalRef<'_> {
    /// [`signal_op`](SignalRef::signal_op) in the stream's turn: a PE that sees the update sees what was on
    /// the stream before.
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

    /// Holds the stream back until this PE's own word compares so: what is behind it on the stream sees what
    /// the signal announced. Otherwise as [`SymRef::wait_until_on`].
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

/// Signals in the stream's turn.
impl Stream<'_> {
    /// [`SignalRef::signal_op`] in the stream's turn: a PE that sees the update sees what was on the stream
    /// before.
    pub fn signal_op(&self, signal: &SignalRef<'_>, op: SignalOp, value: u64, pe: Pe) -> Result<()> {
        signal.signal_op_on(op, value, pe, self)
    }

    /// Holds the stream back until this PE's own `signal` compares so. Otherwise as
    /// [`SignalRef::wait_until_on`].
    pub fn signal_wait_until(&self, signal: &SignalRef<'_>, cmp: Cmp, value: u64) -> Result<()> {
        signal.wait_until_on(cmp, value, self)
    }
}
