//! The element types of reductions: how they lie in memory, and the type in which they are combined.

use std::ops::{BitAnd, BitOr, BitXor};

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

/// An element type.
pub(super) trait Number {
    /// Bytes of an element in memory.
    const BYTES: usize;
    /// In which elements are combined.
    type Wide: Copy;

    /// Reads `n` elements at `from`.
    ///
    /// # Safety
    /// They are valid for reads; `to` is valid and aligned for `n`, and lies elsewhere.
    unsafe fn load(to: *mut Self::Wide, from: *const u8, n: usize);

    /// Combines `n` elements at `from` with as many numbers.
    ///
    /// # Safety
    /// As for [`Number::load`].
    unsafe fn combine(
        to: *mut Self::Wide,
        from: *const u8,
        n: usize,
        of: impl Fn(Self::Wide, Self::Wide) -> Self::Wide,
    );

    /// Writes `n` elements to `to`.
    ///
    /// # Safety
    /// They are valid for writes; `from` is valid and aligned for `n`, and lies elsewhere.
    unsafe fn store(to: *mut u8, from: *const Self::Wide, n: usize);
}

/// Sums and products; those of integers wrap.
pub(super) trait Arithmetic: Copy {
    fn plus(self, other: Self) -> Self;
    fn times(self, other: Self) -> Self;
}

/// Comparisons.
pub(super) trait Ordered: Copy + PartialOrd {}

/// Bitwise operations.
pub(super) trait Bits:
    Copy + BitAnd<Output = Self> + BitOr<Output = Self> + BitXor<Output = Self>
{
}

/// A complex number as C lays it out.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct Complex<F> {
    re: F,
    im: F,
}

/// Numbers that are combined as they lie in memory.
macro_rules! plain {
    ($($type:ty)*) => {$(
        impl Number for $type {
            const BYTES: usize = size_of::<$type>();
            type Wide = $type;

            unsafe fn load(to: *mut $type, from: *const u8, n: usize) {
                // SAFETY: the caller vouches for both sides.
                unsafe { std::ptr::copy_nonoverlapping(from, to.cast(), n * size_of::<$type>()) }
            }

            unsafe fn combine(to: *mut $type, from: *const u8, n: usize, of: impl Fn($type, $type) -> $type) {
                let from = from.cast::<$type>();
                for i in 0..n {
                    // SAFETY: the caller vouches for both sides.
                    unsafe { *to.add(i) = of(*to.add(i), from.add(i).read_unaligned()) }
                }
            }

            unsafe fn store(to: *mut u8, from: *const $type, n: usize) {
                // SAFETY: the caller vouches for both sides.
                unsafe { std::ptr::copy_nonoverlapping(from.cast(), to, n * size_of::<$type>()) }
            }
        }
    )*};
}

macro_rules! integers {
    ($($type:ty)*) => {$(
        plain!($type);
        impl Arithmetic for $type {
            #[inline(always)]
            fn plus(self, other: Self) -> Self {
                self.wrapping_add(other)
            }
            #[inline(always)]
            fn times(self, other: Self) -> Self {
                self.wrapping_mul(other)
            }
        }
        impl Ordered for $type {}
        impl Bits for $type {}
    )*};
}

macro_rules! floats {
    ($($type:ty)*) => {$(
        plain!($type Complex<$type>);
        impl Arithmetic for $type {
            #[inline(always)]
            fn plus(self, other: Self) -> Self {
                self + other
            }
            #[inline(always)]
            fn times(self, other: Self) -> Self {
                self * other
            }
        }
        impl Ordered for $type {}
        impl Arithmetic for Complex<$type> {
            #[inline(always)]
            fn plus(self, other: Self) -> Self {
                Complex { re: self.re + other.re, im: self.im + other.im }
            }
            #[inline(always)]
            fn times(self, other: Self) -> Self {
                Complex {
                    re: self.re * other.re - self.im * other.im,
                    im: self.re * other.im + self.im * other.re,
                }
            }
        }
    )*};
}

integers!(i8 u8 i16 u16 i32 u32 i64 u64);
floats!(f32 f64);

/// 16-bit floats are converted so many at a time, by instructions of the processor where it has them.
const AT_ONCE: usize = 256;

macro_rules! halves {
    ($($name:ident, $type:ty;)*) => {$(
        #[doc = concat!("A [`", stringify!($type), "`].")]
        pub(super) struct $name;

        impl Number for $name {
            const BYTES: usize = 2;
            type Wide = f32;

            unsafe fn load(to: *mut f32, from: *const u8, n: usize) {
                let mut few = [<$type>::ZERO; AT_ONCE];
                let mut i = 0;
                while i < n {
                    let count = AT_ONCE.min(n - i);
                    // SAFETY: the caller vouches for both sides, of which nobody else has a reference to
                    // `to`.
                    unsafe {
                        std::ptr::copy_nonoverlapping(from.add(2 * i), few.as_mut_ptr().cast(), 2 * count);
                        let to = std::slice::from_raw_parts_mut(to.add(i), count);
                        few[..count].convert_to_f32_slice(to);
                    }
                    i += count;
                }
            }

            unsafe fn combine(to: *mut f32, from: *const u8, n: usize, of: impl Fn(f32, f32) -> f32) {
                let mut few = [0f32; AT_ONCE];
                let mut i = 0;
                while i < n {
                    let count = AT_ONCE.min(n - i);
                    // SAFETY: the caller vouches for both sides.
                    unsafe {
                        Self::load(few.as_mut_ptr(), from.add(2 * i), count);
                        f32::combine(to.add(i), few.as_ptr().cast(), count, &of);
                    }
                    i += count;
                }
            }

            unsafe fn store(to: *mut u8, from: *const f32, n: usize) {
                let mut few = [<$type>::ZERO; AT_ONCE];
                let mut i = 0;
                while i < n {
                    let count = AT_ONCE.min(n - i);
                    // SAFETY: the caller vouches for both sides, of which nobody else has a reference to
                    // `from`.
                    unsafe {
                        let from = std::slice::from_raw_parts(from.add(i), count);
                        few[..count].convert_from_f32_slice(from);
                        std::ptr::copy_nonoverlapping(few.as_ptr().cast(), to.add(2 * i), 2 * count);
                    }
                    i += count;
                }
            }
        }
    )*};
}

halves! {
    Half, f16;
    BFloat, bf16;
}
