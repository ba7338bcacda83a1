//! The tables of reductions and scans: their element types and operators, and which go together. Beside
//! [`ELEMENTS`](crate::table::ELEMENTS), whose numbers these types share: an atomic's type is a reduction's,
//! too.

use std::fmt;

use crate::c::*;

/// What an element's bits stand for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Number {
    /// Two's complement.
    Signed,
    /// No sign.
    Unsigned,
    /// A float; one of 16 bits is combined in 32 bits, and rounded once.
    Float,
    /// Two floats: the real part and the imaginary one.
    Complex,
}

/// An element type of reductions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reduced {
    /// `RUSHMEM_INT32` and so on.
    pub code: i32,
    /// As in the names of typed functions: `int32`.
    pub name: &'static str,
    /// Bytes.
    pub bytes: usize,
    /// What its bits stand for.
    pub number: Number,
}

const fn reduced(code: i32, name: &'static str, bytes: usize, number: Number) -> Reduced {
    Reduced { code, name, bytes, number }
}

/// The element types of reductions, by number.
pub const REDUCED: [Reduced; 14] = {
    use Number::{Complex, Float, Signed, Unsigned};
    [
        reduced(RUSHMEM_INT32, "int32", 4, Signed),
        reduced(RUSHMEM_UINT32, "uint32", 4, Unsigned),
        reduced(RUSHMEM_INT64, "int64", 8, Signed),
        reduced(RUSHMEM_UINT64, "uint64", 8, Unsigned),
        reduced(RUSHMEM_FLOAT, "float", 4, Float),
        reduced(RUSHMEM_DOUBLE, "double", 8, Float),
        reduced(RUSHMEM_INT8, "int8", 1, Signed),
        reduced(RUSHMEM_UINT8, "uint8", 1, Unsigned),
        reduced(RUSHMEM_INT16, "int16", 2, Signed),
        reduced(RUSHMEM_UINT16, "uint16", 2, Unsigned),
        reduced(RUSHMEM_HALF, "half", 2, Float),
        reduced(RUSHMEM_BFLOAT16, "bfloat16", 2, Float),
        reduced(RUSHMEM_COMPLEX_FLOAT, "complexf", 8, Complex),
        reduced(RUSHMEM_COMPLEX_DOUBLE, "complexd", 16, Complex),
    ]
};

/// The operators of reductions and scans. Their numbers are those of kernels' operators, too.
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    /// Sum.
    Sum = RUSHMEM_SUM,
    /// Product.
    Prod = RUSHMEM_PROD,
    /// The smaller one.
    Min = RUSHMEM_MIN,
    /// The larger one.
    Max = RUSHMEM_MAX,
    /// Bitwise and.
    And = RUSHMEM_AND,
    /// Bitwise or.
    Or = RUSHMEM_OR,
    /// Bitwise exclusive or.
    Xor = RUSHMEM_XOR,
}

impl Operator {
    /// All, by number.
    pub const ALL: [Operator; 7] = [
        Operator::Sum,
        Operator::Prod,
        Operator::Min,
        Operator::Max,
        Operator::And,
        Operator::Or,
        Operator::Xor,
    ];

    /// The operator of that number.
    pub fn of(code: i32) -> Option<Operator> {
        usize::try_from(code).ok().and_then(|at| Operator::ALL.get(at)).copied()
    }

    /// `RUSHMEM_SUM` and so on.
    pub fn code(self) -> i32 {
        self as i32
    }

    /// As in the names of typed functions: `sum`.
    pub fn name(self) -> &'static str {
        match self {
            Operator::Sum => "sum",
            Operator::Prod => "prod",
            Operator::Min => "min",
            Operator::Max => "max",
            Operator::And => "and",
            Operator::Or => "or",
            Operator::Xor => "xor",
        }
    }

    /// Whether it makes sense for such numbers.
    pub fn takes(self, number: Number) -> bool {
        match self {
            Operator::Sum | Operator::Prod => true,
            Operator::Min | Operator::Max => number != Number::Complex,
            Operator::And | Operator::Or | Operator::Xor => {
                matches!(number, Number::Signed | Number::Unsigned)
            }
        }
    }
}

impl fmt::Display for Operator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Why two numbers are no reduction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoReduction {
    /// No element type has that number.
    Type(i32),
    /// No operator has that number.
    Operator(i32),
    /// The operator makes no sense for the type.
    Senseless(&'static Reduced, Operator),
}

impl fmt::Display for NoReduction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            NoReduction::Type(code) => {
                write!(
                    f,
                    "{code} is no element type: RUSHMEM_INT32 and its like are 0 to {}",
                    REDUCED.len() - 1
                )
            }
            NoReduction::Operator(code) => {
                write!(
                    f,
                    "{code} is no operator: RUSHMEM_SUM and its like are 0 to {}",
                    Operator::ALL.len() - 1
                )
            }
            NoReduction::Senseless(of, op) => {
                let what = match of.number {
                    Number::Complex => "complex numbers have sum and prod",
                    _ => "floats have sum, prod, min and max",
                };
                write!(f, "there is no {op} of {}: {what}", of.name)
            }
        }
    }
}

impl std::error::Error for NoReduction {}

impl Reduced {
    /// The element type of that number.
    pub fn of(code: i32) -> Option<&'static Reduced> {
        usize::try_from(code).ok().and_then(|at| REDUCED.get(at))
    }
}

/// The type and the operator of those numbers, where they go together.
pub fn reduction(of: i32, op: i32) -> Result<(&'static Reduced, Operator), NoReduction> {
    let of = Reduced::of(of).ok_or(NoReduction::Type(of))?;
    let op = Operator::of(op).ok_or(NoReduction::Operator(op))?;
    if op.takes(of.number) {
        Ok((of, op))
    } else {
        Err(NoReduction::Senseless(of, op))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::{ElementKind, ELEMENTS};

    #[test]
    fn rows_stand_at_their_numbers_and_an_atomic_s_type_is_the_same_one_here() {
        assert!(REDUCED.iter().all(|row| Reduced::of(row.code) == Some(row)));
        assert!(Operator::ALL.iter().all(|op| Operator::of(op.code()) == Some(*op)));
        for row in &ELEMENTS {
            let number = match row.kind {
                ElementKind::Signed => Number::Signed,
                ElementKind::Unsigned => Number::Unsigned,
                ElementKind::Float => Number::Float,
            };
            assert_eq!(Reduced::of(row.code), Some(&reduced(row.code, row.name, row.bytes, number)));
        }
        for none in [-1, 14, i32::MIN, i32::MAX] {
            assert!(Reduced::of(none).is_none() && Operator::of(none).is_none());
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_a_text() {
        let pairs = REDUCED.iter().flat_map(|of| Operator::ALL.map(|op| reduction(of.code, op.code())));
        assert_eq!(pairs.filter(Result::is_ok).count(), 8 * 7 + 4 * 4 + 2 * 2);
        for (of, op, text) in [
            (RUSHMEM_FLOAT, RUSHMEM_AND, "there is no and of float: floats have sum, prod, min and max"),
            (RUSHMEM_COMPLEX_FLOAT, RUSHMEM_MIN, "there is no min of complexf: complex numbers have sum"),
            (14, RUSHMEM_SUM, "14 is no element type"),
            (RUSHMEM_INT8, -1, "-1 is no operator"),
        ] {
            let text_of = reduction(of, op).expect_err("senseless").to_string();
            assert!(text_of.starts_with(text), "{text_of}");
        }
    }
}
