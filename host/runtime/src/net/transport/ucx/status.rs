//! UCX's status codes as texts for people. UCX says "Out of memory" or "No resources" where `/dev/shm` is
//! full, from which it takes shared memory for each process, and "Too many open files" not at all: what the
//! machine is short of is looked up here.

use std::ffi::CString;
use std::mem::zeroed;

use ucx_sys::{ucs_status_t, Ucp, UCS_ERR_NO_MEMORY, UCS_ERR_NO_RESOURCE, UCS_ERR_SHMEM_SEGMENT, UCS_OK};

use crate::error::{err, Error, Result};

/// With less than this free, shared memory is what UCX has run out of: a process takes some 5 MB, and others
/// that failed for the same reason may have given theirs back by now.
const LOW: u64 = 64 << 20;

/// `Ok` for success, else an error about `what`.
pub(super) fn check(ucp: &Ucp, what: &str, status: ucs_status_t) -> Result<()> {
    if status == UCS_OK {
        return Ok(());
    }
    Err(err!(IO, "UCX: {what}: {}", text(ucp, status)))
}

/// UCX's text, and what to do about it.
pub(super) fn text(ucp: &Ucp, status: ucs_status_t) -> String {
    let said = ucp.status_text(status);
    if ![UCS_ERR_NO_MEMORY, UCS_ERR_NO_RESOURCE, UCS_ERR_SHMEM_SEGMENT].contains(&status) {
        return said;
    }
    // UCX's own setting.
    let folder = std::env::var("UCX_POSIX_DIR").unwrap_or_else(|_| "/dev/shm".into());
    match room(&folder) {
        Ok((free, all)) if free < LOW => format!(
            "{said}: {folder}, from which UCX takes its shared memory, has {} KiB of {} KiB \
             free; make it larger (mount -o remount,size=1g {folder}; docker run --shm-size=1g), remove what \
             fills it, or keep UCX from it (UCX_TLS=^posix)",
            free >> 10,
            all >> 10
        ),
        Ok(_) => said,
        Err(e) => format!("{said}: {}", e.message),
    }
}

/// Bytes that are free in the file system of `folder`, and all that there are.
fn room(folder: &str) -> Result<(u64, u64)> {
    let path = CString::new(folder).unwrap_or_default();
    // SAFETY: a plain old struct.
    let mut stat: libc::statvfs = unsafe { zeroed() };
    // SAFETY: a path and a place for the answer.
    if unsafe { libc::statvfs(path.as_ptr(), &mut stat) } != 0 {
        return Err(Error::os(format_args!("{folder}, from which UCX takes its shared memory")));
    }
    Ok((stat.f_bavail * stat.f_frsize, stat.f_blocks * stat.f_frsize))
}
