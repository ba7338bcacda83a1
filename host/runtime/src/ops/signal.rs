//! Signals: a word that announces data (OpenSHMEM 1.5, sections 9.8.3 and 9.9).
//!
//! The update of the signal word releases everything that this PE wrote before it; fetch and wait acquire. So a
//! PE that sees the signal sees the data.

use super::waitset::Cmp;
use super::{check_aligned, check_private, rma, wait};
use crate::capi::types::*;
use crate::error::{err, Result};
use crate::far::Place;
use crate::word::Word;
use crate::world::{Route, World};
use std::sync::atomic::{AtomicU64, Ordering};

/// How a signal word changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SignalOp {
    Set,
    Add,
}

impl SignalOp {
    /// The operation behind a constant of the C ABI.
    pub(crate) fn from_code(code: i32) -> Result<SignalOp> {
        match code {
            RUSHMEM_SIGNAL_SET => Ok(SignalOp::Set),
            RUSHMEM_SIGNAL_ADD => Ok(SignalOp::Add),
            _ => Err(err!(INVALID_ARGUMENT, "{code} is neither RUSHMEM_SIGNAL_SET nor RUSHMEM_SIGNAL_ADD")),
        }
    }
}

/// A signal word on some PE, checked and ready to be updated.
struct Target<'a>(Route<'a>);

impl<'a> Target<'a> {
    fn new(w: &'a World, sig: usize, pe: i32) -> Result<Target<'a>> {
        check_aligned("the signal", sig, 8)?;
        Ok(Target(w.route(sig, 8, pe)?))
    }

    fn update(&self, op: SignalOp, value: u64) -> Result<()> {
        match self.0 {
            Route::Host(word) => {
                // SAFETY: `route` vouches for the word, and `new` checked its alignment.
                unsafe { update_word(word, op, value) };
                Ok(())
            }
            // SAFETY: as above.
            Route::Gpu(word, engine) => unsafe { engine.signal(word, value, op == SignalOp::Add) },
            Route::Far(place) => place.signal(value, op == SignalOp::Add),
        }
    }
}

/// Updates a signal word in host memory, releasing what this thread wrote before.
///
/// # Safety
/// `word` is valid and aligned, and nobody holds a reference to it.
pub(super) unsafe fn update_word(word: *mut u8, op: SignalOp, value: u64) {
    // SAFETY: per contract.
    let word = unsafe { AtomicU64::from_ptr(word.cast()) };
    match op {
        SignalOp::Set => word.store(value, Ordering::Release),
        SignalOp::Add => {
            word.fetch_add(value, Ordering::Release);
        }
    }
}

/// Copies like `put`, then updates the signal word on the same PE. Nothing is written unless all of it is valid.
///
/// # Safety
/// `src` is valid for reads of `bytes`.
#[allow(clippy::too_many_arguments)] // the operation has that many
pub(crate) unsafe fn put_signal(
    w: &World,
    dst: usize,
    src: *const u8,
    bytes: usize,
    sig: usize,
    value: u64,
    op: SignalOp,
    pe: i32,
) -> Result<()> {
    let signal = Target::new(w, sig, pe)?;
    if let Route::Far(word) = signal.0 {
        // SAFETY: the caller vouches for the source.
        return unsafe { announce(w, dst, src, bytes, word, value, op, pe, true) };
    }
    // SAFETY: the caller vouches for the source.
    unsafe { rma::put(w, dst, src, bytes, pe) }?;
    signal.update(op, value)
}

/// As [`put_signal`], but on GPU memory it may return before it has begun.
///
/// # Safety
/// `src` is valid for reads of `bytes` until the next quiet.
#[allow(clippy::too_many_arguments)] // the operation has that many
pub(crate) unsafe fn put_signal_nbi(
    w: &World,
    dst: usize,
    src: *const u8,
    bytes: usize,
    sig: usize,
    value: u64,
    op: SignalOp,
    pe: i32,
) -> Result<()> {
    let signal = Target::new(w, sig, pe)?;
    if let Route::Far(word) = signal.0 {
        // SAFETY: the caller vouches for the source.
        return unsafe { announce(w, dst, src, bytes, word, value, op, pe, false) };
    }
    // SAFETY: the caller vouches for the source. The update comes behind the copy, on the same stream.
    unsafe { rma::put_nbi(w, dst, src, bytes, pe) }?;
    signal.update(op, value)
}

/// A put and its signal to a PE whose memory is not mapped: the network keeps them in order.
///
/// # Safety
/// `src` is valid for reads of `bytes`, until the next quiet unless it is `blocking`.
#[allow(clippy::too_many_arguments)] // the operation has that many
unsafe fn announce(
    w: &World,
    dst: usize,
    src: *const u8,
    bytes: usize,
    word: Place<'_>,
    value: u64,
    op: SignalOp,
    pe: i32,
    blocking: bool,
) -> Result<()> {
    let Route::Far(data) = w.route(dst, bytes, pe)? else {
        return Err(err!(INTERNAL, "a PE both near and far"));
    };
    check_private("the source", src as usize, bytes)?;
    // SAFETY: passed on.
    unsafe { data.put_signal(src as usize, bytes, word.offset, value, op == SignalOp::Add, blocking) }
}

/// Updates a signal word without data.
pub(crate) fn signal_op(w: &World, sig: usize, value: u64, op: SignalOp, pe: i32) -> Result<()> {
    Target::new(w, sig, pe)?.update(op, value)
}

/// Reads a signal word of this PE.
pub(crate) fn fetch(w: &World, sig: usize) -> Result<u64> {
    check_aligned("the signal", sig, 8)?;
    let word = w.check_local(sig, 8)?;
    w.health().check()?;
    // SAFETY: `check_local` vouches for the word, and it is aligned.
    unsafe {
        match w.engine() {
            None => Ok(u64::load(word as *const u8, Ordering::Acquire)),
            Some(engine) => engine.load(word, 8),
        }
    }
}

/// Waits until a signal word of this PE compares as asked; returns the value that did.
pub(crate) fn wait_until(w: &World, sig: usize, cmp: i32, value: u64) -> Result<u64> {
    wait::until_value(w, sig, Cmp::from_code(cmp)?, value)
}
