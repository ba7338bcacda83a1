//! Calls of the driver that do not return. The driver polls nothing of ours, and locks: a call that finds the
//! context's lock taken, or a queue full, lasts until kernels have ended. No waiting loop of ours sees that,
//! so each says when it begins, and the world's monitor looks how long the oldest has lasted.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

/// Calls of the driver that are under way, of all threads that use a GPU for one PE: when each began, in
/// nanoseconds of [`now`], 0 where there is none. More at once than there are places are not seen.
#[derive(Debug)]
pub(crate) struct DriverCalls {
    began: [AtomicU64; PLACES],
    next: AtomicUsize,
}

const PLACES: usize = 64;

impl Default for DriverCalls {
    fn default() -> DriverCalls {
        DriverCalls { began: std::array::from_fn(|_| AtomicU64::new(0)), next: AtomicUsize::new(0) }
    }
}

/// Since this was first asked, and never 0.
fn now() -> u64 {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    START.elapsed().as_nanos() as u64 + 1
}

/// A call, while it lasts: its place.
#[derive(Debug)]
pub(super) struct DriverCall(Option<usize>);

impl DriverCalls {
    pub(super) fn begin(&self) -> DriverCall {
        let (first, now) = (self.next.fetch_add(1, Ordering::Relaxed), now());
        let free = |place: &usize| {
            self.began[*place].compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        };
        DriverCall((0..PLACES).map(|i| (first + i) % PLACES).find(free))
    }

    pub(super) fn end(&self, call: &DriverCall) {
        if let Some(place) = call.0 {
            self.began[place].store(0, Ordering::Relaxed);
        }
    }

    /// When the call that lasts longest began.
    fn oldest(&self) -> Option<u64> {
        self.began.iter().map(|began| began.load(Ordering::Relaxed)).filter(|began| *began != 0).min()
    }
}

/// What the monitor has seen of them.
pub(crate) struct DriverWatch {
    /// When the oldest call began that there was.
    began: Option<u64>,
    /// A call is reported once it has lasted so long; then at each doubling.
    first: Duration,
    next: Duration,
}

impl DriverWatch {
    pub(crate) fn new(first: Duration) -> DriverWatch {
        DriverWatch { began: None, first, next: first }
    }

    /// How long the oldest call has lasted, where that is to be reported now.
    pub(crate) fn overdue(&mut self, calls: &DriverCalls) -> Option<Duration> {
        let oldest = calls.oldest();
        if oldest != self.began {
            *self = DriverWatch { began: oldest, ..DriverWatch::new(self.first) };
        }
        let lasted = Duration::from_nanos(now().saturating_sub(oldest?));
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
        // The next one is a call of its own.
        let call = calls.begin();
        std::thread::sleep(first);
        assert!(watch.overdue(&calls).is_some_and(|lasted| lasted >= first));
        calls.end(&call);
    }

    #[test]
    fn more_calls_than_places_are_no_harm() {
        let calls = DriverCalls::default();
        let all: Vec<DriverCall> = (0..PLACES + 3).map(|_| calls.begin()).collect();
        assert_eq!(all.iter().filter(|call| call.0.is_none()).count(), 3);
        all.iter().for_each(|call| calls.end(call));
        assert_eq!(calls.oldest(), None);
        assert!(calls.begin().0.is_some());
    }
}
