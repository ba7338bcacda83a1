//! Queues of a network card that kernels write themselves: the back end `queue`
//! (`device/include/rushmem/impl/net/queue.h`, where the argument for its order is). The host lays out their
//! memory, tells kernels where registered memory is, and looks at completions: of queues that ended kernels
//! have left busy, which its fence and quiet wait for, and of failures.
//!
//! - [`card`]: what a card gives. [`mlx5`] is one; [`emulated`] is one as a program, for tests.
//! - [`words`]: whether cards update words for the kernels of the job.
//! - [`doorbells`]: who rings. [`probes`]: reads of the host's own behind what kernels have written.
//! - [`layout`]: where things lie in their memory, [`device_memory`] that of the device. [`pieces`]: what
//!   kernels can name to the card. [`links`]: to which PEs queues lead.
//! - [`formats`]: what the host itself reads and writes of the card's formats.

pub(in crate::net) mod card;
mod device_memory;
mod doorbells;
pub(in crate::net) mod emulated;
pub(in crate::net) mod formats;
#[cfg(test)]
mod formats_tests;
mod layout;
pub(in crate::net) mod links;
pub(in crate::net) mod mlx5;
mod pieces;
pub(in crate::net) mod probes;
mod words;

use std::sync::atomic::{fence, AtomicU64, Ordering};
use std::sync::Arc;

use rushmem_abi::device::{RawQueue, RawQueues, RUSHMEM_QUEUE_SINKS};

use self::card::{AccessRights, NetworkCard, OpenQueue, QueueArea, QueueMemory};
use self::device_memory::DeviceMemory;
use self::doorbells::Doorbells;
use self::formats::{Completion, RECORD_SEND};
use self::layout::{DeviceLayout, Layout, LINE, PROBE_SLOTS, SINKS};
use self::pieces::KnownPiece;
use self::probes::Probes;
use crate::config::Ringer;
use crate::error::{err, Error, Result};
use crate::gpu::Cuda;
use crate::net::memory::reachable::HostMemory;
use crate::net::transport::Memory;
use crate::verbs::syndrome_name;

/// What kernels have in one of their queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::net) struct UsedQueue {
    pub(in crate::net) pe: usize,
    queue: usize,
    /// The lowest 16 bits of how many requests it had.
    rung: u16,
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
    /// By [`Layout`]'s numbers.
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
    /// The queues of PE `me` to all `n`, itself among them, in so many contexts and of so many slots, on
    /// `card`, for kernels on the CPU or on `gpu`.
    pub(in crate::net) fn new(
        me: usize,
        n: usize,
        (contexts, slots): (usize, usize),
        gpu: Option<&Arc<Cuda>>,
        card: Box<dyn NetworkCard>,
        ringer: Ringer,
    ) -> Result<Queues> {
        let (needs, probe_needs) = (card.needs(slots), card.needs(PROBE_SLOTS));
        let mut layout = Layout { n, contexts, slots, needs, probe_needs, lead: needs.page - LINE };
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
        for memory in (0..layout.queues()).map(memory) {
            // SAFETY: the entry's last word; nobody else knows the memory yet.
            unsafe { memory.completion.add(7).write(u64::from(formats::NONE_YET) << 60) };
        }
        let area = QueueArea { start: at(layout.lead), bytes: layout.sinks() - layout.lead };
        // SAFETY: `shared` is dropped after the card.
        let open = unsafe { card.open(area, n, (0..layout.queues()).map(|q| Some(memory(q))).collect()) }?;
        let bells = Doorbells::new(ringer, gpu, &open[..layout.of_kernels()])?;
        let sinks = Memory { address: at(layout.sinks()) as usize, bytes: SINKS, gpu: false, single: true };
        // SAFETY: `shared` is dropped after the card, and stays until then.
        let sink_keys = unsafe { card.register(sinks, sinks.address as u64, AccessRights::ANSWERS) }?;

        let base = shared.device_address();
        let there = |offset: usize| base + offset as u64;
        let places = DeviceLayout { n, contexts, slots };
        let device = DeviceMemory::new(gpu, places.bytes().div_ceil(LINE))?;
        let at = |offset: usize| device.base() as u64 + offset as u64;
        for (queue, open) in open[..layout.of_kernels()].iter().enumerate() {
            let raw = RawQueue {
                slots: there(layout.queue(queue)),
                record: there(layout.record(queue)),
                bell: bells.of_kernels[queue].unwrap_or(there(layout.record(queue) + LINE)),
                completion: there(layout.completion(queue)),
                stamps: at(places.stamps(queue)),
                mask: slots as u32 - 1,
                number: open.number,
                ..RawQueue::NONE
            };
            device.write(&[(places.queue(queue), &raw.words())])?;
        }
        let head = RawQueues {
            queues: at(places.queue(0)),
            segments: at(places.segment(0)),
            n_segments: at(places.segments_used()),
            sinks: there(layout.sinks()),
            sink_busy: at(places.sinks_busy()),
            sink_address: sinks.address as u64,
            sink_lkey: sink_keys.local.to_be(),
            contexts: contexts as u32,
            // Of one context 2^32, which is 0 here.
            context_step: (1u64 << 32).div_ceil(contexts as u64) as u32,
            ..RawQueues::NONE
        };
        device.write(&[(places.head(), &head.words())])?;
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
        let contexts = match self.layout.contexts {
            1 => String::new(),
            contexts => format!(", in {contexts} queues to each PE (RUSHMEM_QUEUE_CONTEXTS)"),
        };
        self.card.about() + &contexts + &self.bells.about()
    }

    /// What other PEs' cards need in order to connect.
    pub(in crate::net) fn card_address(&self) -> Vec<u8> {
        self.card.address()
    }

    fn places(&self) -> DeviceLayout {
        let Layout { n, contexts, slots, .. } = self.layout;
        DeviceLayout { n, contexts, slots }
    }

    /// What the device state's `queues` is to be.
    pub(in crate::net) fn device_address(&self) -> usize {
        self.device.base() + self.places().head()
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
    fn rung(&self, queue: usize) -> u16 {
        const { assert!(RECORD_SEND == 1) };
        let record = self.record(queue).load(Ordering::Acquire);
        u32::from_be((record >> 32) as u32) as u16
    }

    /// Those that are complete, likewise; `None` once one has failed.
    fn complete(&self, queue: usize) -> Option<u16> {
        match self.completion(queue) {
            Completion::NoneYet => Some(0),
            Completion::Done(last) => Some(last.wrapping_add(1)),
            Completion::Failed(..) => None,
        }
    }

    /// Numbers of kernels' queues, of all contexts.
    fn of_kernels(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.layout.of_kernels()).filter(|queue| self.has[self.layout.pe_of(*queue)])
    }

    /// Kernels' queues in which there was ever a request.
    pub(in crate::net) fn used(&self) -> Vec<UsedQueue> {
        let used = self.of_kernels().filter_map(|queue| {
            let rung = self.rung(queue);
            let is_used = rung != 0 || self.completion(queue) != Completion::NoneYet;
            is_used.then(|| UsedQueue { pe: self.layout.pe_of(queue), queue, rung })
        });
        used.collect()
    }

    /// Whether none has requests under way.
    fn idle(&self) -> bool {
        self.used().iter().all(|used| self.complete(used.queue) == Some(used.rung))
    }

    /// Whether what was rung for is complete. A kernel that posts meanwhile may carry the count of 16 bits
    /// past half a lap between two looks: then a later look says so.
    pub(in crate::net) fn reached(&self, used: UsedQueue) -> bool {
        self.complete(used.queue).is_some_and(|complete| complete.wrapping_sub(used.rung) as i16 >= 0)
    }

    /// The first failure of a queue, once: the PE, and an error about it.
    pub(in crate::net) fn failure(&mut self) -> Option<(usize, Error)> {
        for pe in (0..self.layout.n).filter(|pe| self.has[*pe] && !self.failed[*pe]) {
            let failed = (pe..self.layout.of_kernels()).step_by(self.layout.n).find_map(|queue| {
                match self.completion(queue) {
                    Completion::Failed(index, syndrome) => Some((index, syndrome)),
                    _ => None,
                }
            });
            if let Some((index, syndrome)) = failed {
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
        let Some(device) = self.device.host() else { return true };
        // Before a newer doorbell goes to the register itself.
        self.ring_for_kernels();
        let places = self.places();
        for number in self.of_kernels() {
            // SAFETY: the queue's header; no kernel runs, so that it is nobody's else.
            let queue = unsafe { &mut *device.add(places.queue(number)).cast::<RawQueue>() };
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
                            .write(formats::nop(index as u16, self.open[number].number));
                        stamp.write((index + 1) as u32);
                    }
                }
            }
            fence(Ordering::Release);
            let record = u64::from((queue.tail as u32 & 0xffff).to_be()) << 32;
            self.record(number).store(record, Ordering::Release);
            let bell = formats::bell((queue.tail - 1) as u16, self.open[number].number);
            self.bell(number).store(bell, Ordering::Release);
            queue.rung = queue.tail;
        }
        let idle = self.idle();
        if idle {
            // SAFETY: the words that say who has a place for answers; no kernel runs, and no answer is on its
            // way.
            unsafe { device.add(places.sinks_busy()).cast::<u64>().write_bytes(0, RUSHMEM_QUEUE_SINKS) };
        }
        idle
    }
}
