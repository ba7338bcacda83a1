//! What the texts about faults (`rushmem_device_cpu::crash`) learn of this process's worlds: who they are,
//! and what their memory holds. The texts are made in a copy of the process at the moment of the fault, where
//! a lock may be held for ever: so nothing here waits for one.

use std::sync::{Arc, Mutex, PoisonError};

use rushmem_device_cpu::crash::{install, know, Knowledge, Ranges};

use crate::memory::map::MemoryMap;

struct KnownWorld {
    who: String,
    memory: MemoryMap,
}

static WORLDS: Mutex<Vec<Arc<KnownWorld>>> = Mutex::new(Vec::new());
/// For signal handlers.
static WINDOWS: Ranges = Ranges::new();

/// A world is known as long as this lives.
pub(crate) struct CrashTexts(Arc<KnownWorld>);

impl CrashTexts {
    /// The world of `who`, with that memory. The first installs the handlers.
    pub(crate) fn about(who: &str, memory: MemoryMap) -> CrashTexts {
        install();
        know(Knowledge { covers, memory: describe, who: first });
        WINDOWS.add(&memory.range());
        let known = Arc::new(KnownWorld { who: who.to_owned(), memory });
        WORLDS.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&known));
        CrashTexts(known)
    }
}

impl Drop for CrashTexts {
    fn drop(&mut self) {
        WINDOWS.remove(&self.0.memory.range());
        WORLDS.lock().unwrap_or_else(PoisonError::into_inner).retain(|known| !Arc::ptr_eq(known, &self.0));
    }
}

/// Whether a world's window has the address. Called in signal handlers.
fn covers(address: usize) -> bool {
    WINDOWS.has(address)
}

/// `None` too where the list is locked.
fn describe(address: usize) -> Option<String> {
    let worlds = WORLDS.try_lock().ok()?;
    let inside = worlds.iter().find(|known| known.memory.range().contains(&address));
    inside.into_iter().chain(worlds.iter()).find_map(|known| known.memory.describe(address))
}

fn first() -> Option<String> {
    let worlds = WORLDS.try_lock().ok()?;
    let first = worlds.first()?;
    Some(match worlds.len() {
        1 => first.who.clone(),
        n => format!("{}, one of the {n} PEs of this process", first.who),
    })
}
