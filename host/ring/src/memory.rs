//! What the two sides share: slots, reply slots and the count of descriptors taken.

use rushmem_abi::device::Descriptor;
#[cfg(not(loom))]
use rushmem_abi::device::RawReply;

use crate::sync::{AtomicU64, Cell};

/// Words of a descriptor before the one that publishes it.
pub const WORDS: usize = Descriptor::WORDS;

/// `rushmem_descriptor`, as the protocol sees it.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Slot {
    pub(crate) words: [Cell; WORDS],
    pub(crate) ticket: AtomicU64,
}

/// `rushmem_reply`.
#[repr(C, align(32))]
#[derive(Debug)]
pub struct Reply {
    pub(crate) value: Cell,
    pub(crate) state: AtomicU64,
    reserved: [u64; 2],
}

#[cfg(not(loom))]
const _: () = {
    use std::mem::offset_of;

    assert!(size_of::<Slot>() == size_of::<Descriptor>() && size_of::<Reply>() == size_of::<RawReply>());
    assert!(offset_of!(Slot, ticket) == offset_of!(Descriptor, ticket));
    assert!(offset_of!(Reply, value) == offset_of!(RawReply, value));
    assert!(offset_of!(Reply, state) == offset_of!(RawReply, state));
};

impl Default for Slot {
    fn default() -> Self {
        Slot { words: std::array::from_fn(|_| Cell::new(0)), ticket: AtomicU64::new(0) }
    }
}

impl Default for Reply {
    fn default() -> Self {
        Reply { value: Cell::new(0), state: AtomicU64::new(0), reserved: [0; 2] }
    }
}

/// A ring's memory. Both lengths are powers of two; all zero at first.
#[derive(Clone, Copy, Debug)]
pub struct View<'m> {
    /// Slot `t % slots.len()` is that of ticket `t`.
    pub slots: &'m [Slot],
    /// Where answers go.
    pub replies: &'m [Reply],
    /// How many descriptors have been taken.
    pub consumed: &'m AtomicU64,
}

impl<'m> View<'m> {
    /// The slot of a ticket.
    pub(crate) fn slot(&self, ticket: u64) -> &'m Slot {
        &self.slots[(ticket & (self.slots.len() as u64 - 1)) as usize]
    }
}
