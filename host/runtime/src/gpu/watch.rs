//! Calls of the driver that do not return. The driver polls nothing of ours, and locks: a call that finds the
//! context's lock taken, or a queue full, lasts until kernels have ended. No waiting loop of ours sees that,
//! so calls are counted, and the world's monitor looks whether the count stands still.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Calls begun and ended, by all threads that use a GPU for one PE.
#[derive(Debug, Default)]
pub(crate) struct DriverCalls {
    begun: AtomicU64,
    ended: AtomicU64,
}

impl DriverCalls {
    pub(super) fn begin(&self) {
        self.begun.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn end(&self) {
        self.ended.fetch_add(1, Ordering::Relaxed);
    }
}

/// What the monitor has seen of them.
pub(crate) struct DriverWatch {
    ended: u64,
    since: Instant,
    /// Reported once nothing has ended for so long; then at each doubling.
    first: Duration,
    next: Duration,
}

impl DriverWatch {
    pub(crate) fn new(first: Duration) -> DriverWatch {
        DriverWatch { ended: 0, since: Instant::now(), first, next: first }
    }

    /// How long a call has lasted while none ended, where that is to be reported now.
    pub(crate) fn overdue(&mut self, calls: &DriverCalls) -> Option<Duration> {
        let ended = calls.ended.load(Ordering::Relaxed);
        if ended != self.ended || calls.begun.load(Ordering::Relaxed) == ended {
            *self = DriverWatch { ended, ..DriverWatch::new(self.first) };
            return None;
        }
        let lasted = self.since.elapsed();
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
    fn a_call_that_lasts_while_none_ends_is_reported_at_each_doubling() {
        let (calls, first) = (DriverCalls::default(), Duration::from_millis(40));
        let mut watch = DriverWatch::new(first);
        std::thread::sleep(first);
        assert_eq!(watch.overdue(&calls), None, "nothing is under way");
        calls.begin();
        assert_eq!(watch.overdue(&calls), None);
        std::thread::sleep(first);
        assert!(watch.overdue(&calls).is_some_and(|lasted| lasted >= first));
        assert_eq!(watch.overdue(&calls), None, "not again at once");
        std::thread::sleep(2 * first);
        assert!(watch.overdue(&calls).is_some_and(|lasted| lasted >= 2 * first));
        // Another thread's calls still come and go.
        calls.begin();
        calls.end();
        assert_eq!(watch.overdue(&calls), None);
        std::thread::sleep(first);
        assert!(watch.overdue(&calls).is_some(), "the first one is still in there");
        calls.end();
        assert_eq!(watch.overdue(&calls), None);
    }
}
