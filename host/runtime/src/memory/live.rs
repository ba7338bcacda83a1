//! Which addresses are symmetric and alive: looked up by every host operation before it touches anything.
//!
//! The table changes only in collective calls; a look-up goes through a cache of the thread, keyed by a
//! number that changes with the table and is never used twice in a process, so that the usual case costs a
//! compare. It has two entries, for what has a source and a destination.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock};

use crate::error::{err, Result};

/// Ranges of addresses `[start, start + bytes)`, disjoint, each with what to add to get the symmetric
/// address.
#[derive(Debug)]
pub(crate) struct Live {
    ranges: RwLock<BTreeMap<usize, Range>>,
    version: AtomicU64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Range {
    bytes: usize,
    /// Symmetric address minus address: zero in the heap, the way to the alias for registered memory.
    shift: isize,
}

static VERSIONS: AtomicU64 = AtomicU64::new(1);

thread_local! {
    /// (version, start, end, shift) of the last two ranges that were looked up.
    static CACHE: [Cell<Entry>; 2] = const { [Cell::new((0, 0, 0, 0)), Cell::new((0, 0, 0, 0))] };
}

type Entry = (u64, usize, usize, isize);

impl Live {
    pub(crate) fn new() -> Live {
        Live { ranges: RwLock::default(), version: AtomicU64::new(VERSIONS.fetch_add(1, Ordering::Relaxed)) }
    }

    fn change(&self, f: impl FnOnce(&mut BTreeMap<usize, Range>)) {
        f(&mut self.ranges.write().unwrap_or_else(PoisonError::into_inner));
        self.version.store(VERSIONS.fetch_add(1, Ordering::Relaxed), Ordering::Release);
    }

    /// `[start, start + bytes)` lives; `bytes > 0`.
    pub(crate) fn insert(&self, start: usize, bytes: usize, shift: isize) {
        self.change(|r| {
            r.insert(start, Range { bytes, shift });
        });
    }

    /// The range that starts at `start` no longer lives.
    pub(crate) fn remove(&self, start: usize) {
        self.change(|r| {
            r.remove(&start);
        });
    }

    /// True where a live range starts at `start`.
    pub(crate) fn starts_at(&self, start: usize) -> bool {
        self.ranges.read().unwrap_or_else(PoisonError::into_inner).contains_key(&start)
    }

    /// True where `[start, start + bytes)` touches a live range.
    pub(crate) fn overlaps(&self, start: usize, bytes: usize) -> bool {
        let ranges = self.ranges.read().unwrap_or_else(PoisonError::into_inner);
        ranges.range(..start.saturating_add(bytes)).next_back().is_some_and(|(s, r)| s + r.bytes > start)
    }

    /// The live ranges around `at`, start and length each: the last that starts at or below it, and the first
    /// above. `None` while the table is locked.
    #[allow(clippy::type_complexity, reason = "two of the same")]
    pub(crate) fn around(&self, at: usize) -> Option<(Option<(usize, usize)>, Option<(usize, usize)>)> {
        let ranges = self.ranges.try_read().ok()?;
        let plain = |(start, range): (&usize, &Range)| (*start, range.bytes);
        let below = ranges.range(..=at).next_back().map(plain);
        Some((below, ranges.range(at.saturating_add(1)..).next().map(plain)))
    }

    /// Bytes from `at` to the end of the live range that it lies in.
    pub(crate) fn rest(&self, at: usize) -> Option<usize> {
        let ranges = self.ranges.read().unwrap_or_else(PoisonError::into_inner);
        let (start, range) = ranges.range(..=at).next_back()?;
        (start + range.bytes).checked_sub(at).filter(|rest| *rest > 0)
    }

    /// The symmetric address of `[at, at + bytes)`, which must lie in one live range.
    #[inline]
    pub(crate) fn find(&self, at: usize, bytes: usize) -> Result<usize> {
        match self.cached(0, at, bytes) {
            Some(found) => Ok(found),
            None => self.look_up(at, bytes),
        }
    }

    #[inline]
    fn cached(&self, entry: usize, at: usize, bytes: usize) -> Option<usize> {
        let (version, start, end, shift) = CACHE.with(|entries| entries[entry].get());
        let hit =
            version == self.version.load(Ordering::Acquire) && at >= start && at <= end && bytes <= end - at;
        hit.then(|| at.wrapping_add_signed(shift))
    }

    /// The same, `None` where no live range has the address.
    #[inline]
    pub(crate) fn find_any(&self, at: usize, bytes: usize) -> Result<Option<usize>> {
        if let Some(found) = self.cached(0, at, bytes).or_else(|| self.cached(1, at, bytes)) {
            return Ok(Some(found));
        }
        if self.rest(at).is_none() {
            return Ok(None);
        }
        self.look_up(at, bytes).map(Some)
    }

    #[cold]
    fn look_up(&self, at: usize, bytes: usize) -> Result<usize> {
        if let Some(found) = self.cached(1, at, bytes) {
            return Ok(found);
        }
        let version = self.version.load(Ordering::Acquire);
        let ranges = self.ranges.read().unwrap_or_else(PoisonError::into_inner);
        // `<=`: the one-past-the-end address of an allocation is a fine place for zero bytes.
        let hit = ranges
            .range(..=at)
            .next_back()
            .filter(|(s, r)| at - **s < r.bytes || (bytes == 0 && at - **s == r.bytes));
        let Some((&start, &range)) = hit else {
            return Err(err!(
                BAD_ADDRESS,
                "address {at:#x} is not symmetric memory: it lies in no live allocation and no registered region \
                 (freed already, or another PE's pointer?)"
            ));
        };
        let end = start + range.bytes;
        if bytes > end - at {
            return Err(err!(
                OUT_OF_BOUNDS,
                "{bytes} bytes at offset {} of an allocation of {} bytes reach {} bytes past its end",
                at - start,
                range.bytes,
                bytes - (end - at)
            ));
        }
        CACHE.with(|entries| {
            entries[1].set(entries[0].get());
            entries[0].set((version, start, end, range.shift));
        });
        Ok(at.wrapping_add_signed(range.shift))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::code;

    #[test]
    fn only_ranges_that_live_are_found() {
        let live = Live::new();
        live.insert(0x1000, 100, 0);
        live.insert(0x2000, 64, 0x500);
        for _ in 0..2 {
            assert_eq!(live.find(0x1000, 100).unwrap(), 0x1000);
            assert_eq!(live.find(0x1000 + 99, 1).unwrap(), 0x1000 + 99);
            assert_eq!(live.find(0x1000 + 100, 0).unwrap(), 0x1000 + 100);
            assert_eq!(live.find(0x2001, 63).unwrap(), 0x2501, "registered memory is reached by its alias");
            assert_eq!(live.find(0x1000, 101).unwrap_err().code, code::OUT_OF_BOUNDS);
            assert_eq!(live.find(0x1001, 100).unwrap_err().code, code::OUT_OF_BOUNDS);
            assert_eq!(live.find(0x1000, usize::MAX).unwrap_err().code, code::OUT_OF_BOUNDS);
            assert_eq!(live.find(0xfff, 1).unwrap_err().code, code::BAD_ADDRESS);
            assert_eq!(live.find(0x1000 + 100, 1).unwrap_err().code, code::BAD_ADDRESS);
            assert_eq!(live.find(0, 1).unwrap_err().code, code::BAD_ADDRESS);
            assert_eq!(live.find(usize::MAX, 1).unwrap_err().code, code::BAD_ADDRESS);
        }
        assert_eq!([0x1000, 0x1063, 0x1064, 0xfff].map(|at| live.rest(at)), [Some(100), Some(1), None, None]);
        assert_eq!(live.find_any(0x1001, 99), Ok(Some(0x1001)));
        assert_eq!(live.find_any(0x2001, 63), Ok(Some(0x2501)));
        assert_eq!(live.find_any(0x3000, 1), Ok(None));
        assert_eq!(live.find_any(0x1001, 100).unwrap_err().code, code::OUT_OF_BOUNDS);
        assert!(live.overlaps(0xff0, 0x11) && !live.overlaps(0xff0, 0x10) && !live.overlaps(0x1064, 5));
        live.remove(0x1000);
        assert_eq!(
            live.find(0x1000, 1).unwrap_err().code,
            code::BAD_ADDRESS,
            "the cache forgets what was freed"
        );
        let other = Live::new();
        assert!(other.find(0x2000, 1).is_err(), "the cache belongs to one table");
    }
}
