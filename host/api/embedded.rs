//! The runtime that a program carries: `librushmem_host.so` as bytes, loaded from memory when no file of it
//! is found.
//!
//! It stays a shared library with its soname, so that a C library which is loaded later and needs
//! `librushmem_host.so` is bound to it by the dynamic loader: one process, one runtime. The bytes go into a
//! memfd, which has no name in any file system: nothing to leave behind, to find stale, or for another user
//! to have put there, and no folder that has to be writable. (Symmetric heaps are memfds, too, so where these
//! do not work nothing does.)

use std::io::Write;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd};
use std::path::PathBuf;

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

/// Empty where the crate was only checked, and without the feature.
#[cfg(feature = "embed")]
static RUNTIME: &[u8] = rushmem_embed::runtime!();
#[cfg(not(feature = "embed"))]
static RUNTIME: &[u8] = &[];

/// Since Linux 6.3 a memfd for code needs this flag where the administrator has made data the default.
const MFD_EXEC: libc::c_uint = 0x10;

pub(crate) fn is_there() -> bool {
    !RUNTIME.is_empty()
}

/// Loads the carried runtime; `None` if there is none. Also says by which path it was loaded.
pub(crate) fn open() -> Option<Result<(Library, PathBuf), String>> {
    is_there().then(|| {
        let failed = |what: &str, why: &dyn std::fmt::Display| {
            format!("the librushmem_host.so that this program carries: {what}: {why}")
        };
        let file = memfd().map_err(|e| failed("memfd_create", &e))?;
        (&file).write_all(RUNTIME).map_err(|e| failed("writing it to memory", &e))?;
        // The descriptor stays open, and with it its number: the loader takes a second library of this path
        // for the same one.
        let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
        // SAFETY: loading runs the library's initialisers; it is the one that this program was built with.
        match unsafe { Library::open(Some(&path), RTLD_NOW | RTLD_LOCAL) } {
            Ok(library) => {
                let _ = file.into_raw_fd();
                Ok((library, path))
            }
            Err(e) => Err(failed("loading it (are memfds executable here?)", &e)),
        }
    })
}

fn memfd() -> std::io::Result<std::fs::File> {
    let create = |flags| {
        // SAFETY: takes a C string and flags; what it returns is ours.
        let fd = unsafe { libc::memfd_create(c"librushmem_host.so".as_ptr(), flags) };
        if fd < 0 {
            return Err(std::io::Error::last_os_error());
        }
        // SAFETY: a descriptor that was just made and that nothing else owns.
        Ok(unsafe { std::fs::File::from_raw_fd(fd) })
    };
    create(libc::MFD_CLOEXEC | MFD_EXEC).or_else(|e| match e.raw_os_error() {
        // Older kernels do not know the flag, and ask for none.
        Some(libc::EINVAL) => create(libc::MFD_CLOEXEC),
        _ => Err(e),
    })
}
