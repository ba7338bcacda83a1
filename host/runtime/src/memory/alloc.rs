//! The heap's allocator: pure bookkeeping over offsets, best fit with coalescing.
//!
//! It never touches the memory that it hands out, so it serves GPU heaps as well, runs under miri, and stays
//! deterministic: PEs that make the same calls get the same offsets.

use std::collections::{BTreeMap, BTreeSet};

/// Every block starts and ends at a multiple of this: no two allocations share a cache line.
pub(crate) const GRANULE: usize = 64;

/// Free and used ranges of `[0, limit)`, of which `[0, size)` can be handed out now.
#[derive(Debug, Clone)]
pub(crate) struct Allocator {
    /// Free blocks: offset to length. Neighbours are always merged.
    free: BTreeMap<usize, usize>,
    /// The same by (length, offset), to find the best fit.
    by_size: BTreeSet<(usize, usize)>,
    /// Used blocks: offset to length (a multiple of the granule).
    used: BTreeMap<usize, usize>,
    size: usize,
    used_bytes: usize,
    /// Bytes behind each block that are nobody's.
    gap: usize,
}

/// What a request takes: bytes rounded up to the granule; `None` where that overflows.
pub(crate) fn rounded(bytes: usize) -> Option<usize> {
    bytes.max(1).checked_next_multiple_of(GRANULE)
}

impl Allocator {
    /// Nothing to hand out yet; `first` bytes at the front are never handed out.
    pub(crate) fn new(first: usize) -> Allocator {
        let first = first.next_multiple_of(GRANULE);
        Allocator {
            free: BTreeMap::new(),
            by_size: BTreeSet::new(),
            used: BTreeMap::new(),
            size: first,
            used_bytes: 0,
            gap: 0,
        }
    }

    /// Bytes in use, rounded to granules.
    pub(crate) fn used(&self) -> usize {
        self.used_bytes
    }

    /// Blocks handed out from now on have `gap` bytes behind them that are nobody's: whole granules.
    pub(crate) fn keep_apart(&mut self, gap: usize) {
        debug_assert!(self.used.is_empty() && gap % GRANULE == 0);
        self.gap = gap;
    }

    /// What a request takes with its gap.
    fn taken(&self, bytes: usize) -> Option<usize> {
        rounded(bytes)?.checked_add(self.gap)
    }

    /// Number of live blocks.
    pub(crate) fn blocks(&self) -> usize {
        self.used.len()
    }

    /// Appends `[size, new_size)` to what can be handed out. `new_size` is a multiple of the granule.
    pub(crate) fn grow(&mut self, new_size: usize) {
        assert!(new_size >= self.size && new_size % GRANULE == 0);
        if new_size > self.size {
            let (at, len) = (self.size, new_size - self.size);
            self.size = new_size;
            self.insert_free(at, len);
        }
    }

    /// The size to which [`Allocator::grow`] must go for this request to fit; the current one where it fits
    /// already; `None` where the sum overflows.
    pub(crate) fn size_for(&self, bytes: usize, align: usize) -> Option<usize> {
        let len = self.taken(bytes)?;
        if self.find(len, align).is_some() {
            return Some(self.size);
        }
        // A free tail is extended rather than left behind.
        let tail = match self.free.last_key_value() {
            Some((at, free)) if at + free == self.size => *at,
            _ => self.size,
        };
        tail.checked_next_multiple_of(align)?.checked_add(len)
    }

    /// Hands out `bytes` at a multiple of `align` (a power of two); `None` where nothing fits.
    pub(crate) fn alloc(&mut self, bytes: usize, align: usize) -> Option<usize> {
        debug_assert!(align.is_power_of_two());
        let len = self.taken(bytes)?;
        let (at, free) = self.find(len, align)?;
        self.remove_free(at, free);
        let start = at.next_multiple_of(align.max(GRANULE));
        if start > at {
            self.insert_free(at, start - at);
        }
        let end = at + free;
        if start + len < end {
            self.insert_free(start + len, end - start - len);
        }
        self.used.insert(start, len);
        self.used_bytes += len - self.gap;
        Some(start)
    }

    /// Takes back the block that starts at `offset`; its length, or `None` where no live block starts there.
    pub(crate) fn free(&mut self, offset: usize) -> Option<usize> {
        let len = self.used.remove(&offset)?;
        self.used_bytes -= len - self.gap;
        self.insert_free(offset, len);
        Some(len)
    }

    /// The smallest free block that holds `len` bytes at a multiple of `align`; the lowest of equal ones.
    fn find(&self, len: usize, align: usize) -> Option<(usize, usize)> {
        let fits = |at: usize, free: usize| {
            at.checked_next_multiple_of(align)
                .and_then(|s| s.checked_add(len))
                .is_some_and(|end| end <= at + free)
        };
        self.by_size.range((len, 0)..).find(|(free, at)| fits(*at, *free)).map(|(free, at)| (*at, *free))
    }

    fn remove_free(&mut self, at: usize, len: usize) {
        self.free.remove(&at);
        self.by_size.remove(&(len, at));
    }

    fn insert_free(&mut self, mut at: usize, mut len: usize) {
        if let Some((&before, &before_len)) = self.free.range(..at).next_back() {
            if before + before_len == at {
                self.remove_free(before, before_len);
                (at, len) = (before, before_len + len);
            }
        }
        if let Some((&after, &after_len)) = self.free.range(at..).next() {
            if at + len == after {
                self.remove_free(after, after_len);
                len += after_len;
            }
        }
        self.free.insert(at, len);
        self.by_size.insert((len, at));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    impl Allocator {
        fn size(&self) -> usize {
            self.size
        }

        /// Every invariant, checked against the two maps alone.
        fn check(&self, first: usize) {
            let mut at = first.next_multiple_of(GRANULE);
            let mut all: Vec<_> = self.free.iter().map(|(a, l)| (*a, *l, true)).collect();
            all.extend(self.used.iter().map(|(a, l)| (*a, *l, false)));
            all.sort();
            let mut last_free = false;
            for (start, len, free) in all {
                assert_eq!(start, at, "blocks tile the heap");
                assert!(len > 0 && len % GRANULE == 0);
                assert!(!(free && last_free), "free neighbours are merged");
                (at, last_free) = (start + len, free);
            }
            assert_eq!(at, self.size);
            assert_eq!(self.by_size.len(), self.free.len());
            assert!(self.by_size.iter().all(|(l, a)| self.free.get(a) == Some(l)));
            assert_eq!(self.used.values().sum::<usize>(), self.used_bytes);
        }
    }

    #[test]
    fn a_free_heap_is_one_block_again() {
        let mut a = Allocator::new(100);
        a.grow(1 << 16);
        let blocks: Vec<_> = [0, 1, 63, 64, 65, 4096].iter().map(|b| a.alloc(*b, 64).unwrap()).collect();
        assert_eq!(blocks[0], 128, "the reserved front is rounded up and left alone");
        a.check(100);
        for b in [1, 3, 5, 0, 2, 4] {
            assert!(a.free(blocks[b]).is_some());
            a.check(100);
        }
        assert!(a.free(blocks[0]).is_none(), "a second free is seen");
        assert_eq!(a.free.len(), 1);
        assert_eq!(a.used(), 0);
    }

    #[test]
    fn requests_that_overflow_do_not_fit() {
        let mut a = Allocator::new(0);
        a.grow(1 << 16);
        assert!(a.alloc(usize::MAX, 64).is_none());
        assert!(a.alloc(usize::MAX - 100, 4096).is_none());
        assert_eq!(a.size_for(usize::MAX, 64), None);
    }

    #[derive(Debug, Clone)]
    enum Op {
        Alloc(usize, u32),
        Free(usize),
    }

    fn op() -> impl Strategy<Value = Op> {
        prop_oneof![
            3 => (prop_oneof![0usize..200, 0usize..100_000], 0u32..16).prop_map(|(b, a)| Op::Alloc(b, a)),
            2 => any::<usize>().prop_map(Op::Free),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 8 } else { 256 }, failure_persistence: None, ..ProptestConfig::default() })]

        /// Any sequence of calls keeps the invariants, gives disjoint aligned blocks, and grows just enough.
        #[test]
        fn any_sequence(ops in proptest::collection::vec(op(), 1..80), first in 0usize..5000) {
            let mut a = Allocator::new(first);
            let mut twin = Allocator::new(first);
            let mut live: Vec<(usize, usize)> = Vec::new();
            for op in ops {
                match op {
                    Op::Alloc(bytes, align) => {
                        let align = 1usize << align;
                        let size = a.size_for(bytes, align).unwrap();
                        if size > a.size() {
                            prop_assert!(a.clone().alloc(bytes, align).is_none());
                        }
                        let size = size.next_multiple_of(GRANULE);
                        a.grow(size);
                        twin.grow(size);
                        let at = a.alloc(bytes, align).expect("size_for said that it fits");
                        prop_assert_eq!(twin.alloc(bytes, align), Some(at), "the same calls give the same offsets");
                        prop_assert_eq!(at % align.max(GRANULE), 0);
                        prop_assert!(at >= first);
                        let end = at + bytes;
                        prop_assert!(live.iter().all(|(s, e)| end <= *s || at >= *e || (s == e)));
                        live.push((at, at + bytes.max(1)));
                    }
                    Op::Free(i) if !live.is_empty() => {
                        let (at, _) = live.swap_remove(i % live.len());
                        prop_assert!(a.free(at).is_some());
                        prop_assert!(twin.free(at).is_some());
                    }
                    Op::Free(_) => prop_assert!(a.free(first + 7).is_none()),
                }
                a.check(first);
                prop_assert_eq!(a.blocks(), live.len());
            }
        }
    }
}
