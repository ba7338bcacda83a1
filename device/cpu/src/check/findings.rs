//! The texts about faults that were found in this process, and what its end makes of them.

use std::ffi::c_void;
use std::io::Write;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::Mutex;

use crate::lock::lock;

/// The exit status of a process that found something, if it would have been 0.
pub const EXIT_STATUS: i32 = 66;

static REPORTS: Mutex<Vec<String>> = Mutex::new(Vec::new());
static COUNT: AtomicU32 = AtomicU32::new(0);

/// The texts since the last call, of this process; its end says nothing of them any more.
pub fn take() -> Vec<String> {
    COUNT.store(0, Ordering::Relaxed);
    std::mem::take(&mut lock(&REPORTS))
}

/// Says that something was found, and keeps the text.
pub(super) fn say(text: String) {
    COUNT.fetch_add(1, Ordering::Relaxed);
    log::error!("{text}");
    // For sweeps over all tests, most of which keep what their PEs say to themselves.
    if let Some(path) = std::env::var_os("RUSHMEM_TEST_CHECK_LOG") {
        let program: Vec<String> = std::env::args().collect();
        let line = format!("{}\n{text}\n", program.join(" "));
        let file = std::fs::File::options().append(true).create(true).open(path);
        if let Err(error) = file.and_then(|mut file| file.write_all(line.as_bytes())) {
            log::warn!("RUSHMEM_TEST_CHECK_LOG: {error}");
        }
    }
    lock(&REPORTS).push(text);
}

/// Says at the end of the process how much was found, and makes its exit status an error.
pub(super) fn at_exit() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    extern "C" {
        fn on_exit(call: extern "C" fn(i32, *mut c_void), argument: *mut c_void) -> i32;
    }
    extern "C" fn ended(status: i32, _: *mut c_void) {
        let count = COUNT.load(Ordering::Relaxed);
        if count == 0 {
            return;
        }
        let s = if count == 1 { "" } else { "s" };
        eprintln!("rushmem: {count} fault{s} found by RUSHMEM_CHECK in this process");
        if status == 0 {
            // SAFETY: flushes what C programs have written, and ends the process, which is ending.
            unsafe {
                libc::fflush(std::ptr::null_mut());
                libc::_exit(EXIT_STATUS);
            }
        }
    }
    // SAFETY: the function stays: the library that has it is not unloaded before the process ends.
    ONCE.call_once(|| unsafe {
        on_exit(ended, std::ptr::null_mut());
    });
}
