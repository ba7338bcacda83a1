//! Signals: a word that announces data (OpenSHMEM 1.5, section 9.8).
//!
//! The update of the signal word releases everything that this PE wrote before it; fetch and wait acquire. So
//! a PE that sees the signal sees the data.

use super::movement::Movement;
use super::{check_aligned, Op, Reach, Reached};
use crate::error::{err, Result};
use rushmem_abi::c::*;

/// The update of a signal word.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Signal {
    pub(crate) at: usize,
    pub(crate) op: SignalOp,
}

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

impl Op {
    /// Updates the symmetric signal word `sig` without data.
    #[inline(always)]
    pub(crate) fn signal(sig: usize, op: SignalOp) -> Op {
        Op::Signal(Signal { at: sig, op })
    }

    /// A put of any form, and behind it the update of a signal word of the same PE.
    #[inline(always)]
    pub(crate) fn put_signal(put: Movement, sig: usize, op: SignalOp) -> Op {
        Op::PutSignal(put, Signal { at: sig, op })
    }
}

impl Signal {
    #[inline(always)]
    pub(super) fn check(self, on: &impl Reach, pe: i32) -> Result<(Signal, Reached)> {
        check_aligned("the signal", self.at, 8)?;
        let (at, way) = on.reach(self.at, 8, pe)?;
        Ok((Signal { at, ..self }, way))
    }
}
