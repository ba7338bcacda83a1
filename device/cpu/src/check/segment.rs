//! The memory of the checker, which all PEs of a host map: accesses and clocks by the place that they are of,
//! chains, lines of sources. One PE makes it, as a memfd; the others open it by its path in `/proc`. It is
//! sparse, and grows as places are touched.
//!
//! Everything in it is found by offsets. Tables are hashed with open addresses, whose keys are claimed by
//! compare-and-swap and stay. What changes is behind small spin locks.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use rustix::fs::{memfd_create, MemfdFlags};

use super::clock::MAX_CHAINS;

/// Bytes of memory that one page of the checker is about.
pub(crate) const PAGE: usize = 512;
/// Bytes of memory whose accesses are kept together.
pub(crate) const GRANULE: usize = 8;
/// Granules of a page.
pub(crate) const GRANULES: usize = PAGE / GRANULE;
/// Accesses kept of each granule.
pub(crate) const CELLS: usize = 4;

const MAGIC: u64 = u64::from_le_bytes(*b"rushchk1");
const PAGES: usize = 1 << 22;
const WORDS: usize = 1 << 20;
const SITES: usize = 1 << 18;
const REPORTED: usize = 1 << 14;
const SITE_TEXT: usize = 232;
const CHAIN_TEXT: usize = 56;

/// One access.
#[repr(C)]
#[derive(Default)]
pub(crate) struct Cell {
    /// The strand, the bytes of the granule, and flags.
    pub(crate) who: AtomicU64,
    /// The strand's clock, and the site.
    pub(crate) when: AtomicU64,
}

/// What is known of [`PAGE`] bytes.
#[repr(C)]
pub(crate) struct Page {
    lock: AtomicU32,
    pad: AtomicU32,
    /// A bit for each byte that was written.
    pub(crate) written: [AtomicU64; PAGE / 64],
    pub(crate) granules: [[Cell; CELLS]; GRANULES],
}

/// A word that was accessed atomically: the clock that a reader takes up.
#[repr(C)]
pub(crate) struct Word {
    key: AtomicU64,
    lock: AtomicU32,
    /// Grows with each change of the clock.
    pub(crate) version: AtomicU32,
    /// Where its entries are, two words each, and how many there are and fit.
    entries: AtomicU64,
    counts: AtomicU64,
}

#[repr(C)]
struct PageEntry {
    key: AtomicU64,
    page: AtomicU64,
}

#[repr(C)]
struct RawSite {
    /// Length of the text; `READY` once it is there.
    state: AtomicU32,
    grid: [AtomicU32; 2],
    block: [AtomicU32; 2],
    pad: AtomicU32,
    text: [std::sync::atomic::AtomicU8; SITE_TEXT],
}

const READY: u32 = 1 << 31;

#[repr(C)]
struct RawChain {
    pe: AtomicU32,
    len: AtomicU32,
    text: [std::sync::atomic::AtomicU8; CHAIN_TEXT],
}

#[repr(C)]
struct Header {
    magic: AtomicU64,
    next: AtomicU64,
    chains: AtomicU32,
    sites: AtomicU32,
    full: AtomicU32,
    pad: AtomicU32,
}

#[repr(C)]
struct SegmentTables {
    header: Header,
    reported: [AtomicU64; REPORTED],
    chains: [RawChain; MAX_CHAINS as usize + 1],
    sites: [RawSite; SITES],
    words: [Word; WORDS],
    pages: [PageEntry; PAGES],
}

/// A mapping of it.
pub(crate) struct Segment {
    base: NonNull<u8>,
    bytes: usize,
    file: OwnedFd,
}

// SAFETY: all of it is accessed by atomics, or behind locks in it.
unsafe impl Send for Segment {}
// SAFETY: all of it is accessed by atomics, or behind locks in it.
unsafe impl Sync for Segment {}

impl Drop for Segment {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's, and nothing borrowed from it outlives it.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

impl Segment {
    /// A fresh one.
    pub(crate) fn create() -> io::Result<Segment> {
        let fd = memfd_create("rushmem checker", MemfdFlags::CLOEXEC)?;
        // Room for the shadow of a few hundred GiB, or what the address space of the process allows.
        let segment = [1u64 << 40, 1 << 36, 1 << 33].into_iter().find_map(|bytes| {
            File::from(fd.try_clone().ok()?).set_len(bytes).ok()?;
            Segment::map(fd.try_clone().ok()?, bytes as usize).ok()
        });
        let segment = segment.ok_or_else(|| io::Error::other("no address space for the checker"))?;
        let header = &segment.tables().header;
        header.next.store((size_of::<SegmentTables>() as u64).next_multiple_of(4096), Ordering::Relaxed);
        header.sites.store(1, Ordering::Relaxed);
        header.magic.store(MAGIC, Ordering::Release);
        Ok(segment)
    }

    /// The one that a process of the host has at this path, in `/proc`.
    pub(crate) fn open(path: &Path) -> io::Result<Segment> {
        let file = File::options().read(true).write(true).open(path)?;
        let bytes = file.metadata()?.len() as usize;
        if bytes < size_of::<SegmentTables>() {
            return Err(io::Error::other("not a checker's memory"));
        }
        let segment = Segment::map(file.into(), bytes)?;
        if segment.tables().header.magic.load(Ordering::Acquire) != MAGIC {
            return Err(io::Error::other("not this version's checker"));
        }
        Ok(segment)
    }

    /// The process and its descriptor, by which others of this user open it in `/proc`.
    pub(crate) fn place(&self) -> (u32, u32) {
        (std::process::id(), self.file.as_raw_fd() as u32)
    }

    fn map(file: OwnedFd, bytes: usize) -> io::Result<Segment> {
        // SAFETY: a fresh mapping where the kernel finds room.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_NORESERVE,
                file.as_fd().as_raw_fd(),
                0,
            )
        };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // Shadow is dense once touched, and core files must not hold it.
        // SAFETY: advice about the mapping made above.
        unsafe { libc::madvise(at, bytes, libc::MADV_DONTDUMP) };
        let base = NonNull::new(at.cast()).ok_or_else(|| io::Error::other("mapped at null"))?;
        Ok(Segment { base, bytes, file })
    }

    fn tables(&self) -> &SegmentTables {
        // SAFETY: the mapping is longer than the tables, aligned to a page, zero or what this code wrote, and
        // all of it is atomics.
        unsafe { self.base.cast::<SegmentTables>().as_ref() }
    }

    /// Memory for `bytes`; zero. `None` once it is full.
    fn allocate(&self, bytes: usize) -> Option<u64> {
        let bytes = (bytes as u64).next_multiple_of(64);
        let header = &self.tables().header;
        let at = header.next.fetch_add(bytes, Ordering::Relaxed);
        if at + bytes <= self.bytes as u64 {
            return Some(at);
        }
        if header.full.swap(1, Ordering::Relaxed) == 0 {
            log::warn!("the checker's memory is full: further memory is not checked");
        }
        None
    }

    fn u64s(&self, at: u64, count: usize) -> &[AtomicU64] {
        // SAFETY: offsets come of `allocate`, for as many words, and stay valid with the mapping.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr().add(at as usize).cast(), count) }
    }

    /// The page of a key, made if it is not there yet.
    pub(crate) fn page(&self, key: u64) -> Option<&Page> {
        let table = &self.tables().pages;
        let entry = find(table.len(), key, |at| &table[at].key).map(|at| &table[at])?;
        let mut page = entry.page.load(Ordering::Acquire);
        if page == 0 {
            let made = self.allocate(size_of::<Page>())?;
            let set = entry.page.compare_exchange(0, made, Ordering::AcqRel, Ordering::Acquire);
            page = set.map_or_else(|found| found, |_| made);
        }
        // SAFETY: allocated for a page, zero or what this code wrote; all atomics.
        Some(unsafe { self.base.add(page as usize).cast::<Page>().as_ref() })
    }

    /// The page of a key, if anything was noted there.
    pub(crate) fn page_if_any(&self, key: u64) -> Option<&Page> {
        let table = &self.tables().pages;
        let entry = look(table.len(), key, |at| &table[at].key).map(|at| &table[at])?;
        let page = entry.page.load(Ordering::Acquire);
        // SAFETY: it was allocated for a page; zero or what this code wrote; all atomics.
        (page != 0).then(|| unsafe { self.base.add(page as usize).cast::<Page>().as_ref() })
    }

    /// The word of a key, made if it is not there yet.
    pub(crate) fn word(&self, key: u64) -> Option<&Word> {
        let table = &self.tables().words;
        find(table.len(), key, |at| &table[at].key).map(|at| &table[at])
    }

    /// The word of a key, if anything was noted there.
    pub(crate) fn word_if_any(&self, key: u64) -> Option<&Word> {
        let table = &self.tables().words;
        look(table.len(), key, |at| &table[at].key).map(|at| &table[at])
    }

    /// What a word's clock has; under its lock.
    pub(crate) fn entries(&self, word: &Word) -> Vec<(u64, u32)> {
        let count = (word.counts.load(Ordering::Relaxed) & 0xffff_ffff) as usize;
        let raw = self.u64s(word.entries.load(Ordering::Relaxed), 2 * count);
        raw.chunks_exact(2)
            .map(|pair| (pair[0].load(Ordering::Relaxed), pair[1].load(Ordering::Relaxed) as u32))
            .collect()
    }

    /// Gives a word a clock; under its lock.
    pub(crate) fn set_entries(&self, word: &Word, entries: impl ExactSizeIterator<Item = (u64, u32)>) {
        let count = entries.len();
        let room = (word.counts.load(Ordering::Relaxed) >> 32) as usize;
        if count > room {
            let wanted = (2 * count).max(4);
            let Some(at) = self.allocate(16 * wanted) else { return };
            word.entries.store(at, Ordering::Relaxed);
            word.counts.store((wanted as u64) << 32, Ordering::Relaxed);
        }
        let raw = self.u64s(word.entries.load(Ordering::Relaxed), 2 * count);
        for (pair, (strand, clock)) in raw.chunks_exact(2).zip(entries) {
            pair[0].store(strand, Ordering::Relaxed);
            pair[1].store(u64::from(clock), Ordering::Relaxed);
        }
        let room = word.counts.load(Ordering::Relaxed) >> 32 << 32;
        word.counts.store(room | count as u64, Ordering::Relaxed);
        word.version.fetch_add(1, Ordering::Relaxed);
    }

    /// A new chain of a PE's; -1 for none.
    pub(crate) fn new_chain(&self, pe: i32, text: &str) -> u32 {
        let number = self.tables().header.chains.fetch_add(1, Ordering::Relaxed).min(MAX_CHAINS);
        let raw = &self.tables().chains[number as usize];
        raw.pe.store(pe as u32, Ordering::Relaxed);
        let bytes = cut(text, CHAIN_TEXT);
        raw.text.iter().zip(bytes).for_each(|(to, from)| to.store(*from, Ordering::Relaxed));
        raw.len.store(bytes.len() as u32, Ordering::Release);
        number
    }

    /// The PE of a chain, and what it is called.
    pub(crate) fn chain(&self, number: u32) -> (i32, String) {
        let raw = &self.tables().chains[number.min(MAX_CHAINS) as usize];
        let len = raw.len.load(Ordering::Acquire) as usize;
        let bytes: Vec<u8> =
            raw.text[..len.min(CHAIN_TEXT)].iter().map(|b| b.load(Ordering::Relaxed)).collect();
        (raw.pe.load(Ordering::Relaxed) as i32, String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Whose chain that is.
    pub(crate) fn pe_of(&self, number: u32) -> i32 {
        self.tables().chains[number.min(MAX_CHAINS) as usize].pe.load(Ordering::Relaxed) as i32
    }

    /// A place in a source of a launch of that shape, whose text comes later; 0 where there is no room.
    pub(crate) fn new_site(&self, grid: [u32; 2], block: [u32; 2]) -> u32 {
        let number = self.tables().header.sites.fetch_add(1, Ordering::Relaxed);
        let Some(raw) = self.tables().sites.get(number as usize) else { return 0 };
        for (to, from) in raw.grid.iter().chain(&raw.block).zip(grid.iter().chain(&block)) {
            to.store(*from, Ordering::Relaxed);
        }
        number
    }

    /// Says what a site is called.
    pub(crate) fn name_site(&self, number: u32, text: &str) {
        let Some(raw) = self.tables().sites.get(number as usize).filter(|_| number != 0) else { return };
        let bytes = cut(text, SITE_TEXT);
        raw.text.iter().zip(bytes).for_each(|(to, from)| to.store(*from, Ordering::Relaxed));
        raw.state.store(READY | bytes.len() as u32, Ordering::Release);
    }

    /// What a site is called, if that is known by now, and the launch's shape.
    pub(crate) fn site(&self, number: u32) -> (Option<String>, [u32; 2], [u32; 2]) {
        let Some(raw) = self.tables().sites.get(number as usize) else { return (None, [1; 2], [1; 2]) };
        let state = raw.state.load(Ordering::Acquire);
        let text = (state & READY != 0).then(|| {
            let len = (state & !READY) as usize;
            let bytes: Vec<u8> =
                raw.text[..len.min(SITE_TEXT)].iter().map(|b| b.load(Ordering::Relaxed)).collect();
            String::from_utf8_lossy(&bytes).into_owned()
        });
        let of = |pair: &[AtomicU32; 2]| [0, 1].map(|i| pair[i].load(Ordering::Relaxed).max(1));
        (text, of(&raw.grid), of(&raw.block))
    }

    /// Whether that was not reported before.
    pub(crate) fn is_new(&self, what: u64) -> bool {
        let (table, what) = (&self.tables().reported, what.max(1));
        for step in 0..table.len() {
            let at = &table[(what as usize).wrapping_add(step) & (table.len() - 1)];
            match at.compare_exchange(0, what, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return true,
                Err(found) if found == what => return false,
                Err(_) => {}
            }
        }
        false
    }
}

/// Held while it lives.
pub(crate) struct Held<'a>(&'a AtomicU32);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.store(0, Ordering::Release);
    }
}

/// Takes a lock that is held for a few instructions at a time, unless its holder has died.
fn hold(lock: &AtomicU32) -> Held<'_> {
    for round in 0..1_000_000 {
        if lock.compare_exchange_weak(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok() {
            break;
        }
        if round % 64 == 63 {
            std::thread::yield_now();
        } else {
            std::hint::spin_loop();
        }
    }
    Held(lock)
}

impl Page {
    /// Forgets all accesses: the memory is used for something else from now on.
    pub(crate) fn forget(&self) {
        let _held = self.hold();
        for cell in self.granules.iter().flatten() {
            cell.who.store(0, Ordering::Relaxed);
        }
    }

    pub(crate) fn hold(&self) -> Held<'_> {
        hold(&self.lock)
    }
}

impl Word {
    pub(crate) fn hold(&self) -> Held<'_> {
        hold(&self.lock)
    }
}

fn cut(text: &str, room: usize) -> &[u8] {
    let mut end = text.len().min(room);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text.as_bytes()[..end]
}

fn first(len: usize, key: u64) -> usize {
    let mixed = key.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ mixed >> 32) as usize & (len - 1)
}

/// How many places are looked at for a key.
const PROBES: usize = 512;

/// The place of a key (never `u64::MAX`), claimed if it is not there. `len` is a power of two.
fn find<'a>(len: usize, key: u64, at: impl Fn(usize) -> &'a AtomicU64) -> Option<usize> {
    let (start, key) = (first(len, key), key + 1);
    (0..PROBES).map(|step| (start + step) & (len - 1)).find(|&place| {
        let there = at(place);
        let found = there.load(Ordering::Acquire);
        found == key
            || found == 0
                && there
                    .compare_exchange(0, key, Ordering::AcqRel, Ordering::Acquire)
                    .map_or_else(|now| now == key, |_| true)
    })
}

/// The place of a key that was claimed.
fn look<'a>(len: usize, key: u64, at: impl Fn(usize) -> &'a AtomicU64) -> Option<usize> {
    let (start, key) = (first(len, key), key + 1);
    let mut places = (0..PROBES).map(|step| (start + step) & (len - 1));
    let place = places
        .find(|&place| matches!(at(place).load(Ordering::Acquire), found if found == key || found == 0))?;
    (at(place).load(Ordering::Acquire) == key).then_some(place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_mappings_are_one_memory() {
        let a = Segment::create().unwrap();
        let b = Segment::open(format!("/proc/self/fd/{}", a.place().1).as_ref()).unwrap();
        let word = a.word(77).unwrap();
        {
            let _held = word.hold();
            a.set_entries(word, [(5, 6), (7, 8), (9, 10)].into_iter());
        }
        let there = b.word_if_any(77).unwrap();
        let _held = there.hold();
        assert_eq!(b.entries(there), [(5, 6), (7, 8), (9, 10)]);
        assert!(b.word_if_any(78).is_none());
        b.page(3).unwrap().written[2].store(9, Ordering::Relaxed);
        assert_eq!(a.page_if_any(3).unwrap().written[2].load(Ordering::Relaxed), 9);
        let chain = a.new_chain(4, "stream");
        assert_eq!((b.chain(chain), b.pe_of(chain)), ((4, "stream".into()), 4));
        let site = b.new_site([2, 3], [4, 5]);
        assert_eq!(a.site(site), (None, [2, 3], [4, 5]));
        b.name_site(site, "k.cu:1");
        assert_eq!(a.site(site).0.as_deref(), Some("k.cu:1"));
        assert!(a.is_new(99) && !b.is_new(99) && b.is_new(100));
    }
}
