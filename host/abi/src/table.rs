//! The table of operations and element types: one row for each number that the C ABI, kernels and the wire
//! use, with its names and what it means. What differs only in type or operation is made of these rows, by
//! loops or by tests that compare.

use std::fmt;

use crate::c::*;

/// What an element's bits stand for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ElementKind {
    /// Two's complement.
    Signed,
    /// No sign.
    Unsigned,
    /// IEEE 754.
    Float,
}

/// An element type of atomics, signals and waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Element {
    /// `RUSHMEM_INT32` and so on.
    pub code: i32,
    /// As in the names of typed functions: `int32`.
    pub name: &'static str,
    /// Bytes.
    pub bytes: usize,
    /// What its bits stand for.
    pub kind: ElementKind,
}

/// The element types, by number.
pub const ELEMENTS: [Element; 6] = [
    Element { code: RUSHMEM_INT32, name: "int32", bytes: 4, kind: ElementKind::Signed },
    Element { code: RUSHMEM_UINT32, name: "uint32", bytes: 4, kind: ElementKind::Unsigned },
    Element { code: RUSHMEM_INT64, name: "int64", bytes: 8, kind: ElementKind::Signed },
    Element { code: RUSHMEM_UINT64, name: "uint64", bytes: 8, kind: ElementKind::Unsigned },
    Element { code: RUSHMEM_FLOAT, name: "float", bytes: 4, kind: ElementKind::Float },
    Element { code: RUSHMEM_DOUBLE, name: "double", bytes: 8, kind: ElementKind::Float },
];

impl Element {
    /// The element type of that number.
    #[inline]
    pub fn of(code: i32) -> Option<&'static Element> {
        usize::try_from(code).ok().and_then(|at| ELEMENTS.get(at))
    }

    /// Whether waits, tests and all atomics take it; else only those that neither compare nor compute.
    #[inline]
    pub fn is_integer(&self) -> bool {
        self.kind != ElementKind::Float
    }
}

/// Which functions there are for a C type, as OpenSHMEM 1.5 has it (tables 3, 4, 5 and 8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Families {
    /// put, get, p, g and the strided forms.
    Rma,
    /// These, and atomic fetch, set and swap.
    Extended,
    /// These, and all other atomics, waits and tests.
    Integer,
}

/// A C type for which there are typed functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CType {
    /// As in the functions' names: `longlong`.
    pub name: &'static str,
    /// As C writes it: `long long`.
    pub c: &'static str,
    /// Which functions there are for it.
    pub families: Families,
    /// What its bits stand for. C leaves the sign of `char` open; only `Rma` functions take that.
    pub kind: ElementKind,
}

const fn c_type(name: &'static str, c: &'static str, families: Families, kind: ElementKind) -> CType {
    CType { name, c, families, kind }
}

/// The C types with typed functions, in the order of `rushmem_typed.h`.
pub const C_TYPES: [CType; 23] = {
    use ElementKind::{Float, Signed, Unsigned};
    use Families::{Extended, Integer, Rma};
    [
        c_type("float", "float", Extended, Float),
        c_type("double", "double", Extended, Float),
        c_type("char", "char", Rma, Signed),
        c_type("schar", "signed char", Rma, Signed),
        c_type("short", "short", Rma, Signed),
        c_type("int", "int", Integer, Signed),
        c_type("long", "long", Integer, Signed),
        c_type("longlong", "long long", Integer, Signed),
        c_type("uchar", "unsigned char", Rma, Unsigned),
        c_type("ushort", "unsigned short", Rma, Unsigned),
        c_type("uint", "unsigned int", Integer, Unsigned),
        c_type("ulong", "unsigned long", Integer, Unsigned),
        c_type("ulonglong", "unsigned long long", Integer, Unsigned),
        c_type("int8", "int8_t", Rma, Signed),
        c_type("int16", "int16_t", Rma, Signed),
        c_type("int32", "int32_t", Integer, Signed),
        c_type("int64", "int64_t", Integer, Signed),
        c_type("uint8", "uint8_t", Rma, Unsigned),
        c_type("uint16", "uint16_t", Rma, Unsigned),
        c_type("uint32", "uint32_t", Integer, Unsigned),
        c_type("uint64", "uint64_t", Integer, Unsigned),
        c_type("size", "size_t", Integer, Unsigned),
        c_type("ptrdiff", "ptrdiff_t", Integer, Signed),
    ]
};

/// What an atomic update does with the word; arithmetic wraps. Its number is that of messages between PEs.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Update {
    /// Leaves it.
    Fetch = 0,
    /// Stores the value, and gives no old one.
    Set = 1,
    /// Stores the value.
    Swap = 2,
    /// Stores the value where the word equals the comparand.
    CompareSwap = 3,
    /// Adds.
    Add = 4,
    /// Bitwise and.
    And = 5,
    /// Bitwise or.
    Or = 6,
    /// Bitwise exclusive or.
    Xor = 7,
}

/// An atomic operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Atomic {
    /// `RUSHMEM_ATOMIC_FETCH` and so on.
    pub code: i32,
    /// As in the functions' names: `fetch_add`.
    pub name: &'static str,
    /// What is done.
    pub update: Update,
    /// Whether the caller gets the old value.
    pub fetches: bool,
}

const fn atomic(code: i32, name: &'static str, update: Update, fetches: bool) -> Atomic {
    Atomic { code, name, update, fetches }
}

/// The atomic operations, by number.
pub const ATOMICS: [Atomic; 12] = [
    atomic(RUSHMEM_ATOMIC_FETCH, "fetch", Update::Fetch, true),
    atomic(RUSHMEM_ATOMIC_SET, "set", Update::Set, false),
    atomic(RUSHMEM_ATOMIC_SWAP, "swap", Update::Swap, true),
    atomic(RUSHMEM_ATOMIC_COMPARE_SWAP, "compare_swap", Update::CompareSwap, true),
    atomic(RUSHMEM_ATOMIC_ADD, "add", Update::Add, false),
    atomic(RUSHMEM_ATOMIC_FETCH_ADD, "fetch_add", Update::Add, true),
    atomic(RUSHMEM_ATOMIC_AND, "and", Update::And, false),
    atomic(RUSHMEM_ATOMIC_FETCH_AND, "fetch_and", Update::And, true),
    atomic(RUSHMEM_ATOMIC_OR, "or", Update::Or, false),
    atomic(RUSHMEM_ATOMIC_FETCH_OR, "fetch_or", Update::Or, true),
    atomic(RUSHMEM_ATOMIC_XOR, "xor", Update::Xor, false),
    atomic(RUSHMEM_ATOMIC_FETCH_XOR, "fetch_xor", Update::Xor, true),
];

impl Atomic {
    /// The operation of that number.
    #[inline]
    pub fn of(code: i32) -> Option<&'static Atomic> {
        usize::try_from(code).ok().and_then(|at| ATOMICS.get(at))
    }
}

impl Update {
    /// All, by number.
    pub const ALL: [Update; 8] = [
        Update::Fetch,
        Update::Set,
        Update::Swap,
        Update::CompareSwap,
        Update::Add,
        Update::And,
        Update::Or,
        Update::Xor,
    ];

    /// The update of that number.
    pub fn from_number(number: u8) -> Option<Update> {
        Update::ALL.get(usize::from(number)).copied()
    }

    /// The first of `RUSHMEM_ATOMIC_*` that does it: the one that does not fetch, where there are two.
    pub fn code(self) -> i32 {
        ATOMICS.iter().find(|row| row.update == self).expect("each is in the table").code
    }

    /// Whether floats have it, too: it neither compares nor computes.
    #[inline]
    pub fn takes_floats(self) -> bool {
        matches!(self, Update::Fetch | Update::Set | Update::Swap)
    }
}

/// The comparisons of wait and test: `word ? expected`.
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// Equal.
    Eq = RUSHMEM_CMP_EQ,
    /// Not equal.
    Ne = RUSHMEM_CMP_NE,
    /// Greater.
    Gt = RUSHMEM_CMP_GT,
    /// Greater or equal.
    Ge = RUSHMEM_CMP_GE,
    /// Less.
    Lt = RUSHMEM_CMP_LT,
    /// Less or equal.
    Le = RUSHMEM_CMP_LE,
}

impl Comparison {
    /// All, by number.
    pub const ALL: [Comparison; 6] =
        [Comparison::Eq, Comparison::Ne, Comparison::Gt, Comparison::Ge, Comparison::Lt, Comparison::Le];

    /// The comparison of that number.
    #[inline]
    pub fn of(code: i32) -> Option<Comparison> {
        usize::try_from(code).ok().and_then(|at| Comparison::ALL.get(at)).copied()
    }

    /// `RUSHMEM_CMP_*`.
    #[inline]
    pub fn code(self) -> i32 {
        self as i32
    }

    /// As C writes it: `>=`.
    pub fn sign(self) -> &'static str {
        match self {
            Comparison::Eq => "==",
            Comparison::Ne => "!=",
            Comparison::Gt => ">",
            Comparison::Ge => ">=",
            Comparison::Lt => "<",
            Comparison::Le => "<=",
        }
    }

    /// Whether `seen ? expected` is true.
    #[inline]
    pub fn holds<T: PartialOrd>(self, seen: T, expected: T) -> bool {
        match self {
            Comparison::Eq => seen == expected,
            Comparison::Ne => seen != expected,
            Comparison::Gt => seen > expected,
            Comparison::Ge => seen >= expected,
            Comparison::Lt => seen < expected,
            Comparison::Le => seen <= expected,
        }
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.sign())
    }
}

/// What `RUSHMEM_SIGNAL_*` do with the signal word; `None` for another number.
#[inline]
pub fn signal_update(code: i32) -> Option<Update> {
    match code {
        RUSHMEM_SIGNAL_SET => Some(Update::Set),
        RUSHMEM_SIGNAL_ADD => Some(Update::Add),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `of` takes a number for a place in its table.
    #[test]
    fn rows_stand_at_their_numbers() {
        assert!(ELEMENTS.iter().all(|row| Element::of(row.code) == Some(row)));
        assert!(ATOMICS.iter().all(|row| Atomic::of(row.code) == Some(row)));
        assert!(Comparison::ALL.iter().all(|cmp| Comparison::of(cmp.code()) == Some(*cmp)));
        assert!(Update::ALL.iter().all(|update| Update::from_number(*update as u8) == Some(*update)));
        for none in [-1, 12, i32::MIN, i32::MAX] {
            assert!(
                Element::of(none).is_none() && Atomic::of(none).is_none() && Comparison::of(none).is_none()
            );
            assert!(signal_update(none).is_none());
        }
        assert!(Update::from_number(8).is_none() && Update::from_number(255).is_none());
    }

    #[test]
    fn an_update_has_the_number_of_its_form_that_does_not_fetch() {
        for update in Update::ALL {
            let row = Atomic::of(update.code()).unwrap();
            assert_eq!(row.update, update);
            let other = ATOMICS.iter().find(|other| other.update == update && other.code != row.code);
            assert!(other.is_none_or(|other| other.fetches && !row.fetches), "{update:?}");
            assert!(other.is_none_or(|other| other.name == format!("fetch_{}", row.name)), "{update:?}");
        }
    }
}
