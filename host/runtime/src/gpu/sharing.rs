//! One context for several PEs: those that are threads of one process and have the same GPU share its primary
//! context.
//!
//! The driver may hold a module back until the kernels that run in the context have ended, and meanwhile all
//! who call it, too. A kernel of one PE may be waiting for the kernel that another PE is about to launch, and
//! would wait for ever. So code is loaded while no kernel of these PEs is under way, and their launches wait
//! until it is loaded. An unload waits just so, and nobody needs it soon: it is put off until no kernel is
//! under way. (Seen: a PE that had ended its part unloaded while another's kernel waited for data that the
//! first one's network thread had still to copy, which the driver held back, too.)
//!
//! Loads and launches wait for a limited time only. A kernel may wait for the very code that is to be
//! loaded, and the driver does not always hold it back; and what a program's graphs launch is not seen here:
//! such programs load before they launch (`Team::prepare`).

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockWriteGuard, TryLockError, Weak};
use std::time::{Duration, Instant};

use super::event::CudaEvent;
use super::stream::Stream;
use crate::error::Result;

/// How long a load waits for kernels, and a launch for a load.
const PATIENCE: Duration = Duration::from_secs(2);
/// How often they look.
const NAP: Duration = Duration::from_micros(50);

/// The end of the last launch on each stream.
#[derive(Default)]
pub(crate) struct Flights(Mutex<Vec<(usize, CudaEvent)>>);

impl Flights {
    /// The stream has just been given a launch.
    pub(crate) fn record(&self, stream: &Stream) -> Result<()> {
        // An event that is recorded into a graph tells nothing about now.
        if stream.is_capturing()? {
            return Ok(());
        }
        let mut list = lock(&self.0);
        let raw = stream.as_raw() as usize;
        if let Some((_, event)) = list.iter().find(|(known, _)| *known == raw) {
            return event.record(stream);
        }
        let event = CudaEvent::new(stream.cuda(), false)?;
        event.record(stream)?;
        list.push((raw, event));
        Ok(())
    }

    /// Streams that have not passed their last launch.
    pub(crate) fn count(&self) -> usize {
        let list = lock(&self.0);
        list.iter().filter(|(_, event)| matches!(event.query(), Ok(false))).count()
    }
}

/// What one PE launches in a context that others launch in, too.
pub(crate) struct SharedContext {
    gate: Arc<LoadGate>,
    flights: Flights,
}

impl fmt::Debug for SharedContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedContext").finish_non_exhaustive()
    }
}

/// The contexts of this process that PEs share, by the UUID of their GPU.
static GATES: Mutex<Vec<([u8; 16], Weak<LoadGate>)>> = Mutex::new(Vec::new());

impl SharedContext {
    /// Of a PE on the GPU with that UUID.
    pub(crate) fn new(gpu: [u8; 16]) -> Arc<SharedContext> {
        let mut gates = lock(&GATES);
        gates.retain(|(_, gate)| gate.strong_count() > 0);
        let known = gates.iter().find(|(other, _)| *other == gpu).and_then(|(_, gate)| gate.upgrade());
        let gate = known.unwrap_or_else(|| {
            let gate = Arc::<LoadGate>::default();
            gates.push((gpu, Arc::downgrade(&gate)));
            gate
        });
        let shared = Arc::new(SharedContext { gate, flights: Flights::default() });
        let weak = Arc::downgrade(&shared);
        let count = move || weak.upgrade().map(|shared| shared.flights.count());
        shared.gate.watch(Box::new(count));
        shared
    }

    /// Puts a launch on the stream.
    pub(crate) fn launch(&self, stream: &Stream, launch: impl FnOnce() -> Result<()>) -> Result<()> {
        self.gate.launch(PATIENCE, || {
            launch()?;
            self.flights.record(stream)
        })
    }

    /// Drops code, which unloads it, once no kernel of these PEs is under way: now, or when one of them comes
    /// here again, or with the last of them.
    pub(super) fn retire(&self, code: impl Send + 'static) {
        self.gate.retire(code);
    }

    /// Loads what is called `what` in texts.
    pub(crate) fn load<T>(&self, what: &str, load: impl FnOnce() -> T) -> T {
        self.gate.load(PATIENCE, what, load)
    }
}

/// A PE's streams that have kernels under way; `None` once the PE is gone.
type Count = Box<dyn Fn() -> Option<usize> + Send + Sync>;

/// Keeps loads and kernels of a context apart.
#[derive(Default)]
struct LoadGate {
    /// Launches hold it together, a load alone. Who finds it held looks again: a load that waited in line
    /// would hold launches up that come after it, and the kernels may need those.
    held: RwLock<()>,
    pes: Mutex<Vec<Count>>,
    /// What is to be dropped when nothing is under way.
    retired: Mutex<Vec<Retired>>,
}

type Retired = Box<dyn Send>;

impl LoadGate {
    fn watch(&self, count: Count) {
        lock(&self.pes).push(count);
    }

    /// Streams of all PEs that have kernels under way.
    fn under_way(&self) -> usize {
        let mut sum = 0;
        lock(&self.pes).retain(|count| count().map(|n| sum += n).is_some());
        sum
    }

    /// Alone, and with nothing under way? The gate is shut as long as the guard lives.
    fn idle(&self) -> Option<RwLockWriteGuard<'_, ()>> {
        let held = match self.held.try_write() {
            Ok(held) => held,
            Err(TryLockError::Poisoned(held)) => held.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        (self.under_way() == 0).then_some(held)
    }

    fn retire(&self, code: impl Send + 'static) {
        lock(&self.retired).push(Box::new(code));
        if let Some(_alone) = self.idle() {
            self.drop_retired();
        }
    }

    fn drop_retired(&self) {
        // Not under the lock: an unload may last, if a program's graph runs, and others have code to leave.
        let retired = std::mem::take(&mut *lock(&self.retired));
        drop(retired);
    }

    fn launch<T>(&self, patience: Duration, launch: impl FnOnce() -> T) -> T {
        let since = Instant::now();
        let _held = loop {
            match self.held.try_read() {
                Ok(held) => break Some(held),
                Err(TryLockError::Poisoned(held)) => break Some(held.into_inner()),
                Err(TryLockError::WouldBlock) if since.elapsed() > patience => break None,
                Err(TryLockError::WouldBlock) => std::thread::sleep(NAP),
            }
        };
        launch()
    }

    fn load<T>(&self, patience: Duration, what: &str, load: impl FnOnce() -> T) -> T {
        let since = Instant::now();
        loop {
            // The gate stays shut until the code is there.
            if let Some(_alone) = self.idle() {
                self.drop_retired();
                return load();
            }
            if since.elapsed() > patience {
                break;
            }
            std::thread::sleep(NAP);
        }
        log::info!(
            "{what} is loaded while kernels run on streams of {} PEs of this process that share its GPU: the driver may \
             hold it back until they have ended; a program that loads before it launches what waits is safe from that",
            self.under_way()
        );
        load()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is guarded is whole between any two statements.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::sync::Condvar;

    use super::super::turns::Turns;
    use super::*;
    use crate::testing::random::Random;

    /// A driver at its worst: a load waits for the kernels that run, with a lock that launches need. Kernel
    /// number k ends once all PEs have launched theirs.
    #[derive(Default)]
    struct Driver {
        context: Mutex<()>,
        /// How many kernels each PE has launched.
        launched: Mutex<Vec<usize>>,
        changed: Condvar,
        stuck: AtomicUsize,
    }

    impl Driver {
        fn ended(launched: &[usize]) -> usize {
            launched.iter().copied().min().unwrap_or(0)
        }

        fn launch(&self, pe: usize) {
            let _context = lock(&self.context);
            lock(&self.launched)[pe] += 1;
            self.changed.notify_all();
        }

        fn load(&self) {
            let _context = lock(&self.context);
            let launched = lock(&self.launched);
            let idle = |n: &mut Vec<usize>| n.iter().any(|mine| *mine != Driver::ended(n));
            let limit = Duration::from_millis(300);
            let waited = self.changed.wait_timeout_while(launched, limit, idle);
            if waited.unwrap_or_else(PoisonError::into_inner).1.timed_out() {
                self.stuck.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// The same `rounds` kernels on each of `n` PEs, some of them of new code, which the first PE that comes
    /// to it loads for all; how many loads got stuck.
    fn run(test: &str, n: usize, rounds: usize, gate: Option<&Arc<LoadGate>>) -> usize {
        let driver = Arc::new(Driver { launched: Mutex::new(vec![0; n]), ..Driver::default() });
        for pe in (0..n).filter(|_| gate.is_some()) {
            let driver = Arc::clone(&driver);
            let count = move || {
                let launched = lock(&driver.launched);
                Some(launched[pe] - Driver::ended(&launched))
            };
            gate.expect("asked for above").watch(Box::new(count));
        }
        let mut random = Random::new(test);
        let is_new: Vec<bool> = (0..rounds).map(|_| random.below(3) == 0).collect();
        let is_loaded: Vec<AtomicBool> = is_new.iter().map(|is_new| AtomicBool::new(!is_new)).collect();
        let turns = Turns::default();
        std::thread::scope(|scope| {
            for pe in 0..n {
                let pauses: Vec<u64> = (0..rounds).map(|_| random.below(400) as u64).collect();
                let (driver, is_loaded, turns) = (&driver, &is_loaded, &turns);
                scope.spawn(move || {
                    for (round, pause) in pauses.into_iter().enumerate() {
                        std::thread::sleep(Duration::from_micros(pause));
                        let made = || is_loaded[round].load(Ordering::Acquire).then_some(());
                        let make = || {
                            match gate {
                                Some(gate) => gate.load(Duration::from_secs(90), "code", || driver.load()),
                                None => driver.load(),
                            }
                            is_loaded[round].store(true, Ordering::Release);
                            Ok(())
                        };
                        turns.get_or_make(made, make).expect("it cannot fail");
                        match gate {
                            Some(gate) => gate.launch(Duration::from_secs(90), || driver.launch(pe)),
                            None => driver.launch(pe),
                        }
                    }
                });
            }
        });
        driver.stuck.load(Ordering::Relaxed)
    }

    #[test]
    fn loads_and_kernels_that_wait_for_peers_do_not_hold_each_other_up() {
        let test = "loads_and_kernels_that_wait_for_peers_do_not_hold_each_other_up";
        assert_eq!(run(test, 4, 150, Some(&Arc::default())), 0);
        // Few of a dozen rounds may have new code, and those by chance at a good time.
        let is_bad = (0..20).any(|_| run(test, 3, 12, None) > 0);
        assert!(is_bad, "the driver of this test holds nothing up");
    }

    /// Code goes when nothing is under way, and with the last PE.
    #[test]
    fn unloads_wait_for_kernels_and_nobody_for_them() {
        struct Loaded(Arc<AtomicUsize>);
        impl Drop for Loaded {
            fn drop(&mut self) {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
        }
        let (running, gone) = (Arc::new(AtomicUsize::new(1)), Arc::new(AtomicUsize::new(0)));
        let gate = LoadGate::default();
        let count = Arc::clone(&running);
        gate.watch(Box::new(move || Some(count.load(Ordering::Relaxed))));
        let code = || Loaded(Arc::clone(&gone));
        gate.retire(code());
        assert_eq!(gone.load(Ordering::Relaxed), 0, "a kernel runs");
        running.store(0, Ordering::Relaxed);
        gate.launch(PATIENCE, || gate.retire(code()));
        assert_eq!(gone.load(Ordering::Relaxed), 0, "a launch is being made");
        gate.retire(code());
        assert_eq!(gone.load(Ordering::Relaxed), 3);
        running.store(1, Ordering::Relaxed);
        gate.retire(code());
        running.store(0, Ordering::Relaxed);
        gate.load(PATIENCE, "code", || assert_eq!(gone.load(Ordering::Relaxed), 4, "before what is loaded"));
        running.store(1, Ordering::Relaxed);
        gate.retire(code());
        drop(gate);
        assert_eq!(gone.load(Ordering::Relaxed), 5);
    }

    /// A kernel waits for the code that is to be loaded: after a while it is loaded in spite of it.
    #[test]
    fn patience_ends() {
        let gate = LoadGate::default();
        gate.watch(Box::new(|| Some(1)));
        let patience = Duration::from_millis(30);
        let since = Instant::now();
        assert_eq!(gate.load(patience, "code", || 5), 5);
        assert!(since.elapsed() >= patience);
        // A load that never returns holds a launch up for as long.
        let gate = LoadGate::default();
        let (since, done) = (Instant::now(), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            gate.load(patience, "code", || {
                scope.spawn(|| gate.launch(patience, || done.store(1, Ordering::Release)));
                while done.load(Ordering::Acquire) == 0 {
                    std::thread::yield_now();
                }
            });
        });
        assert!(since.elapsed() >= patience);
        // PEs that are gone count for nothing.
        let gate = LoadGate::default();
        gate.watch(Box::new(|| None));
        assert_eq!(gate.under_way(), 0);
        assert!(lock(&gate.pes).is_empty());
    }
}
