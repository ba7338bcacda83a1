//! One context for several PEs: those that are threads of one process and have the same GPU share its primary
//! context.
//!
//! The driver may hold a module back until the kernels that run in the context have ended, and meanwhile all
//! who call it, too. A kernel of one PE may be waiting for the kernel that another PE is about to launch, and
//! would wait for ever. So code is loaded while no kernel of these PEs is under way, and their launches wait
//! until it is loaded.
//!
//! Both for a limited time only. A kernel may wait for the very code that is to be loaded, and the driver
//! does not always hold it back; and what a program's graphs launch is not seen here: such programs load
//! before they launch (`Team::prepare`).

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock, TryLockError, Weak};
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
}

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
            let held = match self.held.try_write() {
                Ok(held) => Some(held),
                Err(TryLockError::Poisoned(held)) => Some(held.into_inner()),
                Err(TryLockError::WouldBlock) => None,
            };
            if held.is_some() && self.under_way() == 0 {
                // The gate stays shut until the code is there.
                return load();
            }
            drop(held);
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
    /// What `made` finds, else what `make` makes.
    pub(crate) fn get_or_make<T>(
        &self,
        made: impl Fn() -> Option<T>,
        make: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let mut is_taken = lock(&self.is_taken);
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
        *lock(&self.0.is_taken) = false;
        self.0.ended.notify_all();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is guarded is whole between any two statements.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use super::*;
    use crate::error::err;
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
