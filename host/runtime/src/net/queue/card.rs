//! What a network card gives kernels: queues that they write themselves. [`super::Queues`] lays out their
//! memory; a card carries out what is written there.

use crate::error::{Error, Result};
use crate::net::transport::Memory;

/// The keys to a registered piece of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::net) struct RegionKeys {
    pub(in crate::net) local: u32,
    pub(in crate::net) remote: u32,
}

/// What requests may do to a registered piece, beside being read by this card's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::net) struct AccessRights {
    /// Answers of this card's READs and atomics may go there.
    pub(in crate::net) local_write: bool,
    /// Peers' READs and WRITEs may name it.
    pub(in crate::net) remote_read: bool,
    pub(in crate::net) remote_write: bool,
    /// Peers' atomics may change its words.
    pub(in crate::net) words: bool,
}

impl AccessRights {
    /// Places for answers: no peer names them.
    pub(in crate::net) const ANSWERS: AccessRights =
        AccessRights { local_write: true, remote_read: false, remote_write: false, words: false };

    /// Symmetric memory, whose words cards update, or not.
    pub(in crate::net) const fn symmetric(words: bool) -> AccessRights {
        AccessRights { local_write: true, remote_read: true, remote_write: true, words }
    }
}

/// What a card needs of the memory of its queues.
#[derive(Debug, Clone, Copy)]
pub(in crate::net) struct QueueNeeds {
    /// Slots, completions and records each begin at a multiple of this.
    pub(in crate::net) page: usize,
    /// Entries of a completion queue for which there is room; all but the first stay as they are.
    pub(in crate::net) completions: usize,
}

/// All memory of a card's queues.
#[derive(Debug, Clone, Copy)]
pub(in crate::net) struct QueueArea {
    pub(in crate::net) start: *mut u8,
    pub(in crate::net) bytes: usize,
}

/// The memory of a send queue and its collapsed completion queue.
#[derive(Debug, Clone, Copy)]
pub(in crate::net) struct QueueMemory {
    /// Blocks of 64 bytes, `count` of them, a power of two.
    pub(in crate::net) slots: *mut u8,
    pub(in crate::net) count: usize,
    /// The doorbell record: two words, in a line of 128 bytes of which the rest is the card's.
    pub(in crate::net) record: *mut u32,
    /// Memory for the doorbell register of a card that has none of its own.
    pub(in crate::net) bell: *mut u64,
    /// The completion queue, of which one entry of 64 bytes is written.
    pub(in crate::net) completion: *mut u64,
}

// SAFETY: addresses of memory that the card and kernels share by protocol.
unsafe impl Send for QueueMemory {}

/// A queue that the card has taken.
#[derive(Debug, Clone, Copy)]
pub(in crate::net) struct OpenQueue {
    pub(in crate::net) number: u32,
    /// The card's own doorbell register, where it is not [`QueueMemory::bell`].
    pub(in crate::net) bell: Option<*mut u64>,
}

/// A card.
pub(in crate::net) trait NetworkCard: Send {
    /// What this way to other PEs is called: `queue-emulated`, `queue`.
    fn name(&self) -> &'static str;

    /// More about it, for people.
    fn about(&self) -> String;

    /// What queues of so many slots need.
    fn needs(&self, slots: usize) -> QueueNeeds;

    /// What other PEs need in order to connect.
    fn address(&self) -> Vec<u8>;

    /// Takes the memory of each queue that there is to be, and gives it a number. Of `n` PEs, queue
    /// `context * n + pe` leads to that PE, for kernels, and behind all contexts one more for the host.
    ///
    /// # Safety
    /// The memory, all of it in `area`, outlives the card.
    unsafe fn open(
        &mut self,
        area: QueueArea,
        n: usize,
        queues: Vec<Option<QueueMemory>>,
    ) -> Result<Vec<OpenQueue>>;

    /// Connects the queues to each PE, where that has an address; all these PEs' cards are open. By PE: why
    /// that failed.
    fn connect(&mut self, addresses: &[Option<Vec<u8>>]) -> Result<Vec<Option<Error>>>;

    /// Whether it updates words for PEs, its own among them, atomically among all that ask it to.
    fn updates_words(&self) -> bool;

    /// Makes `memory` known under the address `named`, for what `rights` say.
    ///
    /// # Safety
    /// The memory stays until it is forgotten.
    unsafe fn register(&mut self, memory: Memory, named: u64, rights: AccessRights) -> Result<RegionKeys>;

    /// Nobody names the memory any more.
    fn forget(&mut self, keys: RegionKeys);

    /// The process ends: from here on none of the card's threads begins anything.
    fn halt(&self);
}
