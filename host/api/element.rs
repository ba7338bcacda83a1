//! What may live in symmetric memory, and what may be the target of an atomic or a wait.
//!
//! A peer may write any bytes at any time, and a copy that races with it may be torn. So an element must be a
//! type for which every bit pattern is a value (`FromBytes`) and which has no padding to leak (`IntoBytes`):
//! zerocopy's derives prove both.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use rushmem_abi::c::*;
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Types that can live in symmetric memory: plain data without padding, in which every bit pattern is a
/// value.
///
/// Integers, floats and arrays of them are. For a struct, derive zerocopy's traits, which are re-exported,
/// and say so to the derive (a crate that depends on zerocopy 0.8 by itself can leave that line out):
///
/// ```
/// use rushmem::zerocopy::{FromBytes, Immutable, IntoBytes};
///
/// #[derive(Clone, Copy, FromBytes, IntoBytes, Immutable)]
/// #[zerocopy(crate = "rushmem::zerocopy")]
/// #[repr(C)]
/// struct Particle { position: [f32; 3], charge: f32 }
/// fn symmetric<T: rushmem::Symmetric>() {}
/// symmetric::<Particle>();
/// ```
pub trait Symmetric: FromBytes + IntoBytes + Immutable + Copy + Send + Sync + 'static {}

impl<T: FromBytes + IntoBytes + Immutable + Copy + Send + Sync + 'static> Symmetric for T {}

mod sealed {
    pub trait Sealed {}
}

/// Types with fetch, set and swap on a remote word: `i32`, `u32`, `i64`, `u64`, `f32`, `f64`
/// (OpenSHMEM 1.5, table 5, the extended AMO types).
pub trait AtomicType: Symmetric + sealed::Sealed {
    #[doc(hidden)]
    const TYPE: i32;
    #[doc(hidden)]
    type Word: Word;
    #[doc(hidden)]
    fn to_word(self) -> Self::Word;
    #[doc(hidden)]
    fn from_word(word: Self::Word) -> Self;

    /// The C ABI's form: the value's bits in the low bytes.
    #[doc(hidden)]
    fn to_bits64(self) -> u64 {
        self.to_word().widen()
    }
    #[doc(hidden)]
    fn from_bits64(bits: u64) -> Self {
        Self::from_word(Self::Word::narrow(bits))
    }
}

/// Types with arithmetic and bitwise atomics, waits and tests: `i32`, `u32`, `i64`, `u64`.
pub trait AtomicInt: AtomicType + Ord + Eq + std::fmt::Debug {
    #[doc(hidden)]
    const ONE: Self;
}

/// The hardware's view of an atomic word. Two's complement makes signed and unsigned the same.
#[doc(hidden)]
pub trait Word: Copy + sealed::Sealed {
    fn widen(self) -> u64;
    fn narrow(bits: u64) -> Self;
    /// Each acts on the word at `target`.
    ///
    /// # Safety
    /// `target` is mapped shared memory, aligned to the word; every access to it that may race is atomic or
    /// is one of the library's raw copies (see `near.rs`).
    unsafe fn load(target: *mut Self) -> Self;
    /// # Safety
    /// As for [`Word::load`].
    unsafe fn store(target: *mut Self, value: Self);
    /// # Safety
    /// As for [`Word::load`].
    unsafe fn swap(target: *mut Self, value: Self) -> Self;
    /// # Safety
    /// As for [`Word::load`].
    unsafe fn compare_swap(target: *mut Self, condition: Self, value: Self) -> Self;
    /// # Safety
    /// As for [`Word::load`].
    unsafe fn fetch_add(target: *mut Self, value: Self) -> Self;
    /// # Safety
    /// As for [`Word::load`].
    unsafe fn fetch_and(target: *mut Self, value: Self) -> Self;
    /// # Safety
    /// As for [`Word::load`].
    unsafe fn fetch_or(target: *mut Self, value: Self) -> Self;
    /// # Safety
    /// As for [`Word::load`].
    unsafe fn fetch_xor(target: *mut Self, value: Self) -> Self;
}

/// OpenSHMEM leaves atomics unordered with other operations. These are acquire, release or both, which costs
/// nothing on x86-64 and spares a reader of a lock or a counter a fence on other machines.
macro_rules! word {
    ($word:ty, $atomic:ty) => {
        impl sealed::Sealed for $word {}
        impl Word for $word {
            #[inline(always)]
            fn widen(self) -> u64 {
                self as u64
            }
            #[inline(always)]
            fn narrow(bits: u64) -> Self {
                bits as $word
            }
            #[inline(always)]
            unsafe fn load(target: *mut Self) -> Self {
                // SAFETY: by the trait's contract.
                unsafe { <$atomic>::from_ptr(target) }.load(Ordering::Acquire)
            }
            #[inline(always)]
            unsafe fn store(target: *mut Self, value: Self) {
                // SAFETY: by the trait's contract.
                unsafe { <$atomic>::from_ptr(target) }.store(value, Ordering::Release)
            }
            #[inline(always)]
            unsafe fn swap(target: *mut Self, value: Self) -> Self {
                // SAFETY: by the trait's contract.
                unsafe { <$atomic>::from_ptr(target) }.swap(value, Ordering::AcqRel)
            }
            #[inline(always)]
            unsafe fn compare_swap(target: *mut Self, condition: Self, value: Self) -> Self {
                // SAFETY: by the trait's contract.
                let word = unsafe { <$atomic>::from_ptr(target) };
                word.compare_exchange(condition, value, Ordering::AcqRel, Ordering::Acquire)
                    .unwrap_or_else(|old| old)
            }
            #[inline(always)]
            unsafe fn fetch_add(target: *mut Self, value: Self) -> Self {
                // SAFETY: by the trait's contract.
                unsafe { <$atomic>::from_ptr(target) }.fetch_add(value, Ordering::AcqRel)
            }
            #[inline(always)]
            unsafe fn fetch_and(target: *mut Self, value: Self) -> Self {
                // SAFETY: by the trait's contract.
                unsafe { <$atomic>::from_ptr(target) }.fetch_and(value, Ordering::AcqRel)
            }
            #[inline(always)]
            unsafe fn fetch_or(target: *mut Self, value: Self) -> Self {
                // SAFETY: by the trait's contract.
                unsafe { <$atomic>::from_ptr(target) }.fetch_or(value, Ordering::AcqRel)
            }
            #[inline(always)]
            unsafe fn fetch_xor(target: *mut Self, value: Self) -> Self {
                // SAFETY: by the trait's contract.
                unsafe { <$atomic>::from_ptr(target) }.fetch_xor(value, Ordering::AcqRel)
            }
        }
    };
}

word!(u32, AtomicU32);
word!(u64, AtomicU64);

macro_rules! atomic_type {
    ($type:ty, $word:ty, $constant:ident, $to:expr, $from:expr) => {
        impl AtomicType for $type {
            const TYPE: i32 = $constant;
            type Word = $word;
            #[inline(always)]
            fn to_word(self) -> $word {
                $to(self)
            }
            #[inline(always)]
            fn from_word(word: $word) -> Self {
                $from(word)
            }
        }
    };
}

macro_rules! sealed {
    ($($type:ty),*) => { $(impl sealed::Sealed for $type {})* };
}

sealed!(i32, i64, f32, f64);
atomic_type!(i32, u32, RUSHMEM_INT32, |v: i32| v as u32, |w: u32| w as i32);
atomic_type!(u32, u32, RUSHMEM_UINT32, |v: u32| v, |w: u32| w);
atomic_type!(i64, u64, RUSHMEM_INT64, |v: i64| v as u64, |w: u64| w as i64);
atomic_type!(u64, u64, RUSHMEM_UINT64, |v: u64| v, |w: u64| w);
atomic_type!(f32, u32, RUSHMEM_FLOAT, f32::to_bits, f32::from_bits);
atomic_type!(f64, u64, RUSHMEM_DOUBLE, f64::to_bits, f64::from_bits);

macro_rules! atomic_int {
    ($($type:ty),*) => { $(impl AtomicInt for $type { const ONE: Self = 1; })* };
}

atomic_int!(i32, u32, i64, u64);
