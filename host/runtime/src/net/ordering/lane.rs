//! A lane: where an operation on a far PE goes, to which PE and in which context.

use std::ops::RangeInclusive;

use rushmem_abi::c::RUSHMEM_CONTEXT_DEFAULT;

/// The operations of one context on one peer, which have one order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Lane {
    pub(crate) pe: usize,
    pub(crate) context: u64,
}

impl Lane {
    /// The context of what names none: the host's, kernels' and streams' operations.
    pub(crate) const DEFAULT: u64 = RUSHMEM_CONTEXT_DEFAULT;

    /// The default context's lane to `pe`.
    #[inline]
    pub(crate) fn to(pe: usize) -> Lane {
        Lane { pe, context: Lane::DEFAULT }
    }

    #[inline]
    pub(in crate::net) fn is_default(self) -> bool {
        self.context == Lane::DEFAULT
    }

    /// All lanes to `pe`.
    pub(in crate::net) fn all_to(pe: usize) -> RangeInclusive<Lane> {
        Lane { pe, context: 0 }..=Lane { pe, context: u64::MAX }
    }
}
