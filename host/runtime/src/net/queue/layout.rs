//! Where things lie in the memory that kernels, host and card share, and in that of the device.

use rushmem_abi::device::{
    QueueSegment, RawQueue, RawQueues, RingLine as Line, RUSHMEM_QUEUE_SEGMENTS, RUSHMEM_QUEUE_SINKS,
    RUSHMEM_QUEUE_SINK_BYTES,
};

use super::card::QueueNeeds;
use super::formats::BLOCK;

pub(super) const LINE: usize = size_of::<Line>();
/// Of a queue, behind its slots and completions: the doorbell record, the register.
const EXTRAS: usize = 2 * LINE;
/// Places for answers, and one more for probes.
pub(super) const SINKS: usize = (RUSHMEM_QUEUE_SINKS + 1) * RUSHMEM_QUEUE_SINK_BYTES;

/// Slots of a queue of the host's own ([`super::probes`]): it has one request under way at a time.
pub(super) const PROBE_SLOTS: usize = 64;

/// Places in it, in bytes. The queues of kernels, by PE, context after context, and then those of the host:
/// of `n` PEs queue `context * n + pe`, and `contexts * n + pe`.
pub(super) struct Layout {
    pub(super) n: usize,
    pub(super) contexts: usize,
    pub(super) slots: usize,
    pub(super) needs: QueueNeeds,
    /// Of the host's own queues.
    pub(super) probe_needs: QueueNeeds,
    /// Bytes before the first queue, so that it begins a page.
    pub(super) lead: usize,
}

impl Layout {
    /// How many queues kernels have.
    pub(super) fn of_kernels(&self) -> usize {
        self.contexts * self.n
    }

    /// The host's own to a PE.
    pub(super) fn of_host(&self, pe: usize) -> usize {
        self.of_kernels() + pe
    }

    /// All of them.
    pub(super) fn queues(&self) -> usize {
        self.of_host(self.n)
    }

    /// The PE to which a queue leads.
    pub(super) fn pe_of(&self, queue: usize) -> usize {
        queue % self.n
    }

    /// Slots of a queue.
    pub(super) fn count_of(&self, queue: usize) -> usize {
        if queue < self.of_kernels() {
            self.slots
        } else {
            PROBE_SLOTS
        }
    }

    fn needs_of(&self, queue: usize) -> QueueNeeds {
        if queue < self.of_kernels() {
            self.needs
        } else {
            self.probe_needs
        }
    }

    /// Bytes of a queue's slots, of its completion queue, and of all of it.
    fn sizes(&self, queue: usize) -> [usize; 3] {
        let QueueNeeds { page, completions } = self.needs_of(queue);
        let slots = (self.count_of(queue) * BLOCK).next_multiple_of(page);
        let completions = (completions * BLOCK).next_multiple_of(page);
        [slots, completions, slots + completions + EXTRAS.next_multiple_of(page)]
    }

    pub(super) fn queue(&self, queue: usize) -> usize {
        let kernels = queue.min(self.of_kernels());
        self.lead + kernels * self.sizes(0)[2] + (queue - kernels) * self.sizes(self.of_host(0))[2]
    }

    pub(super) fn completion(&self, queue: usize) -> usize {
        self.queue(queue) + self.sizes(queue)[0]
    }

    pub(super) fn record(&self, queue: usize) -> usize {
        self.completion(queue) + self.sizes(queue)[1]
    }

    pub(super) fn sinks(&self) -> usize {
        self.queue(self.queues())
    }

    pub(super) fn bytes(&self) -> usize {
        self.sinks() + SINKS
    }
}

/// Places in memory of the device, in bytes: what kernels alone write, and what kernels read of the host's.
#[derive(Debug, Clone, Copy)]
pub(super) struct DeviceLayout {
    pub(super) n: usize,
    pub(super) contexts: usize,
    pub(super) slots: usize,
}

impl DeviceLayout {
    pub(super) fn queue(&self, queue: usize) -> usize {
        queue * size_of::<RawQueue>()
    }

    pub(super) fn stamps(&self, queue: usize) -> usize {
        self.queue(self.contexts * self.n) + queue * self.slots * size_of::<u32>()
    }

    pub(super) fn sinks_busy(&self) -> usize {
        self.stamps(self.contexts * self.n).next_multiple_of(LINE)
    }

    pub(super) fn head(&self) -> usize {
        (self.sinks_busy() + RUSHMEM_QUEUE_SINKS * size_of::<u64>()).next_multiple_of(LINE)
    }

    pub(super) fn segments_used(&self) -> usize {
        (self.head() + size_of::<RawQueues>()).next_multiple_of(LINE)
    }

    pub(super) fn segment(&self, entry: usize) -> usize {
        self.segments_used() + LINE + entry * size_of::<QueueSegment>()
    }

    /// Of an entry, by PE: whole words of 8 bytes.
    pub(super) fn rkeys(&self, entry: usize) -> usize {
        let keys = (self.n * size_of::<u32>()).next_multiple_of(size_of::<u64>());
        self.segment(RUSHMEM_QUEUE_SEGMENTS) + entry * keys
    }

    pub(super) fn bytes(&self) -> usize {
        self.rkeys(RUSHMEM_QUEUE_SEGMENTS)
    }
}
