//! A wait set: words in this PE's memory, which of them count, and what is expected of each.
//!
//! This is the part of wait and test that has no world in it: loads, comparisons and selection, on any
//! memory. All integer types are widened to `i128`, where a comparison has one meaning.

use crate::error::{err, Result};
use crate::word::Word;
use rushmem_abi::c::*;
use std::fmt;
use std::sync::atomic::Ordering;

pub(crate) use rushmem_abi::table::Comparison as Cmp;
use rushmem_abi::table::{Element, ElementKind, ELEMENTS};

/// The integers of 16 bits, for which there are no atomics: OpenSHMEM's and NVSHMEM's waits have them.
static SHORT: Element = Element { code: RUSHMEM_INT16, name: "int16", bytes: 2, kind: ElementKind::Signed };
static UNSIGNED_SHORT: Element =
    Element { code: RUSHMEM_UINT16, name: "uint16", bytes: 2, kind: ElementKind::Unsigned };

/// An element type of wait and test: a row of the table that is an integer's, or one of 16 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Integer(&'static Element);

impl Integer {
    /// The type of signals.
    pub(crate) const U64: Integer = Integer(&ELEMENTS[RUSHMEM_UINT64 as usize]);

    /// The type behind a constant of the C ABI.
    pub(crate) fn from_code(code: i32) -> Result<Integer> {
        match Element::of(code) {
            None if code == RUSHMEM_INT16 => Ok(Integer(&SHORT)),
            None if code == RUSHMEM_UINT16 => Ok(Integer(&UNSIGNED_SHORT)),
            Some(element) if element.is_integer() => Ok(Integer(element)),
            Some(_) => Err(err!(
                INVALID_ARGUMENT,
                "wait and test compare integers; floating-point words have no order to wait on"
            )),
            None => Err(err!(
                INVALID_ARGUMENT,
                "{code} is none of the element types RUSHMEM_INT32 … RUSHMEM_UINT64, RUSHMEM_INT16 and RUSHMEM_UINT16"
            )),
        }
    }

    /// Size of an element.
    pub(crate) fn bytes(self) -> usize {
        self.0.bytes
    }

    /// Whether its values have a sign.
    pub(crate) fn is_signed(self) -> bool {
        self.0.kind == ElementKind::Signed
    }

    /// The value of a bit pattern, of which only the low bytes count.
    pub(crate) fn decode(self, bits: u64) -> i128 {
        match (self.bytes(), self.is_signed()) {
            (2, true) => (bits as i16).into(),
            (2, false) => (bits as u16).into(),
            (4, true) => (bits as i32).into(),
            (4, false) => (bits as u32).into(),
            (_, true) => (bits as i64).into(),
            (_, false) => bits.into(),
        }
    }

    /// An atomic load.
    ///
    /// # Safety
    /// `p` is aligned and valid for reads of the element.
    unsafe fn load(self, p: *const u8) -> i128 {
        // SAFETY: the caller vouches for `p`.
        self.decode(unsafe {
            match self.bytes() {
                2 => u16::load(p, Ordering::Relaxed).bits(),
                4 => u32::load(p, Ordering::Relaxed).bits(),
                _ => u64::load(p, Ordering::Relaxed),
            }
        })
    }

    /// A plain load from private memory.
    ///
    /// # Safety
    /// `p` is valid for reads of the element.
    unsafe fn read(self, p: *const u8) -> i128 {
        // SAFETY: the caller vouches for `p`.
        self.decode(unsafe {
            match self.bytes() {
                2 => p.cast::<u16>().read_unaligned().into(),
                4 => p.cast::<u32>().read_unaligned().into(),
                _ => p.cast::<u64>().read_unaligned(),
            }
        })
    }
}

impl fmt::Display for Integer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.name)
    }
}

/// The comparison behind a constant of the C ABI.
pub(crate) fn comparison(code: i32) -> Result<Cmp> {
    Cmp::of(code).ok_or_else(|| err!(INVALID_ARGUMENT, "{code} is none of the comparisons RUSHMEM_CMP_*"))
}

/// What the words are compared with.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Expected {
    /// All with one bit pattern.
    One(u64),
    /// Each with its own: an array of the elements' type in private memory.
    Each(*const u8),
}

/// Words and what is expected of them. Built by [`WaitSet::new`], whose contract makes the methods sound.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WaitSet {
    kind: Integer,
    words: *const u8,
    /// What the words' address is to people, who do not know of copies.
    address: usize,
    n: usize,
    status: *const i32,
    cmp: Cmp,
    expected: Expected,
}

impl WaitSet {
    /// A set of `n` words.
    ///
    /// # Safety
    /// As long as the set is used: `words` is aligned and valid for `n` elements, `status` is null or valid
    /// for `n`, and so is the array of [`Expected::Each`].
    pub(crate) unsafe fn new(
        kind: Integer,
        words: *const u8,
        n: usize,
        status: *const i32,
        cmp: Cmp,
        expected: Expected,
    ) -> WaitSet {
        WaitSet { kind, words, address: words as usize, n, status, cmp, expected }
    }

    /// Where word `i` is, and its bytes.
    pub(crate) fn word(&self, i: usize) -> (usize, usize) {
        (self.address + i * self.kind.bytes(), self.kind.bytes())
    }

    /// The same set, whose words are copies of those at `address`.
    pub(crate) fn copied_from(self, address: usize) -> WaitSet {
        WaitSet { address, ..self }
    }

    /// Number of words, the excluded ones included.
    pub(crate) fn len(&self) -> usize {
        self.n
    }

    /// Whether word `i` takes part.
    pub(crate) fn included(&self, i: usize) -> bool {
        assert!(i < self.n, "index {i} outside a wait set of {}", self.n);
        // SAFETY: `new`'s contract, and the index is inside.
        self.status.is_null() || unsafe { self.status.add(i).read_unaligned() } == 0
    }

    /// Indices of the words that take part.
    pub(crate) fn members(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.n).filter(|i| self.included(*i))
    }

    /// Whether no word takes part: then there is nothing to wait for.
    pub(crate) fn no_members(&self) -> bool {
        self.members().next().is_none()
    }

    /// The word's value now.
    pub(crate) fn seen(&self, i: usize) -> i128 {
        assert!(i < self.n, "index {i} outside a wait set of {}", self.n);
        // SAFETY: `new`'s contract, and the index is inside.
        unsafe { self.kind.load(self.words.add(i * self.kind.bytes())) }
    }

    /// What word `i` is compared with.
    pub(crate) fn expected(&self, i: usize) -> i128 {
        assert!(i < self.n, "index {i} outside a wait set of {}", self.n);
        match self.expected {
            Expected::One(bits) => self.kind.decode(bits),
            // SAFETY: `new`'s contract, and the index is inside.
            Expected::Each(values) => unsafe { self.kind.read(values.add(i * self.kind.bytes())) },
        }
    }

    /// Whether word `i` compares as asked now.
    pub(crate) fn holds(&self, i: usize) -> bool {
        self.cmp.holds(self.seen(i), self.expected(i))
    }

    /// Goes on from `from` over the words that have compared as asked; the first that does not, or `len()`.
    pub(crate) fn first_unmet(&self, from: usize) -> usize {
        (from..self.n).find(|i| self.included(*i) && !self.holds(*i)).unwrap_or(self.n)
    }

    /// The first word that compares as asked, looking from `start` and around.
    pub(crate) fn any(&self, start: usize) -> Option<usize> {
        (start..self.n).chain(0..start.min(self.n)).find(|i| self.included(*i) && self.holds(*i))
    }

    /// All words that compare as asked, in order.
    pub(crate) fn some(&self) -> impl Iterator<Item = usize> + '_ {
        self.members().filter(|i| self.holds(*i))
    }

    /// One word for a report: `uint64 == 5 at <place>, seen 4`.
    pub(crate) fn describe(&self, i: usize, place: &dyn Fn(usize) -> String) -> String {
        let address = self.address + i * self.kind.bytes();
        let (kind, cmp, expected, seen) = (self.kind, self.cmp, self.expected(i), self.seen(i));
        format!("{kind} {cmp} {expected} at {}, seen {seen}", place(address))
    }
}
