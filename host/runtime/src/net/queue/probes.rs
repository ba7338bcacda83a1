//! The host's own queues, one to each PE: behind what kernels have posted it reads a word of the peer's
//! memory, as a kernel's quiet does in the kernel's queue. A completion of a WRITE says that the peer's card
//! has it, not that it is in memory; a read over PCIe does not pass the writes before it
//! (`device/include/rushmem/impl/net/queue.h`, "settled"). It is posted once the card has completed them, as
//! queues have no order between them.
//!
//! One probe to a PE is under way at a time. Who comes meanwhile waits for the next one.

use std::sync::atomic::{fence, AtomicU64, Ordering};

use rushmem_abi::device::{RUSHMEM_QUEUE_SINKS, RUSHMEM_QUEUE_SINK_BYTES};

use super::formats::{self, Completion, BLOCK};
use super::layout::PROBE_SLOTS;
use super::Queues;

/// The probes to a PE.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Probes {
    begun: u64,
    done: u64,
    /// Requests in the queue: a probe of a PE that cannot be read takes none.
    posted: u64,
    /// The next one is waited for.
    wanted: bool,
}

/// A probe that was asked for: its number among those to its PE.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::net) struct Probe(u64);

impl Queues {
    /// Asks for a probe of what the card has completed to `pe` by now.
    pub(in crate::net) fn ask_for_probe(&mut self, pe: usize) -> Probe {
        let probes = &mut self.probes[pe];
        probes.wanted = true;
        Probe(probes.begun + 1)
    }

    /// Whether it is over, and so what it probes is in the peer's memory.
    pub(in crate::net) fn probed(&self, pe: usize, probe: Probe) -> bool {
        self.probes[pe].done >= probe.0
    }

    /// Looks at the probes under way, and posts those that are wanted.
    pub(in crate::net) fn turn_probes(&mut self) {
        for pe in 0..self.layout.n {
            let Probes { begun, done, posted, wanted } = self.probes[pe];
            if begun != done {
                let last = posted.wrapping_sub(1) as u16;
                if self.completion(self.layout.of_host(pe)) == Completion::Done(last) {
                    fence(Ordering::Acquire);
                    self.probes[pe].done = begun;
                }
            } else if wanted {
                self.begin_probe(pe);
            }
        }
    }

    /// A READ of the first word of the peer's symmetric memory. Where the card knows of none, no kernel has
    /// written there either.
    fn begin_probe(&mut self, pe: usize) {
        let queue = self.layout.of_host(pe);
        let key = self.base_keys.get(pe).copied().filter(|_| self.has[pe]);
        let probes = &mut self.probes[pe];
        probes.wanted = false;
        probes.begun += 1;
        let index = probes.posted;
        let Some(rkey) = key else {
            probes.done = probes.begun;
            return;
        };
        probes.posted += 1;
        let answer = self.sink_address + (RUSHMEM_QUEUE_SINKS * RUSHMEM_QUEUE_SINK_BYTES) as u64;
        let number = self.open[queue].number;
        let request = formats::read_word(index as u16, number, (0, rkey), (answer, self.sink_key));
        let slot = self.layout.queue(queue) + index as usize % PROBE_SLOTS * BLOCK;
        for (at, word) in request.iter().enumerate() {
            self.word(slot, at).store(*word, Ordering::Relaxed);
        }
        fence(Ordering::Release);
        let record = u64::from(((index + 1) as u32 & 0xffff).to_be()) << 32;
        self.record(queue).store(record, Ordering::Release);
        // The register is not cached: on some processors a release alone does not keep what is before it.
        fence(Ordering::SeqCst);
        self.bell(queue).store(formats::bell(index as u16, number), Ordering::Release);
    }

    /// The probe that failed, and its syndrome.
    pub(super) fn failed_probe(&self, pe: usize) -> Option<(u16, u8)> {
        match self.completion(self.layout.of_host(pe)) {
            Completion::Failed(index, syndrome) => Some((index, syndrome)),
            _ => None,
        }
    }

    /// Word `number` of what lies at that offset.
    pub(super) fn word(&self, offset: usize, number: usize) -> &AtomicU64 {
        // SAFETY: a word of a queue's, atomic to all.
        unsafe {
            let at = self.shared.host().cast::<u8>().add(offset).cast::<u64>();
            AtomicU64::from_ptr(at.add(number))
        }
    }
}
