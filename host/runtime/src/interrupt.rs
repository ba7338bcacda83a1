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
