//! UCX is loaded beside threads that map and unmap memory: libc's functions stay as they are.
//!
//! One test, because a process has one UCX.

use std::ffi::{c_void, CStr};
use std::sync::atomic::{AtomicBool, Ordering};
use ucx_sys::Ucp;

/// What UCX hooks by default.
const HOOKED: [&CStr; 7] = [c"mmap", c"munmap", c"mremap", c"madvise", c"shmat", c"shmdt", c"brk"];

/// The first instructions of libc's functions of these names.
fn code() -> Vec<[u8; 16]> {
    let read = |name: &CStr| {
        // SAFETY: looks a name up; libc has every one of them, and 16 bytes of code at each.
        unsafe {
            let function = libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()).cast::<[u8; 16]>();
            assert!(!function.is_null(), "{name:?}");
            function.read_unaligned()
        }
    };
    HOOKED.iter().map(|name| read(name)).collect()
}

fn map_and_unmap() {
    // SAFETY: fresh memory of this call, which nobody else knows.
    unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let at = libc::mmap(std::ptr::null_mut(), 4096, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
        assert_ne!(at, libc::MAP_FAILED);
        at.cast::<u8>().write(1);
        assert_eq!(libc::madvise(at, 4096, libc::MADV_DONTNEED), 0);
        assert_eq!(libc::munmap(at.cast::<c_void>(), 4096), 0);
    }
}

#[test]
fn threads_unmap_memory_while_ucx_is_loaded() {
    const NAME: &str = "threads_unmap_memory_while_ucx_is_loaded";
    let set = |name: &str| std::env::var_os(name).is_some();
    if set("UCX_MEM_EVENTS") || set("UCX_MEM_MMAP_HOOK_MODE") {
        eprintln!("SKIP {NAME}: the environment decides about UCX's hooks");
        return;
    }
    if std::fs::read_dir("/sys/class/infiniband").is_ok_and(|mut all| all.next().is_some()) {
        eprintln!("SKIP {NAME}: with an RDMA device UCX keeps its hooks");
        return;
    }
    let (before, stop) = (code(), AtomicBool::new(false));
    let environment: Vec<_> = std::env::vars_os().collect();
    let loaded = std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    map_and_unmap();
                    // A thread that ends gives its stack back.
                    std::thread::spawn(map_and_unmap).join().expect("a thread");
                    assert_eq!(std::env::var_os("NOT_SET_ANYWHERE"), None);
                }
            });
        }
        let loaded = Ucp::load();
        stop.store(true, Ordering::Relaxed);
        loaded
    });
    match loaded {
        Ok(ucp) => println!("UCX {} in {}", ucp.version(), ucp.path().display()),
        Err(error) if set("RUSHMEM_UCX_LIB") => panic!("{error}"),
        Err(error) => return eprintln!("SKIP {NAME}: {error}"),
    }
    assert!(before == code(), "UCX has rewritten one of {HOOKED:?}");
    assert_eq!(environment, std::env::vars_os().collect::<Vec<_>>(), "the environment is what it was");
}
