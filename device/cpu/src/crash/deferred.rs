//! A call that another thread than the caller's carries out later. The text about a fault of it names the
//! call and the line that made it, as if it had been carried out at once.

use std::cell::Cell;
use std::ptr::null;

use super::PREPARED;
use crate::stack_trace::Counters;

/// Functions above the runtime that are looked at: a library's, and the program's.
const CALLERS: usize = 3;

thread_local! {
    /// What the thread carries out. The text's child reads it: no destructor, and no first use.
    static CURRENT: Cell<*const Deferred> = const { Cell::new(null()) };
}

/// Such a call.
pub struct Deferred {
    what: String,
    from: Box<Counters>,
}

/// What the thread carried out before.
struct Before(*const Deferred);

impl Deferred {
    /// The call that the thread is in; `what` it is where its name cannot be found out. Looks at the stack,
    /// unless faults have no texts.
    pub fn new(what: &str) -> Deferred {
        let prepared = PREPARED.get();
        let from = prepared.map(|prepared| Counters::of_callers(&prepared.own, CALLERS)).unwrap_or_default();
        Deferred { what: what.to_owned(), from: Box::new(from) }
    }

    /// Does the call's work on this thread.
    pub fn run<R>(&self, work: impl FnOnce() -> R) -> R {
        let _before = Before(CURRENT.replace(self));
        work()
    }

    pub(super) fn what(&self) -> &str {
        &self.what
    }

    /// The caller's stack.
    pub(super) fn from(&self) -> &Counters {
        &self.from
    }
}

impl Drop for Before {
    fn drop(&mut self) {
        CURRENT.set(self.0);
    }
}

/// What this thread, or the one that it is a copy of, carries out.
pub(super) fn current() -> Option<&'static Deferred> {
    // SAFETY: `run` borrows it for as long as it is the current one, and the child goes no further than its
    // text.
    unsafe { CURRENT.get().as_ref() }
}
