//! What callers on the host ask of the engine: something is begun, or begun and waited for; fence and quiet.
//! What blocks is driven by its caller; what does not is sent before it returns.

use std::sync::atomic::Ordering;
use std::sync::MutexGuard;
use std::time::{Duration, Instant};

use crate::error::{err, Result};
use crate::net::engine::{Done, Engine};
use crate::net::Far;

impl Far {
    /// Starts something, on PE `peer` alone where there is one, and sends it.
    pub(crate) fn begin<T>(
        &self,
        peer: Option<usize>,
        what: impl FnOnce(&mut Engine) -> Result<T>,
    ) -> Result<T> {
        self.shared.health.check()?;
        let mut engine = self.shared.lock();
        if engine.congested() {
            drop(engine);
            if let Some(retries) = peer.and_then(|pe| self.shared.retries.get(pe)) {
                retries.fetch_add(1, Ordering::Relaxed);
            }
            engine = self.make_way()?;
        }
        // Not while it waits for room: that is no call of the driver.
        let _current = self.shared.current()?;
        let started = what(&mut engine)?;
        engine.push_out()?;
        Ok(started)
    }

    /// Where too much is under way already, waits until some of it has gone.
    #[cold]
    fn make_way(&self) -> Result<MutexGuard<'_, Engine>> {
        let report = || "for earlier operations on PEs of other hosts to make room for more".to_owned();
        let mut free = None;
        self.shared.health.wait(None, &report, &mut || {
            self.shared.driven.fetch_add(1, Ordering::Relaxed);
            let mut engine = self.shared.lock();
            if engine.congested() {
                self.shared.turn(&mut engine);
            }
            free = (!engine.congested()).then_some(engine);
            free.is_some()
        })?;
        free.ok_or_else(|| err!(INTERNAL, "a wait ended with nothing"))
    }

    /// Starts something, and waits until it is over; what came of it.
    pub(crate) fn ask(
        &self,
        peer: Option<usize>,
        report: &dyn Fn() -> String,
        what: impl FnOnce(&mut Engine, Done) -> Result<()>,
    ) -> Result<u64> {
        let waiter = self.begin(peer, |engine| {
            let waiter = engine.waiter();
            what(engine, Done::Waiter(waiter))?;
            Ok(waiter)
        })?;
        self.wait(waiter, report)
    }

    /// What is asked in the context from here on happens after what was asked in it before, on each PE.
    pub(crate) fn fence(&self, context: u64) -> Result<()> {
        self.begin(None, |engine| {
            engine.fence(context);
            Ok(())
        })
    }

    /// For tests: nothing of the context is known to be under way.
    #[cfg(test)]
    pub(crate) fn is_quiet(&self, context: u64) -> bool {
        self.shared.lock().is_quiet(Some(context))
    }

    /// A context has ended, and nothing of it is under way.
    pub(crate) fn forget_context(&self, context: u64) {
        self.shared.lock().forget_context(context);
    }

    /// All that was asked so far, in the context or in all, has been carried out.
    pub(crate) fn quiet(&self, context: Option<u64>) -> Result<()> {
        // As after calls that reached near PEs alone, which pay for this one look.
        let nothing = {
            let _current = self.shared.current()?;
            let mut engine = self.shared.lock();
            engine.start_posts();
            engine.is_quiet(context)
        };
        if nothing {
            return self.shared.health.check();
        }
        let report = || "for its operations on PEs of other hosts to complete".to_owned();
        let quiet = self.ask(None, &report, |engine, done| engine.quiet(context, done)).map(drop);
        // In a job that was broken before the call nothing has been waited for.
        quiet.inspect_err(|_| self.let_go_of_callers_memory())
    }

    /// Lets what was asked so far get away: for `least`, and until all of it has been carried out, but no
    /// longer than `most`.
    pub(crate) fn linger(&self, least: Duration, most: Duration) {
        let begin = Instant::now();
        let mut waiter = None;
        if let Ok(_current) = self.shared.current() {
            let mut engine = self.shared.lock();
            engine.start_posts();
            let number = engine.waiter();
            waiter = engine.quiet(None, Done::Waiter(number)).is_ok().then_some(number);
        }
        while begin.elapsed() < least || (waiter.is_some() && begin.elapsed() < most) {
            {
                let mut engine = self.shared.lock();
                self.shared.turn(&mut engine);
                waiter = waiter.filter(|number| engine.take(*number).is_none());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
