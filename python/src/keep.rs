//! What a world keeps for what is built on it, without knowing what that is: symmetric memory and who uses
//! it, and values that streams, non-blocking calls and registrations need for a time.

use std::any::Any;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};

use pyo3::prelude::*;

/// A value that is only kept, until it is dropped.
pub(crate) type Kept = Box<dyn Any + Send>;

/// All that one world keeps.
#[derive(Default)]
pub(crate) struct Keep {
    pub(crate) allocations: Allocations,
    /// What streams read or write.
    pub(crate) borrowed: Mutex<Borrowed>,
    /// Streams of this world's that are no more: by their handles, of each the event behind its last work.
    pub(crate) ended: Mutex<HashMap<usize, usize>>,
    /// Memory of others that is registered: its alias, and what holds it.
    registered: Mutex<Vec<(usize, Kept)>>,
    /// What non-blocking calls read and write, until a quiet, with the context that they were made in.
    pending: Mutex<Vec<(u64, Kept)>>,
}

impl Keep {
    /// Lets go of what only a world's work needs, once that has ended.
    pub(crate) fn let_go(&self) {
        drop((std::mem::take(&mut *lock(&self.borrowed)), std::mem::take(&mut *lock(&self.registered))));
        drop(std::mem::take(&mut *self.pending()));
    }

    /// Holds memory that is registered under `alias`.
    pub(crate) fn hold_registered(&self, alias: usize, holder: Kept) {
        lock(&self.registered).push((alias, holder));
    }

    /// What was held, to be dropped without the lock.
    pub(crate) fn release_registered(&self, alias: usize) -> Option<Kept> {
        let mut registered = lock(&self.registered);
        let i = registered.iter().position(|(at, _)| *at == alias)?;
        Some(registered.swap_remove(i).1)
    }

    /// What non-blocking calls hold.
    pub(crate) fn pending(&self) -> MutexGuard<'_, Vec<(u64, Kept)>> {
        lock(&self.pending)
    }
}

/// What some calls read and write, and the event behind them.
pub(crate) struct Lot {
    pub(crate) event: usize,
    pub(crate) objects: Vec<Py<PyAny>>,
}

/// Objects that streams read or write, and so hold.
#[derive(Default)]
pub(crate) struct Borrowed {
    /// By stream, the oldest first: what lives until the stream has passed an event. It passes them in their
    /// order, so that one look at each stream says whether any has passed.
    pub(crate) until: HashMap<usize, VecDeque<Lot>>,
    /// Of streams that were being captured: their graphs may be launched as long as the world lives.
    pub(crate) captured: Vec<Py<PyAny>>,
}

/// The streams on which an allocation was used.
#[derive(Default)]
pub(crate) struct Uses(Mutex<Vec<usize>>);

impl Uses {
    /// A stream was given work on the allocation.
    pub(crate) fn note(&self, stream: usize) {
        let mut streams = lock(&self.0);
        if streams.last() != Some(&stream) && !streams.contains(&stream) {
            streams.push(stream);
        }
    }

    /// Those that were noted so far.
    pub(crate) fn streams(&self) -> Vec<usize> {
        lock(&self.0).clone()
    }
}

/// An allocation, as long as it is not freed.
pub(crate) struct Entry {
    pub(crate) at: usize,
    /// Whether something on this PE still uses it.
    pub(crate) alive: Weak<dyn Any + Send + Sync>,
    pub(crate) uses: Arc<Uses>,
    /// Recorded once the allocation was found to be unused; `None` before.
    pub(crate) events: Option<Vec<usize>>,
}

impl Entry {
    pub(crate) fn is_used(&self) -> bool {
        self.alive.strong_count() > 0
    }
}

/// The live allocations of a world, in their order: the same on all PEs. The lock is held through collective
/// calls, so it is never waited for with the GIL, which these calls may need.
#[derive(Default)]
pub(crate) struct Allocations(Mutex<Vec<Entry>>);

impl Allocations {
    pub(crate) fn entries(&self) -> MutexGuard<'_, Vec<Entry>> {
        lock(&self.0)
    }

    /// Whether no array is left. An allocation that is being dropped does not count.
    pub(crate) fn exports_nothing(&self) -> bool {
        match self.0.try_lock() {
            Ok(entries) => !entries.iter().any(Entry::is_used),
            Err(TryLockError::Poisoned(entries)) => !entries.into_inner().iter().any(Entry::is_used),
            // A call is inside that did not leave in time.
            Err(TryLockError::WouldBlock) => false,
        }
    }

    /// How many nobody uses on this PE.
    pub(crate) fn unused(&self) -> usize {
        self.entries().iter().filter(|entry| !entry.is_used()).count()
    }
}

/// The values behind such locks are whole after a panic.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
