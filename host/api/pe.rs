//! The number of a processing element, as a type of its own: a PE is not an index, a length or a rank of
//! another library's communicator.

use std::fmt;

/// A processing element of a world, `0..n_pes`.
///
/// The number alone does not know how many PEs its world has: [`World::pe`](crate::World::pe) makes a checked
/// one, and every operation checks the PE that it is given again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Pe(u32);

impl Pe {
    /// The PE of this number, not yet checked against any world.
    pub const fn new(number: u32) -> Self {
        Pe(number)
    }

    /// The number.
    pub const fn number(self) -> u32 {
        self.0
    }

    /// The number, to index a table with one entry for each PE.
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// The C ABI's `int32_t`. A number past `i32::MAX` turns negative, which no world has either.
    #[inline(always)]
    pub(crate) const fn raw(self) -> i32 {
        self.0 as i32
    }
}

impl From<u32> for Pe {
    fn from(number: u32) -> Self {
        Pe(number)
    }
}

impl From<Pe> for u32 {
    fn from(pe: Pe) -> Self {
        pe.0
    }
}

impl From<Pe> for usize {
    fn from(pe: Pe) -> Self {
        pe.index()
    }
}

impl fmt::Display for Pe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PE {}", self.0)
    }
}
