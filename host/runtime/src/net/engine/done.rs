//! Who hears that an operation is over: a waiter of the host, a thread of a kernel, whoever left an errand; or the operation that it is
//! a part of.

use super::Engine;
use crate::error::{Error, Result};
use crate::net::proxy::submissions::Then;

/// Who hears that an operation is over here: its source is free, or its answer has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Done {
    /// Nobody.
    Nothing,
    /// A waiter of the host: a number of [`Engine::waiter`].
    Wake(usize),
    /// A thread of a kernel: a reply slot of the device ring.
    Ring(u64),
    /// An operation of several parts: a number in `joins`.
    Join(usize),
    /// Who left an errand: a number in `letters`.
    Letter(usize),
}

/// An operation of several parts.
#[derive(Debug)]
pub(in crate::net) struct Join {
    left: usize,
    done: Done,
}

impl Engine {
    /// A number under which the host waits.
    pub(crate) fn waiter(&mut self) -> usize {
        self.waiters.insert(None)
    }

    /// What came for it, once; the number is free then.
    pub(crate) fn take(&mut self, waiter: usize) -> Option<Result<u64>> {
        self.waiters[waiter].is_some().then(|| self.waiters.remove(waiter).expect("just looked"))
    }

    /// Tells how an operation has ended here.
    pub(in crate::net) fn fire(&mut self, done: Done, result: Result<u64>) {
        match done {
            Done::Nothing => {}
            Done::Wake(waiter) => self.waiters[waiter] = Some(result),
            // Those of a broken job have heard already.
            Done::Letter(letter) => {
                if let Some(then) = self.letters.try_remove(letter) {
                    then(result);
                }
            }
            // A kernel learns of a failure by the broken job.
            Done::Ring(slot) => {
                if let Ok(value) = result {
                    self.ring_replies.push((slot, value));
                }
            }
            Done::Join(key) => {
                let join = &mut self.joins[key];
                join.left -= 1;
                let left = join.left;
                if left == 0 || result.is_err() {
                    // The first failure tells; what is left finds nobody.
                    let done = std::mem::replace(&mut join.done, Done::Nothing);
                    if left == 0 {
                        self.joins.remove(key);
                    }
                    self.fire(done, result);
                }
            }
        }
    }

    /// Tells that it has ended well, with no answer but that.
    pub(crate) fn tell(&mut self, done: Done) {
        self.fire(done, Ok(0));
    }

    /// Somebody who hears of an operation's end later.
    pub(in crate::net) fn letter(&mut self, then: Then) -> Done {
        Done::Letter(self.letters.insert(then))
    }

    /// Tells all of them that it has come to nothing.
    pub(in crate::net) fn answer_letters(&mut self, e: &Error) {
        for then in self.letters.drain() {
            then(Err(e.clone()));
        }
    }

    /// A part of an operation of so many: `done` hears when all are over, or the first fails.
    pub(in crate::net) fn join(&mut self, parts: usize, done: Done) -> Done {
        match (parts, done) {
            (0 | 1, _) | (_, Done::Nothing) => done,
            _ => Done::Join(self.joins.insert(Join { left: parts, done })),
        }
    }
}
