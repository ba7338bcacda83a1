//! Which parts of the PEs' strides exist, where this PE's own are, and where the others' lie in their address
//! spaces.
//!
//! A segment is what was registered in one piece: each growth of the heap, each registered region. A copy may
//! run over several; an offset that is in none is a peer's mistake and never touched.

use crate::net::transport::Remote;

/// One piece of every PE's symmetric memory, at one offset.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) id: u32,
    pub(crate) offset: usize,
    pub(crate) bytes: usize,
    /// Where this PE's own is.
    pub(crate) own: usize,
    /// Where each PE's is in its own address space.
    remote: Vec<u64>,
    /// Whether one-sided copies reach each PE's.
    reachable: Vec<bool>,
}

/// All of them, by offset.
#[derive(Debug, Default)]
pub(crate) struct Segments {
    all: Vec<Segment>,
    next: u32,
}

/// A part of a transfer that lies in one segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) remote: Remote,
    pub(crate) bytes: usize,
    pub(crate) reachable: bool,
}

impl Segments {
    /// An identity for the next one: the same on all PEs, which add them in the same order.
    pub(crate) fn new_id(&mut self) -> u32 {
        self.next += 1;
        self.next
    }

    pub(crate) fn insert(
        &mut self,
        id: u32,
        offset: usize,
        bytes: usize,
        own: usize,
        remote: Vec<u64>,
        reachable: Vec<bool>,
    ) {
        let place = self.all.partition_point(|s| s.offset < offset);
        self.all.insert(place, Segment { id, offset, bytes, own, remote, reachable });
    }

    /// Takes those out that begin in the range, and returns their identities.
    pub(crate) fn remove(&mut self, offset: usize, bytes: usize) -> Vec<u32> {
        let gone = |s: &Segment| (offset..offset + bytes).contains(&s.offset);
        let ids = self.all.iter().filter(|s| gone(s)).map(|s| s.id).collect();
        self.all.retain(|s| !gone(s));
        ids
    }

    fn at(&self, offset: usize) -> Option<&Segment> {
        let place = self.all.partition_point(|s| s.offset <= offset).checked_sub(1)?;
        Some(&self.all[place]).filter(|s| offset - s.offset < s.bytes)
    }

    /// This PE's own address of a range that others name; `None` where not all of it exists in one piece.
    #[inline]
    pub(crate) fn own(&self, offset: u64, bytes: usize) -> Option<usize> {
        let offset = usize::try_from(offset).ok()?;
        let first = self.at(offset)?;
        let address = first.own + (offset - first.offset);
        let (mut end, mut own_end) = (first.offset + first.bytes, first.own + first.bytes);
        let wanted = offset.checked_add(bytes)?;
        while end < wanted {
            let next = self.at(end).filter(|s| s.own == own_end)?;
            (end, own_end) = (end + next.bytes, own_end + next.bytes);
        }
        Some(address)
    }

    /// The first part of `[offset, offset + bytes)` on `pe`.
    #[inline]
    pub(crate) fn part(&self, offset: u64, bytes: usize, pe: usize) -> Option<Part> {
        let offset = usize::try_from(offset).ok()?;
        let s = self.at(offset)?;
        let inside = offset - s.offset;
        Some(Part {
            remote: Remote { pe, segment: s.id, address: s.remote[pe] + inside as u64 },
            bytes: bytes.min(s.bytes - inside),
            reachable: s.reachable[pe],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segments() -> Segments {
        let mut s = Segments::default();
        for (offset, bytes, own) in [(0, 100, 1000), (100, 50, 1100), (500, 10, 9000)] {
            let id = s.new_id();
            s.insert(id, offset, bytes, own, vec![own as u64, 70_000 + offset as u64], vec![true, true]);
        }
        s
    }

    #[test]
    fn ranges_are_found_over_the_seam_and_nothing_outside() {
        let s = segments();
        assert_eq!(s.own(0, 150), Some(1000));
        assert_eq!(s.own(99, 2), Some(1099));
        assert_eq!(s.own(149, 1), Some(1149));
        assert_eq!(s.own(149, 2), None);
        assert_eq!(s.own(150, 0), None);
        assert_eq!(s.own(505, 5), Some(9005));
        assert_eq!(s.own(505, 6), None);
        assert_eq!(s.own(u64::MAX, 2), None);
    }

    #[test]
    fn a_transfer_is_cut_where_segments_meet() {
        let mut s = segments();
        let part = |segment, address, bytes| {
            let remote = Remote { pe: 1, segment, address };
            Some(Part { remote, bytes, reachable: true })
        };
        assert_eq!(s.part(90, 60, 1), part(1, 70_090, 10));
        assert_eq!(s.part(100, 50, 1), part(2, 70_100, 50));
        assert_eq!(s.remove(100, 50), [2]);
        assert_eq!(s.part(100, 50, 1), None);
        assert_eq!(s.own(90, 20), None);
    }
}
