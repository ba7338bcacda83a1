//! The elements of reductions: random ones, and how members' are combined, one after the other in the order
//! of their numbers.

use rushmem::half::{bf16, f16};
use rushmem::{Complex, Number};

/// An element, and what it is combined as.
pub(crate) trait Element: Number + std::fmt::Debug {
    /// What operators work on.
    type Sum: Copy;
    fn random(bits: u64) -> Self;
    fn widen(self) -> Self::Sum;
    fn round(sum: Self::Sum) -> Self;
}

/// The members' elements combined; zero of none.
pub(crate) fn reduced<T: Element>(
    mut members: impl Iterator<Item = T>,
    combine: fn(T::Sum, T::Sum) -> T::Sum,
) -> T {
    let Some(first) = members.next() else { return T::new_zeroed() };
    T::round(members.fold(first.widen(), |sum, next| combine(sum, next.widen())))
}

macro_rules! plain {
    ($($type:ty: |$bits:ident| $random:expr;)*) => {
        $(impl Element for $type {
            type Sum = $type;
            fn random($bits: u64) -> Self {
                $random
            }
            fn widen(self) -> Self {
                self
            }
            fn round(sum: Self) -> Self {
                sum
            }
        })*
    };
}
plain! {
    i8: |bits| bits as i8;
    u8: |bits| bits as u8;
    i16: |bits| bits as i16;
    u16: |bits| bits as u16;
    i32: |bits| bits as i32;
    u32: |bits| bits as u32;
    i64: |bits| bits as i64;
    u64: |bits| bits;
    f32: |bits| float(bits) as f32;
    f64: |bits| float(bits);
    Complex<f32>: |bits| Complex { re: float(bits) as f32, im: float(bits.rotate_left(29)) as f32 };
    Complex<f64>: |bits| Complex { re: float(bits), im: float(bits.rotate_left(29)) };
}

/// Of many magnitudes: another order of additions gives other bits.
fn float(bits: u64) -> f64 {
    let whole = (bits % 2_000_001) as f64 - 1_000_000.0;
    whole / 977.0 * 0.25f64.powi((bits >> 40 & 15) as i32)
}

macro_rules! halves {
    ($($type:ty)*) => {
        $(impl Element for $type {
            type Sum = f32;
            fn random(bits: u64) -> Self {
                <$type>::from_f32(float(bits) as f32)
            }
            fn widen(self) -> f32 {
                self.to_f32()
            }
            fn round(sum: f32) -> Self {
                <$type>::from_f32(sum)
            }
        })*
    };
}
halves!(f16 bf16);
