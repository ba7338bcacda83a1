//! Stacks of the CUDA threads of one block: one reservation, cut into slots of a guard page and a stack. A slot is
//! opened when it is first used and then kept, so a block whose threads never suspend touches one stack only.

use std::io;
use std::ptr;

use corosensei::stack::{Stack, StackPointer};

/// The stacks of one block.
pub(crate) struct Slab {
    base: *mut u8,
    slots: usize,
    stack: usize,
    page: usize,
    opened: usize,
    free: Vec<usize>,
}

/// One stack of a slab; whoever holds the slab keeps it from being used twice.
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

// SAFETY: the slot lies between `limit` and `base`, begins with a guard page and has `Slab::stack` usable bytes, at least
// 16 KiB; page alignment is more than STACK_ALIGNMENT.
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
        let stack = stack.next_multiple_of(page);
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_STACK;
        // SAFETY: a fresh anonymous mapping, touching nothing that exists.
        let base =
            unsafe { libc::mmap(ptr::null_mut(), slots * (page + stack), libc::PROT_NONE, flags, -1, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Slab { base: base.cast(), slots, stack, page, opened: 0, free: Vec::with_capacity(slots) })
    }

    /// Whether this slab serves a block of `slots` threads with stacks of `stack` bytes.
    pub(crate) fn fits(&self, slots: usize, stack: usize) -> bool {
        self.slots >= slots && self.stack == stack.next_multiple_of(self.page)
    }

    /// A stack that nobody uses. Fails where the system gives no more memory or mappings.
    pub(crate) fn take(&mut self) -> io::Result<Slot> {
        let index = match self.free.pop() {
            Some(index) => index,
            None => self.open()?,
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

    /// Every stack is unused again.
    pub(crate) fn reset(&mut self) {
        self.free.clear();
        self.free.extend((0..self.opened).rev());
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
        let mut slab = Slab::new(3, 20_000).expect("reserving");
        assert!(slab.fits(3, 20_000) && slab.fits(1, 20_480) && !slab.fits(4, 20_000) && !slab.fits(3, 8192));
        let slots: Vec<Slot> = (0..3).map(|_| slab.take().expect("opening")).collect();
        for (i, slot) in slots.iter().enumerate() {
            assert_eq!(slot.base().get() - slot.limit().get(), 20_480 + 4096);
            let (low, high) = (slot.limit().get() + 4096, slot.base().get() - 1);
            for address in [low, high] {
                // SAFETY: inside the usable part of a stack that nobody else uses.
                unsafe { *(address as *mut u8) = i as u8 + 1 };
            }
        }
        slab.give(slots[1].index());
        assert_eq!(slab.take().expect("reusing").index(), 1);
        slab.reset();
        assert_eq!(slab.take().expect("reusing").index(), 0);
    }
}
