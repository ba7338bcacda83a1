//! Worlds that are alive when their process exits. A program that calls `exit()` or returns from `main`
//! without finalising leaves its jobs here, while it can still send the other PEs the reason.
//!
//! Nothing is torn down: other threads may be inside calls, and the process ends anyway. But the worlds'
//! threads stop: the exit handlers of libraries that they call come next. A child of `fork` that exits says
//! nothing, because its worlds are its parent's.

use std::sync::{Mutex, Once, PoisonError};

use crate::world::World;
use rushmem_abi::c::rushmem_world_t;

/// What the other PEs read.
const WHY: &str = "its process ended (exit, or the end of main) without rushmem_finalize";

/// Handles of live worlds, by address, and the process that made each.
static LIVE: Mutex<Vec<(usize, u32)>> = Mutex::new(Vec::new());

/// A world begins.
pub(crate) fn note(handle: *mut rushmem_world_t) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: a function without arguments that lives as long as this library, which is never unloaded.
        if unsafe { libc::atexit(leave_all) } != 0 {
            log::debug!("no handler of exit could be registered: the others learn of an early exit without its reason");
        }
    });
    LIVE.lock().unwrap_or_else(PoisonError::into_inner).push((handle as usize, std::process::id()));
}

/// A world ends.
pub(crate) fn forget(handle: *mut rushmem_world_t) {
    LIVE.lock().unwrap_or_else(PoisonError::into_inner).retain(|(live, _)| *live != handle as usize);
}

/// The world that began last; null where there is none.
pub(crate) fn last() -> *mut rushmem_world_t {
    let live = LIVE.lock().unwrap_or_else(PoisonError::into_inner);
    live.last().map_or(std::ptr::null_mut(), |(handle, _)| *handle as *mut rushmem_world_t)
}

extern "C" fn leave_all() {
    // A panic in a handler of exit would abort the process; there is nobody left to tell.
    let _ = std::panic::catch_unwind(|| {
        let live = LIVE.try_lock().map(|mut live| std::mem::take(&mut *live)).unwrap_or_default();
        for (handle, _) in live.into_iter().filter(|(_, process)| *process == std::process::id()) {
            if let Some(world) = super::empty(handle as *mut rushmem_world_t) {
                let world = Box::leak(world);
                leave(world);
                world.halt();
            }
        }
    });
}

fn leave(world: &World) {
    // A PE that knows of a death leaves because of that death.
    if world.n_pes() > 1 && world.health().check_all_here().is_ok() {
        log::warn!("{}: {WHY}: it leaves the job", world.health().who());
        world.leave(WHY);
    }
}
