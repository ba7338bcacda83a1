//! User memory that becomes symmetric.
//!
//! Page-aligned private memory of the user is moved into a memfd that is mapped in its place: same address,
//! same contents, but shareable. The same pages appear a second time in the PE's part of the window, at an
//! offset that all PEs share: that *alias* is the symmetric address, so translation costs kernels and the
//! fast path nothing.
//!
//! The program's own data and bss may be registered, too: that is how `compat/openshmem` makes variables
//! symmetric. A bss may be large and empty, so pages that nobody has touched are not copied, and take no
//! memory on the other side.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;

use crate::error::{err, Error, Result};
use crate::memory::backing::BackingChunk;
use crate::os::{page_size, Memfd, Reservation};

/// Registered user memory; moved back into private memory on drop.
#[derive(Debug)]
pub(crate) struct Region {
    addr: usize,
    bytes: usize,
    chunk: BackingChunk,
}

/// What of a range has been touched, and so has to be copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Contents {
    /// Of a file: all of it.
    File,
    /// Anonymous: what is in memory, or swapped out.
    Anonymous,
}

/// A range must be ordinary private memory, readable and writable: its parts, of one kind each. The file of
/// `program` may be mapped there, in the way that data of a program is.
fn ordinary(addr: usize, bytes: usize, maps: &str, program: &str) -> Result<Vec<(usize, usize, Contents)>> {
    let mut parts = Vec::new();
    let mut at = addr;
    for line in maps.lines() {
        let mut words = line.split_whitespace();
        let (Some(range), Some(perms)) = (words.next(), words.next()) else { continue };
        let parsed =
            range.split_once('-').map(|(s, e)| (usize::from_str_radix(s, 16), usize::from_str_radix(e, 16)));
        let Some((Ok(start), Ok(end))) = parsed else { continue };
        if end <= at || start >= addr + bytes {
            continue;
        }
        // Behind offset, device and inode; a path may have spaces in it.
        let name = line.splitn(6, ' ').nth(5).unwrap_or("").trim_start();
        let contents = if name.is_empty() || name == "[heap]" || name.starts_with("[anon") {
            Contents::Anonymous
        } else if name == program {
            Contents::File
        } else {
            break;
        };
        if start > at || !perms.starts_with("rw-p") {
            break;
        }
        let end = end.min(addr + bytes);
        parts.push((at, end - at, contents));
        at = end;
        if at >= addr + bytes {
            return Ok(parts);
        }
    }
    Err(err!(
        INVALID_ARGUMENT,
        "cannot register {bytes} bytes at {addr:#x}: at {at:#x} there is no private anonymous memory (register memory of \
         mmap or aligned_alloc, not a stack, a file or another shared mapping)"
    ))
}

/// [`ordinary`] of this process.
fn check_ordinary(addr: usize, bytes: usize) -> Result<Vec<(usize, usize, Contents)>> {
    let maps = std::fs::read_to_string("/proc/self/maps").map_err(|e| err!(IO, "/proc/self/maps: {e}"))?;
    // What was deleted or renamed is still named alike in both.
    let program = std::fs::read_link("/proc/self/exe").unwrap_or_default();
    ordinary(addr, bytes, &maps, &program.to_string_lossy())
}

/// Calls `copy` for each run of pages of an anonymous part that was ever written; for all of it where the
/// kernel does not say.
fn touched(at: usize, bytes: usize, mut copy: impl FnMut(usize, usize)) {
    /// Bits of an entry of `/proc/self/pagemap`: in memory, or swapped out.
    const THERE: u64 = 1 << 63 | 1 << 62;
    const ENTRIES: usize = 8192;
    let page = page_size();
    let Ok(pagemap) = std::fs::File::open("/proc/self/pagemap") else { return copy(at, bytes) };
    let mut entries = vec![0u8; 8 * ENTRIES];
    let (mut from, end) = (at, at + bytes);
    while from < end {
        let pages = ((end - from) / page).min(ENTRIES);
        let entries = &mut entries[..8 * pages];
        if pagemap.read_exact_at(entries, (from / page * 8) as u64).is_err() {
            return copy(from, end - from);
        }
        let is_there =
            |entry: &[u8]| entry.try_into().is_ok_and(|entry| u64::from_ne_bytes(entry) & THERE != 0);
        let mut start = None;
        for (i, entry) in entries.chunks_exact(8).enumerate() {
            match (is_there(entry), start) {
                (true, None) => start = Some(i),
                (false, Some(first)) => {
                    copy(from + first * page, (i - first) * page);
                    start = None;
                }
                _ => {}
            }
        }
        if let Some(first) = start {
            copy(from + first * page, (pages - first) * page);
        }
        from += pages * page;
    }
}

impl Region {
    /// Whether `[addr, addr + bytes)` can be registered at all; nothing is changed.
    pub(crate) fn check(addr: usize, bytes: usize) -> Result<()> {
        let page = page_size();
        if addr == 0
            || bytes == 0
            || addr % page != 0
            || bytes % page != 0
            || addr.checked_add(bytes).is_none()
        {
            return Err(err!(
                INVALID_ARGUMENT,
                "cannot register {bytes} bytes at {addr:#x}: address and size must be multiples of the page size, {page}"
            ));
        }
        check_ordinary(addr, bytes).map(drop)
    }

    /// Moves the user's memory into a memfd at the same address.
    ///
    /// # Safety
    /// The range passed [`Region::check`], and nobody else touches it during the call.
    pub(crate) unsafe fn share(addr: usize, bytes: usize) -> Result<Region> {
        let parts = check_ordinary(addr, bytes)?;
        let fd: OwnedFd = Memfd::create("rushmem-region", bytes)?.into();
        let staging = Reservation::new(bytes)?;
        staging.map(0, bytes, fd.as_fd())?;
        let copy = |from: usize, bytes: usize| {
            // SAFETY: both ranges are mapped, as long, and disjoint: the staging mapping is new.
            unsafe {
                std::ptr::copy_nonoverlapping(
                    from as *const u8,
                    (staging.base() + from - addr) as *mut u8,
                    bytes,
                )
            }
        };
        for (at, bytes, contents) in parts {
            match contents {
                Contents::File => copy(at, bytes),
                Contents::Anonymous => touched(at, bytes, copy),
            }
        }
        // SAFETY: the range is mapped; the replacement swaps the user's pages for a shared mapping of the
        // copy, in one step.
        unsafe {
            let flags = libc::MAP_SHARED | libc::MAP_FIXED;
            let prot = libc::PROT_READ | libc::PROT_WRITE;
            if libc::mmap(addr as *mut _, bytes, prot, flags, fd.as_raw_fd(), 0) == libc::MAP_FAILED {
                return Err(Error::os(format_args!("sharing {bytes} bytes at {addr:#x}")));
            }
        }
        Ok(Region { addr, bytes, chunk: BackingChunk::host(fd) })
    }

    /// The memory behind it.
    pub(crate) fn chunk(&self) -> &BackingChunk {
        &self.chunk
    }
}

/// Calls `copy` for each part of a memfd that holds anything; for all of it where the kernel does not say.
fn each_extent(fd: i32, bytes: usize, mut copy: impl FnMut(usize, usize)) {
    let mut at = 0;
    while at < bytes {
        // SAFETY: only looks for a place in a file; nobody reads or writes this one by its position.
        let data = unsafe { libc::lseek(fd, at as i64, libc::SEEK_DATA) };
        if data < 0 {
            if std::io::Error::last_os_error().raw_os_error() != Some(libc::ENXIO) {
                copy(at, bytes - at);
            }
            return;
        }
        // SAFETY: only looks for the end of that part.
        let hole = unsafe { libc::lseek(fd, data, libc::SEEK_HOLE) };
        let start = data as usize;
        let end = if hole < 0 { bytes } else { (hole as usize).min(bytes) };
        copy(start, end.saturating_sub(start));
        at = end;
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the new mapping is as long as the region; moving it over the region replaces the shared
        // pages by the copy in one step. Where memory is short the region stays shared, which its owner
        // cannot tell apart.
        unsafe {
            let copy = libc::mmap(std::ptr::null_mut(), self.bytes, prot, flags, -1, 0);
            if copy == libc::MAP_FAILED {
                log::warn!("unregistering {:#x}: no memory for a private copy; it stays shared", self.addr);
                return;
            }
            each_extent(self.chunk.fd().as_raw_fd(), self.bytes, |offset, bytes| {
                let from = (self.addr + offset) as *const u8;
                std::ptr::copy_nonoverlapping(from, copy.cast::<u8>().add(offset), bytes);
            });
            let user = self.addr as *mut libc::c_void;
            // UCX (1.13, say) replaces `mremap` in this process by a function that drops its fifth argument,
            // where to (openucx/ucx issue 8820): so the system call itself. What it has cached of these pages
            // it must forget, and this call, which shared pages do not mind, it looks at.
            libc::madvise(user, self.bytes, libc::MADV_DONTNEED);
            let how = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
            if libc::syscall(libc::SYS_mremap, copy, self.bytes, self.bytes, how, user) == -1 {
                let error = std::io::Error::last_os_error();
                log::warn!("unregistering {:#x}: no private copy ({error}); it stays shared", self.addr);
                libc::munmap(copy, self.bytes);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_keeps_its_place_and_contents() {
        let page = page_size();
        let bytes = 3 * page;
        // SAFETY: a fresh mapping used by this test alone.
        unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let p = libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
            let (addr, user) = (p as usize, std::slice::from_raw_parts_mut(p.cast::<u8>(), bytes));
            user.iter_mut().enumerate().for_each(|(i, b)| *b = (i * 7) as u8);
            Region::check(addr, bytes).unwrap();
            let region = Region::share(addr, bytes).unwrap();
            assert!(user.iter().enumerate().all(|(i, b)| *b == (i * 7) as u8));
            assert!(Region::check(addr, bytes).is_err(), "shared memory cannot be registered again");
            let view = Reservation::new(bytes).unwrap();
            view.map(0, bytes, region.chunk().fd().as_fd()).unwrap();
            (view.base() as *mut u8).add(page).write_volatile(99);
            assert_eq!(
                (p as *mut u8).add(page).read_volatile(),
                99,
                "alias and user address are the same bytes"
            );
            drop(region);
            assert_eq!((p as *mut u8).add(page).read_volatile(), 99, "the last contents stay");
            (view.base() as *mut u8).add(page).write_volatile(1);
            assert_eq!((p as *mut u8).add(page).read_volatile(), 99, "private again");
            libc::munmap(p, bytes);
        }
        assert!(Region::check(page, page).is_err(), "nothing is mapped there");
        assert!(Region::check(page + 1, page).is_err());
    }
}
