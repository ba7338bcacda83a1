//! Symmetric allocations, and when those that nobody uses any more are freed.
//!
//! Free is collective, and garbage collectors of different PEs do not run in step. So an array that is
//! collected gives nothing back by itself: it is only noted as unused here. The next `world.empty()` (or
//! `world.collect()`), which is collective anyway, begins with one reduction over the PEs: a bit for each
//! live allocation, in the order of allocation, which is the same on all PEs. What all of them have dropped,
//! they free, in that order. What one still holds waits for a later call.
//!
//! A bit is set only once the streams have passed what they were given for that array (an event on each), so
//! that no kernel meets the memory's next owner. Nobody waits for that: the allocation waits.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};

use rushmem_abi::c::*;

use crate::core::Core;
use crate::error::Failure;
use crate::table::Table;

/// The streams on which an allocation was used.
#[derive(Default)]
pub(crate) struct Uses(Mutex<Vec<usize>>);

impl Uses {
    /// A stream was given work on the allocation.
    pub(crate) fn note(&self, stream: usize) {
        let mut streams = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if streams.last() != Some(&stream) && !streams.contains(&stream) {
            streams.push(stream);
        }
    }
}

/// A piece of symmetric memory; arrays, their views and what other libraries see of them hold it.
pub(crate) struct Allocation {
    pub(crate) core: Arc<Core>,
    pub(crate) at: usize,
    pub(crate) bytes: usize,
    pub(crate) uses: Arc<Uses>,
    /// By `array.free()`.
    pub(crate) is_freed: AtomicBool,
    /// A library may have taken its address without this package's knowing for how long.
    pub(crate) is_shown: AtomicBool,
}

impl Drop for Allocation {
    fn drop(&mut self) {
        self.core.allocation_dropped();
    }
}

struct Entry {
    at: usize,
    alive: Weak<Allocation>,
    uses: Arc<Uses>,
    /// Recorded once the allocation was found to be unused; `None` before.
    events: Option<Vec<usize>>,
}

/// The live allocations of a world, in their order: the same on all PEs. The lock is held through collective
/// calls, so it is never waited for with the GIL, which these calls may need.
#[derive(Default)]
pub(crate) struct Ledger(Mutex<Vec<Entry>>);

impl Ledger {
    fn entries(&self) -> MutexGuard<'_, Vec<Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether no array is left. An allocation that is being dropped does not count.
    pub(crate) fn exports_nothing(&self) -> bool {
        match self.0.try_lock() {
            Ok(entries) => entries.iter().all(|entry| entry.alive.strong_count() == 0),
            Err(TryLockError::Poisoned(entries)) => {
                entries.into_inner().iter().all(|entry| entry.alive.strong_count() == 0)
            }
            // A call is inside that did not leave in time.
            Err(TryLockError::WouldBlock) => false,
        }
    }

    /// How many nobody uses on this PE.
    pub(crate) fn unused(&self) -> usize {
        self.entries().iter().filter(|entry| entry.alive.strong_count() == 0).count()
    }

    /// Symmetric memory that is not of the heap: nothing here frees it.
    pub(crate) fn unlisted(&self, core: &Arc<Core>, at: usize, bytes: usize) -> Arc<Allocation> {
        Arc::new(Allocation {
            core: Arc::clone(core),
            at,
            bytes,
            uses: Arc::default(),
            is_freed: AtomicBool::new(false),
            is_shown: AtomicBool::new(false),
        })
    }

    /// Collective: zeroed memory.
    pub(crate) fn allocate(&self, core: &Arc<Core>, bytes: usize) -> Result<Arc<Allocation>, Failure> {
        let mut at = std::ptr::null_mut();
        // At 256 bytes, as CUDA's allocators and vector loads like it.
        // SAFETY: a live handle, and a place for the answer.
        Failure::check(core.table, unsafe { (core.table.alloc)(core.raw(), bytes, 256, &mut at) })?;
        let at = at as usize;
        let allocation = self.unlisted(core, at, bytes);
        // No bytes, no memory: nothing to free, on any PE.
        if bytes > 0 {
            let (alive, uses) = (Arc::downgrade(&allocation), Arc::clone(&allocation.uses));
            self.entries().push(Entry { at, alive, uses, events: None });
        }
        Ok(allocation)
    }

    /// The live allocation that an address is in.
    pub(crate) fn find(&self, at: usize) -> Option<Arc<Allocation>> {
        let entries = self.entries();
        let near = entries.iter().filter(|entry| entry.at <= at).max_by_key(|entry| entry.at)?;
        near.alive.upgrade().filter(|allocation| at < allocation.at + allocation.bytes)
    }

    /// Collective: frees what no PE uses any more; how many these were.
    pub(crate) fn collect(&self, core: &Core) -> Result<usize, Failure> {
        let mut entries = self.entries();
        if entries.is_empty() {
            return Ok(0);
        }
        let mut unused = vec![0_u64; entries.len().div_ceil(64)];
        for (i, entry) in entries.iter_mut().enumerate() {
            if entry.alive.strong_count() == 0 && entry.has_passed(core) {
                unused[i / 64] |= 1 << (i % 64);
            }
        }
        let table = core.table;
        let mut team = std::ptr::null_mut();
        // SAFETY: a live handle, and a place for the answer.
        Failure::check(table, unsafe { (table.team_world)(core.raw(), &mut team) })?;
        let (words, n) = (unused.as_mut_ptr().cast(), unused.len());
        // SAFETY: the team lives as long as the world; the array is both source and destination.
        Failure::check(table, unsafe {
            (table.team_reduce)(team, words, words.cast_const(), n, RUSHMEM_UINT64, RUSHMEM_AND)
        })?;
        let (mut i, mut freed, mut outcome) = (0, 0, Ok(()));
        entries.retain(|entry| {
            let is_unused = unused[i / 64] >> (i % 64) & 1 == 1;
            i += 1;
            if !is_unused || outcome.is_err() {
                return true;
            }
            outcome = free(core, entry.at);
            freed += 1;
            outcome.is_err()
        });
        outcome.map(|()| freed)
    }

    /// Collective: frees one allocation, which is refused on all PEs where one of them has other views of it,
    /// or a stream that still uses it.
    pub(crate) fn free(&self, allocation: &Arc<Allocation>) -> Result<(), Failure> {
        if allocation.bytes == 0 {
            return Ok(());
        }
        let core = &allocation.core;
        let mut entries = self.entries();
        let Some(i) = entries.iter().position(|entry| entry.at == allocation.at) else {
            return Err(Failure(RUSHMEM_ERR_BAD_ADDRESS, "this array was freed before".into()));
        };
        let mine: u8 = if Arc::strong_count(allocation) > 1 || allocation.is_shown.load(Ordering::Relaxed) {
            1
        } else {
            u8::from(!entries[i].has_passed(core)) * 2
        };
        let table = core.table;
        let mut team = std::ptr::null_mut();
        // SAFETY: a live handle, and a place for the answer.
        Failure::check(table, unsafe { (table.team_world)(core.raw(), &mut team) })?;
        let mut all = vec![0_u8; core.view.n_pes as usize];
        // SAFETY: the team lives as long as the world; a byte for each PE.
        Failure::check(table, unsafe {
            (table.team_fcollect)(team, all.as_mut_ptr().cast(), std::ptr::from_ref(&mine).cast(), 1)
        })?;
        let against = |why: u8| {
            let pes: Vec<_> = (0..all.len()).filter(|pe| all[*pe] == why).map(|pe| pe.to_string()).collect();
            (!pes.is_empty()).then(|| pes.join(", "))
        };
        if let Some(pes) = against(1) {
            let text = format!(
                "free: PE {pes} still has views of this array (slices, numpy or torch arrays that share its memory): delete \
                 them first, or leave the array to the garbage collector and world.collect()"
            );
            return Err(Failure(RUSHMEM_ERR_BUSY, text));
        }
        if let Some(pes) = against(2) {
            let text = format!("free: PE {pes} has a stream that still uses this array: synchronize first");
            return Err(Failure(RUSHMEM_ERR_BUSY, text));
        }
        free(core, allocation.at)?;
        allocation.is_freed.store(true, Ordering::Relaxed);
        entries.remove(i);
        Ok(())
    }
}

fn free(core: &Core, at: usize) -> Result<(), Failure> {
    // SAFETY: an allocation of this world's that nobody uses any more.
    Failure::check(core.table, unsafe { (core.table.free)(core.raw(), at as *mut _) })
}

impl Entry {
    /// Whether the streams have passed what they were given for it. Waits for nothing.
    fn has_passed(&mut self, core: &Core) -> bool {
        let table: &Table = core.table;
        let streams = self.uses.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if self.events.is_none() {
            let mut events = Vec::new();
            for stream in streams {
                match core.has_ended(stream) {
                    Some(true) => continue,
                    Some(false) => {
                        forget(table, &events);
                        return false;
                    }
                    None => {}
                }
                let mut event = std::ptr::null_mut();
                // SAFETY: a live handle; a stream that the world knew, or one that is refused.
                match unsafe { (table.event_record)(core.raw(), stream as *mut _, &mut event) } {
                    RUSHMEM_OK => events.push(event as usize),
                    // Never a stream of this world's.
                    RUSHMEM_ERR_BAD_HANDLE => {}
                    // Being captured, say: later.
                    _ => {
                        forget(table, &events);
                        return false;
                    }
                }
            }
            self.events = Some(events);
        }
        let events = self.events.get_or_insert_default();
        events.retain(|event| {
            let mut done = 0;
            // SAFETY: an event that was not freed, and a place for the answer. An error means that the work
            // has ended, too.
            let code = unsafe { (table.event_test)(*event as *mut _, &mut done) };
            if code == RUSHMEM_OK && done == 0 {
                return true;
            }
            forget(table, &[*event]);
            false
        });
        events.is_empty()
    }
}

/// Gives events back.
fn forget(table: &Table, events: &[usize]) {
    for event in events {
        // SAFETY: an event of `event_record`'s, given back once.
        unsafe { (table.event_free)(*event as *mut _) };
    }
}
