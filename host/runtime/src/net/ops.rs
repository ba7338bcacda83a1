//! The host's operations on far PEs. What blocks is driven by its caller; what does not is sent before it
//! returns.

use std::sync::atomic::Ordering;
use std::sync::MutexGuard;
use std::time::{Duration, Instant};

use crate::error::{err, Result};
use crate::net::engine::{Done, Engine, Rows, INLINE};
use crate::net::wire::message::Record;
use crate::net::Far;
use crate::word::Update;

/// A place in the memory of a far PE.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    pub(crate) far: &'a Far,
    pub(crate) pe: usize,
    pub(crate) offset: u64,
}

impl Far {
    /// Starts something, and sends it.
    fn begin<T>(&self, what: impl FnOnce(&mut Engine) -> Result<T>) -> Result<T> {
        self.shared.health.check()?;
        let _current = self.shared.current()?;
        let mut engine = self.shared.lock();
        if engine.congested() {
            drop(engine);
            engine = self.make_way()?;
        }
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
        report: &dyn Fn() -> String,
        what: impl FnOnce(&mut Engine, Done) -> Result<()>,
    ) -> Result<u64> {
        let waiter = self.begin(|engine| {
            let waiter = engine.waiter();
            what(engine, Done::Waiter(waiter))?;
            Ok(waiter)
        })?;
        self.wait(waiter, report)
    }

    /// What is asked from here on happens after what was asked before, on each PE.
    pub(crate) fn fence(&self) -> Result<()> {
        self.begin(|engine| {
            engine.fence();
            Ok(())
        })
    }

    /// All that was asked so far has been carried out.
    pub(crate) fn quiet(&self) -> Result<()> {
        // As after calls that reached near PEs alone, which pay for this one look.
        let nothing = {
            let _current = self.shared.current()?;
            let mut engine = self.shared.lock();
            engine.start_posts();
            engine.is_quiet()
        };
        if nothing {
            return self.shared.health.check();
        }
        let report = || "for its operations on PEs of other hosts to complete".to_owned();
        self.ask(&report, |engine, done| engine.quiet(done)).map(drop)
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
            waiter = engine.quiet(Done::Waiter(number)).is_ok().then_some(number);
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

impl Place<'_> {
    fn report(&self, what: &str) -> String {
        format!("for {what} PE {} at offset {:#x}", self.pe, self.offset)
    }

    /// Copies `bytes` at `src` there; the source is free on return.
    ///
    /// # Safety
    /// The source is valid.
    pub(crate) unsafe fn put(&self, src: usize, bytes: usize) -> Result<()> {
        let &Place { far, pe, offset } = self;
        if bytes <= INLINE && !far.gpu() {
            // SAFETY: passed on; it is copied before the call returns.
            return far.begin(|engine| unsafe { engine.put(pe, offset, src, bytes, Done::Nothing) });
        }
        // SAFETY: passed on.
        far.ask(&|| self.report("a put to"), |engine, done| unsafe {
            engine.put(pe, offset, src, bytes, done)
        })
        .map(drop)
    }

    /// As [`Place::put`], but the source may be in use until quiet.
    ///
    /// # Safety
    /// The source is valid until then.
    pub(crate) unsafe fn put_nbi(&self, src: usize, bytes: usize) -> Result<()> {
        // SAFETY: passed on.
        self.far.begin(|engine| unsafe { engine.put(self.pe, self.offset, src, bytes, Done::Nothing) })
    }

    /// Copies `bytes` from there to `dst`.
    ///
    /// # Safety
    /// The destination is valid.
    pub(crate) unsafe fn get(&self, dst: usize, bytes: usize) -> Result<()> {
        let &Place { far, pe, offset } = self;
        // SAFETY: passed on.
        far.ask(&|| self.report("a get from"), |engine, done| unsafe {
            engine.get(pe, offset, dst, bytes, done)
        })
        .map(drop)
    }

    /// As [`Place::get`], but the data is there after quiet only.
    ///
    /// # Safety
    /// The destination is valid until then.
    pub(crate) unsafe fn get_nbi(&self, dst: usize, bytes: usize) -> Result<()> {
        // SAFETY: passed on.
        self.far.begin(|engine| unsafe { engine.get(self.pe, self.offset, dst, bytes, Done::Nothing) })
    }

    /// Strided put; the source is free on return.
    ///
    /// # Safety
    /// Every element of the source is valid.
    pub(crate) unsafe fn put_rows(&self, src: usize, rows: Rows) -> Result<()> {
        let &Place { far, pe, offset } = self;
        // SAFETY: passed on.
        far.ask(&|| self.report("a strided put to"), |engine, done| unsafe {
            engine.put_rows(pe, offset, src, rows, done)
        })
        .map(drop)
    }

    /// Strided get.
    ///
    /// # Safety
    /// Every element of the destination is valid.
    pub(crate) unsafe fn get_rows(&self, dst: usize, rows: Rows) -> Result<()> {
        let &Place { far, pe, offset } = self;
        if rows.n == 0 || rows.elem == 0 {
            return Ok(());
        }
        // SAFETY: passed on.
        far.ask(&|| self.report("a strided get from"), |engine, done| unsafe {
            engine.get_rows(pe, offset, dst, rows, done)
        })
        .map(drop)
    }

    /// Writes a word of 1, 2, 4 or 8 bytes, whole where it is aligned.
    pub(crate) fn store(&self, bits: u64, bytes: usize) -> Result<()> {
        let record = Record::Word { width: bytes as u8, offset: self.offset, value: bits };
        self.far.begin(|engine| engine.record(self.pe, &record))
    }

    /// Reads one.
    pub(crate) fn load(&self, bytes: usize) -> Result<u64> {
        self.far.ask(&|| self.report("a word of"), |engine, done| {
            engine.load(self.pe, bytes as u8, self.offset, done)
        })
    }

    /// Carries out an atomic update; the old value, where it `fetches`.
    pub(crate) fn atomic(
        &self,
        update: Update,
        bytes: usize,
        value: u64,
        compare: u64,
        fetches: bool,
    ) -> Result<u64> {
        let (op, width, pe, offset) = (update as u8, bytes as u8, self.pe, self.offset);
        if !fetches {
            return self
                .far
                .begin(|engine| engine.atomic(pe, op, width, offset, value, compare, Done::Nothing))
                .map(|()| 0);
        }
        self.far.ask(&|| self.report("an atomic on"), |engine, done| {
            engine.atomic(pe, op, width, offset, value, compare, done)
        })
    }

    /// Updates a signal word.
    pub(crate) fn signal(&self, value: u64, add: bool) -> Result<()> {
        let record = Record::Signal { add, offset: self.offset, value };
        self.far.begin(|engine| engine.record(self.pe, &record))
    }

    /// Copies `bytes` at `src` there, and updates the signal word at offset `sig` behind them. Where it is
    /// `blocking`, the source is free on return.
    ///
    /// # Safety
    /// The source is valid until then, or until quiet.
    pub(crate) unsafe fn put_signal(
        &self,
        src: usize,
        bytes: usize,
        sig: u64,
        value: u64,
        add: bool,
        blocking: bool,
    ) -> Result<()> {
        let &Place { far, pe, offset } = self;
        let signal = Record::Signal { add, offset: sig, value };
        if !blocking || (bytes <= INLINE && !far.gpu()) {
            // SAFETY: passed on.
            return far.begin(|engine| unsafe {
                engine.put_signal(pe, offset, src, bytes, &signal, Done::Nothing)
            });
        }
        far.ask(&|| self.report("a put to"), |engine, done| {
            // SAFETY: passed on.
            unsafe { engine.put_signal(pe, offset, src, bytes, &signal, done) }
        })
        .map(drop)
    }
}
