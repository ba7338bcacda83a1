//! Signals: a word that announces data (OpenSHMEM 1.5, sections 9.8.3 and 9.9).
//!
//! The update of the signal word releases everything that this PE wrote before it; fetch and wait acquire. So a
//! PE that sees the signal sees the data.

use super::waitset::comparison;
use super::{check_aligned, check_private, rma, wait};
use crate::error::{err, Result};
use crate::net::Place;
use crate::word::Word;
use crate::world::{Route, World};
use rushmem_abi::c::*;
use std::sync::atomic::{AtomicU64, Ordering};

/// How a signal word changes: to the value, or by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SignalOp {
    Set(u64),
    Add(u64),
}

impl SignalOp {
    /// The operation behind a constant of the C ABI.
    pub(crate) fn from_code(code: i32, value: u64) -> Result<SignalOp> {
        match code {
            RUSHMEM_SIGNAL_SET => Ok(SignalOp::Set(value)),
            RUSHMEM_SIGNAL_ADD => Ok(SignalOp::Add(value)),
            _ => Err(err!(INVALID_ARGUMENT, "{code} is neither RUSHMEM_SIGNAL_SET nor RUSHMEM_SIGNAL_ADD")),
        }
    }

    /// The value, and whether it is added.
    pub(crate) fn parts(self) -> (u64, bool) {
        match self {
            SignalOp::Set(value) => (value, false),
            SignalOp::Add(value) => (value, true),
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

    fn update(&self, op: SignalOp) -> Result<()> {
        let (value, add) = op.parts();
        match self.0 {
            Route::Host(word) => {
                // SAFETY: `route` vouches for the word, and `new` checked its alignment.
                unsafe { update_word(word, op) };
                Ok(())
            }
            // SAFETY: as above.
            Route::Gpu(word, engine) => unsafe { engine.signal(word, value, add) },
            Route::Far(place) => place.signal(value, add),
        }
    }
}

/// Updates a signal word in host memory, releasing what this thread wrote before.
///
/// # Safety
/// `word` is valid and aligned, and nobody holds a reference to it.
pub(super) unsafe fn update_word(word: *mut u8, op: SignalOp) {
    // SAFETY: per contract.
    let word = unsafe { AtomicU64::from_ptr(word.cast()) };
    match op {
        SignalOp::Set(value) => word.store(value, Ordering::Release),
        SignalOp::Add(value) => {
            word.fetch_add(value, Ordering::Release);
        }
    }
}

/// Copies like `put`, then updates the signal word on the same PE. Nothing is written unless all of it is valid.
///
/// # Safety
/// `src` is valid for reads of `bytes`.
pub(crate) unsafe fn put_signal(
    w: &World,
    dst: usize,
    src: *const u8,
    bytes: usize,
    sig: usize,
    op: SignalOp,
    pe: i32,
) -> Result<()> {
    let signal = Target::new(w, sig, pe)?;
    if let Route::Far(word) = signal.0 {
        let data = far_data(w, dst, src, bytes, pe)?;
        let (value, add) = op.parts();
        // SAFETY: the caller vouches for the source.
        return unsafe { data.put_signal(src as usize, bytes, word.offset, value, add, true) };
    }
    // SAFETY: the caller vouches for the source.
    unsafe { rma::put(w, dst, src, bytes, pe) }?;
    signal.update(op)
}

/// As [`put_signal`], but on GPU memory, and to a PE whose memory is not mapped, it may return before it has begun.
///
/// # Safety
/// `src` is valid for reads of `bytes` until the next quiet.
pub(crate) unsafe fn put_signal_nbi(
    w: &World,
    dst: usize,
    src: *const u8,
    bytes: usize,
    sig: usize,
    op: SignalOp,
    pe: i32,
) -> Result<()> {
    let signal = Target::new(w, sig, pe)?;
    if let Route::Far(word) = signal.0 {
        let data = far_data(w, dst, src, bytes, pe)?;
        let (value, add) = op.parts();
        // SAFETY: the caller vouches for the source.
        return unsafe { data.put_signal(src as usize, bytes, word.offset, value, add, false) };
    }
    // SAFETY: the caller vouches for the source. The update comes behind the copy, on the same stream.
    unsafe { rma::put_nbi(w, dst, src, bytes, pe) }?;
    signal.update(op)
}

/// Where data goes that a signal of a PE whose memory is not mapped announces: the network keeps the two in order.
fn far_data(w: &World, dst: usize, src: *const u8, bytes: usize, pe: i32) -> Result<Place<'_>> {
    let Route::Far(data) = w.route(dst, bytes, pe)? else {
        return Err(err!(INTERNAL, "a PE both near and far"));
    };
    check_private("the source", src as usize, bytes)?;
    Ok(data)
}

/// Updates a signal word without data.
pub(crate) fn signal_op(w: &World, sig: usize, op: SignalOp, pe: i32) -> Result<()> {
    Target::new(w, sig, pe)?.update(op)
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
    wait::until_value(w, sig, comparison(cmp)?, value)
}
