//! Which PEs are near, for people and for programs that choose by it.

use std::fmt;

use crate::Pe;

/// The PEs whose memory is mapped for a PE's device ([`World::near_pes`](crate::World::near_pes)).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct NearPes {
    /// In order, the PE itself among them.
    pub pes: Vec<Pe>,
    /// How operations tell them from others.
    pub shape: NearShape,
}

/// How operations tell near PEs from others: what that costs, not what can be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum NearShape {
    /// Consecutive numbers: one comparison and one multiplication.
    Run,
    /// Every k-th PE, as where a launcher deals ranks out to hosts in turn: one multiplication more.
    Steps(u32),
    /// Anything else: one load from a table.
    Table,
}

impl fmt::Display for NearShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NearShape::Run => write!(f, "a run"),
            NearShape::Steps(step) => write!(f, "{step} apart"),
            NearShape::Table => write!(f, "by a table"),
        }
    }
}
