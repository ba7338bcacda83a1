//! Stacks of the CUDA threads of one block: one reservation, cut into slots of a guard page and a stack. A
//! slot is opened when it is first used and then kept, so a block whose threads never suspend touches one
//! stack only. Reservations are kept between launches, up to a bound: each open slot is two of the process's
//! memory mappings.

use std::io;
use std::ptr;
use std::sync::{Mutex, PoisonError};

use corosensei::stack::{Stack, StackPointer};

/// Open slots that unused slabs may hold.
const KEPT: usize = 4096;

static UNUSED: Mutex<Vec<Slab>> = Mutex::new(Vec::new());

/// The stacks of one block.
pub(crate) struct Slab {
    base: *mut u8,
    slots: usize,
    /// Usable bytes of a stack, and as they were asked for, before rounding.
    stack: usize,
    asked: usize,
    page: usize,
    opened: usize,
    free: Vec<usize>,
}

/// Where a block's stacks are: slots, each a guard page and a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) base: usize,
    pub(crate) slots: usize,
    pub(crate) guard: usize,
    /// With the room for handlers.
    pub(crate) stack: usize,
}

impl Span {
    /// The low end of the slot that `address` is in.
    fn slot_of(&self, address: usize) -> Option<usize> {
        let each = self.guard + self.stack;
        let offset = address.checked_sub(self.base).filter(|offset| *offset < self.slots * each)?;
        Some(self.base + offset / each * each)
    }

    /// Whether `address` is in a stack, not in a guard page.
    pub(crate) fn holds(&self, address: usize) -> bool {
        self.slot_of(address).is_some_and(|slot| address >= slot + self.guard)
    }

    /// The high end of the stack that `address` is in, or `address`.
    pub(crate) fn end_of(&self, address: usize) -> usize {
        self.slot_of(address).map_or(address, |slot| slot + self.guard + self.stack)
    }

    /// Whether `address` is in the guard page of the stack whose top is at `top`, or of the next one.
    pub(crate) fn overrun(&self, address: usize, top: usize) -> bool {
        let guarded = self.slot_of(address).filter(|slot| address < slot + self.guard);
        guarded.is_some_and(|slot| top.abs_diff(slot + self.guard) <= self.guard + ROOM)
    }
}

/// Bytes below what was asked for that a signal's handler finds even where a thread has used all of it: the
/// registers that the kernel puts there (up to 11 KiB with AMX), and the handler's frames.
const ROOM: usize = 24 << 10;

/// One stack of a slab; the slab's holder keeps it from being used twice.
pub(crate) struct Slot {
    index: usize,
    base: StackPointer,
    limit: StackPointer,
}

impl Slot {
    pub(crate) fn index(&self) -> usize {
        self.index
    }
}

// SAFETY: the pointer is to a mapping that is the slab's own.
unsafe impl Send for Slab {}

// SAFETY: the slot lies between `limit` and `base`, begins with a guard page and has `Slab::stack` usable
// bytes, at least 16 KiB; page alignment is more than STACK_ALIGNMENT.
unsafe impl Stack for Slot {
    fn base(&self) -> StackPointer {
        self.base
    }

    fn limit(&self) -> StackPointer {
        self.limit
    }
}

impl Slab {
    /// Reserves address space for `slots` stacks of `stack` bytes; no memory yet.
    pub(crate) fn new(slots: usize, stack: usize) -> io::Result<Self> {
        // SAFETY: no preconditions.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
        let (asked, stack) = (stack, (stack + ROOM).next_multiple_of(page));
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_STACK;
        // SAFETY: a fresh anonymous mapping, touching nothing that exists.
        let base =
            unsafe { libc::mmap(ptr::null_mut(), slots * (page + stack), libc::PROT_NONE, flags, -1, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Slab { base: base.cast(), slots, stack, asked, page, opened: 0, free: Vec::with_capacity(slots) })
    }

    /// Stacks for `threads` threads, from an earlier launch where there is one. To be given back.
    pub(crate) fn for_block(threads: usize, stack: usize) -> io::Result<Self> {
        let slots = threads.next_power_of_two();
        {
            let mut unused = UNUSED.lock().unwrap_or_else(PoisonError::into_inner);
            // The same size only: a larger one's open slots would be wasted on this block.
            if let Some(at) = unused.iter().rposition(|slab| slab.slots == slots && slab.asked == stack) {
                return Ok(unused.swap_remove(at));
            }
        }
        Slab::new(slots, stack).or_else(|_| {
            drop_unused();
            Slab::new(slots, stack)
        })
    }

    /// Keeps the stacks for a later launch, none of them in use any more.
    pub(crate) fn give_back(mut self) {
        self.free.clear();
        self.free.extend((0..self.opened).rev());
        let mut unused = UNUSED.lock().unwrap_or_else(PoisonError::into_inner);
        let kept: usize = unused.iter().map(|slab| slab.opened).sum();
        if kept + self.opened <= KEPT {
            unused.push(self);
        }
    }

    /// Keeps the stacks' addresses from everybody, for ever: their threads were abandoned where they stood,
    /// and may have told others where their variables are. An answer to a get of theirs may come late, and
    /// must not be written into another thread's stack, nor to where nothing is. It costs addresses, and
    /// memory for what is written.
    pub(crate) fn keep_away(self) {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let bytes = self.slots * (self.page + self.stack);
        // SAFETY: replaces the slab's own mapping, on which no thread runs any more, by one of the same
        // range. Where that fails the old one stays.
        unsafe { libc::mmap(self.base.cast(), bytes, access, flags, -1, 0) };
        std::mem::forget(self);
    }

    /// Where the stacks are.
    pub(crate) fn span(&self) -> Span {
        Span { base: self.base as usize, slots: self.slots, guard: self.page, stack: self.stack }
    }

    /// A stack that is free. Fails where the system gives no more memory or mappings.
    pub(crate) fn take(&mut self) -> io::Result<Slot> {
        let index = match self.free.pop() {
            Some(index) => index,
            None => self.open().or_else(|_| {
                drop_unused();
                self.open()
            })?,
        };
        let limit = self.base as usize + index * (self.page + self.stack);
        let base = limit + self.page + self.stack;
        let pointer = |address| StackPointer::new(address).expect("a mapping is never at address zero");
        Ok(Slot { index, base: pointer(base), limit: pointer(limit) })
    }

    /// Gives a stack back, the last one first in line.
    pub(crate) fn give(&mut self, index: usize) {
        debug_assert!(index < self.opened && !self.free.contains(&index));
        self.free.push(index);
    }

    fn open(&mut self) -> io::Result<usize> {
        assert!(self.opened < self.slots, "a block uses no more stacks than it has threads");
        let start = self.opened * (self.page + self.stack) + self.page;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the range lies inside the mapping made by `new`, and nothing points into it yet.
        let code = unsafe { libc::mprotect(self.base.add(start).cast(), self.stack, access) };
        if code != 0 {
            return Err(io::Error::last_os_error());
        }
        self.opened += 1;
        Ok(self.opened - 1)
    }
}

/// Gives the mappings of unused slabs back to the system.
fn drop_unused() {
    UNUSED.lock().unwrap_or_else(PoisonError::into_inner).clear();
}

impl Drop for Slab {
    fn drop(&mut self) {
        // SAFETY: the mapping is this slab's own; its coroutines have ended or were reset before it goes.
        unsafe { libc::munmap(self.base.cast(), self.slots * (self.page + self.stack)) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stacks_are_apart_and_writable() {
        let mut slab = Slab::for_block(3, 20_000).expect("reserving");
        let slots: Vec<Slot> = (0..3).map(|_| slab.take().expect("opening")).collect();
        for (i, slot) in slots.iter().enumerate() {
            assert_eq!(slot.base().get() - slot.limit().get(), (20_000 + ROOM).next_multiple_of(4096) + 4096);
            let (low, high) = (slot.limit().get() + 4096, slot.base().get() - 1);
            for address in [low, high] {
                // SAFETY: inside the usable part of a stack that nobody else uses.
                unsafe { *(address as *mut u8) = i as u8 + 1 };
            }
        }
        let span = slab.span();
        let (low, high) = (slots[1].limit().get(), slots[1].base().get());
        assert!(!span.holds(low) && span.holds(low + 4096) && span.holds(high - 1));
        assert_eq!((span.end_of(high - 1), span.end_of(high + 4096)), (high, slots[2].base().get()));
        assert!(span.overrun(low + 8, low + 4096 + 64) && !span.overrun(low + 4096, low + 4096));
        assert!(!span.overrun(low + 8, high - 8), "another thread's guard page is a wild pointer");
        slab.give(slots[1].index());
        assert_eq!(slab.take().expect("reusing").index(), 1);
        let base = slab.base;
        slab.give_back();
        assert_ne!(Slab::for_block(5, 20_000).expect("another size").base, base);
        assert_ne!(Slab::for_block(4, 16_384).expect("another stack").base, base);
        let mut again = Slab::for_block(4, 20_000).expect("the same size");
        assert_eq!((again.base, again.take().expect("reusing").index()), (base, 0));
    }
}
