//! Atomic operations on one word of any PE (OpenSHMEM 1.5, section 9.7).
//!
//! `slice.at(index, pe)` names the word, its methods act on it: `counter.at(0, pe).fetch_add(1)?`. Every
//! operation is atomic with respect to every other one on the same word, from hosts and kernels alike, and to
//! `p` and `g`. Like OpenSHMEM's they order nothing else; use `fence`, `quiet` or a signal for that. Each
//! ends with [`OutOfBounds`](crate::ErrorCode::OutOfBounds) or [`BadPe`](crate::ErrorCode::BadPe) where there
//! is no such word, and has done nothing then.

use rushmem_abi::c::*;

use crate::element::Word;
use crate::slice::SymRef;
use crate::{AtomicInt, AtomicType, Pe, Result, Symmetric};

/// One element of one PE's copy of a symmetric slice; made by [`SymRef::at`].
#[must_use = "naming a word does nothing to it"]
pub struct Remote<'a, T: Symmetric> {
    view: &'a SymRef<'a, T>,
    index: usize,
    pe: Pe,
}

impl<T: Symmetric> Clone for Remote<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: Symmetric> Copy for Remote<'_, T> {}

impl<T: Symmetric> SymRef<'_, T> {
    /// Names `pe`'s element `index`. Checked by the operation, not here.
    #[inline(always)]
    pub fn at(&self, index: usize, pe: Pe) -> Remote<'_, T> {
        Remote { view: self, index, pe }
    }
}

impl<T: Symmetric> Remote<'_, T> {
    /// Stores a value: [`SymRef::p`].
    #[inline(always)]
    pub fn p(self, value: T) -> Result<()> {
        self.view.p(self.index, value, self.pe)
    }

    /// Loads the value: [`SymRef::g`].
    #[inline(always)]
    pub fn g(self) -> Result<T> {
        self.view.g(self.index, self.pe)
    }
}

impl<T: AtomicType> Remote<'_, T> {
    /// The word's address where it is near and in bounds, and the job is whole: a lock's owner may be dead.
    #[inline(always)]
    fn near(self) -> Option<*mut T::Word> {
        if self.index < self.view.len() {
            self.view.near_unbroken(self.index, self.pe).map(|word| word.cast())
        } else {
            None
        }
    }

    #[cold]
    #[inline(never)]
    fn call(self, op: i32, value: T, condition: T) -> Result<T> {
        let (world, target) = (self.view.world(), self.view.element(self.index)?.as_ptr().cast());
        let (value, condition) = (value.to_bits64(), condition.to_bits64());
        let mut old = 0;
        // SAFETY: a live handle, an element of a live allocation, and a place for the answer.
        world.check(unsafe {
            (world.runtime().atomic)(
                world.as_raw(),
                op,
                T::TYPE,
                target,
                value,
                condition,
                self.pe.raw(),
                &mut old,
            )
        })?;
        Ok(T::from_bits64(old))
    }

    /// The value.
    #[inline(always)]
    pub fn fetch(self) -> Result<T> {
        match self.near() {
            // SAFETY: `near` gives an element of a live mapping, aligned as `T` is.
            Some(word) => Ok(T::from_word(unsafe { T::Word::load(word) })),
            None => self.call(RUSHMEM_ATOMIC_FETCH, T::new_zeroed(), T::new_zeroed()),
        }
    }

    /// Stores `value`.
    #[inline(always)]
    pub fn set(self, value: T) -> Result<()> {
        match self.near() {
            Some(word) => {
                // SAFETY: `near` gives an element of a live mapping, aligned as `T` is.
                unsafe { T::Word::store(word, value.to_word()) };
                Ok(())
            }
            None => self.call(RUSHMEM_ATOMIC_SET, value, T::new_zeroed()).map(drop),
        }
    }

    /// Stores `value` and gives the old one.
    #[inline(always)]
    pub fn swap(self, value: T) -> Result<T> {
        match self.near() {
            // SAFETY: `near` gives an element of a live mapping, aligned as `T` is.
            Some(word) => Ok(T::from_word(unsafe { T::Word::swap(word, value.to_word()) })),
            None => self.call(RUSHMEM_ATOMIC_SWAP, value, T::new_zeroed()),
        }
    }
}

/// The operations that combine with the old value: a form that gives it, and one that does not.
macro_rules! combine {
    ($($(#[$doc:meta])* $plain:ident, $(#[$fetch_doc:meta])* $fetch:ident, $op:ident, $fetch_op:ident;)*) => {
        $(
            $(#[$doc])*
            #[inline(always)]
            pub fn $plain(self, value: T) -> Result<()> {
                match self.near() {
                    Some(word) => {
                        // SAFETY: `near` gives an element of a live mapping, aligned as `T` is.
                        unsafe { T::Word::$fetch(word, value.to_word()) };
                        Ok(())
                    }
                    None => self.call($op, value, T::new_zeroed()).map(drop),
                }
            }

            $(#[$fetch_doc])*
            #[inline(always)]
            pub fn $fetch(self, value: T) -> Result<T> {
                match self.near() {
                    // SAFETY: `near` gives an element of a live mapping, aligned as `T` is.
                    Some(word) => Ok(T::from_word(unsafe { T::Word::$fetch(word, value.to_word()) })),
                    None => self.call($fetch_op, value, T::new_zeroed()),
                }
            }
        )*
    };
}

#[allow(clippy::should_implement_trait)] // `add` is OpenSHMEM's word; it adds to a word of another PE
impl<T: AtomicInt> Remote<'_, T> {
    combine! {
        /// Adds `value`, wrapping.
        add,
        /// Adds `value`, wrapping, and gives the old value.
        fetch_add, RUSHMEM_ATOMIC_ADD, RUSHMEM_ATOMIC_FETCH_ADD;
        /// Bitwise and with `value`.
        and,
        /// Bitwise and with `value`, giving the old value.
        fetch_and, RUSHMEM_ATOMIC_AND, RUSHMEM_ATOMIC_FETCH_AND;
        /// Bitwise or with `value`.
        or,
        /// Bitwise or with `value`, giving the old value.
        fetch_or, RUSHMEM_ATOMIC_OR, RUSHMEM_ATOMIC_FETCH_OR;
        /// Bitwise exclusive or with `value`.
        xor,
        /// Bitwise exclusive or with `value`, giving the old value.
        fetch_xor, RUSHMEM_ATOMIC_XOR, RUSHMEM_ATOMIC_FETCH_XOR;
    }

    /// Adds one, wrapping.
    #[inline(always)]
    pub fn inc(self) -> Result<()> {
        self.add(T::ONE)
    }

    /// Adds one, wrapping, and gives the old value.
    #[inline(always)]
    pub fn fetch_inc(self) -> Result<T> {
        self.fetch_add(T::ONE)
    }

    /// Stores `value` if the word equals `condition`. Gives the old value: equal to `condition` means stored.
    #[inline(always)]
    pub fn compare_swap(self, condition: T, value: T) -> Result<T> {
        match self.near() {
            Some(word) => {
                // SAFETY: `near` gives an element of a live mapping, aligned as `T` is.
                let old = unsafe { T::Word::compare_swap(word, condition.to_word(), value.to_word()) };
                Ok(T::from_word(old))
            }
            None => self.call(RUSHMEM_ATOMIC_COMPARE_SWAP, value, condition),
        }
    }
}
