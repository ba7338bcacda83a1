//! What reductions take: numbers and operators, and which go together.

use half::{bf16, f16};
use rushmem_abi::c::*;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::Symmetric;

mod sealed {
    pub trait Sealed {}
}

/// A complex number as C lays it out (`float _Complex`, `double _Complex`).
#[derive(Debug, Clone, Copy, Default, PartialEq, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub struct Complex<F> {
    /// The real part.
    pub re: F,
    /// The imaginary part.
    pub im: F,
}

/// Element types of reductions: integers of 8 to 64 bits, `f32`, `f64`, [`struct@f16`] and [`bf16`], which
/// are combined in 32 bits and rounded once, and [`Complex`] numbers.
pub trait Number: Symmetric + sealed::Sealed {
    #[doc(hidden)]
    const TYPE: i32;
}

/// Integers, of which there are all operators.
pub trait Integer: Number {}

/// Numbers of which one is the larger: all but complex ones.
pub trait Ordered: Number {}

macro_rules! numbers {
    ($($type:ty = $constant:ident: $($kind:ident)*;)*) => {$(
        impl sealed::Sealed for $type {}
        impl Number for $type {
            const TYPE: i32 = $constant;
        }
        $(impl $kind for $type {})*
    )*};
}

numbers! {
    i8 = RUSHMEM_INT8: Integer Ordered;
    u8 = RUSHMEM_UINT8: Integer Ordered;
    i16 = RUSHMEM_INT16: Integer Ordered;
    u16 = RUSHMEM_UINT16: Integer Ordered;
    i32 = RUSHMEM_INT32: Integer Ordered;
    u32 = RUSHMEM_UINT32: Integer Ordered;
    i64 = RUSHMEM_INT64: Integer Ordered;
    u64 = RUSHMEM_UINT64: Integer Ordered;
    f32 = RUSHMEM_FLOAT: Ordered;
    f64 = RUSHMEM_DOUBLE: Ordered;
    f16 = RUSHMEM_HALF: Ordered;
    bf16 = RUSHMEM_BFLOAT16: Ordered;
    Complex<f32> = RUSHMEM_COMPLEX_FLOAT: ;
    Complex<f64> = RUSHMEM_COMPLEX_DOUBLE: ;
}

#[cfg(target_pointer_width = "64")]
numbers! {
    isize = RUSHMEM_INT64: Integer Ordered;
    usize = RUSHMEM_UINT64: Integer Ordered;
}

/// An operator of reductions of `T`: [`Sum`], [`Prod`], [`Min`], [`Max`], [`And`], [`Or`], [`Xor`].
///
/// Which make sense for which type is the compiler's to say:
///
/// ```compile_fail,E0277
/// fn takes<T: rushmem::Number>(_: impl rushmem::Operator<T>) {}
/// takes::<f32>(rushmem::And); // refused: floats have no bitwise and
/// ```
pub trait Operator<T: Number>: Copy {
    #[doc(hidden)]
    const CODE: i32;
}

macro_rules! operators {
    ($($(#[$doc:meta])* $name:ident = $constant:ident of $bound:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub struct $name;

        impl<T: $bound> Operator<T> for $name {
            const CODE: i32 = $constant;
        }
    )*};
}

operators! {
    /// The sum; that of integers wraps.
    Sum = RUSHMEM_SUM of Number;
    /// The product; that of integers wraps.
    Prod = RUSHMEM_PROD of Number;
    /// The smallest.
    Min = RUSHMEM_MIN of Ordered;
    /// The largest.
    Max = RUSHMEM_MAX of Ordered;
    /// Bitwise and.
    And = RUSHMEM_AND of Integer;
    /// Bitwise or.
    Or = RUSHMEM_OR of Integer;
    /// Bitwise exclusive or.
    Xor = RUSHMEM_XOR of Integer;
}
