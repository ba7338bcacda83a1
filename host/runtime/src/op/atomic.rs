//! Atomic memory operations (OpenSHMEM 1.5, section 9.8): every operation on `i32`, `u32`, `i64` and `u64`;
//! fetch, set and swap on `f32` and `f64`.
//!
//! Wrapping addition and the bitwise operations do not look at the sign, and the floating-point ones only move
//! bits, so a type is a width and the question whether arithmetic is allowed.

use super::{check_aligned, Op, Reach, Way};
use crate::capi::types::*;
use crate::error::{err, Result};
use crate::word::{Update, ATOMICS};

/// An atomic operation on one word.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Atomic {
    pub(crate) at: usize,
    /// The word's width, 4 or 8.
    pub(crate) bytes: usize,
    pub(crate) op: AtomicOp,
    pub(crate) value: u64,
    /// What the word is compared with, if it is.
    pub(crate) compare: u64,
}

/// One of `RUSHMEM_ATOMIC_*`: an index into [`ATOMICS`], one register wide.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AtomicOp(u8);

const _: () = assert!(RUSHMEM_ATOMIC_FETCH == 0 && RUSHMEM_ATOMIC_FETCH_XOR as usize == ATOMICS.len() - 1);

impl AtomicOp {
    /// The operation behind a constant of the C ABI.
    #[inline]
    pub(crate) fn from_code(code: i32) -> Result<AtomicOp> {
        if (0..ATOMICS.len() as i32).contains(&code) {
            return Ok(AtomicOp(code as u8));
        }
        Err(err!(INVALID_ARGUMENT, "{code} is none of the atomic operations RUSHMEM_ATOMIC_*"))
    }

    /// What it does with the word.
    #[inline]
    pub(crate) fn update(self) -> Update {
        ATOMICS[self.0 as usize].0
    }

    /// Whether the caller gets the old value.
    #[inline]
    pub(crate) fn fetches(self) -> bool {
        ATOMICS[self.0 as usize].1
    }

    /// The constant.
    pub(crate) fn code(self) -> i32 {
        self.0.into()
    }

    fn name(self) -> &'static str {
        ATOMICS[self.0 as usize].2
    }
}

/// The size of an element type, once it is known that `op` is defined for it.
#[inline]
fn width(op: AtomicOp, kind: i32) -> Result<usize> {
    let (bytes, float) = match kind {
        RUSHMEM_INT32 | RUSHMEM_UINT32 => (4, None),
        RUSHMEM_INT64 | RUSHMEM_UINT64 => (8, None),
        RUSHMEM_FLOAT => (4, Some("float")),
        RUSHMEM_DOUBLE => (8, Some("double")),
        _ => {
            return Err(err!(
                INVALID_ARGUMENT,
                "{kind} is none of the element types RUSHMEM_INT32 … RUSHMEM_DOUBLE"
            ))
        }
    };
    match (float, op.update()) {
        (None, _) | (_, Update::Fetch | Update::Set | Update::Swap) => Ok(bytes),
        (Some(name), _) => Err(err!(
            INVALID_ARGUMENT,
            "the atomic operation {} is not defined for {name}: floating-point words have fetch, set and swap",
            op.name()
        )),
    }
}

impl Op {
    /// Carries out `op` on the word of type `kind` (`RUSHMEM_INT32` …) at the symmetric `target`; an error where the type does not have it.
    #[inline(always)]
    pub(crate) fn atomic(op: AtomicOp, kind: i32, target: usize, value: u64, compare: u64) -> Result<Op> {
        Ok(Op::Atomic(Atomic { at: target, bytes: width(op, kind)?, op, value, compare }))
    }
}

impl Atomic {
    #[inline(always)]
    pub(super) fn check(self, on: &impl Reach, pe: i32) -> Result<(Atomic, Way)> {
        check_aligned("the target", self.at, self.bytes)?;
        let (at, way) = on.reach(self.at, self.bytes, pe)?;
        Ok((Atomic { at, ..self }, way))
    }
}
