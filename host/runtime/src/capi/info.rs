//! The C ABI of what there is to know without a world: versions, the library's path, error texts.

use rushmem_abi::c::*;
use std::ffi::{CStr, CString};
use std::os::raw::{c_char, c_void};
use std::sync::OnceLock;

/// Version of this ABI (`RUSHMEM_ABI_VERSION`) that the loaded library speaks. A client built against another
/// one must not use the library.
#[no_mangle]
pub extern "C" fn rushmem_abi_version() -> u32 {
    RUSHMEM_ABI_VERSION
}

/// The library's release, for example `0.1.0`. Never null; lives for ever.
#[no_mangle]
pub extern "C" fn rushmem_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}

/// The path of the file that this library was loaded from, so that two parts of a process can see whether
/// they use the same one. Never null, empty where unknown; lives for ever.
#[no_mangle]
pub extern "C" fn rushmem_library_path() -> *const c_char {
    static PATH: OnceLock<CString> = OnceLock::new();
    PATH.get_or_init(|| find_library().unwrap_or_default()).as_ptr()
}

fn find_library() -> Option<CString> {
    use std::os::unix::ffi::OsStrExt;
    // SAFETY: an all-zero Dl_info is a valid value of that plain C struct.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    let inside = rushmem_library_path as *const c_void;
    // SAFETY: dladdr takes any address and fills `info`.
    let found = unsafe { libc::dladdr(inside, &raw mut info) };
    if found == 0 || info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: on success dli_fname is a C string that lives as long as the library is loaded.
    let name = unsafe { CStr::from_ptr(info.dli_fname) };
    let path = std::path::Path::new(std::ffi::OsStr::from_bytes(name.to_bytes()));
    match path.canonicalize() {
        Ok(absolute) => CString::new(absolute.as_os_str().as_bytes()).ok(),
        Err(_) => Some(name.to_owned()),
    }
}

/// The text of this thread's last error: who, where, what to do next. Never null, empty before the first
/// error; holds until this thread's next failing call.
#[no_mangle]
pub extern "C" fn rushmem_last_error() -> *const c_char {
    if crate::fork::is_child() {
        return crate::fork::text();
    }
    crate::error::last()
}

/// The name of a return code, for example `RUSHMEM_ERR_BAD_PE`. Never null; `RUSHMEM_ERR_?` for an unknown
/// code; lives for ever.
#[no_mangle]
pub extern "C" fn rushmem_error_name(code: i32) -> *const c_char {
    let name = match code {
        RUSHMEM_OK => c"RUSHMEM_OK",
        RUSHMEM_ERR_INVALID_ARGUMENT => c"RUSHMEM_ERR_INVALID_ARGUMENT",
        RUSHMEM_ERR_BAD_PE => c"RUSHMEM_ERR_BAD_PE",
        RUSHMEM_ERR_BAD_ADDRESS => c"RUSHMEM_ERR_BAD_ADDRESS",
        RUSHMEM_ERR_OUT_OF_BOUNDS => c"RUSHMEM_ERR_OUT_OF_BOUNDS",
        RUSHMEM_ERR_MISMATCH => c"RUSHMEM_ERR_MISMATCH",
        RUSHMEM_ERR_HEAP_EXHAUSTED => c"RUSHMEM_ERR_HEAP_EXHAUSTED",
        RUSHMEM_ERR_TIMEOUT => c"RUSHMEM_ERR_TIMEOUT",
        RUSHMEM_ERR_PEER_DEAD => c"RUSHMEM_ERR_PEER_DEAD",
        RUSHMEM_ERR_BOOTSTRAP => c"RUSHMEM_ERR_BOOTSTRAP",
        RUSHMEM_ERR_ENVIRONMENT => c"RUSHMEM_ERR_ENVIRONMENT",
        RUSHMEM_ERR_VERSION => c"RUSHMEM_ERR_VERSION",
        RUSHMEM_ERR_COMPILE => c"RUSHMEM_ERR_COMPILE",
        RUSHMEM_ERR_LAUNCH => c"RUSHMEM_ERR_LAUNCH",
        RUSHMEM_ERR_UNSUPPORTED => c"RUSHMEM_ERR_UNSUPPORTED",
        RUSHMEM_ERR_BUSY => c"RUSHMEM_ERR_BUSY",
        RUSHMEM_ERR_IO => c"RUSHMEM_ERR_IO",
        RUSHMEM_ERR_BAD_HANDLE => c"RUSHMEM_ERR_BAD_HANDLE",
        RUSHMEM_ERR_INTERNAL => c"RUSHMEM_ERR_INTERNAL",
        RUSHMEM_ERR_FORKED => c"RUSHMEM_ERR_FORKED",
        RUSHMEM_ERR_INTERRUPTED => c"RUSHMEM_ERR_INTERRUPTED",
        _ => c"RUSHMEM_ERR_?",
    };
    name.as_ptr()
}
