//! Threads that rushmem starts inside a user's program.

/// Keeps the program's signals away from this thread: its handlers must run where the program expects them.
pub(crate) fn block_signals() {
    if let Err(e) = nix::sys::signal::SigSet::all().thread_block() {
        log::debug!("rushmem uid: signals are not blocked in a helper thread: {e}");
    }
}
