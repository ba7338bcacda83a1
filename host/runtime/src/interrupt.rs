//! How a wait of the host ends because its caller asks for it: a language that must look at signals (Ctrl-C)
//! now and then, or that ends a world while other threads wait in it. One function of the process, which
//! waits that last ask on their own thread.

use std::sync::atomic::{AtomicPtr, Ordering};
use std::time::{Duration, Instant};

use crate::error::{err, Result};

/// A wait asks so often.
pub(crate) const PERIOD: Duration = Duration::from_millis(20);

/// Answers 0 as long as the wait may go on.
pub(crate) type Ask = unsafe extern "C" fn() -> i32;

static ASK: AtomicPtr<()> = AtomicPtr::new(std::ptr::null_mut());

/// Waits ask `ask` from now on, or nobody.
pub(crate) fn set(ask: Option<Ask>) {
    ASK.store(ask.map_or(std::ptr::null_mut(), |ask| ask as *mut ()), Ordering::Release);
}

/// One wait's turn to ask.
pub(crate) struct Turn(Instant);

impl Turn {
    /// From now on.
    pub(crate) fn new() -> Turn {
        Turn(Instant::now())
    }

    /// Whether it is time to ask.
    pub(crate) fn is_due(&self) -> bool {
        !ASK.load(Ordering::Relaxed).is_null() && self.0.elapsed() >= PERIOD
    }

    /// Asks, where it is time to: an error where the wait is to end. `what` says what it waits for.
    pub(crate) fn check(&mut self, what: &dyn Fn() -> String) -> Result<()> {
        let ask = ASK.load(Ordering::Acquire);
        if ask.is_null() || !self.is_due() {
            return Ok(());
        }
        self.0 = Instant::now();
        // SAFETY: only `set` stores here, functions of this type.
        let ask = unsafe { std::mem::transmute::<*mut (), Ask>(ask) };
        // SAFETY: the contract of `rushmem_on_wait`: it may be called from any thread.
        if unsafe { ask() } == 0 {
            return Ok(());
        }
        Err(err!(INTERRUPTED, "interrupted while it waited {}", what()))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::error::code;
    use crate::health::Health;

    thread_local! {
        /// Threads of other tests are not meant.
        static MEANT: Cell<i32> = const { Cell::new(0) };
    }

    /// # Safety
    /// None: it takes nothing.
    unsafe extern "C" fn ask() -> i32 {
        MEANT.with(Cell::get)
    }

    /// What waits on this thread is to end.
    pub(crate) fn interrupt_this_thread() {
        set(Some(ask));
        MEANT.with(|meant| meant.set(1));
    }

    #[test]
    fn a_wait_ends_soon_and_the_next_one_is_free_to_wait() {
        let health = Health::new("PE 3".into(), false, None);
        let wait = || health.wait(Some(20 * PERIOD), &|| "for a word".into(), &mut || false).unwrap_err();
        interrupt_this_thread();
        let start = Instant::now();
        let e = wait();
        assert!(start.elapsed() < 15 * PERIOD, "{:?}", start.elapsed());
        assert_eq!(e.code, code::INTERRUPTED);
        assert!(e.message.contains("PE 3") && e.message.contains("for a word"), "{e}");
        MEANT.with(|meant| meant.set(0));
        assert_eq!(wait().code, code::TIMEOUT);
        // Another thread's waits go on.
        MEANT.with(|meant| meant.set(1));
        std::thread::scope(|s| {
            assert_eq!(s.spawn(|| wait().code).join().unwrap(), code::TIMEOUT);
        });
    }
}
