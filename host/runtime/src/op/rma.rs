//! Remote memory access: put, get and their single-word forms p and g (OpenSHMEM 1.5, section 9.6).

use super::{check_private, Local, Reach, Reached};
use crate::error::{err, Error, Result};

/// A transfer of bytes, in either direction.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Contiguous {
    /// On the other PE.
    pub(crate) remote: usize,
    /// On this one.
    pub(crate) local: Local,
    pub(crate) bytes: usize,
}

impl Contiguous {
    #[inline(always)]
    pub(super) fn check(self, on: &impl Reach, pe: i32, side: &'static str) -> Result<(Contiguous, Reached)> {
        let Contiguous { remote, local, bytes } = self;
        let (remote, way) = on.reach(remote, bytes, pe)?;
        check_private(side, local.at, bytes)?;
        Ok((Contiguous { remote, local, bytes }, way))
    }
}

/// Refuses a word that is none.
#[inline(always)]
pub(super) fn check_width(call: &'static str, bytes: usize) -> Result<()> {
    if matches!(bytes, 1 | 2 | 4 | 8) {
        return Ok(());
    }
    Err(no_word(call, bytes))
}

#[cold]
#[inline(never)]
fn no_word(call: &'static str, bytes: usize) -> Error {
    err!(INVALID_ARGUMENT, "{call} moves one value of 1, 2, 4 or 8 bytes, not of {bytes}; use put or get")
}
