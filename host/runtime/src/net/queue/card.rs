//! What a network card gives kernels: queues that they write themselves. [`super::Queues`] lays out their
//! memory; a card carries out what is written there.

use crate::error::Result;
use crate::net::transport::Memory;

/// The keys to a registered piece of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::net) struct RegionKeys {
    pub(in crate::net) local: u32,
    pub(in crate::net) remote: u32,
}

/// The memory of a send queue and its collapsed completion queue.
#[derive(Debug, Clone, Copy)]
pub(in crate::net) struct QueueMemory {
    /// Blocks of 64 bytes, `count` of them, a power of two.
    pub(in crate::net) slots: *mut u8,
    pub(in crate::net) count: usize,
    /// The doorbell record: two words.
    pub(in crate::net) record: *mut u32,
    /// The doorbell register.
    pub(in crate::net) bell: *mut u64,
    /// The completion queue's one entry of 64 bytes.
    pub(in crate::net) completion: *mut u64,
}

// SAFETY: addresses of memory that the card and kernels share by protocol.
unsafe impl Send for QueueMemory {}

/// A card.
pub(in crate::net) trait NetworkCard: Send {
    /// More about it, for people.
    fn about(&self) -> String;

    /// What other PEs need in order to connect.
    fn address(&self) -> Vec<u8>;

    /// Takes the memory of the queue to each PE, where one is to lead there, and gives each a number.
    ///
    /// # Safety
    /// The memory outlives the card.
    unsafe fn open(&mut self, queues: Vec<Option<QueueMemory>>) -> Result<Vec<u32>>;

    /// Connects each queue to its PE; all PEs' cards are open.
    fn connect(&mut self, addresses: &[Vec<u8>]) -> Result<()>;

    /// Makes `memory` known under the address `named`, for both sides of a copy.
    ///
    /// # Safety
    /// The memory stays until it is forgotten.
    unsafe fn register(&mut self, memory: Memory, named: u64) -> Result<RegionKeys>;

    /// Nobody names the memory any more.
    fn forget(&mut self, keys: RegionKeys);

    /// The process ends: from here on none of the card's threads begins anything.
    fn halt(&self);
}
