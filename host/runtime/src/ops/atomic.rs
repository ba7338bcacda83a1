//! Atomic memory operations (OpenSHMEM 1.5, section 9.8): every operation on `i32`, `u32`, `i64` and `u64`;
//! fetch, set and swap on `f32` and `f64`.
//!
//! Wrapping addition and the bitwise operations do not look at the sign, and the floating-point ones only move
//! bits, so a type is a width and the question whether arithmetic is allowed.

use super::check_aligned;
use super::engine::Engine;
use crate::error::{err, Result};
use crate::word::{Update, Word};
use crate::world::{Route, World};
use rushmem_abi::table::{Atomic, Element};

/// One of `RUSHMEM_ATOMIC_*`: a row of the table, one register wide.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Op(&'static Atomic);

impl Op {
    /// The operation behind a constant of the C ABI.
    #[inline]
    pub(crate) fn from_code(code: i32) -> Result<Op> {
        Atomic::of(code)
            .map(Op)
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

    fn name(self) -> &'static str {
        self.0.name
    }
}

/// The size of an element type, once it is known that `op` is defined for it.
#[inline]
fn width(op: Op, kind: i32) -> Result<usize> {
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

/// Carries out `op` on the word at `target` on `pe` and returns its old value.
#[inline]
pub(crate) fn atomic(
    w: &World,
    op: Op,
    kind: i32,
    target: usize,
    value: u64,
    compare: u64,
    pe: i32,
) -> Result<u64> {
    match width(op, kind)? {
        4 => apply::<u32>(w, op, target, value, compare, pe),
        _ => apply::<u64>(w, op, target, value, compare, pe),
    }
}

#[inline]
fn apply<W: Word>(w: &World, op: Op, target: usize, value: u64, compare: u64, pe: i32) -> Result<u64> {
    check_aligned("the target", target, size_of::<W>())?;
    // SAFETY: `route` vouches for the word, which is aligned here and so on every PE (heaps lie pages apart).
    unsafe {
        match w.route(target, size_of::<W>(), pe)? {
            Route::Host(word) => {
                Ok(W::update(word, op.update(), W::from_bits(value), W::from_bits(compare)).bits())
            }
            Route::Gpu(word, engine) => on_gpu(engine, op, size_of::<W>(), word, value, compare),
            Route::Far(place) => {
                let old = place.atomic(op.update(), size_of::<W>(), value, compare, op.fetches())?;
                Ok(if op.update() == Update::Set { value } else { old })
            }
        }
    }
}

/// The same on GPU memory: words are read and set without a kernel, everything else takes one.
///
/// # Safety
/// `word` is valid GPU memory, and aligned.
#[cold]
unsafe fn on_gpu(
    engine: &Engine,
    op: Op,
    bytes: usize,
    word: usize,
    value: u64,
    compare: u64,
) -> Result<u64> {
    // SAFETY: passed on.
    unsafe {
        match op.update() {
            Update::Fetch => engine.load(word, bytes),
            Update::Set => engine.store(word, value, bytes).map(|()| value),
            _ => engine.atomic(op.0.code, bytes, word, value, compare, op.fetches()),
        }
    }
}
