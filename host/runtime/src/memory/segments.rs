//! Registered memory whose copies do not lie `stride` apart: where each PE's is.
//!
//! The heap and every alias in the window need none of this. What is in the table are plain allocations of
//! GPUs (`cuMemAlloc`), which only operations of the host and on streams reach, and those ask here only for
//! addresses that lie outside the window: so neither the heap nor a kernel pays for it.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::gpu::ipc::IpcMapping;
use crate::gpu::Cuda;

/// One region.
#[derive(Debug)]
pub(crate) struct UnmappedRegion {
    pub(crate) bytes: usize,
    /// Offset of its alias in a PE's part of the window.
    pub(crate) alias: usize,
    /// By slot: where its copy is mapped here, this PE's own included; `None` where it is not.
    pub(crate) copies: Vec<Option<usize>>,
    /// What is open as long as the region is registered.
    pub(crate) open: Vec<IpcMapping>,
    /// GPUs of this process whose memory is reached directly; their contexts stay.
    pub(crate) peers: Vec<Arc<Cuda>>,
}

/// The table, by this PE's own addresses.
#[derive(Debug, Default)]
pub(crate) struct UnmappedRegions(RwLock<BTreeMap<usize, UnmappedRegion>>);

impl UnmappedRegions {
    fn read(&self) -> RwLockReadGuard<'_, BTreeMap<usize, UnmappedRegion>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, BTreeMap<usize, UnmappedRegion>> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// This PE's own copy starts at `own`.
    pub(crate) fn insert(&self, own: usize, segment: UnmappedRegion) {
        self.write().insert(own, segment);
    }

    /// Lets go of a segment: closes what was opened for it.
    pub(crate) fn remove(&self, own: usize) {
        let gone = self.write().remove(&own);
        drop(gone);
    }

    /// Lets go of all; true where there were any.
    pub(crate) fn clear(&self) -> bool {
        let all = std::mem::take(&mut *self.write());
        !all.is_empty()
    }

    /// Where slot `slot`'s copy of this PE's own `at` is mapped here.
    pub(crate) fn copy_of(&self, at: usize, slot: usize) -> Option<usize> {
        let (segments, own) = (self.read(), at);
        let (start, segment) = segments.range(..=own).next_back()?;
        let offset = Some(own - start).filter(|offset| *offset <= segment.bytes)?;
        segment.copies.get(slot).copied().flatten().map(|copy| copy + offset)
    }

    /// The alias' offset that stands for this PE's own `at`.
    pub(crate) fn alias_of(&self, at: usize) -> Option<usize> {
        let segments = self.read();
        let (start, segment) = segments.range(..=at).next_back()?;
        Some(at - start).filter(|offset| *offset <= segment.bytes).map(|offset| segment.alias + offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_where_they_are() {
        let segments = UnmappedRegions::default();
        let copies = vec![Some(0x9000), Some(0x1000), None];
        let none = || (Vec::new(), Vec::new());
        let (open, peers) = none();
        segments.insert(0x1000, UnmappedRegion { bytes: 0x100, alias: 0x40, copies, open, peers });
        let (open, peers) = none();
        segments
            .insert(0x4000, UnmappedRegion { bytes: 0x10, alias: 0x400, copies: vec![Some(1)], open, peers });
        assert_eq!(segments.copy_of(0x1000, 0), Some(0x9000));
        assert_eq!(segments.copy_of(0x10ff, 0), Some(0x90ff));
        assert_eq!(segments.copy_of(0x1100, 1), Some(0x1100), "one past the end, for no bytes");
        assert_eq!(segments.copy_of(0x1101, 0), None);
        assert_eq!(segments.copy_of(0xfff, 0), None);
        assert_eq!(segments.copy_of(0x1000, 2), None, "not mapped");
        assert_eq!(segments.copy_of(0x1000, 3), None, "no such slot");
        assert_eq!(segments.alias_of(0x1020), Some(0x60));
        assert_eq!(segments.alias_of(0x400f), Some(0x40f));
        assert_eq!(segments.alias_of(0x5000), None);
        segments.remove(0x1000);
        assert_eq!(segments.copy_of(0x1000, 0), None);
        assert!(segments.clear() && !segments.clear());
    }
}
