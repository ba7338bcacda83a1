//! What a child of fork gets of a PE: an error from every call, and nothing else.
//!
//! `fork` copies one thread and all memory. The child has the heaps mapped and handles that look right, but
//! no thread that drives the network, locks that nobody will ever release, and a slot in the node's control
//! segment that is its parent's: its `barrier_all` would count as the PE's. So a world belongs to the process
//! that joined. Each entry of the C ABI asks [`is_child`] first (`capi::guard`), before any lock is taken,
//! any handle looked into or any text allocated.
//!
//! The answer comes from a page that the kernel clears in children (`MADV_WIPEONFORK`), so that `_Fork` and
//! plain `clone` are seen as well, and from a `pthread_atfork` handler where the kernel is older than 4.14.
//! `vfork` and `posix_spawn` share the parent's memory until they exec: they are no children in this sense. A
//! process that is forked while none of its worlds lives may make its own.

use std::ffi::c_char;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU8, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::error::{Error, Result};

/// A word that is 1 in the process that last began a world and 0 in the children of that process.
static OWNER: AtomicPtr<AtomicU32> = AtomicPtr::new(null_mut());
/// Worlds that live or are beginning. A child has its parent's number, as of the fork.
static MEMBERS: AtomicUsize = AtomicUsize::new(0);

/// Bytes of the child's text.
const TEXT: usize = 640;
/// The text of a child's errors, with a zero at its end: ready before any fork, because a child cannot
/// allocate one.
static TEXT_BYTES: [AtomicU8; TEXT] = [const { AtomicU8::new(0) }; TEXT];

/// Whether this process is a child of one that is in a job. Two loads.
#[inline(always)]
pub(crate) fn is_child() -> bool {
    let owner = OWNER.load(Ordering::Relaxed);
    // SAFETY: null, or a page that is mapped for ever.
    match unsafe { owner.as_ref() } {
        Some(word) if word.load(Ordering::Relaxed) == 0 => is_orphan(word),
        _ => false,
    }
}

#[cold]
fn is_orphan(word: &AtomicU32) -> bool {
    // The word once more: where the first look came before another thread's `Member::new`, the count may come
    // after it.
    MEMBERS.load(Ordering::SeqCst) != 0 && word.load(Ordering::SeqCst) == 0
}

/// Counts a world, from before its first socket until after its last.
#[derive(Debug)]
pub(crate) struct Member(());

impl Member {
    pub(crate) fn new() -> Result<Member> {
        let mut owner = OWNER.load(Ordering::Acquire);
        if owner.is_null() {
            prepare_text(&format!("process {}", std::process::id()));
            let made = page()?;
            // Of two threads that come at once one wins, and the other's page stays unused.
            owner = match OWNER.compare_exchange(null_mut(), made, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => made,
                Err(theirs) => theirs,
            };
        }
        // The word first: a thread that sees a world counted and no owner takes this process for a child. A
        // child that is made in between has no world, and nothing of this one.
        // SAFETY: mapped just now or before, for ever.
        unsafe { &*owner }.store(1, Ordering::SeqCst);
        MEMBERS.fetch_add(1, Ordering::SeqCst);
        Ok(Member(()))
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        MEMBERS.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A page for the word, and the handler that clears it on kernels that do not.
fn page() -> Result<*mut AtomicU32> {
    // SAFETY: a fresh private mapping of one page; advice that is not known is refused, harmlessly; the
    // handler is a plain function of a library that is never unloaded.
    unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let page = libc::mmap(null_mut(), 4096, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
        if page == libc::MAP_FAILED {
            return Err(Error::os("mapping a page"));
        }
        libc::madvise(page, 4096, libc::MADV_WIPEONFORK);
        libc::pthread_atfork(None, None, Some(disown));
        // A thread that finds the page finds an owner.
        let page = page.cast::<AtomicU32>();
        (*page).store(1, Ordering::Release);
        Ok(page)
    }
}

/// Runs in the child, before `fork` returns there.
extern "C" fn disown() {
    // SAFETY: null, or a page that is mapped for ever.
    if let Some(word) = unsafe { OWNER.load(Ordering::Relaxed).as_ref() } {
        word.store(0, Ordering::Relaxed);
    }
}

/// Prepares the text of errors in children of this process; `who` is `PE 2 (host gpu01, pid 4711)`.
pub(crate) fn prepare_text(who: &str) {
    static WRITING: Mutex<()> = Mutex::new(());
    let text = format!(
        "this process was forked from {who}, which alone belongs to the job: rushmem cannot be used in a child of fork. \
         Start workers by exec (posix_spawn, subprocess; Python's multiprocessing with the start method \"spawn\" or \
         \"forkserver\"), or fork before the first world begins"
    );
    let _one = WRITING.lock().unwrap_or_else(PoisonError::into_inner);
    // The last byte is never written: a child that is made meanwhile finds an end in any case.
    let bytes = text.bytes().filter(|b| *b != 0).chain(std::iter::repeat(0));
    for (to, byte) in TEXT_BYTES[..TEXT - 1].iter().zip(bytes) {
        to.store(byte, Ordering::Relaxed);
    }
}

/// That text.
pub(crate) fn text() -> *const c_char {
    TEXT_BYTES.as_ptr().cast()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Threads that begin worlds at the same time once took one another for children of fork.
    #[test]
    fn threads_that_begin_at_once_are_no_children() {
        for _ in 0..200 {
            std::thread::scope(|scope| {
                for _ in 0..8 {
                    scope.spawn(|| {
                        assert!(!is_child());
                        let member = Member::new().unwrap();
                        assert!(!is_child());
                        drop(member);
                        assert!(!is_child());
                    });
                }
            });
        }
    }
}
