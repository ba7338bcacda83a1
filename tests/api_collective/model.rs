//! What comes of a collective, by loops over all members' elements: every PE works all of them out from a
//! seed.

use crate::api_common::Rng;
use rushmem::half::{bf16, f16};
use rushmem::{And, Complex, Max, Min, Number, Operator, Or, Prod, Sum, Xor};

/// Element types as the model has them.
pub(crate) trait Sample: Number {
    /// Any value, such that sums in another order would be others.
    fn make(bits: u64) -> Self;
    /// Combines them in their order, by the operator of that name; `None` where there is none of the type.
    fn fold(op: &str, values: &[Self]) -> Self;
    /// Calls `with` with each operator that the type has.
    fn operators<W: WithOperator<Self>>(with: &mut W);
}

/// Something that is done with an operator.
pub(crate) trait WithOperator<T: Number> {
    fn with(&mut self, op: impl Operator<T>, name: &'static str);
}

macro_rules! integers {
    ($($type:ty)*) => {$(
        impl Sample for $type {
            fn make(bits: u64) -> Self {
                bits as $type
            }
            fn fold(op: &str, values: &[Self]) -> Self {
                values[1..].iter().fold(values[0], |a, b| match op {
                    "sum" => a.wrapping_add(*b),
                    "prod" => a.wrapping_mul(*b),
                    "min" => a.min(*b),
                    "max" => a.max(*b),
                    "and" => a & b,
                    "or" => a | b,
                    _ => a ^ b,
                })
            }
            fn operators<W: WithOperator<Self>>(with: &mut W) {
                ordered(with);
                with.with(And, "and");
                with.with(Or, "or");
                with.with(Xor, "xor");
            }
        }
    )*};
}

integers!(i8 u8 i16 u16 i32 u32 i64 u64);

fn ordered<T: rushmem::Ordered>(with: &mut impl WithOperator<T>) {
    with.with(Sum, "sum");
    with.with(Prod, "prod");
    with.with(Min, "min");
    with.with(Max, "max");
}

/// From `1` to `2`, with a sign and up to 2^23 times as large.
fn float(bits: u64) -> f64 {
    let mantissa = 1.0 + (bits >> 12) as f64 / (1u64 << 52) as f64;
    let sign = if bits & 1 == 0 { 1.0 } else { -1.0 };
    sign * mantissa * f64::from(1u32 << (bits >> 1 & 0x1f).min(23))
}

macro_rules! floats {
    ($($type:ty, $wide:ty, |$bits:ident| $make:expr, $narrow:expr;)*) => {$(
        impl Sample for $type {
            fn make($bits: u64) -> Self {
                $make
            }
            fn fold(op: &str, values: &[Self]) -> Self {
                let all = values[1..].iter().fold(<$wide>::from(values[0]), |a, b| {
                    let b = <$wide>::from(*b);
                    match op {
                        "sum" => a + b,
                        "prod" => a * b,
                        "min" => if b < a { b } else { a },
                        _ => if a < b { b } else { a },
                    }
                });
                $narrow(all)
            }
            fn operators<W: WithOperator<Self>>(with: &mut W) {
                ordered(with);
            }
        }
    )*};
}

floats! {
    f32, f32, |bits| float(bits) as f32, |all| all;
    f64, f64, |bits| float(bits), |all| all;
    // Small enough for a product of some.
    f16, f32, |bits| f16::from_f64(float(bits & !0x3e | (bits & 0xe))), f16::from_f32;
    bf16, f32, |bits| bf16::from_f64(float(bits)), bf16::from_f32;
}

macro_rules! complex {
    ($($type:ty)*) => {$(
        impl Sample for Complex<$type> {
            fn make(bits: u64) -> Self {
                let im = bits.rotate_left(29) & !0x3e | 4;
                Complex { re: float(bits) as $type, im: float(im) as $type }
            }
            fn fold(op: &str, values: &[Self]) -> Self {
                values[1..].iter().fold(values[0], |a, b| match op {
                    "sum" => Complex { re: a.re + b.re, im: a.im + b.im },
                    _ => Complex { re: a.re * b.re - a.im * b.im, im: a.re * b.im + a.im * b.re },
                })
            }
            fn operators<W: WithOperator<Self>>(with: &mut W) {
                with.with(Sum, "sum");
                with.with(Prod, "prod");
            }
        }
    )*};
}

complex!(f32 f64);

/// The elements of all members of a call.
pub(crate) struct Inputs {
    seed: u64,
}

impl Inputs {
    pub(crate) fn new(rng: &mut Rng) -> Inputs {
        Inputs { seed: rng.next() }
    }

    /// Elements of member `i`.
    pub(crate) fn of<T: Sample>(&self, i: usize, n: usize) -> Vec<T> {
        let mut rng = Rng::new(self.seed ^ (i as u64 + 1).wrapping_mul(0x5851_f42d_4c95_7f2d));
        (0..n).map(|_| T::make(rng.next())).collect()
    }

    /// Elements of `members`, combined.
    pub(crate) fn folded<T: Sample>(&self, op: &str, members: std::ops::Range<usize>, n: usize) -> Vec<T> {
        let all: Vec<Vec<T>> = members.map(|i| self.of(i, n)).collect();
        let column = |k: usize| T::fold(op, &all.iter().map(|member| member[k]).collect::<Vec<_>>());
        (0..n).map(column).collect()
    }
}
