//! Whether the job is whole, and how to wait without hanging in silence.
//!
//! The first death that a PE learns of breaks the job for good: a word becomes non-zero (host waits, kernels
//! and the Rust API's fast path poll it) and every later wait or collective ends with an error that names the
//! dead PE. [`Health::wait`] is the one waiting loop of the host: it spins, yields, then naps; reports a
//! stall; ends at a limit or when the job breaks.

mod outside;

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use crate::error::{err, Error, Result};
use crate::interrupt::Turn;
use outside::Outside;
pub(crate) use outside::OutsideGuard;

/// A word with its page to itself, so that a GPU's driver can be asked to make the page reachable.
#[derive(Debug, Default)]
#[repr(C, align(4096))]
struct Page(AtomicU32);

/// How long the PEs of a job go on after one of them has left without finalising.
const GRACE: Duration = Duration::from_millis(400);

/// A wait this long is logged at debug level, once: too short to be a stall, too long to be part of an
/// ordinary run.
const LONG: Duration = Duration::from_secs(1);

/// Whether the job is whole.
pub(crate) struct Health {
    /// Non-zero once the job is broken.
    broken: Box<Page>,
    /// Why, for a person.
    why: OnceLock<Error>,
    /// Since when.
    since: OnceLock<Instant>,
    /// A PE has left without finalising: when this PE learned it, and the reason.
    left: OnceLock<(Instant, String)>,
    /// Set once this PE leaves in good order: silence of a peer is no death any more.
    leaving: AtomicBool,
    /// Polls before the first yield: few where the PEs of the node outnumber its cores.
    spins: u32,
    /// A wait that lasts longer is reported.
    stall_report: Option<Duration>,
    /// What a waiting thread does meanwhile: it drives the network, where there is one.
    help: OnceLock<Box<dyn Fn() + Send + Sync>>,
    /// What its threads are in that is not ours.
    outside: Outside,
    /// `PE 2 (host gpu01, pid 4711)`.
    who: String,
}

impl Health {
    /// For the PE that `who` describes; `crowded` where the node has more PEs than cores.
    pub(crate) fn new(who: String, crowded: bool, stall_report: Option<Duration>) -> Health {
        Health {
            broken: Box::default(),
            why: OnceLock::new(),
            since: OnceLock::new(),
            left: OnceLock::new(),
            leaving: AtomicBool::new(false),
            spins: if crowded { 16 } else { 4096 },
            stall_report,
            help: OnceLock::new(),
            outside: Outside::default(),
            who,
        }
    }

    /// What every wait calls now and then, from now on.
    pub(crate) fn let_help(&self, help: Box<dyn Fn() + Send + Sync>) {
        let _ = self.help.set(help);
    }

    #[inline]
    fn help(&self) {
        if let Some(help) = self.help.get() {
            help();
        }
    }

    /// `PE 2 (host gpu01, pid 4711)`, for texts.
    pub(crate) fn who(&self) -> &str {
        &self.who
    }

    /// After how long a stall is reported; `None`: never.
    pub(crate) fn stall_report(&self) -> Option<Duration> {
        self.stall_report
    }

    /// While the guard lives, this thread is in a call of code that is not ours: [`Health::report_outside`]
    /// says so once it has lasted as long as a stall. `what` it waits for: "for the driver to load ring.cu".
    pub(crate) fn outside(&self, what: impl FnOnce() -> String) -> Option<OutsideGuard<'_>> {
        self.stall_report.map(|first| self.outside.enter(what(), first))
    }

    /// Reports such calls that do not return; the monitor's duty. Whether there are calls.
    pub(crate) fn report_outside(&self) -> bool {
        for (lasted, what) in self.outside.overdue() {
            log::warn!("{} has waited {:.1} s: {what}", self.who, lasted.as_secs_f64());
        }
        self.outside.any()
    }

    /// An error that names the dead PE, once the job is broken.
    pub(crate) fn check(&self) -> Result<()> {
        if self.broken.0.load(Ordering::Relaxed) == 0 {
            return Ok(());
        }
        Err(self.why.get().cloned().unwrap_or_else(|| err!(PEER_DEAD, "the job is broken")))
    }

    /// Breaks the job; only the first reason counts, and none once this PE is leaving.
    pub(crate) fn break_job(&self, why: String) {
        if self.leaving.load(Ordering::Acquire) {
            return;
        }
        // A PE that dies after another has left may have died because of that: the first reason goes first.
        let why = match self.left.get() {
            Some((_, left)) if !why.contains(left) => format!("{left}; after that, {why}"),
            _ => why,
        };
        if self.why.set(err!(PEER_DEAD, "{why}")).is_ok() {
            log::error!("{}: {why}", self.who);
            let _ = self.since.set(Instant::now());
            self.broken.0.store(1, Ordering::Release);
        }
    }

    /// A PE has left without finalising, and said why. The others may be about to do the same, at the end of
    /// a program that never finalises: so the job breaks only after a [`GRACE`].
    pub(crate) fn note_left(&self, why: String) {
        if !self.is_leaving() && self.check().is_ok() {
            let _ = self.left.set((Instant::now(), why));
        }
    }

    /// The reason of a PE that has left, once those who would leave, too, have had the time.
    pub(crate) fn left_for_good(&self) -> Option<String> {
        let (since, why) = self.left.get()?;
        (since.elapsed() >= GRACE && self.check().is_ok()).then(|| why.clone())
    }

    /// An error that names the PE that died or left first, as soon as that is known.
    pub(crate) fn check_all_here(&self) -> Result<()> {
        self.check()?;
        match self.left.get() {
            Some((_, why)) if !self.is_leaving() => Err(err!(PEER_DEAD, "{why}")),
            _ => Ok(()),
        }
    }

    /// How long the job has been broken.
    pub(crate) fn broken_for(&self) -> Option<Duration> {
        self.since.get().map(Instant::elapsed)
    }

    /// From here on the silence of a peer is no death.
    pub(crate) fn leave(&self) {
        self.leaving.store(true, Ordering::Release);
    }

    /// True once this PE is leaving.
    pub(crate) fn is_leaving(&self) -> bool {
        self.leaving.load(Ordering::Acquire)
    }

    /// Stops this PE's own kernels and waits, when it abandons the job.
    pub(crate) fn abandon(&self, why: &str) {
        self.leave();
        let _ = self.why.set(err!(PEER_DEAD, "{why}"));
        let _ = self.since.set(Instant::now());
        self.broken.0.store(1, Ordering::Release);
    }

    /// The word that becomes non-zero once the job is broken; it lives as long as `self`.
    pub(crate) fn broken_word(&self) -> &AtomicU32 {
        &self.broken.0
    }

    /// The page of that word: address and length.
    pub(crate) fn broken_page(&self) -> (usize, usize) {
        (std::ptr::from_ref(&*self.broken) as usize, size_of::<Page>())
    }

    /// Returns once `done()` is true. A wait longer than [`LONG`] logs `report()` at debug level; one longer
    /// than the stall limit as a warning, again at each doubling; one longer than `limit` is a `TIMEOUT`
    /// error with `report()`; a broken job is its
    /// error, an interruption one, too.
    #[inline]
    pub(crate) fn wait(
        &self,
        limit: Option<Duration>,
        report: &dyn Fn() -> String,
        done: &mut dyn FnMut() -> bool,
    ) -> Result<()> {
        for spin in 1..=self.spins {
            if done() {
                return Ok(());
            }
            if spin % 16 == 0 {
                self.help();
            }
            std::hint::spin_loop();
        }
        self.wait_long(limit, report, done)
    }

    #[cold]
    fn wait_long(
        &self,
        limit: Option<Duration>,
        report: &dyn Fn() -> String,
        done: &mut dyn FnMut() -> bool,
    ) -> Result<()> {
        let start = Instant::now();
        let mut next_report = self.stall_report;
        let mut is_logged = false;
        let mut nap = Duration::from_micros(20);
        let mut turn = Turn::new();
        loop {
            for _ in 0..8 {
                if done() {
                    return Ok(());
                }
                self.help();
                std::thread::yield_now();
            }
            let waited = start.elapsed();
            if let Err(e) = self.check() {
                // What was waited for may have come before the death: a last look decides.
                return if done() { Ok(()) } else { Err(e.context(report())) };
            }
            if let Some(at) = next_report.filter(|at| waited >= *at) {
                log::warn!("{} has waited {:.1} s: {}", self.who, waited.as_secs_f64(), report());
                next_report = Some(at * 2);
                is_logged = true;
            }
            if !is_logged && waited >= LONG {
                log::debug!("{} has waited {:.1} s: {}", self.who, waited.as_secs_f64(), report());
                is_logged = true;
            }
            turn.check(report).map_err(|e| e.context(&self.who))?;
            if limit.is_some_and(|limit| waited >= limit) {
                return Err(err!(
                    TIMEOUT,
                    "{} gave up after {:.1} s: {}",
                    self.who,
                    waited.as_secs_f64(),
                    report()
                ));
            }
            if waited > Duration::from_micros(500) {
                std::thread::sleep(nap);
                // Latency matters less the longer nothing has come.
                nap = (nap + nap / 16)
                    .min(waited / 16)
                    .clamp(Duration::from_micros(20), Duration::from_millis(1));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::code;

    fn health() -> Health {
        Health::new("PE 0 (test)".into(), false, None)
    }

    #[test]
    fn a_wait_ends_at_its_limit_with_the_report() {
        let e = health()
            .wait(Some(Duration::from_millis(20)), &|| "for the moon".into(), &mut || false)
            .unwrap_err();
        assert_eq!(e.code, code::TIMEOUT);
        assert!(e.message.contains("for the moon") && e.message.contains("PE 0"), "{e}");
    }

    #[test]
    fn a_death_ends_a_wait_and_the_first_reason_stays() {
        let h = health();
        std::thread::scope(|s| {
            s.spawn(|| {
                std::thread::sleep(Duration::from_millis(20));
                h.break_job("PE 3 is gone".into());
                h.break_job("PE 4 is gone".into());
            });
            let e = h.wait(None, &|| "waiting".into(), &mut || false).unwrap_err();
            assert_eq!(e.code, code::PEER_DEAD);
            assert!(e.message.contains("PE 3") && !e.message.contains("PE 4"), "{e}");
        });
        assert!(h.check().is_err());
    }

    #[test]
    fn a_pe_that_leaves_is_the_reason_whatever_dies_after_it() {
        let h = health();
        h.note_left("PE 2 left the job without finalize: it was dropped".into());
        assert!(h.check().is_ok() && h.left_for_good().is_none(), "the others have a moment");
        assert!(h.check_all_here().unwrap_err().message.contains("PE 2"));
        h.break_job("PE 1 is gone".into());
        let e = h.check().unwrap_err();
        assert!(e.message.starts_with("PE 2 left") && e.message.contains("after that, PE 1 is gone"), "{e}");
        assert!(h.left_for_good().is_none(), "the job is broken already");
    }

    #[test]
    fn a_pe_that_leaves_breaks_the_job_after_the_grace() {
        let h = health();
        let start = Instant::now();
        h.note_left("PE 2 left".into());
        let why = loop {
            match h.left_for_good() {
                Some(why) => break why,
                None => std::thread::sleep(Duration::from_millis(5)),
            }
        };
        assert!(start.elapsed() >= GRACE && why == "PE 2 left");
    }

    #[test]
    fn leaving_in_good_order_notes_no_deaths() {
        let h = health();
        h.leave();
        h.break_job("PE 1 is gone".into());
        assert!(h.check().is_ok());
    }
}
