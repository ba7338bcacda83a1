//! Completion: what happens when an operation is over on this PE, because its source is free or its answer
//! has come. A host thread's wait ends, a kernel's thread gets its reply, a callback runs; or an operation of
//! several parts has one part less to go.
//!
//! It promises that each [`Done`] completes once. An operation of several parts completes with its last part,
//! or with the first that fails.

use slab::Slab;

use crate::error::{Error, Result};

/// Runs when an operation is over. The calling thread holds the engine, so it is brief.
pub(in crate::net) type Callback = Box<dyn FnOnce(Result<u64>) + Send>;

/// What completes with an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Done {
    Nothing,
    /// The wait of a host thread: a number of [`Completions::waiter`].
    Waiter(usize),
    /// The wait of a kernel's thread: a number that the [proxy](crate::net::proxy::posts) knows.
    Kernel(u64),
    /// A part of another operation: a number in `splits`.
    Part(usize),
    /// A number in `callbacks`.
    Callback(usize),
}

/// An operation of several parts.
#[derive(Debug)]
struct Split {
    left: usize,
    done: Done,
}

/// All that is to complete.
#[derive(Default)]
pub(in crate::net) struct Completions {
    waiters: Slab<Option<Result<u64>>>,
    splits: Slab<Split>,
    callbacks: Slab<Callback>,
    /// Replies for kernels, which the proxy writes.
    pub(in crate::net) replies: Vec<(u64, u64)>,
}

impl Completions {
    /// A number under which a host thread waits.
    pub(in crate::net) fn waiter(&mut self) -> usize {
        self.waiters.insert(None)
    }

    /// What came for a waiter, once; the number is free then.
    pub(in crate::net) fn take(&mut self, waiter: usize) -> Option<Result<u64>> {
        self.waiters[waiter].is_some().then(|| self.waiters.remove(waiter).expect("just looked"))
    }

    /// A callback that an operation completes with.
    pub(in crate::net) fn callback(&mut self, callback: Callback) -> Done {
        Done::Callback(self.callbacks.insert(callback))
    }

    /// Whether some callback has not run.
    pub(in crate::net) fn has_callbacks(&self) -> bool {
        !self.callbacks.is_empty()
    }

    /// All callbacks run, with that error.
    pub(in crate::net) fn fail_callbacks(&mut self, e: &Error) {
        for callback in self.callbacks.drain() {
            callback(Err(e.clone()));
        }
    }

    /// One of so many parts of an operation: `done` completes when all are over, or when the first fails.
    pub(in crate::net) fn split(&mut self, parts: usize, done: Done) -> Done {
        match (parts, done) {
            (0 | 1, _) | (_, Done::Nothing) => done,
            _ => Done::Part(self.splits.insert(Split { left: parts, done })),
        }
    }

    /// An operation is over.
    pub(in crate::net) fn complete(&mut self, done: Done, result: Result<u64>) {
        match done {
            Done::Nothing => {}
            Done::Waiter(waiter) => self.waiters[waiter] = Some(result),
            // In a broken job it has run already.
            Done::Callback(callback) => {
                if let Some(callback) = self.callbacks.try_remove(callback) {
                    callback(result);
                }
            }
            // A kernel learns of a failure by the broken job.
            Done::Kernel(slot) => {
                if let Ok(value) = result {
                    self.replies.push((slot, value));
                }
            }
            Done::Part(key) => {
                let split = &mut self.splits[key];
                split.left -= 1;
                let left = split.left;
                if left == 0 || result.is_err() {
                    // The first failure completes the whole; the parts that are left complete nothing.
                    let done = std::mem::replace(&mut split.done, Done::Nothing);
                    if left == 0 {
                        self.splits.remove(key);
                    }
                    self.complete(done, result);
                }
            }
        }
    }

    /// For tests: what host threads wait for.
    #[cfg(test)]
    pub(in crate::net) fn waiters(&self) -> &impl std::fmt::Debug {
        &self.waiters
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::error::err;

    #[test]
    fn an_operation_of_parts_completes_with_the_last_or_the_first_failure() {
        let mut c = Completions::default();
        let waiter = c.waiter();
        let part = c.split(3, Done::Waiter(waiter));
        c.complete(part, Ok(0));
        c.complete(part, Ok(0));
        assert!(c.take(waiter).is_none());
        c.complete(part, Ok(0));
        assert_eq!(c.take(waiter).unwrap().unwrap(), 0);

        let waiter = c.waiter();
        let part = c.split(2, Done::Waiter(waiter));
        c.complete(part, Err(err!(IO, "cut")));
        assert!(c.take(waiter).unwrap().is_err());
        c.complete(part, Ok(0));
        assert!(c.splits.is_empty() && c.waiters.is_empty());
        assert_eq!(c.split(1, Done::Kernel(4)), Done::Kernel(4));
    }

    #[test]
    fn a_callback_runs_once_whatever_comes_after() {
        let mut c = Completions::default();
        let (send, receive) = mpsc::channel();
        let done = c.callback(Box::new(move |result| send.send(result.is_ok()).unwrap()));
        c.fail_callbacks(&err!(IO, "broken"));
        c.complete(done, Ok(1));
        assert_eq!(receive.iter().collect::<Vec<_>>(), [false]);
    }
}
