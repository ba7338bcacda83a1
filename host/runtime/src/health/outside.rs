//! Calls of code that is not ours and polls nothing of ours: a driver, a compiler. No waiting loop reports
//! that such a call does not return, so each is noted here while it lasts, for the world's monitor to report.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use slab::Slab;

/// The calls that this PE's threads are in.
#[derive(Default)]
pub(crate) struct Outside(Mutex<Slab<OutsideCall>>);

struct OutsideCall {
    /// What is waited for: "for the driver to load ring.cu".
    what: String,
    since: Instant,
    /// Reported once it has lasted so long; then at each doubling.
    next: Duration,
}

/// A call, as long as it lives.
#[must_use]
pub(crate) struct OutsideGuard<'a> {
    outside: &'a Outside,
    key: usize,
}

impl Outside {
    /// A thread is in a call from now until the guard goes; `first` is when it is reported.
    pub(crate) fn enter(&self, what: String, first: Duration) -> OutsideGuard<'_> {
        let key = self.calls().insert(OutsideCall { what, since: Instant::now(), next: first });
        OutsideGuard { outside: self, key }
    }

    /// What is to be reported now: how long each has lasted, and what it waits for.
    pub(crate) fn overdue(&self) -> Vec<(Duration, String)> {
        let mut overdue = Vec::new();
        for (_, call) in self.calls().iter_mut() {
            let lasted = call.since.elapsed();
            if lasted >= call.next {
                overdue.push((lasted, call.what.clone()));
                call.next = lasted * 2;
            }
        }
        overdue
    }

    /// Whether a thread is in such a call.
    pub(crate) fn any(&self) -> bool {
        !self.calls().is_empty()
    }

    fn calls(&self) -> MutexGuard<'_, Slab<OutsideCall>> {
        // Whole between any two statements.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for OutsideGuard<'_> {
    fn drop(&mut self) {
        self.outside.calls().remove(self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_reported_while_they_last_and_at_each_doubling() {
        let (outside, first) = (Outside::default(), Duration::from_millis(40));
        let long = outside.enter("for the driver".into(), first);
        assert!(outside.overdue().is_empty());
        std::thread::sleep(first);
        let short = outside.enter("for the compiler".into(), first);
        let said = outside.overdue();
        assert!(said.len() == 1 && said[0].0 >= first && said[0].1 == "for the driver", "{said:?}");
        assert!(outside.overdue().is_empty(), "not again at once");
        std::thread::sleep(2 * first);
        drop(short);
        let said = outside.overdue();
        assert!(said.len() == 1 && said[0].0 >= 2 * first, "{said:?}");
        drop(long);
        std::thread::sleep(first);
        assert!(outside.overdue().is_empty());
    }
}
