//! The operating system's memory, owned: a sealed `memfd`, and an address-space reservation into which memfds
//! are mapped. Everything unmaps and closes on drop, so nothing is left behind.

use std::ffi::CString;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use crate::error::{err, Error, Result};

/// Anonymous shared memory behind a descriptor, sealed at its size so that no holder can shrink it under
/// another.
#[derive(Debug)]
pub(crate) struct Memfd(OwnedFd);

impl Memfd {
    /// `bytes` of zeroed memory; `name` shows in `/proc/*/maps`.
    pub(crate) fn create(name: &str, bytes: usize) -> Result<Memfd> {
        let c = CString::new(name).expect("names are ours and hold no zero");
        // SAFETY: plain system calls; the descriptor is new and owned here at once.
        unsafe {
            let fd = libc::memfd_create(c.as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING);
            if fd < 0 {
                return Err(Error::os("memfd_create"));
            }
            let fd = OwnedFd::from_raw_fd(fd);
            if libc::ftruncate(fd.as_raw_fd(), bytes as libc::off_t) != 0 {
                return Err(Error::os(format_args!("sizing {name} to {bytes} bytes")));
            }
            let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
            if libc::fcntl(fd.as_raw_fd(), libc::F_ADD_SEALS, seals) != 0 {
                return Err(Error::os(format_args!("sealing {name}")));
            }
            Ok(Memfd(fd))
        }
    }
}

impl From<Memfd> for OwnedFd {
    fn from(m: Memfd) -> OwnedFd {
        m.0
    }
}

/// A range of addresses that belongs to us, inaccessible except where something was mapped into it.
#[derive(Debug)]
pub(crate) struct Reservation {
    base: usize,
    bytes: usize,
}

/// How many bytes of addresses this process may have, where that is limited (`ulimit -v`).
pub(crate) fn address_limit() -> Option<u64> {
    let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: writes the limit; where it cannot, there is none.
    unsafe { libc::getrlimit(libc::RLIMIT_AS, &mut limit) };
    (limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
}

/// Reservations start at a multiple of this: a huge page's size.
pub(crate) const RESERVE_ALIGN: usize = 2 << 20;

impl Reservation {
    /// Reserves `bytes` of address space; takes no memory.
    pub(crate) fn new(bytes: usize) -> Result<Reservation> {
        let raw = bytes + RESERVE_ALIGN;
        // SAFETY: a fresh inaccessible mapping wherever the kernel likes.
        let p = unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
            libc::mmap(std::ptr::null_mut(), raw, libc::PROT_NONE, flags, -1, 0)
        };
        if p == libc::MAP_FAILED {
            return Err(Error::os(format_args!(
                "reserving {bytes} bytes of address space (lower RUSHMEM_HEAP_MAX, or raise `ulimit -v`)"
            )));
        }
        let start = p as usize;
        let base = start.next_multiple_of(RESERVE_ALIGN);
        // SAFETY: both pieces are parts of the mapping above that nobody uses.
        unsafe {
            if base > start {
                libc::munmap(p, base - start);
            }
            let end = base + bytes;
            if start + raw > end {
                libc::munmap(end as *mut _, start + raw - end);
            }
        }
        Ok(Reservation { base, bytes })
    }

    /// First address.
    pub(crate) fn base(&self) -> usize {
        self.base
    }

    fn check(&self, offset: usize, bytes: usize) {
        assert!(
            offset.checked_add(bytes).is_some_and(|end| end <= self.bytes),
            "a mapping stays inside its reservation"
        );
    }

    /// Maps `fd`, whose size is `bytes`, shared at `offset`.
    pub(crate) fn map(&self, offset: usize, bytes: usize, fd: BorrowedFd<'_>) -> Result<()> {
        self.check(offset, bytes);
        // A mapping past the end of its file would be a SIGBUS at the first touch.
        let size = fd.try_clone_to_owned().and_then(|fd| std::fs::File::from(fd).metadata()).map(|m| m.len());
        match size {
            Ok(size) if size >= bytes as u64 => {}
            Ok(size) => {
                return Err(err!(MISMATCH, "a PE offered {size} bytes of memory where {bytes} were agreed"))
            }
            Err(e) => return Err(Error::io("looking at a PE's memory descriptor", &e)),
        }
        // SAFETY: the range lies inside our own reservation, where nothing but our mappings can be.
        let p = unsafe {
            libc::mmap(
                (self.base + offset) as *mut _,
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_FIXED,
                fd.as_raw_fd(),
                0,
            )
        };
        if p == libc::MAP_FAILED {
            return Err(Error::os(format_args!("mapping {bytes} bytes of a PE's memory")));
        }
        Ok(())
    }

    /// Makes the range inaccessible again and gives its memory back.
    pub(crate) fn unmap(&self, offset: usize, bytes: usize) {
        self.check(offset, bytes);
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
        // SAFETY: the range was checked to be this reservation's, which nothing else maps; the caller has no
        // references into it.
        unsafe { libc::mmap((self.base + offset) as *mut _, bytes, libc::PROT_NONE, flags, -1, 0) };
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        // SAFETY: the range made in `new`.
        unsafe { libc::munmap(self.base as *mut _, self.bytes) };
    }
}

/// The system's page size.
pub(crate) fn page_size() -> usize {
    // SAFETY: no arguments that could be wrong.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) as usize }
}
