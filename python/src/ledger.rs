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

use std::any::Any;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use rushmem_abi::c::*;

use crate::core::Core;
use crate::error::Failure;
use crate::keep::{Entry, Uses};

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
    /// Of registered memory.
    pub(crate) own: Option<Own>,
}

/// Registered memory where its owner has it: it stays there when `Allocation::at`, by which PEs reach it,
/// ends with the registration or the world.
pub(crate) struct Own {
    pub(crate) at: usize,
    pub(crate) _holder: Arc<dyn Any + Send + Sync>,
}

impl Drop for Allocation {
    fn drop(&mut self) {
        self.core.allocation_dropped();
    }
}

/// Symmetric memory that nothing here frees; `own` where it is not of the heap.
pub(crate) fn unlisted(core: &Arc<Core>, at: usize, bytes: usize, own: Option<Own>) -> Arc<Allocation> {
    Arc::new(Allocation {
        core: Arc::clone(core),
        at,
        bytes,
        uses: Arc::default(),
        is_freed: AtomicBool::new(false),
        is_shown: AtomicBool::new(false),
        own,
    })
}

/// Collective: zeroed memory.
pub(crate) fn allocate(core: &Arc<Core>, bytes: usize) -> Result<Arc<Allocation>, Failure> {
    let mut at = std::ptr::null_mut();
    // At 256 bytes, as CUDA's allocators and vector loads like it.
    // SAFETY: a live handle, and a place for the answer.
    Failure::check(core.table, unsafe { (core.table.alloc)(core.raw(), bytes, 256, &mut at) })?;
    let at = at as usize;
    let allocation = unlisted(core, at, bytes, None);
    // No bytes, no memory: nothing to free, on any PE.
    if bytes > 0 {
        let uses = Arc::clone(&allocation.uses);
        let alive: Weak<Allocation> = Arc::downgrade(&allocation);
        core.keep.allocations.entries().push(Entry { at, alive, uses, events: None });
    }
    Ok(allocation)
}

/// The live allocation that an address is in.
pub(crate) fn find(core: &Core, at: usize) -> Option<Arc<Allocation>> {
    let entries = core.keep.allocations.entries();
    let near = entries.iter().filter(|entry| entry.at <= at).max_by_key(|entry| entry.at)?;
    let near = near.alive.upgrade()?.downcast::<Allocation>().ok()?;
    Some(near).filter(|allocation| at < allocation.at + allocation.bytes)
}

/// Collective: frees what no PE uses any more; how many these were.
pub(crate) fn collect(core: &Core) -> Result<usize, Failure> {
    let mut entries = core.keep.allocations.entries();
    if entries.is_empty() {
        return Ok(0);
    }
    let mut unused = vec![0_u64; entries.len().div_ceil(64)];
    for (i, entry) in entries.iter_mut().enumerate() {
        if !entry.is_used() && has_passed(entry, core) {
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
        outcome = give_back(core, entry.at);
        freed += 1;
        outcome.is_err()
    });
    outcome.map(|()| freed)
}

/// Collective: frees one allocation, which is refused on all PEs where one of them has other views of it,
/// or a stream that still uses it.
pub(crate) fn free(allocation: &Arc<Allocation>) -> Result<(), Failure> {
    if allocation.bytes == 0 {
        return Ok(());
    }
    let core = &allocation.core;
    let mut entries = core.keep.allocations.entries();
    let Some(i) = entries.iter().position(|entry| entry.at == allocation.at) else {
        return Err(Failure(RUSHMEM_ERR_BAD_ADDRESS, "this array was freed before".into()));
    };
    let mine: u8 = if Arc::strong_count(allocation) > 1 || allocation.is_shown.load(Ordering::Relaxed) {
        1
    } else {
        u8::from(!has_passed(&mut entries[i], core)) * 2
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
    give_back(core, allocation.at)?;
    allocation.is_freed.store(true, Ordering::Relaxed);
    entries.remove(i);
    Ok(())
}

fn give_back(core: &Core, at: usize) -> Result<(), Failure> {
    // SAFETY: an allocation of this world's that nobody uses any more.
    Failure::check(core.table, unsafe { (core.table.free)(core.raw(), at as *mut _) })
}

/// Whether the streams have passed what they were given for an unused allocation. Waits for nothing.
fn has_passed(entry: &mut Entry, core: &Core) -> bool {
    if entry.events.is_none() {
        let mut events = Vec::new();
        for stream in entry.uses.streams() {
            let event = match core.has_ended(stream) {
                Some(true) => continue,
                Some(false) => None,
                None => match core.record_event(stream) {
                    Ok(event) => Some(event),
                    // Never a stream of this world's.
                    Err(RUSHMEM_ERR_BAD_HANDLE) => continue,
                    // Being captured, say: later.
                    Err(_) => None,
                },
            };
            let Some(event) = event else {
                events.iter().for_each(|event| core.free_event(*event));
                return false;
            };
            events.push(event);
        }
        entry.events = Some(events);
    }
    let events = entry.events.get_or_insert_default();
    events.retain(|event| {
        let has_passed = core.has_passed(*event);
        if has_passed {
            core.free_event(*event);
        }
        !has_passed
    });
    events.is_empty()
}
