//! What reductions and scans combine, and how: element types and operators as types, so that what makes no
//! sense does not compile.

use rushmem_abi::c::*;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::Symmetric;

mod sealed {
    pub trait Sealed {}
}

/// Element types of reductions and scans: integers of 8 to 64 bits, `f32`, `f64`, [`F16`], [`Bf16`], and
/// [`Complex`] of `f32` and `f64`.
pub trait Reducible: Symmetric + sealed::Sealed {
    #[doc(hidden)]
    const REDUCED: i32;
}

/// An operator of reductions and scans that makes sense for `T`.
pub trait Operator<T: Reducible>: Copy + sealed::Sealed {
    #[doc(hidden)]
    const OPERATOR: i32;
}

/// A 16-bit float of IEEE 754, CUDA's `__half`, as its bits. Combined in 32 bits, and rounded once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
#[repr(transparent)]
pub struct F16(pub u16);

/// The upper half of an `f32`, CUDA's `__nv_bfloat16`, as its bits. Combined in 32 bits, and rounded once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
#[repr(transparent)]
pub struct Bf16(pub u16);

/// A complex number, C's `float _Complex` or `double _Complex`.
#[derive(Debug, Clone, Copy, PartialEq, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub struct Complex<T> {
    /// The real part.
    pub re: T,
    /// The imaginary part.
    pub im: T,
}

macro_rules! operators {
    ($($(#[$doc:meta])* $name:ident;)*) => {
        $(
            $(#[$doc])*
            #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
            pub struct $name;
            impl sealed::Sealed for $name {}
        )*
    };
}
operators! {
    /// The sum; of integers it wraps.
    Sum;
    /// The product; of integers it wraps.
    Prod;
    /// The smallest.
    Min;
    /// The largest.
    Max;
    /// Bitwise and.
    And;
    /// Bitwise or.
    Or;
    /// Bitwise exclusive or.
    Xor;
}

macro_rules! elements {
    ($($type:ty = $code:ident: $($op:ident = $number:ident),*;)*) => {
        $(
            impl sealed::Sealed for $type {}
            impl Reducible for $type {
                const REDUCED: i32 = $code;
            }
            $(impl Operator<$type> for $op {
                const OPERATOR: i32 = $number;
            })*
        )*
    };
}
macro_rules! integers {
    ($($type:ty = $code:ident;)*) => {
        elements! { $($type = $code: Sum = RUSHMEM_SUM, Prod = RUSHMEM_PROD, Min = RUSHMEM_MIN,
            Max = RUSHMEM_MAX, And = RUSHMEM_AND, Or = RUSHMEM_OR, Xor = RUSHMEM_XOR;)* }
    };
}
macro_rules! floats {
    ($($type:ty = $code:ident;)*) => {
        elements! { $($type = $code: Sum = RUSHMEM_SUM, Prod = RUSHMEM_PROD, Min = RUSHMEM_MIN,
            Max = RUSHMEM_MAX;)* }
    };
}
integers! {
    i8 = RUSHMEM_INT8;
    u8 = RUSHMEM_UINT8;
    i16 = RUSHMEM_INT16;
    u16 = RUSHMEM_UINT16;
    i32 = RUSHMEM_INT32;
    u32 = RUSHMEM_UINT32;
    i64 = RUSHMEM_INT64;
    u64 = RUSHMEM_UINT64;
}
floats! {
    f32 = RUSHMEM_FLOAT;
    f64 = RUSHMEM_DOUBLE;
    F16 = RUSHMEM_HALF;
    Bf16 = RUSHMEM_BFLOAT16;
}
elements! {
    Complex<f32> = RUSHMEM_COMPLEX_FLOAT: Sum = RUSHMEM_SUM, Prod = RUSHMEM_PROD;
    Complex<f64> = RUSHMEM_COMPLEX_DOUBLE: Sum = RUSHMEM_SUM, Prod = RUSHMEM_PROD;
}

#[cfg(test)]
mod tests {
    use super::*;
    use rushmem_abi::reduction::{reduction, REDUCED};

    fn pair<T: Reducible, Op: Operator<T>>(_: Op) -> (i32, i32) {
        let (of, _) = reduction(T::REDUCED, Op::OPERATOR).expect("what compiles makes sense");
        assert_eq!(of.bytes, size_of::<T>(), "{}", of.name);
        (T::REDUCED, Op::OPERATOR)
    }

    #[test]
    fn all_that_makes_sense_compiles() {
        let mut pairs = Vec::new();
        macro_rules! all {
            ($([$($type:ty),*] $ops:tt;)*) => { $($(all!(@ $type, $ops);)*)* };
            (@ $type:ty, ($($op:ident),*)) => { $(pairs.push(pair::<$type, _>($op));)* };
        }
        all! {
            [i8, u8, i16, u16, i32, u32, i64, u64] (Sum, Prod, Min, Max, And, Or, Xor);
            [f32, f64, F16, Bf16] (Sum, Prod, Min, Max);
            [Complex<f32>, Complex<f64>] (Sum, Prod);
        }
        let mut expected: Vec<(i32, i32)> =
            REDUCED.iter().flat_map(|of| (0..7).map(|op| (of.code, op))).collect();
        expected.retain(|(of, op)| reduction(*of, *op).is_ok());
        pairs.sort_unstable();
        expected.sort_unstable();
        assert_eq!(pairs, expected);
    }
}
