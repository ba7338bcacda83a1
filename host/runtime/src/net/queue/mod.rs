//! Queues of a network card that kernels write themselves: the back end `queue`
//! (`device/include/rushmem/impl/net/queue.h`, where the argument for its order is). The host lays out their
//! memory, tells kernels where registered memory is, and looks at completions: of queues that ended kernels
//! have left busy, which its fence and quiet wait for, and of failures.
//!
//! - [`card`]: what a card gives. [`mlx5`] is one; [`emulated`] is one as a program, for tests.
//! - [`words`]: whether cards update words for the kernels of the job.
//! - [`doorbells`]: who rings. [`probes`]: reads of the host's own behind what kernels have written.
//! - [`layout`]: where things lie in their memory. [`formats`]: what the host itself reads and writes of the
//!   card's formats. [`links`]: to which PEs queues lead.

pub(in crate::net) mod card;
mod doorbells;
pub(in crate::net) mod emulated;
pub(in crate::net) mod formats;
#[cfg(test)]
mod formats_tests;
mod layout;
pub(in crate::net) mod links;
pub(in crate::net) mod mlx5;
pub(in crate::net) mod probes;
mod words;

use std::sync::atomic::{fence, AtomicU32, AtomicU64, Ordering};
use std::sync::Arc;

use rushmem_abi::device::{QueueSegment, RawQueue, RawQueues, RUSHMEM_QUEUE_SEGMENTS, RUSHMEM_QUEUE_SINKS};

use self::card::{NetworkCard, OpenQueue, QueueArea, QueueMemory, RegionKeys};
use self::doorbells::Doorbells;
use self::formats::{Completion, RECORD_SEND};
use self::layout::{Layout, LINE, PROBE_SLOTS, SINKS};
use self::probes::Probes;
use crate::config::Ringer;
use crate::error::{err, Error, Result};
use crate::gpu::plain::Plain;
use crate::gpu::Cuda;
use crate::net::memory::reachable::HostMemory;
use crate::net::transport::Memory;
use crate::verbs::syndrome_name;

/// What kernels alone write: in memory of the device.
enum DeviceMemory {
    Host(HostMemory),
    Gpu(Plain),
}

/// A piece of symmetric memory that the card knows.
struct KnownPiece {
    id: u32,
    keys: RegionKeys,
    /// Its entry in the kernels' table, once that has one.
    entry: Option<usize>,
    /// It begins the symmetric memory.
    base: bool,
}

/// The queues of a PE.
pub(in crate::net) struct Queues {
    me: usize,
    // Dropped first: it maps registers of the card's. Then the card, which uses the memory.
    bells: Doorbells,
    card: Box<dyn NetworkCard>,
    shared: HostMemory,
    device: DeviceMemory,
    layout: Layout,
    /// The kernels', by PE, then the host's own.
    open: Vec<OpenQueue>,
    probes: Vec<Probes>,
    /// By PE: its key of the memory at offset 0, once that is known.
    base_keys: Vec<u32>,
    /// Where answers come to, and its key, as the card has them.
    sink_address: u64,
    sink_key: u32,
    has: Vec<bool>,
    /// By PE: why no queue leads there.
    left_out: Vec<Option<String>>,
    failed: Vec<bool>,
    registered: Vec<KnownPiece>,
    entries: usize,
    /// All PEs have agreed that cards update words.
    words: bool,
}

// SAFETY: the memory is accessed by protocol only: atomics, and words that belong to one side at a time.
unsafe impl Send for Queues {}

impl Queues {
    /// The queues of PE `me` to all `n`, itself among them, of `slots` requests each, on `card`, for kernels
    /// on the CPU or on `gpu`.
    pub(in crate::net) fn new(
        me: usize,
        n: usize,
        slots: usize,
        gpu: Option<&Arc<Cuda>>,
        card: Box<dyn NetworkCard>,
        ringer: Ringer,
    ) -> Result<Queues> {
        let (needs, probe_needs) = (card.needs(slots), card.needs(PROBE_SLOTS));
        let mut layout = Layout { n, slots, needs, probe_needs, lead: needs.page - LINE };
        let shared = HostMemory::new(gpu, layout.bytes().div_ceil(LINE))?;
        // Dropped before `shared` where something fails.
        let mut card = card;
        let host = shared.host().cast::<u8>();
        layout.lead = (host as usize).next_multiple_of(needs.page) - host as usize;
        // SAFETY: within the memory.
        let at = |offset: usize| unsafe { host.add(offset) };
        let memory = |queue: usize| QueueMemory {
            slots: at(layout.queue(queue)),
            count: layout.count_of(queue),
            record: at(layout.record(queue)).cast(),
            bell: at(layout.record(queue) + LINE).cast(),
            completion: at(layout.completion(queue)).cast(),
        };
        for memory in (0..2 * n).map(memory) {
            // SAFETY: the entry's last word; nobody else knows the memory yet.
            unsafe { memory.completion.add(7).write(u64::from(formats::NONE_YET) << 60) };
        }
        let area = QueueArea { start: at(layout.lead), bytes: layout.sinks() - layout.lead };
        // SAFETY: `shared` is dropped after the card.
        let open = unsafe { card.open(area, (0..2 * n).map(|queue| Some(memory(queue))).collect()) }?;
        let bells = Doorbells::new(ringer, gpu, &open[..n])?;
        let sinks = Memory { address: at(layout.sinks()) as usize, bytes: SINKS, gpu: false, single: true };
        // SAFETY: `shared` is dropped after the card, and stays until then.
        let sink_keys = unsafe { card.register(sinks, sinks.address as u64, false) }?;

        // The device's own: queues, then stamps, then the places for answers, then their header.
        let base = shared.device_address();
        let there = |offset: usize| base + offset as u64;
        let stamps_at = n * size_of::<RawQueue>();
        let busy_at = (stamps_at + n * slots * size_of::<u32>()).next_multiple_of(LINE);
        let head_at = (busy_at + RUSHMEM_QUEUE_SINKS * size_of::<u64>()).next_multiple_of(LINE);
        let lines = (head_at + size_of::<RawQueues>()).div_ceil(LINE);
        let fill = |device: u64| {
            let mut bytes = vec![0u8; lines * LINE];
            for (pe, open) in open[..n].iter().enumerate() {
                let queue = RawQueue {
                    slots: there(layout.queue(pe)),
                    record: there(layout.record(pe)),
                    bell: bells.of_kernels[pe].unwrap_or(there(layout.record(pe) + LINE)),
                    completion: there(layout.completion(pe)),
                    stamps: device + (stamps_at + pe * slots * size_of::<u32>()) as u64,
                    mask: slots as u32 - 1,
                    number: open.number,
                    ..RawQueue::NONE
                };
                // SAFETY: plain words, within the vector.
                unsafe {
                    bytes
                        .as_mut_ptr()
                        .add(pe * size_of::<RawQueue>())
                        .cast::<RawQueue>()
                        .write_unaligned(queue)
                };
            }
            let head = RawQueues {
                queues: device,
                segments: there(layout.segments()),
                n_segments: there(layout.count()),
                sinks: there(layout.sinks()),
                sink_busy: device + busy_at as u64,
                sink_address: sinks.address as u64,
                sink_lkey: sink_keys.local.to_be(),
                reserved_key: 0,
                card_words: 0,
                reserved: [0; 8],
                sink_tail: 0,
                pad_sink: [0; 15],
                fences: 0,
                atomics: 0,
                atomics_over: 0,
                pad_fences: [0; 13],
            };
            // SAFETY: plain words, within the vector.
            unsafe { bytes.as_mut_ptr().add(head_at).cast::<RawQueues>().write_unaligned(head) };
            bytes
        };
        let device = match gpu {
            None => {
                let memory = HostMemory::new(None, lines)?;
                let bytes = fill(memory.host() as u64);
                // SAFETY: as many lines; nobody else knows them yet.
                unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), memory.host().cast(), bytes.len()) };
                DeviceMemory::Host(memory)
            }
            Some(cuda) => {
                let plain = Plain::holding(cuda, &vec![0; lines * LINE])?;
                plain.fill(0, &fill(plain.base() as u64))?;
                DeviceMemory::Gpu(plain)
            }
        };
        Ok(Queues {
            me,
            bells,
            card,
            shared,
            device,
            layout,
            open,
            probes: vec![Probes::default(); n],
            base_keys: Vec::new(),
            sink_address: sinks.address as u64,
            sink_key: sink_keys.local,
            failed: vec![false; n],
            left_out: vec![None; n],
            has: vec![true; n],
            registered: Vec::new(),
            entries: 0,
            words: false,
        })
    }

    /// The process ends.
    pub(in crate::net) fn halt(&self) {
        self.card.halt();
    }

    /// What this way is called.
    pub(in crate::net) fn name(&self) -> &'static str {
        self.card.name()
    }

    /// The card, for people.
    pub(in crate::net) fn about(&self) -> String {
        self.card.about() + &self.bells.about()
    }

    /// What other PEs' cards need in order to connect.
    pub(in crate::net) fn card_address(&self) -> Vec<u8> {
        self.card.address()
    }

    fn device_base(&self) -> usize {
        match &self.device {
            DeviceMemory::Host(memory) => memory.host() as usize,
            DeviceMemory::Gpu(plain) => plain.base(),
        }
    }

    fn busy_at(&self) -> usize {
        let Layout { n, slots, .. } = self.layout;
        (n * size_of::<RawQueue>() + n * slots * size_of::<u32>()).next_multiple_of(LINE)
    }

    /// What the device state's `queues` is to be.
    pub(in crate::net) fn device_address(&self) -> usize {
        self.device_base() + self.head_at()
    }

    fn head_at(&self) -> usize {
        (self.busy_at() + RUSHMEM_QUEUE_SINKS * size_of::<u64>()).next_multiple_of(LINE)
    }

    // ---- memory ----

    /// Makes memory at an offset of the stride known to the card; the key for the other PEs.
    ///
    /// # Safety
    /// The memory stays until it is forgotten.
    pub(in crate::net) unsafe fn register(&mut self, id: u32, offset: usize, memory: Memory) -> Result<u32> {
        // SAFETY: as this function's contract says.
        let keys = unsafe { self.card.register(memory, offset as u64, self.words) }?;
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
        let n = self.layout.n;
        let keys_at = self.layout.rkeys() + entry * n * size_of::<u32>();
        let rkeys = self.shared.device_address() + keys_at as u64;
        let place = self.layout.segments() + entry * size_of::<QueueSegment>();
        let host = self.shared.host().cast::<u8>();
        // SAFETY: words of the table, of which kernels read this entry once its size is there.
        unsafe {
            for (pe, key) in remote.iter().enumerate() {
                AtomicU32::from_ptr(host.add(keys_at).cast::<u32>().add(pe))
                    .store(key.to_be(), Ordering::Relaxed);
            }
            let segment = host.add(place).cast::<QueueSegment>();
            (*segment).offset = offset as u64;
            (*segment).rkeys = rkeys;
            (*segment).lkey = lkey;
            fence(Ordering::Release);
            AtomicU64::from_ptr(&raw mut (*segment).bytes).store(bytes as u64, Ordering::Release);
        }
        self.entries = self.entries.max(entry + 1);
        // SAFETY: the count's own line.
        unsafe { AtomicU64::from_ptr(host.add(self.layout.count()).cast()) }
            .store(self.entries as u64, Ordering::Release);
        Ok(())
    }

    /// The memory is about to go.
    pub(in crate::net) fn forget(&mut self, id: u32) {
        let Some(at) = self.registered.iter().position(|r| r.id == id) else { return };
        let gone = self.registered.swap_remove(at);
        if gone.base {
            self.base_keys.clear();
        }
        if let Some(entry) = gone.entry {
            let place = self.layout.segments() + entry * size_of::<QueueSegment>();
            // SAFETY: a word of the table.
            unsafe {
                let segment = self.shared.host().cast::<u8>().add(place).cast::<QueueSegment>();
                AtomicU64::from_ptr(&raw mut (*segment).bytes).store(0, Ordering::Release);
            }
        }
        self.card.forget(gone.keys);
    }

    // ---- requests under way ----

    fn record(&self, queue: usize) -> &AtomicU64 {
        self.word(self.layout.record(queue), 0)
    }

    /// The register as the host has it.
    fn bell(&self, queue: usize) -> &AtomicU64 {
        let own = |bell: *mut u64| {
            // SAFETY: the card's register, which is there as long as the card.
            unsafe { AtomicU64::from_ptr(bell) }
        };
        self.open[queue].bell.map_or_else(|| self.word(self.layout.record(queue) + LINE, 0), own)
    }

    fn completion(&self, queue: usize) -> Completion {
        let at = self.layout.completion(queue);
        let last = self.word(at, 7).load(Ordering::Acquire);
        Completion::read(self.word(at, 6).load(Ordering::Relaxed), last)
    }

    /// The lowest 16 bits of how many requests the card knows of.
    fn rung(&self, pe: usize) -> u16 {
        const { assert!(RECORD_SEND == 1) };
        let record = self.record(pe).load(Ordering::Acquire);
        u32::from_be((record >> 32) as u32) as u16
    }

    /// Those that are complete, likewise; `None` once one has failed.
    fn complete(&self, pe: usize) -> Option<u16> {
        match self.completion(pe) {
            Completion::NoneYet => Some(0),
            Completion::Done(last) => Some(last.wrapping_add(1)),
            Completion::Failed(..) => None,
        }
    }

    /// Kernels' queues in which there was ever a request: the PE, and how many requests, as
    /// [`Self::reached`] takes it.
    pub(in crate::net) fn used(&self) -> Vec<(usize, u16)> {
        let pes = (0..self.layout.n).filter(|pe| self.has[*pe]).map(|pe| (pe, self.rung(pe)));
        pes.filter(|(pe, rung)| *rung != 0 || self.completion(*pe) != Completion::NoneYet).collect()
    }

    /// Whether none has requests under way.
    fn idle(&self) -> bool {
        self.used().iter().all(|(pe, rung)| self.complete(*pe) == Some(*rung))
    }

    /// Whether so many are complete. A kernel that posts meanwhile may carry the count of 16 bits past half a
    /// lap between two looks: then a later look says so.
    pub(in crate::net) fn reached(&self, pe: usize, requests: u16) -> bool {
        self.complete(pe).is_some_and(|complete| complete.wrapping_sub(requests) as i16 >= 0)
    }

    /// The first failure of a queue, once: the PE, and an error about it.
    pub(in crate::net) fn failure(&mut self) -> Option<(usize, Error)> {
        for pe in 0..self.layout.n {
            if !self.has[pe] || self.failed[pe] {
                continue;
            }
            if let Completion::Failed(index, syndrome) = self.completion(pe) {
                self.failed[pe] = true;
                let name = syndrome_name(syndrome);
                return Some((
                    pe,
                    err!(IO, "request {index} (modulo 2^16) of a kernel's queue failed: {name}"),
                ));
            }
            if let Some((index, syndrome)) = self.failed_probe(pe) {
                self.failed[pe] = true;
                let name = syndrome_name(syndrome);
                return Some((
                    pe,
                    err!(IO, "read {index} of this host behind kernels' requests failed: {name}"),
                ));
            }
        }
        None
    }

    /// A launch on the CPU device has failed, and no kernel runs: gives back what its threads held. True
    /// where all is back.
    pub(in crate::net) fn reclaim(&mut self) -> bool {
        let DeviceMemory::Host(memory) = &self.device else { return true };
        // Before a newer doorbell goes to the register itself.
        self.ring_for_kernels();
        let device = memory.host().cast::<u8>();
        let busy_at = self.busy_at();
        for pe in (0..self.layout.n).filter(|pe| self.has[*pe]) {
            // SAFETY: the queue's header; no kernel runs, so that it is nobody's else.
            let queue = unsafe { &mut *device.cast::<RawQueue>().add(pe) };
            queue.ringing = 0;
            if queue.rung == queue.tail {
                continue;
            }
            // A thread that took an index and did not come to write its request: it becomes one that does
            // nothing.
            for index in queue.rung..queue.tail {
                let slot = index as usize & queue.mask as usize;
                // SAFETY: the slot's stamp and its first words; room for all of them was seen before their
                // indices were taken.
                unsafe {
                    let stamp = (queue.stamps as *mut u32).add(slot);
                    if stamp.read() != (index + 1) as u32 {
                        (queue.slots as *mut [u64; 8])
                            .add(slot)
                            .cast::<[u64; 2]>()
                            .write(formats::nop(index as u16, self.open[pe].number));
                        stamp.write((index + 1) as u32);
                    }
                }
            }
            fence(Ordering::Release);
            let record = u64::from((queue.tail as u32 & 0xffff).to_be()) << 32;
            self.record(pe).store(record, Ordering::Release);
            let bell = formats::bell((queue.tail - 1) as u16, self.open[pe].number);
            self.bell(pe).store(bell, Ordering::Release);
            queue.rung = queue.tail;
        }
        let idle = self.idle();
        if idle {
            // SAFETY: the words that say who has a place for answers; no kernel runs, and no answer is on its
            // way.
            unsafe { device.add(busy_at).cast::<u64>().write_bytes(0, RUSHMEM_QUEUE_SINKS) };
        }
        idle
    }
}

#[cfg(test)]
mod tests {
    use super::emulated::SoftwareCard;
    use super::*;

    /// Kernels can name so many pieces; one that is forgotten makes room for another.
    #[test]
    fn pieces_of_memory_have_entries_as_long_as_they_are_known() {
        let card = SoftwareCard::new(0, None, None, 0, None).unwrap();
        let mut queues = Queues::new(0, 2, 64, None, Box::new(card), Default::default()).unwrap();
        let mut memory = vec![0u8; 4096];
        let address = memory.as_mut_ptr() as usize;
        let add = |queues: &mut Queues, id: u32| {
            let memory = Memory { address, bytes: 4096, gpu: false, single: true };
            // SAFETY: the memory outlives the queues.
            let key = unsafe { queues.register(id, id as usize * 4096, memory) }.unwrap();
            queues.insert(id, id as usize * 4096, 4096, &[key, 7])
        };
        (0..RUSHMEM_QUEUE_SEGMENTS as u32).for_each(|id| add(&mut queues, id).unwrap());
        let full = add(&mut queues, 1000).unwrap_err();
        assert!(full.message.contains("RUSHMEM_HEAP_MIN"), "{full:?}");
        queues.forget(1000);
        queues.forget(3);
        add(&mut queues, 1001).unwrap();
        let place = queues.layout.segments() + 3 * size_of::<QueueSegment>();
        // SAFETY: an entry of the table, which nobody writes now.
        let entry = unsafe { queues.shared.host().cast::<u8>().add(place).cast::<QueueSegment>().read() };
        assert_eq!((entry.offset, entry.bytes), (1001 * 4096, 4096));
        // SAFETY: the keys of that entry.
        assert_eq!(unsafe { (entry.rkeys as *const [u32; 2]).read() }[1], 7u32.to_be());
        assert!(queues.idle() && queues.failure().is_none() && queues.reclaim());
        drop(queues);
        drop(memory);
    }
}
