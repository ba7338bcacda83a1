//! Pieces of symmetric memory that the card knows, and the table of them in memory of the device, by which
//! kernels name them.

use rushmem_abi::device::{QueueSegment, RUSHMEM_QUEUE_SEGMENTS};

use super::card::{AccessRights, RegionKeys};
use super::Queues;
use crate::error::{err, Result};
use crate::net::transport::Memory;

/// A piece of symmetric memory that the card knows.
pub(super) struct KnownPiece {
    id: u32,
    keys: RegionKeys,
    /// Its entry in the kernels' table, once that has one.
    entry: Option<usize>,
    /// It begins the symmetric memory.
    base: bool,
}

/// Of an entry, where its size is.
const BYTES_AT: usize = std::mem::offset_of!(QueueSegment, bytes);

impl Queues {
    /// Makes memory at an offset of the stride known to the card; the key for the other PEs.
    ///
    /// # Safety
    /// The memory stays until it is forgotten.
    pub(in crate::net) unsafe fn register(&mut self, id: u32, offset: usize, memory: Memory) -> Result<u32> {
        // SAFETY: as this function's contract says.
        let keys = unsafe { self.card.register(memory, offset as u64, AccessRights::symmetric(self.words)) }?;
        self.registered.push(KnownPiece { id, keys, entry: None, base: offset == 0 });
        Ok(keys.remote)
    }

    /// Kernels may name the memory from now on, by every PE's key.
    pub(in crate::net) fn insert(
        &mut self,
        id: u32,
        offset: usize,
        bytes: usize,
        remote: &[u32],
    ) -> Result<()> {
        let used: Vec<usize> = self.registered.iter().filter_map(|r| r.entry).collect();
        let free = (0..RUSHMEM_QUEUE_SEGMENTS).find(|entry| !used.contains(entry));
        let (Some(entry), Some(known)) = (free, self.registered.iter_mut().find(|r| r.id == id)) else {
            return Err(err!(
                HEAP_EXHAUSTED,
                "kernels can name {RUSHMEM_QUEUE_SEGMENTS} pieces of memory to the network card, and all are taken: register \
                 less, or let the heap begin larger (RUSHMEM_HEAP_MIN)"
            ));
        };
        known.entry = Some(entry);
        if known.base {
            self.base_keys = remote.to_vec();
        }
        let lkey = known.keys.local.to_be();
        let places = self.places();
        let rkeys: Vec<u64> = remote.chunks(2).map(pair_of_keys).collect();
        let segment = QueueSegment {
            offset: offset as u64,
            bytes: 0,
            rkeys: (self.device.base() + places.rkeys(entry)) as u64,
            lkey,
            reserved: 0,
        };
        self.entries = self.entries.max(entry + 1);
        // Its size last, as kernels read the rest of an entry that has one.
        self.device.write(&[
            (places.rkeys(entry), &rkeys),
            (places.segment(entry), &segment.words()),
            (places.segment(entry) + BYTES_AT, &[bytes as u64]),
            (places.segments_used(), &[self.entries as u64]),
        ])
    }

    /// The memory is about to go.
    pub(in crate::net) fn forget(&mut self, id: u32) {
        let Some(at) = self.registered.iter().position(|r| r.id == id) else { return };
        let gone = self.registered.swap_remove(at);
        if gone.base {
            self.base_keys.clear();
        }
        if let Some(entry) = gone.entry {
            let size = self.places().segment(entry) + BYTES_AT;
            if let Err(e) = self.device.write(&[(size, &[0])]) {
                // The GPU takes no copies any more, so no kernel will name it.
                log::warn!("kernels were not told that registered memory is gone: {e}");
            }
        }
        self.card.forget(gone.keys);
    }
}

/// Two PEs' keys, or the last one's, as they lie in memory.
fn pair_of_keys(keys: &[u32]) -> u64 {
    let mut bytes = [0; 8];
    for (at, key) in keys.iter().enumerate() {
        bytes[4 * at..][..4].copy_from_slice(&key.to_be_bytes());
    }
    u64::from_ne_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::super::emulated::SoftwareCard;
    use super::*;

    /// Kernels can name so many pieces; one that is forgotten makes room for another.
    #[test]
    fn pieces_of_memory_have_entries_as_long_as_they_are_known() {
        let card = SoftwareCard::new(0, None, None, 0, None).unwrap();
        let mut queues = Queues::new(0, 3, (1, 64), None, Box::new(card), Default::default()).unwrap();
        let mut memory = vec![0u8; 4096];
        let address = memory.as_mut_ptr() as usize;
        let add = |queues: &mut Queues, id: u32| {
            let memory = Memory { address, bytes: 4096, gpu: false, single: true };
            // SAFETY: the memory outlives the queues.
            let key = unsafe { queues.register(id, id as usize * 4096, memory) }.unwrap();
            queues.insert(id, id as usize * 4096, 4096, &[key, 7, 1000 + id])
        };
        (0..RUSHMEM_QUEUE_SEGMENTS as u32).for_each(|id| add(&mut queues, id).unwrap());
        let full = add(&mut queues, 1000).unwrap_err();
        assert!(full.message.contains("RUSHMEM_HEAP_MIN"), "{full:?}");
        queues.forget(1000);
        queues.forget(3);
        let read = |queues: &Queues, entry: usize| {
            let place = queues.places().segment(entry);
            // SAFETY: an entry of the table, which nobody writes now.
            unsafe { queues.device.host().unwrap().add(place).cast::<QueueSegment>().read() }
        };
        assert_eq!(read(&queues, 3).bytes, 0);
        add(&mut queues, 1001).unwrap();
        for (at, id) in [(3, 1001), (4, 4), (RUSHMEM_QUEUE_SEGMENTS - 1, RUSHMEM_QUEUE_SEGMENTS - 1)] {
            let entry = read(&queues, at);
            assert_eq!((entry.offset, entry.bytes), (id as u64 * 4096, 4096));
            // SAFETY: the keys of that entry.
            let keys = unsafe { (entry.rkeys as *const [u32; 3]).read() };
            assert_eq!(keys[1..], [7u32.to_be(), (1000 + id as u32).to_be()]);
        }
        let used = queues.places().segments_used();
        // SAFETY: a word of the table.
        let used = unsafe { queues.device.host().unwrap().add(used).cast::<u64>().read() };
        assert_eq!(used, RUSHMEM_QUEUE_SEGMENTS as u64);
        assert!(queues.idle() && queues.failure().is_none() && queues.reclaim());
        drop(queues);
        drop(memory);
    }
}
