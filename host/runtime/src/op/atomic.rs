//! Atomic memory operations (OpenSHMEM 1.5, section 9.7): every operation on `i32`, `u32`, `i64` and `u64`;
//! fetch, set and swap on `f32` and `f64`.
//!
//! Wrapping addition and the bitwise operations do not look at the sign, and the floating-point ones only
//! move bits, so a type is a width and the question whether arithmetic is allowed.

use super::{check_aligned, Op, Reach, Reached};
use crate::error::{err, Result};
use crate::word::Update;
use rushmem_abi::table::{Atomic, Element};

/// An atomic operation on one word.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AtomicWord {
    pub(crate) at: usize,
    /// The word's width, 4 or 8.
    pub(crate) bytes: usize,
    pub(crate) op: AtomicOp,
    pub(crate) value: u64,
    /// What the word is compared with, if it is.
    pub(crate) compare: u64,
}

/// One of `RUSHMEM_ATOMIC_*`: a row of the table, one register wide.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AtomicOp(&'static Atomic);

impl AtomicOp {
    /// The operation behind a constant of the C ABI.
    #[inline]
    pub(crate) fn from_code(code: i32) -> Result<AtomicOp> {
        Atomic::of(code)
            .map(AtomicOp)
            .ok_or_else(|| err!(INVALID_ARGUMENT, "{code} is none of the atomic operations RUSHMEM_ATOMIC_*"))
    }

    /// What it does with the word.
    #[inline]
    pub(crate) fn update(self) -> Update {
        self.0.update
    }

    /// Whether the caller gets the old value.
    #[inline]
    pub(crate) fn fetches(self) -> bool {
        self.0.fetches
    }

    /// The constant.
    pub(crate) fn code(self) -> i32 {
        self.0.code
    }

    fn name(self) -> &'static str {
        self.0.name
    }
}

/// The size of an element type, once it is known that `op` is defined for it.
#[inline]
fn width(op: AtomicOp, kind: i32) -> Result<usize> {
    let Some(element) = Element::of(kind) else {
        return Err(err!(
            INVALID_ARGUMENT,
            "{kind} is none of the element types RUSHMEM_INT32 … RUSHMEM_DOUBLE"
        ));
    };
    if !element.is_integer() && !op.update().takes_floats() {
        return Err(err!(
            INVALID_ARGUMENT,
            "the atomic operation {} is not defined for {}: floating-point words have fetch, set and swap",
            op.name(),
            element.name
        ));
    }
    Ok(element.bytes)
}

impl Op {
    /// Carries out `op` on the word of type `kind` (`RUSHMEM_INT32` …) at the symmetric `target`; an error
    /// where the type does not have it.
    #[inline(always)]
    pub(crate) fn atomic(op: AtomicOp, kind: i32, target: usize, value: u64, compare: u64) -> Result<Op> {
        Ok(Op::Atomic(AtomicWord { at: target, bytes: width(op, kind)?, op, value, compare }))
    }
}

impl AtomicWord {
    #[inline(always)]
    pub(super) fn check(self, on: &impl Reach, pe: i32) -> Result<(AtomicWord, Reached)> {
        check_aligned("the target", self.at, self.bytes)?;
        let (at, way) = on.reach(self.at, self.bytes, pe)?;
        Ok((AtomicWord { at, ..self }, way))
    }
}
