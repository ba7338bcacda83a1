//! What lies at an address of the window, or near it, for texts about faults: whose heap, at which offset,
//! and how far from which allocation.

use std::ops::Range;
use std::sync::Arc;

use crate::memory::live::Live;

/// An address further than this from the window has nothing to do with it.
const NEAR: usize = 4 << 30;

/// The window of a world, as far as texts need it.
#[derive(Debug)]
pub(crate) struct MemoryMap {
    pub(crate) base: usize,
    pub(crate) stride: usize,
    /// Bytes of a stride that are the heap's; the others are registered memory's.
    pub(crate) half: usize,
    /// This PE's part.
    pub(crate) me: usize,
    /// The PEs, by their part.
    pub(crate) members: Vec<usize>,
    /// Bytes at the front of each heap that are rushmem's own.
    pub(crate) reserved: usize,
    /// The host cannot touch it.
    pub(crate) is_gpus: bool,
    pub(crate) live: Arc<Live>,
}

impl MemoryMap {
    /// All its addresses.
    pub(crate) fn range(&self) -> Range<usize> {
        self.base..self.base + self.members.len() * self.stride
    }

    /// What is at `address`, or near it; `None` far away.
    pub(crate) fn describe(&self, address: usize) -> Option<String> {
        let Range { start, end } = self.range();
        let away = start.saturating_sub(address).max(address.saturating_sub(end - 1));
        if away > NEAR {
            return None;
        }
        if away > 0 {
            let side = if address < start { "before" } else { "behind" };
            return Some(format!("{away} bytes {side} the addresses of all PEs' symmetric memory"));
        }
        let (slot, offset) = ((address - start) / self.stride, (address - start) % self.stride);
        let pe = self.members[slot];
        let gpu = if self.is_gpus { "; it is a GPU's memory, which the host cannot touch" } else { "" };
        if offset >= 2 * self.half {
            let away = offset - 2 * self.half;
            return Some(format!(
                "no PE's memory, {away} bytes behind the room for PE {pe}'s heap and registered memory"
            ));
        }
        if offset >= self.half {
            return Some(format!("PE {pe}'s registered memory, at offset {:#x}{gpu}", offset - self.half));
        }
        let place = match self.nearest(offset) {
            _ if offset < self.reserved => "rushmem's own part of it".into(),
            Some(place) => place,
            None => "there is no allocation".into(),
        };
        Some(format!("PE {pe}'s heap, at offset {offset:#x}: {place}{gpu}"))
    }

    /// The same on each PE.
    fn nearest(&self, offset: usize) -> Option<String> {
        let heap = self.base + self.me * self.stride;
        let (below, above) = self.live.around(heap + offset)?;
        let inside = |(start, _): &(usize, usize)| (heap..heap + self.half).contains(start);
        let named = |start: usize, bytes: usize| {
            format!("the allocation of {bytes} bytes at offset {:#x}", start - heap)
        };
        let (below, above) = (below.filter(inside), above.filter(inside));
        let past = below.map(|(start, bytes)| (heap + offset).saturating_sub(start + bytes));
        match (below, above) {
            (Some((start, bytes)), _) if heap + offset < start + bytes => {
                Some(format!("byte {} of {}", heap + offset - start, named(start, bytes)))
            }
            (below, Some((start, bytes))) if past.is_none_or(|past| start - heap - offset < past) => {
                let before = start - heap - offset;
                let behind = below.map_or(String::new(), |(other, len)| {
                    format!(", and {} bytes behind the end of {}", past.unwrap_or(0), named(other, len))
                });
                Some(format!("{before} bytes before {}{behind}", named(start, bytes)))
            }
            (Some((start, bytes)), _) => {
                Some(format!("{} bytes behind the end of {}", past.unwrap_or(0), named(start, bytes)))
            }
            (None, _) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_told_by_what_is_nearest() {
        const BASE: usize = 1 << 40;
        const STRIDE: usize = 0x18_0000;
        let live = Arc::new(Live::new());
        let map = MemoryMap {
            base: BASE,
            stride: STRIDE,
            half: 0x8_0000,
            me: 1,
            members: vec![3, 5, 9],
            reserved: 0x1000,
            is_gpus: false,
            live: Arc::clone(&live),
        };
        let at = |slot: usize, offset: usize| map.describe(BASE + slot * STRIDE + offset).expect("near");
        assert_eq!(at(2, 0x2000), "PE 9's heap, at offset 0x2000: there is no allocation");
        let heap = BASE + STRIDE;
        live.insert(heap + 0x2000, 400, 0);
        live.insert(heap + 0x3000, 64, 0);
        // A registered region's two ranges: the program's own memory, and its alias.
        live.insert(0x50_0000, 64, 8);
        live.insert(heap + 0x8_0000, 64, 8);
        let first = "the allocation of 400 bytes at offset 0x2000";
        let second = "the allocation of 64 bytes at offset 0x3000";
        for (offset, text) in [
            (0x10, "rushmem's own part of it".to_owned()),
            (0x1ff0, format!("16 bytes before {first}")),
            (0x2000, format!("byte 0 of {first}")),
            (0x2000 + 399, format!("byte 399 of {first}")),
            (0x2000 + 400, format!("0 bytes behind the end of {first}")),
            (0x2fff, format!("1 bytes before {second}, and 3695 bytes behind the end of {first}")),
            (0x7_0000, format!("{} bytes behind the end of {second}", 0x7_0000 - 0x3000 - 64)),
        ] {
            for (slot, pe) in [(0, 3), (1, 5), (2, 9)] {
                assert_eq!(at(slot, offset), format!("PE {pe}'s heap, at offset {offset:#x}: {text}"));
            }
        }
        assert_eq!(at(0, 0x8_0010), "PE 3's registered memory, at offset 0x10");
        assert_eq!(
            at(0, 0x10_0003),
            "no PE's memory, 3 bytes behind the room for PE 3's heap and registered memory"
        );
        assert_eq!(
            map.describe(BASE - 1).as_deref(),
            Some("1 bytes before the addresses of all PEs' symmetric memory")
        );
        let end = map.range().end;
        assert_eq!(
            map.describe(end).as_deref(),
            Some("1 bytes behind the addresses of all PEs' symmetric memory")
        );
        assert_eq!((map.describe(0x10), map.describe(end + NEAR + 1)), (None, None));
    }
}
