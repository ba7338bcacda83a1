//! The elements of reductions: random ones, and how members' are combined, one after the other in the order of
//! their numbers.

use rushmem::{Bf16, Complex, Reducible, F16};

/// An element, and what it is combined as.
pub(crate) trait Number: Reducible + std::fmt::Debug {
    /// What operators work on.
    type Sum: Copy;
    fn random(bits: u64) -> Self;
    fn widen(self) -> Self::Sum;
    fn round(sum: Self::Sum) -> Self;
}

/// The members' elements combined; zero of none.
pub(crate) fn reduced<T: Number>(
    mut members: impl Iterator<Item = T>,
    combine: fn(T::Sum, T::Sum) -> T::Sum,
) -> T {
    let Some(first) = members.next() else { return T::new_zeroed() };
    T::round(members.fold(first.widen(), |sum, next| combine(sum, next.widen())))
}

macro_rules! plain {
    ($($type:ty: |$bits:ident| $random:expr;)*) => {
        $(impl Number for $type {
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

impl Number for Bf16 {
    type Sum = f32;
    fn random(bits: u64) -> Self {
        Bf16::round(float(bits) as f32)
    }
    fn widen(self) -> f32 {
        f32::from_bits(u32::from(self.0) << 16)
    }
    fn round(sum: f32) -> Self {
        let bits = sum.to_bits();
        // To the nearest, and of two to the even one.
        Bf16(((bits + 0x7fff + (bits >> 16 & 1)) >> 16) as u16)
    }
}

impl Number for F16 {
    type Sum = f32;
    fn random(bits: u64) -> Self {
        F16::round(float(bits) as f32)
    }
    fn widen(self) -> f32 {
        let (sign, exponent, part) = (self.0 >> 15, i32::from(self.0 >> 10 & 31), f32::from(self.0 & 1023));
        let size = match exponent {
            0 => part * 2f32.powi(-24),
            _ => (1.0 + part / 1024.0) * 2f32.powi(exponent - 15),
        };
        if sign == 1 {
            -size
        } else {
            size
        }
    }
    fn round(sum: f32) -> Self {
        let (sign, size) = (if sum.is_sign_negative() { 1 << 15 } else { 0 }, f64::from(sum.abs()));
        // The unit of the last place, down to that of numbers without an exponent.
        let exponent = (size.log2().floor() as i32).clamp(-14, 16);
        let units = (size / 2f64.powi(exponent - 10)).round_ties_even() as u16;
        // Of as many units as the next exponent's first number has, this is that number.
        let bits = if size == 0.0 { 0 } else { ((exponent + 14) as u16) << 10 };
        F16(if size >= 65520.0 { sign | 0x7c00 } else { sign | (bits + units) })
    }
}

#[test]
fn sixteen_bits_there_and_back() {
    for bits in (0..0x7c00).chain(0x8000..0xfc00) {
        assert_eq!(F16::round(F16(bits).widen()), F16(bits), "{bits:#x}");
        assert_eq!(Bf16::round(Bf16(bits).widen()), Bf16(bits), "{bits:#x}");
    }
    // Between two, to the even one.
    assert_eq!((F16::round(2049.0), F16::round(2051.0)), (F16::round(2048.0), F16::round(2052.0)));
    assert_eq!(F16::round(1e6).0, 0x7c00);
}
