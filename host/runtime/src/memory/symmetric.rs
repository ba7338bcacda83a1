//! The symmetric memory of a world: collective allocation here, registration in [`registration`], on top of
//! [`crate::memory`].

mod registration;

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use crate::collective::Entered;
use crate::error::{err, Result};
use crate::gpu::stream::hardware_queues;
use crate::memory::alloc::{Allocator, GRANULE};
use crate::memory::backing::BackingChunk;
use crate::memory::live::Live;
use crate::memory::map::MemoryMap;
use crate::memory::remote::{Backed, RemoteMemory};
use crate::memory::segments::UnmappedRegions;
use crate::memory::window::Window;
use crate::node::control::Call;
use crate::node::links::Links;
use registration::Registration;
use rushmem_abi::c::rushmem_heap_info_t;

/// The heap starts with this much memory, and grows by doubling.
const FIRST_COMMIT: usize = 1 << 20;
/// Where the caller does not say.
const DEFAULT_ALIGN: usize = 64;
/// An offset that no allocation has.
const NOWHERE: u64 = u64::MAX;

/// Symmetric memory as one PE sees it.
pub(crate) struct Symmetric {
    // Before the memory that it has registered goes.
    far: OnceLock<Arc<dyn RemoteMemory>>,
    window: Arc<Window>,
    /// The PEs of this node, by the window's slots.
    members: Vec<usize>,
    /// Bytes at the heap's front that are rushmem's own.
    reserved: usize,
    live: Arc<Live>,
    /// Registered memory that is not in the window.
    segments: UnmappedRegions,
    books: Mutex<Books>,
    limit: Duration,
}

#[derive(Debug)]
struct Books {
    heap: Allocator,
    /// The heap's first bytes that have been handed out at some time, and so may be dirty.
    touched: usize,
    committed: usize,
    /// Offsets of registered regions, from the window's upper half on.
    region_space: Allocator,
    /// Registered memory, by the user's address.
    regions: BTreeMap<usize, Registration>,
    /// Descriptor exchanges so far, their number.
    exchanges: u64,
}

impl Symmetric {
    /// Symmetric memory in `window`, whose slots are those of PEs `members`, and whose first `reserved` bytes
    /// are rushmem's own (zeroed), with `least` bytes from the start. Collective.
    pub(crate) fn new(
        window: Window,
        members: &[usize],
        reserved: usize,
        least: u64,
        limit: Duration,
        call: &mut Entered<'_>,
        links: &Links,
    ) -> Result<Symmetric> {
        let mut region_space = Allocator::new(0);
        region_space.grow(window.half());
        let books = Books {
            heap: Allocator::new(reserved),
            touched: 0,
            committed: 0,
            region_space,
            regions: BTreeMap::new(),
            exchanges: 1,
        };
        let s = Symmetric {
            far: OnceLock::new(),
            window: Arc::new(window),
            members: members.to_vec(),
            reserved,
            live: Arc::new(Live::new()),
            segments: UnmappedRegions::default(),
            books: Mutex::new(books),
            limit,
        };
        let mut books = s.books();
        let least = usize::try_from(least).unwrap_or(usize::MAX).min(s.window.half());
        let first = reserved.max(FIRST_COMMIT).max(least).next_multiple_of(s.piece());
        s.commit(&mut books, first, call, links)?;
        drop(books);
        Ok(s)
    }

    /// From now on at least so many bytes lie between allocations: whole granules, the same on all PEs.
    pub(crate) fn keep_apart(&self, gap: usize) {
        self.books().heap.keep_apart(gap);
    }

    /// Collective over the job: PEs whose memory is not mapped reach this PE's by `far`, and it theirs, from
    /// now on.
    pub(crate) fn let_reach(&self, far: Arc<dyn RemoteMemory>) -> Result<()> {
        let committed = self.books().committed;
        // SAFETY: the heap's memory stays until the window goes, and that goes after `far`.
        unsafe { far.add(0, committed, self.base(), self.backed()) }?;
        let _ = self.far.set(far);
        Ok(())
    }

    /// What a piece of the heap is made of: each is one allocation.
    fn backed(&self) -> Backed {
        if self.window.backing().is_host() {
            Backed::Host
        } else {
            Backed::GpuPiece
        }
    }

    /// The offset in a PE's stride of `own`, an address that [`Symmetric::find`] gave.
    pub(crate) fn far_offset(&self, own: usize) -> u64 {
        let alias = if self.window.covers(own, 1) { None } else { self.segments.alias_of(own) };
        alias.unwrap_or_else(|| own.wrapping_sub(self.base())) as u64
    }

    /// The heap grows by multiples of this.
    fn piece(&self) -> usize {
        self.window.backing().granularity().max(GRANULE)
    }

    /// Where the PEs' memory is.
    pub(crate) fn window(&self) -> &Arc<Window> {
        &self.window
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What texts about faults need.
    pub(crate) fn map(&self) -> MemoryMap {
        MemoryMap {
            base: self.base() - self.window.me() * self.stride(),
            stride: self.stride(),
            half: self.window.half(),
            me: self.window.me(),
            members: self.members.clone(),
            reserved: self.reserved,
            is_gpus: !self.window.backing().is_host(),
            live: Arc::clone(&self.live),
        }
    }

    /// Bytes at the front of the heap that are the library's own.
    pub(crate) fn reserved(&self) -> usize {
        self.reserved
    }

    /// Address of this PE's heap.
    pub(crate) fn base(&self) -> usize {
        self.window.base()
    }

    /// Distance from one PE's heap to the next one's.
    pub(crate) fn stride(&self) -> usize {
        self.window.stride()
    }

    /// Where `[at, at + bytes)` is for this PE itself: the symmetric address, or that of a registered
    /// region's memory where nothing is mapped at its alias.
    #[inline]
    pub(crate) fn find(&self, at: usize, bytes: usize) -> Result<usize> {
        self.live.find(at, bytes)
    }

    /// [`Symmetric::find`] of an address that may be any: `None` where it is not symmetric.
    #[inline]
    pub(crate) fn find_any(&self, at: usize, bytes: usize) -> Result<Option<usize>> {
        self.live.find_any(at, bytes)
    }

    /// Bytes from `at`, a symmetric address, to the end of its allocation.
    pub(crate) fn rest(&self, at: usize) -> Option<usize> {
        self.live.rest(at)
    }

    /// Where slot `slot`'s copy of `at`, an address that [`Symmetric::find`] gave, is mapped, if that is not
    /// `stride` apart.
    pub(crate) fn elsewhere(&self, at: usize, slot: usize) -> Option<usize> {
        if self.window.covers(at, 1) {
            return None;
        }
        self.segments.copy_of(at, slot)
    }

    /// The offset from the heap's start of `at`, or of the alias of what is registered there, for texts.
    pub(crate) fn offset_of(&self, at: usize) -> Option<usize> {
        let found = self.find(at, 1).ok()?;
        self.segments.alias_of(found).or_else(|| found.checked_sub(self.base()))
    }

    pub(crate) fn info(&self) -> rushmem_heap_info_t {
        let b = self.books();
        rushmem_heap_info_t {
            used: b.heap.used() as u64,
            committed: b.committed as u64,
            max: self.window.half() as u64,
            allocations: b.heap.blocks() as u64,
        }
    }

    /// Collective: `bytes` of zeroed memory at the same offset on every PE; `None` for zero bytes.
    pub(crate) fn alloc(
        &self,
        bytes: usize,
        align: usize,
        call: &mut Entered<'_>,
        links: &Links,
    ) -> Result<Option<usize>> {
        call.round(Call::Alloc, [bytes as u64, align as u64, 0, 0])?;
        call.agree(0, "the size of a collective allocation")?;
        call.agree(1, "the alignment of a collective allocation")?;
        let align = if align == 0 { DEFAULT_ALIGN } else { align };
        let max = self.window.half();
        if !align.is_power_of_two() || align > max {
            return Err(err!(
                INVALID_ARGUMENT,
                "an alignment of {align} bytes: expected a power of two up to {max}"
            ));
        }
        if bytes == 0 {
            return Ok(None);
        }
        let mut books = self.books();
        // Alignment is of addresses, and the window's parts start at huge pages: larger ones cannot be
        // promised.
        if align > crate::os::RESERVE_ALIGN {
            return Err(err!(
                UNSUPPORTED,
                "an alignment of {align} bytes: at most {} here",
                crate::os::RESERVE_ALIGN
            ));
        }
        let exhausted = |books: &Books| {
            err!(
                HEAP_EXHAUSTED,
                "the symmetric heap cannot hold {bytes} bytes more: {} of at most {max} are in use (RUSHMEM_HEAP_MAX raises the limit)",
                books.heap.used()
            )
        };
        let size =
            books.heap.size_for(bytes, align).filter(|s| *s <= max).ok_or_else(|| exhausted(&books))?;
        if size > books.committed {
            let target = size.max(books.committed * 2).min(max).next_multiple_of(self.piece());
            self.commit(&mut books, target, call, links)?;
        }
        let at = books.heap.alloc(bytes, align).ok_or_else(|| exhausted(&books))?;
        let dirty = books.touched.saturating_sub(at).min(bytes);
        let outside = call.outside(|| self.backing_text(bytes));
        // SAFETY: committed memory of this PE's own heap that belongs to nobody before this call returns.
        let zeroed = unsafe { self.window.backing().zero(self.base() + at, dirty) };
        drop(outside);
        // Nobody may put into a PE that has yet to zero, and where one cannot there is no allocation.
        if let Err(e) = call.all_well(zeroed, "zeroing an allocation") {
            books.heap.free(at);
            return Err(e);
        }
        books.touched = books.touched.max(at + bytes);
        self.live.insert(self.base() + at, bytes, 0);
        Ok(Some(self.base() + at))
    }

    /// Collective: gives the allocation at `at` back; nothing happens for `None`.
    pub(crate) fn free(&self, at: Option<usize>, call: &mut Entered<'_>) -> Result<()> {
        let offset = match at {
            None => 0,
            // A region is known by an address outside, or by its alias in the window's upper half.
            Some(at) if self.live.starts_at(at) && self.in_heap(at) => (at - self.base()) as u64,
            Some(_) => NOWHERE,
        };
        call.round(Call::Free, [offset, 0, 0, 0])?;
        if let (NOWHERE, Some(at)) = (offset, at) {
            return Err(err!(
                BAD_ADDRESS,
                "cannot free {at:#x}: no live allocation of this PE starts there (freed already?)"
            ));
        }
        call.agree(0, "the offset of a collective free")?;
        if let Some(at) = at {
            self.live.remove(at);
            self.books().heap.free(offset as usize);
        }
        Ok(())
    }

    /// What a call that makes or clears memory waits for.
    fn backing_text(&self, bytes: usize) -> String {
        match self.window.backing().gpu() {
            Some(cuda) => format!(
                "for {cuda} to give or clear {bytes} bytes of the heap, which kernels and streams that wait can hold up ({})",
                hardware_queues()
            ),
            None => format!("for the system to give or clear {bytes} bytes of the heap"),
        }
    }

    fn in_heap(&self, at: usize) -> bool {
        (self.base()..self.base() + self.window.half()).contains(&at)
    }

    /// Backs the heap up to `target` with memory, on all PEs or none.
    fn commit(&self, books: &mut Books, target: usize, call: &mut Entered<'_>, links: &Links) -> Result<()> {
        let (from, bytes) = (books.committed, target - books.committed);
        let outside = call.outside(|| self.backing_text(bytes));
        let memory = self.window.backing().create(bytes);
        drop(outside);
        let memory = call.all_well(memory, "growing the heap")?;
        self.map_everyones(books, from, bytes, &memory, call, links)?;
        if !self.window.backing().is_host() {
            // A GPU's fresh memory holds whatever it held last.
            let outside = call.outside(|| self.backing_text(bytes));
            // SAFETY: mapped above, and nobody's before the heap grows by it.
            let zeroed = unsafe { self.window.backing().zero(self.base() + from, bytes) };
            drop(outside);
            call.all_well(zeroed, "zeroing new memory").inspect_err(|_| self.window.unmap(from, bytes))?;
        }
        if let Some(far) = self.far.get() {
            // SAFETY: mapped above; the heap never shrinks, so the memory stays until the world ends.
            unsafe { far.add(from, bytes, self.base() + from, self.backed()) }
                .inspect_err(|_| self.window.unmap(from, bytes))?;
        }
        log::debug!(
            "the heap grows by {bytes} bytes to {target}, of at most {} (RUSHMEM_HEAP_MAX; RUSHMEM_HEAP_MIN is what it begins with)",
            self.window.half()
        );
        books.committed = target;
        books.heap.grow(target);
        Ok(())
    }

    /// Maps every near PE's memory at `offset` of its part of the window, on all PEs or none.
    fn map_everyones(
        &self,
        books: &mut Books,
        offset: usize,
        bytes: usize,
        mine: &BackingChunk,
        call: &mut Entered<'_>,
        links: &Links,
    ) -> Result<()> {
        books.exchanges += 1;
        let fds = links.exchange(books.exchanges, mine.fd().as_fd(), self.limit);
        let mapped = fds.and_then(|fds| self.window.map(offset, bytes, mine, &fds));
        let undo = mapped.is_ok();
        call.all_well(mapped, "mapping the PEs' memory").inspect_err(|_| {
            if undo {
                self.window.unmap(offset, bytes);
            }
        })
    }
}
