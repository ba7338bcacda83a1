//! Symmetric arrays of a mixed program, and what they hold on every PE.

use std::alloc::Layout;

use rushmem::{Registered, Result, SymRef, SymSlice, World};

/// Where an array's words lie.
enum Memory<'w> {
    Allocated(SymSlice<'w, u64>),
    /// Pages of the program's own.
    Registered(Registered<'w, u64>, *mut u8, Layout),
}

/// An array that all PEs have.
pub(super) struct Array<'w> {
    memory: Memory<'w>,
    /// By PE of the world.
    pub(super) model: Vec<Vec<u64>>,
    pub(super) user: User,
}

/// Who uses an array after the call that began it has returned.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum User {
    Nobody,
    /// Until it is synchronised.
    Stream(usize),
    /// A non-blocking put, until the next barrier.
    Put,
}

impl<'w> Array<'w> {
    pub(super) fn allocated(world: &'w World, len: usize) -> Result<Array<'w>> {
        Ok(Array::of(world, Memory::Allocated(world.alloc::<u64>(len)?), len))
    }

    /// In memory that is registered, of so many pages.
    pub(super) fn registered(world: &'w World, pages: usize) -> Result<Array<'w>> {
        const PAGE: usize = 4096;
        let layout = Layout::from_size_align(pages * PAGE, PAGE).unwrap();
        let len = layout.size() / 8;
        // SAFETY: a layout that is not empty; whole pages that nobody else has until `free` gives them back.
        let memory = unsafe {
            let own = std::alloc::alloc_zeroed(layout);
            Memory::Registered(world.register(own.cast::<u64>(), len)?, own, layout)
        };
        Ok(Array::of(world, memory, len))
    }

    fn of(world: &World, memory: Memory<'w>, len: usize) -> Array<'w> {
        Array { memory, model: vec![vec![0; len]; world.n_pes() as usize], user: User::Nobody }
    }

    pub(super) fn at(&self) -> &SymRef<'w, u64> {
        match &self.memory {
            Memory::Allocated(slice) => slice,
            Memory::Registered(region, ..) => region,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.at().len()
    }

    /// Collective.
    pub(super) fn free(self) -> Result<()> {
        match self.memory {
            Memory::Allocated(slice) => slice.free(),
            Memory::Registered(region, own, layout) => {
                region.unregister()?;
                // SAFETY: as it was made, and used no more.
                unsafe { std::alloc::dealloc(own, layout) };
                Ok(())
            }
        }
    }
}
