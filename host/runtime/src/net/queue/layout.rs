//! Where things lie in the memory that kernels, host and card share.

use rushmem_abi::device::{
    QueueSegment, RingLine as Line, RUSHMEM_QUEUE_SEGMENTS, RUSHMEM_QUEUE_SINKS, RUSHMEM_QUEUE_SINK_BYTES,
};

use super::card::QueueNeeds;
use super::formats::BLOCK;

pub(super) const LINE: usize = size_of::<Line>();
/// Of a queue, behind its slots and completions: the doorbell record, the register.
const EXTRAS: usize = 2 * LINE;
/// Places for answers, and one more for probes.
pub(super) const SINKS: usize = (RUSHMEM_QUEUE_SINKS + 1) * RUSHMEM_QUEUE_SINK_BYTES;

/// Places in it, in bytes.
pub(super) struct Layout {
    pub(super) n: usize,
    pub(super) slots: usize,
    pub(super) needs: QueueNeeds,
    /// Bytes before the first queue, so that it begins a page.
    pub(super) lead: usize,
}

impl Layout {
    pub(super) fn queue(&self, pe: usize) -> usize {
        let page = self.needs.page;
        let slots = (self.slots * BLOCK).next_multiple_of(page);
        self.lead + pe * (slots + self.completions() + EXTRAS.next_multiple_of(page))
    }

    /// Bytes of a completion queue.
    fn completions(&self) -> usize {
        (self.needs.completions * BLOCK).next_multiple_of(self.needs.page)
    }

    pub(super) fn completion(&self, pe: usize) -> usize {
        self.queue(pe) + (self.slots * BLOCK).next_multiple_of(self.needs.page)
    }

    pub(super) fn record(&self, pe: usize) -> usize {
        self.completion(pe) + self.completions()
    }

    pub(super) fn sinks(&self) -> usize {
        self.queue(self.n)
    }

    pub(super) fn segments(&self) -> usize {
        (self.sinks() + SINKS).next_multiple_of(LINE)
    }

    pub(super) fn count(&self) -> usize {
        self.segments() + RUSHMEM_QUEUE_SEGMENTS * size_of::<QueueSegment>()
    }

    pub(super) fn rkeys(&self) -> usize {
        self.count() + LINE
    }

    pub(super) fn bytes(&self) -> usize {
        self.rkeys() + RUSHMEM_QUEUE_SEGMENTS * self.n * size_of::<u32>()
    }
}
