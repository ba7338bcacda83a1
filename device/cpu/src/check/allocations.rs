//! Which symmetric memory is allocated, as this PE knows it: the layout is the same on all PEs. And which
//! was, for texts about its use after it was given back.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard};

/// An allocation, or a registered region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Allocation {
    pub(crate) offset: usize,
    pub(crate) bytes: usize,
    /// Where it was allocated.
    pub(crate) site: u32,
    /// Where it was given back; 0 while it lives.
    pub(crate) freed: u32,
}

/// Why memory is not one allocation's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outside {
    /// It reaches past the end of the allocation that it begins in.
    Past(Allocation),
    /// It is in one that was given back.
    Freed(Allocation),
    /// It is in none: the ones below and above.
    Nowhere(Option<Allocation>, Option<Allocation>),
}

/// All of them.
#[derive(Debug)]
pub(crate) struct Allocations {
    tables: RwLock<Tables>,
    /// Grows with each change.
    version: AtomicU64,
}

/// By offset, each disjoint.
#[derive(Debug, Default)]
struct Tables {
    live: BTreeMap<usize, Allocation>,
    freed: BTreeMap<usize, Allocation>,
}

impl Default for Allocations {
    fn default() -> Self {
        Allocations { tables: RwLock::default(), version: AtomicU64::new(1) }
    }
}

impl Allocations {
    /// The number of changes.
    #[inline]
    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// These bytes are an allocation from now on.
    pub(crate) fn insert(&self, offset: usize, bytes: usize, site: u32) {
        self.change(|tables| {
            tables.freed.retain(|start, old| *start >= offset + bytes || start + old.bytes <= offset);
            tables.live.insert(offset, Allocation { offset, bytes, site, freed: 0 });
        });
    }

    /// The allocation that begins there is one no more.
    pub(crate) fn remove(&self, offset: usize, site: u32) {
        self.change(|tables| {
            if let Some(old) = tables.live.remove(&offset) {
                tables.freed.insert(offset, Allocation { freed: site, ..old });
            }
        });
    }

    /// The allocation that has all of these bytes; `bytes > 0`.
    pub(crate) fn find(&self, at: usize, bytes: usize) -> Result<Range<usize>, Outside> {
        let tables = self.tables();
        let has = |old: &&Allocation| at < old.offset + old.bytes;
        let below = tables.live.range(..=at).next_back().map(|(_, known)| known);
        if let Some(live) = below.filter(has) {
            let end = live.offset + live.bytes;
            return if at + bytes <= end { Ok(live.offset..end) } else { Err(Outside::Past(*live)) };
        }
        if let Some((_, freed)) = tables.freed.range(..=at).next_back().filter(|(_, old)| has(old)) {
            return Err(Outside::Freed(*freed));
        }
        let above = tables.live.range(at..).next().map(|(_, known)| *known);
        Err(Outside::Nowhere(below.copied(), above))
    }

    fn tables(&self) -> RwLockReadGuard<'_, Tables> {
        self.tables.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut Tables)) {
        change(&mut self.tables.write().unwrap_or_else(PoisonError::into_inner));
        self.version.fetch_add(1, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_of_one_allocation_or_it_is_said_why_not() {
        let all = Allocations::default();
        let of = |offset, bytes, site, freed| Allocation { offset, bytes, site, freed };
        all.insert(0x100, 64, 1);
        all.insert(0x200, 10, 2);
        assert_eq!(all.find(0x100, 64), Ok(0x100..0x140));
        assert_eq!(all.find(0x13f, 1), Ok(0x100..0x140));
        assert_eq!(all.find(0x13f, 2), Err(Outside::Past(of(0x100, 64, 1, 0))));
        let (one, two) = (of(0x100, 64, 1, 0), of(0x200, 10, 2, 0));
        assert_eq!(all.find(0x140, 1), Err(Outside::Nowhere(Some(one), Some(two))));
        assert_eq!(all.find(0xff, 1), Err(Outside::Nowhere(None, Some(one))));
        assert_eq!(all.find(0x20a, 1), Err(Outside::Nowhere(Some(two), None)));
        let before = all.version();
        all.remove(0x100, 7);
        assert!(all.version() > before, "what was looked up before is looked up again");
        assert_eq!(all.find(0x120, 4), Err(Outside::Freed(of(0x100, 64, 1, 7))));
        all.insert(0x110, 16, 3);
        assert_eq!(all.find(0x110, 16), Ok(0x110..0x120));
        assert!(matches!(all.find(0x120, 4), Err(Outside::Nowhere(..))), "in part another's by now");
    }
}
