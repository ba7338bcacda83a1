//! One thread at a time makes what several want.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crate::error::Result;

/// Lets one thread at a time make what several want, such as the code of a kernel.
///
/// A thread that waits for a turn looks again after each: what it wants may be made by then. It must not wait
/// for the next turn, which may be a load that waits for kernels to end: these may wait in their turn for the
/// kernel that this thread launches next.
#[derive(Default)]
pub(crate) struct Turns {
    is_taken: Mutex<bool>,
    ended: Condvar,
}

impl Turns {
    fn lock(&self) -> MutexGuard<'_, bool> {
        // What is guarded is whole between any two statements.
        self.is_taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What `made` finds, else what `make` makes.
    pub(crate) fn get_or_make<T>(
        &self,
        made: impl Fn() -> Option<T>,
        make: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let mut is_taken = self.lock();
        loop {
            if let Some(made) = made() {
                return Ok(made);
            }
            if !*is_taken {
                break;
            }
            is_taken = self.ended.wait(is_taken).unwrap_or_else(PoisonError::into_inner);
        }
        *is_taken = true;
        drop(is_taken);
        let _turn = TurnGuard(self);
        make()
    }
}

/// Ends when it is dropped, after a panic, too.
struct TurnGuard<'a>(&'a Turns);

impl Drop for TurnGuard<'_> {
    fn drop(&mut self) {
        *self.0.lock() = false;
        self.0.ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::{Duration, Instant};

    use super::*;
    use crate::error::err;

    /// A thread makes one thing after another, and waits within the second for a thread that wants the first.
    #[test]
    fn a_waiter_goes_on_once_what_it_wants_is_made() {
        let (turns, x, y) = (Turns::default(), AtomicBool::new(false), AtomicBool::new(false));
        let (is_making, went_on) = (AtomicBool::new(false), AtomicBool::new(false));
        let made = |it: &AtomicBool| it.load(Ordering::Acquire).then_some(());
        let make = |it: &AtomicBool| {
            it.store(true, Ordering::Release);
            Ok(())
        };
        let until = |flag: &AtomicBool| {
            let since = Instant::now();
            while !flag.load(Ordering::Acquire) {
                assert!(since.elapsed() < Duration::from_secs(30), "the other thread does not come");
                std::thread::yield_now();
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                until(&is_making);
                turns.get_or_make(|| made(&x), || panic!("it is being made")).expect("it is made");
                went_on.store(true, Ordering::Release);
            });
            let slowly = || {
                is_making.store(true, Ordering::Release);
                // So that the other thread waits, as a rule.
                std::thread::sleep(Duration::from_millis(20));
                make(&x)
            };
            turns.get_or_make(|| made(&x), slowly).expect("it cannot fail");
            let wait = || {
                until(&went_on);
                make(&y)
            };
            turns.get_or_make(|| made(&y), wait).expect("it cannot fail");
        });
        // A turn that failed or panicked is over, and the next one makes it.
        let z = AtomicBool::new(false);
        let fails = turns.get_or_make(|| None::<()>, || Err(err!(COMPILE, "no compiler")));
        assert_eq!(fails.unwrap_err().message, "no compiler");
        let panics = || turns.get_or_make(|| None::<()>, || panic!("on purpose"));
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(panics)).expect_err("it panics");
        turns.get_or_make(|| made(&z), || make(&z)).expect("it cannot fail");
        assert!(z.into_inner());
    }
}
