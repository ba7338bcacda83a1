//! Calls of the driver that do not return. The driver polls nothing of ours, and locks: a call that finds the
//! context's lock taken, or a queue full, lasts until kernels have ended. No waiting loop of ours sees that,
//! so each says that it is under way, and the monitor of the world looks how long the oldest has lasted.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Calls of the driver that are under way, of all threads that use a GPU for one PE. Each has a place, whose
/// number is odd meanwhile and grows with every call. A call reads no clock, as the host is what limits small
/// operations on streams (docs/performance-log.md, 37): the monitor sees for how long a number stays. More
/// calls at once than there are places are not seen.
#[derive(Debug)]
pub(crate) struct DriverCalls {
    places: [AtomicU64; PLACES],
}

const PLACES: usize = 64;

impl Default for DriverCalls {
    fn default() -> DriverCalls {
        DriverCalls { places: std::array::from_fn(|_| AtomicU64::new(0)) }
    }
}

fn is_under_way(number: u64) -> bool {
    number % 2 == 1
}

/// A call, while it lasts: its place.
#[derive(Debug)]
pub(super) struct DriverCall(Option<usize>);

impl DriverCalls {
    pub(super) fn begin(&self) -> DriverCall {
        DriverCall(self.places.iter().position(|place| {
            let number = place.load(Ordering::Relaxed);
            !is_under_way(number)
                && place.compare_exchange(number, number + 1, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        }))
    }

    pub(super) fn end(&self, call: &DriverCall) {
        if let Some(place) = call.0.map(|at| &self.places[at]) {
            // Nobody else changes it while it is odd.
            place.store(place.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        }
    }
}

/// What the monitor has seen of them.
pub(crate) struct DriverWatch {
    /// Each place's number, and since when it has been seen there.
    seen: [(u64, Instant); PLACES],
    /// The call that lasts longest: its place and number.
    oldest: Option<(usize, u64)>,
    /// A call is reported once it has lasted so long; then at each doubling.
    first: Duration,
    next: Duration,
}

impl DriverWatch {
    pub(crate) fn new(first: Duration) -> DriverWatch {
        DriverWatch { seen: [(0, Instant::now()); PLACES], oldest: None, first, next: first }
    }

    /// How long the oldest call has lasted, where that is to be reported now; counted from the first time
    /// that this was asked meanwhile.
    pub(crate) fn overdue(&mut self, calls: &DriverCalls) -> Option<Duration> {
        let now = Instant::now();
        for (seen, place) in self.seen.iter_mut().zip(&calls.places) {
            let number = place.load(Ordering::Relaxed);
            if seen.0 != number {
                *seen = (number, now);
            }
        }
        let under_way = self.seen.iter().enumerate().filter(|(_, seen)| is_under_way(seen.0));
        let oldest = under_way.min_by_key(|(_, seen)| seen.1).map(|(at, seen)| (at, *seen));
        let call = oldest.map(|(at, seen)| (at, seen.0));
        if call != self.oldest {
            (self.oldest, self.next) = (call, self.first);
        }
        let lasted = now - oldest?.1 .1;
        (lasted >= self.next).then(|| {
            self.next = lasted * 2;
            lasted
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_that_lasts_is_reported_at_each_doubling() {
        let (calls, first) = (DriverCalls::default(), Duration::from_millis(100));
        let mut watch = DriverWatch::new(first);
        std::thread::sleep(first);
        assert_eq!(watch.overdue(&calls), None, "nothing is under way");
        let call = calls.begin();
        assert_eq!(watch.overdue(&calls), None);
        std::thread::sleep(first);
        assert!(watch.overdue(&calls).is_some_and(|lasted| lasted >= first));
        assert_eq!(watch.overdue(&calls), None, "not again at once");
        // Other threads' calls come and go, and do not hide it.
        let (since, mut lasted) = (Instant::now(), None);
        while lasted.is_none() {
            assert!(since.elapsed() < Duration::from_secs(30), "it is hidden");
            let other = calls.begin();
            std::thread::sleep(first / 4);
            calls.end(&other);
            lasted = watch.overdue(&calls);
        }
        assert!(lasted.is_some_and(|lasted| lasted >= 2 * first), "{lasted:?}");
        calls.end(&call);
        assert_eq!(watch.overdue(&calls), None);
        // The next one is a call of its own, in the same place too, and where nothing was seen in between.
        for looks in [true, false] {
            let call = calls.begin();
            assert_eq!(watch.overdue(&calls), None);
            std::thread::sleep(first);
            assert!(watch.overdue(&calls).is_some_and(|lasted| lasted >= first));
            calls.end(&call);
            if looks {
                assert_eq!(watch.overdue(&calls), None);
            }
        }
        // The last one would be reported again by now.
        std::thread::sleep(first * 3);
        let call = calls.begin();
        assert_eq!(watch.overdue(&calls), None, "it is taken for the last one");
        calls.end(&call);
    }

    #[test]
    fn many_threads_calls_leave_nothing_under_way() {
        let calls = DriverCalls::default();
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| (0..20_000).for_each(|_| calls.end(&calls.begin())));
            }
        });
        assert_eq!(DriverWatch::new(Duration::ZERO).overdue(&calls), None);
        let numbers: u64 = calls.places.iter().map(|place| place.load(Ordering::Relaxed)).sum();
        assert!(numbers % 2 == 0 && numbers <= 2 * 8 * 20_000, "{numbers}");
    }

    #[test]
    fn more_calls_than_places_are_no_harm() {
        let calls = DriverCalls::default();
        let all: Vec<DriverCall> = (0..PLACES + 3).map(|_| calls.begin()).collect();
        assert_eq!(all.iter().filter(|call| call.0.is_none()).count(), 3);
        all.iter().for_each(|call| calls.end(call));
        assert_eq!(DriverWatch::new(Duration::ZERO).overdue(&calls), None);
        assert!(calls.begin().0.is_some());
    }
}
