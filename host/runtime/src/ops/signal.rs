//! Signals: a word that announces data (OpenSHMEM 1.5, sections 9.8.3 and 9.9).
//!
//! The update of the signal word releases everything that this PE wrote before it; fetch and wait acquire. So a
//! PE that sees the signal sees the data.

use super::waitset::Cmp;
use super::word::Word;
use super::{check_aligned, check_private, rma, wait};
use crate::capi::types::*;
use crate::error::{err, Result};
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
struct Target(*mut u8);

impl Target {
    fn new(w: &World, sig: usize, pe: i32) -> Result<Target> {
        check_aligned("the signal", sig, 8)?;
        let Route::Direct(word) = w.route(sig, 8, pe)?;
        Ok(Target(word))
    }

    fn update(&self, op: SignalOp, value: u64) {
        // SAFETY: `route` vouches for the word, `new` checked its alignment, and nobody holds a reference to it.
        let word = unsafe { AtomicU64::from_ptr(self.0.cast()) };
        match op {
            SignalOp::Set => word.store(value, Ordering::Release),
            SignalOp::Add => {
                word.fetch_add(value, Ordering::Release);
            }
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
    let Route::Direct(to) = w.route(dst, bytes, pe)?;
    check_private("the source", src as usize, bytes)?;
    // SAFETY: `route` vouches for the far side, the caller for the near one.
    unsafe { rma::copy(to, src, bytes) };
    signal.update(op, value);
    Ok(())
}

/// Updates a signal word without data.
pub(crate) fn signal_op(w: &World, sig: usize, value: u64, op: SignalOp, pe: i32) -> Result<()> {
    Target::new(w, sig, pe)?.update(op, value);
    Ok(())
}

/// Reads a signal word of this PE.
pub(crate) fn fetch(w: &World, sig: usize) -> Result<u64> {
    check_aligned("the signal", sig, 8)?;
    let word = w.check_local(sig, 8)?;
    w.health().check()?;
    // SAFETY: `check_local` vouches for the word, and it is aligned.
    Ok(unsafe { u64::load(word as *const u8, Ordering::Acquire) })
}

/// Waits until a signal word of this PE compares as asked; returns the value that did.
pub(crate) fn wait_until(w: &World, sig: usize, cmp: i32, value: u64) -> Result<u64> {
    wait::until_value(w, sig, Cmp::from_code(cmp)?, value)
}
