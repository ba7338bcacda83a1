//! Keeps UCX from rewriting libc's functions while other threads run.
//!
//! UCX learns of memory that is unmapped by writing jumps over the first instructions of `mmap`, `munmap`,
//! `madvise`, `brk` and others, as soon as it is loaded (`UCX_MEM_MMAP_HOOK_MODE=bistro`, its default). A
//! thread that is inside one of them at that moment goes on in the middle of another instruction, and the
//! process dies by SIGSEGV: a thread that ends is enough, because it calls `madvise`. The newest UCX still
//! has that race (openucx/ucx pull requests 5855 and 11795). A PE starts and ends threads while it starts.
//!
//! UCX needs these hooks only for its cache of memory that a network card has registered. So they are off
//! (`UCX_MEM_EVENTS=n`) on a machine without an RDMA device, unless the environment says something of them.
//! On a machine with one they stay as UCX has them: without the cache every transfer would register anew.

use std::ffi::{c_char, CStr};
use std::path::Path;
use std::sync::atomic::{AtomicPtr, Ordering};

/// What turns the hooks off.
const OFF: &CStr = c"UCX_MEM_EVENTS=n";
/// The variables by which a user decides about them.
const DECIDED: [&str; 2] = ["UCX_MEM_EVENTS", "UCX_MEM_MMAP_HOOK_MODE"];
/// Where Linux lists RDMA devices.
const DEVICES: &str = "/sys/class/infiniband";

extern "C" {
    static mut environ: *mut *mut c_char;
}

/// Loads UCX by `load`, with its hooks off where nothing needs them. UCX reads its variables while it is
/// loaded, and the environment afterwards is what it was.
pub(crate) fn without<T>(load: impl FnOnce() -> T) -> T {
    let decided = DECIDED.iter().any(|name| std::env::var_os(name).is_some());
    if decided || has_devices(Path::new(DEVICES)) {
        return load();
    }
    let added = Added::new();
    let loaded = load();
    added.take_back();
    loaded
}

/// Whether a folder has an entry.
fn has_devices(folder: &Path) -> bool {
    std::fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_some())
}

/// An environment with [`OFF`] in front. It is a new array that is never freed, so that another thread in
/// `getenv` reads the old one or the new one to its end; `setenv` would free the array under it.
struct Added {
    before: *mut *mut c_char,
    after: &'static mut [*mut c_char],
}

impl Added {
    fn new() -> Added {
        let before = current().load(Ordering::Acquire);
        let mut entries = vec![OFF.as_ptr().cast_mut()];
        if !before.is_null() {
            // SAFETY: `environ` is an array of strings that ends with null, for `getenv` in any thread.
            entries.extend((0..).map(|i| unsafe { *before.add(i) }).take_while(|entry| !entry.is_null()));
        }
        entries.push(std::ptr::null_mut());
        let after = Box::leak(entries.into_boxed_slice());
        current().store(after.as_mut_ptr(), Ordering::Release);
        Added { before, after }
    }

    /// Puts the array back that was there, unless another thread has changed the environment since.
    fn take_back(self) {
        let same = |(i, &entry): (usize, &*mut c_char)| {
            // SAFETY: an array of strings that ends with null, as `after` does: both are equally long up to
            // the first difference.
            !self.before.is_null() && unsafe { *self.before.add(i) } == entry
        };
        if self.after[1..].iter().enumerate().all(same) {
            let ours = self.after.as_mut_ptr();
            // Another array is there already where a thread has called `setenv`: then ours is its ancestor.
            let _ = current().compare_exchange(ours, self.before, Ordering::AcqRel, Ordering::Acquire);
        }
    }
}

/// The C library's own pointer to the environment.
fn current() -> &'static AtomicPtr<*mut c_char> {
    // SAFETY: a pointer that lives as long as the process, aligned as one; libc itself reads it whole.
    unsafe { AtomicPtr::from_ptr(&raw mut environ) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_rdma_device_is_an_entry_of_a_folder() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        assert!(!has_devices(&folder.path().join("none")));
        assert!(!has_devices(folder.path()));
        std::fs::create_dir(folder.path().join("mlx5_0")).expect("an entry");
        assert!(has_devices(folder.path()));
    }
}
