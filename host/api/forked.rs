//! Children of fork, as far as the fast path is concerned: it makes no call into the runtime, which would
//! refuse them (`Forked`).
//!
//! A flag of this crate's own, set in the child by `pthread_atfork`, so that asking is one load of a constant
//! address. Where it is set nobody is near, and the operation goes to the runtime for its error.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::Once;

static FORKED: AtomicBool = AtomicBool::new(false);
/// Worlds of this process. A child of a process without any may have its own.
static WORLDS: AtomicUsize = AtomicUsize::new(0);

/// Whether this process is a child of one that was in a world.
#[inline(always)]
pub(crate) fn is_child() -> bool {
    FORKED.load(Ordering::Relaxed)
}

/// Counts a world, from before it begins until after it has ended.
pub(crate) struct Member(());

impl Member {
    pub(crate) fn new() -> Member {
        static ONCE: Once = Once::new();
        ONCE.call_once(|| {
            // SAFETY: the handler is a plain function that stays as long as the process: worlds come with
            // this code.
            unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        });
        WORLDS.fetch_add(1, Ordering::AcqRel);
        Member(())
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        WORLDS.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Runs in the child, before `fork` returns there.
extern "C" fn in_child() {
    FORKED.store(WORLDS.load(Ordering::Relaxed) != 0, Ordering::Relaxed);
}
