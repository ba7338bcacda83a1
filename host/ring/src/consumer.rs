//! The host's half: takes descriptors in the order of their tickets and answers those that ask for it.

use std::sync::atomic::Ordering;

use rushmem_abi::device::ReplyTo;

use crate::memory::{View, WORDS};

/// The one thread that takes descriptors out of a ring. There must be no other for the same memory.
#[derive(Debug, Default)]
pub struct Consumer {
    /// The ticket that comes next.
    next: u64,
}

impl Consumer {
    /// For a ring of which nothing has been taken yet.
    pub fn new() -> Consumer {
        Consumer::default()
    }

    /// Copies what is published out, at most `max` descriptors, and hands each with its ticket to `each`;
    /// returns how many. What their producers did before they posted them has then happened before. Never
    /// waits.
    pub fn take(&mut self, ring: &View<'_>, max: usize, mut each: impl FnMut([u64; WORDS], u64)) -> usize {
        let first = self.next;
        while self.next - first < max as u64 {
            let slot = ring.slot(self.next);
            if slot.ticket.load(Ordering::Acquire) != self.next + 1 {
                break;
            }
            // SAFETY: published, and not rewritten before `consumed` says that it was read.
            each(std::array::from_fn(|i| unsafe { slot.words[i].read() }), self.next);
            self.next += 1;
        }
        if self.next != first {
            ring.consumed.store(self.next, Ordering::Release);
        }
        (self.next - first) as usize
    }

    /// Whether each slot holds a descriptor that was not taken: who posts another waits for room.
    pub fn is_full(&self, ring: &View<'_>) -> bool {
        let last = self.next + ring.slots.len() as u64 - 1;
        ring.slot(last).ticket.load(Ordering::Acquire) == last + 1
    }

    /// How many descriptors have been taken.
    pub fn taken(&self) -> u64 {
        self.next
    }
}

impl View<'_> {
    /// Answers a descriptor: its producer, once it has seen that, has also seen what the caller did before.
    /// By any thread, once for each descriptor.
    pub fn reply(&self, to: ReplyTo, value: u64) {
        let reply = &self.replies[to.slot as usize];
        // SAFETY: from the claim to the answer the slot is the answerer's; the claimer reads it after `state`
        // says so.
        unsafe { reply.value.write(value) };
        reply.state.store(to.ticket + 1, Ordering::Release);
    }
}
