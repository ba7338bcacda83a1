//! What wait and test look at (OpenSHMEM 1.5, section 9.10): words of this PE's own symmetric memory.

use super::waitset::{comparison, Cmp, Expected, Integer};
use super::{check_aligned, Reach};
use crate::error::{err, Result};

/// Several words, as the C ABI takes them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Words {
    /// One of `RUSHMEM_INT32` to `RUSHMEM_UINT64`, `RUSHMEM_INT16` and `RUSHMEM_UINT16`.
    pub(crate) kind: i32,
    /// The first word, in this PE's symmetric memory.
    pub(crate) ivars: usize,
    /// Number of words.
    pub(crate) n: usize,
    /// Non-zero excludes a word; null excludes none.
    pub(crate) status: *const i32,
    /// One of `RUSHMEM_CMP_*`.
    pub(crate) cmp: i32,
    /// What to compare with.
    pub(crate) expected: Expected,
}

/// Words that have been checked: those at `at` are live, aligned symmetric memory of this PE.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CheckedWords {
    pub(crate) kind: Integer,
    pub(crate) at: usize,
    pub(crate) n: usize,
    pub(crate) status: *const i32,
    pub(crate) cmp: Cmp,
    pub(crate) expected: Expected,
}

impl Words {
    /// Checks everything that can be checked.
    pub(crate) fn check(&self, on: &impl Reach) -> Result<CheckedWords> {
        let kind = Integer::from_code(self.kind)?;
        let cmp = comparison(self.cmp)?;
        let Words { n, status, expected, .. } = *self;
        let bytes = n.checked_mul(kind.bytes()).filter(|b| *b <= isize::MAX as usize).ok_or_else(|| {
            err!(INVALID_ARGUMENT, "{n} words of {} bytes are more than an address space", kind.bytes())
        })?;
        if n > 0 && self.ivars == 0 {
            return Err(err!(INVALID_ARGUMENT, "the address of the {n} words to wait on is null"));
        }
        if n > 0 && matches!(expected, Expected::Each(p) if p.is_null()) {
            return Err(err!(INVALID_ARGUMENT, "the array of {n} values to compare with is null"));
        }
        let at = if n == 0 { kind.bytes() } else { on.own(self.ivars, bytes)? };
        check_aligned("the word to wait on", at, kind.bytes())?;
        Ok(CheckedWords { kind, at, n, status, cmp, expected })
    }
}

/// A wait for one word.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wait {
    pub(crate) at: usize,
    pub(crate) kind: Integer,
    pub(crate) cmp: Cmp,
    pub(crate) value: u64,
}

impl Wait {
    /// For the word at `ivar`, of `kind` (`RUSHMEM_INT32` to `RUSHMEM_UINT64`, or of 16 bits).
    pub(crate) fn until(on: &impl Reach, kind: i32, ivar: usize, cmp: i32, value: u64) -> Result<Wait> {
        let kind = Integer::from_code(kind)?;
        check_aligned("the word to wait on", ivar, kind.bytes())?;
        Wait::check(on, kind, ivar, cmp, value)
    }

    /// For the signal word `sig`.
    pub(crate) fn signal(on: &impl Reach, sig: usize, cmp: i32, value: u64) -> Result<Wait> {
        check_aligned("the signal", sig, 8)?;
        Wait::check(on, Integer::U64, sig, cmp, value)
    }

    fn check(on: &impl Reach, kind: Integer, at: usize, cmp: i32, value: u64) -> Result<Wait> {
        let cmp = comparison(cmp)?;
        let at = on.own(at, kind.bytes())?;
        Ok(Wait { at, kind, cmp, value })
    }
}
