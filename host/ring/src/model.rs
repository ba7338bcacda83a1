//! The kernels' half of the protocol in Rust, for tests and for loom: `impl/far.h`'s `rushmem_far_post`,
//! fence and quiet, with the same steps in the same order, which a test compares with that file's text
//! (`steps.rs`). Nothing of it runs in a runtime.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crate::memory::{View, WORDS};
use crate::sync::{fence, AtomicU64};

/// How a producer takes a ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tickets {
    /// As on a GPU: takes it, then waits for room.
    Add,
    /// As on the CPU device: takes it when there is room.
    Swap,
}

/// Device memory of a ring: `rushmem_ring`'s counters, and `busy`.
#[derive(Debug)]
#[allow(missing_docs, reason = "abi_ring.h says what each is")]
pub struct Counters {
    pub tail: AtomicU64,
    pub consumed_seen: AtomicU64,
    pub reply_tail: AtomicU64,
    pub fenced: AtomicU64,
    pub quieted: AtomicU64,
    pub busy: Vec<AtomicU64>,
}

impl Counters {
    /// For a ring with so many reply slots.
    pub fn new(replies: usize) -> Counters {
        let zero = || AtomicU64::new(0);
        Counters {
            tail: zero(),
            consumed_seen: zero(),
            reply_tail: zero(),
            fenced: zero(),
            quieted: zero(),
            busy: (0..replies).map(|_| zero()).collect(),
        }
    }
}

/// One thread of a kernel.
#[derive(Clone, Copy, Debug)]
pub struct Producer<'m> {
    /// The ring.
    pub ring: View<'m>,
    /// Its counters.
    pub counters: &'m Counters,
    /// On which kind of device this is.
    pub tickets: Tickets,
}

/// The word of a descriptor in which the model says which reply slot it has, as the seventh of the real one
/// does.
const REPLY: usize = 6;

/// What is posted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum What {
    Operation { answers: bool },
    Fence,
    Quiet,
}

impl What {
    fn answers(self) -> bool {
        matches!(self, What::Operation { answers: true } | What::Quiet)
    }
}

enum Stage {
    Claim,
    Ticket,
    Room,
    Answer,
}

impl Producer<'_> {
    /// Posts a descriptor whose last word is the protocol's: the reply slot, where `answer` is asked for.
    /// Returns the ticket, and the answer. While there is nothing to do it calls `wait`.
    pub fn post(&self, words: [u64; WORDS], answer: bool, wait: impl FnMut()) -> (u64, Option<u64>) {
        self.post_as(What::Operation { answers: answer }, words, wait)
    }

    fn post_as(&self, what: What, mut words: [u64; WORDS], mut wait: impl FnMut()) -> (u64, Option<u64>) {
        let counters = self.counters;
        let (mut ticket, mut claim) = (0, 0);
        let mut stage = if what.answers() { Stage::Claim } else { Stage::Ticket };
        loop {
            if let Stage::Claim = stage {
                claim = counters.reply_tail.fetch_add(1, Relaxed) as usize & (counters.busy.len() - 1);
                if counters.busy[claim].compare_exchange(0, 1, Relaxed, Relaxed).is_ok() {
                    words[REPLY] = claim as u64;
                    stage = Stage::Ticket;
                }
            }
            if let Stage::Ticket = stage {
                if let Some(taken) = self.take_ticket() {
                    ticket = taken;
                    stage = Stage::Room;
                }
            }
            if matches!(stage, Stage::Room) && self.has_room(ticket) {
                let slot = self.ring.slot(ticket);
                for (to, word) in slot.words.iter().zip(words) {
                    // SAFETY: the slot is this ticket's from when it is free until it is published.
                    unsafe { to.write(word) };
                }
                fence(AcqRel);
                slot.ticket.store(ticket + 1, Relaxed);
                if what == What::Fence {
                    counters.fenced.store(ticket + 1, Release);
                }
                if !what.answers() {
                    return (ticket, None);
                }
                stage = Stage::Answer;
            }
            if let Stage::Answer = stage {
                let reply = &self.ring.replies[claim];
                if reply.state.load(Relaxed) == ticket + 1 {
                    fence(AcqRel);
                    // SAFETY: answered, and this thread's until it gives the slot back.
                    let value = unsafe { reply.value.read() };
                    counters.busy[claim].store(0, Release);
                    if what == What::Quiet {
                        counters.quieted.store(ticket + 1, Release);
                    }
                    return (ticket, Some(value));
                }
            }
            wait();
        }
    }

    fn take_ticket(&self) -> Option<u64> {
        if self.tickets == Tickets::Swap {
            let mut at = self.counters.tail.load(Relaxed);
            while self.has_room(at) {
                match self.counters.tail.compare_exchange(at, at + 1, Relaxed, Relaxed) {
                    Ok(_) => return Some(at),
                    Err(found) => at = found,
                }
            }
            return None;
        }
        Some(self.counters.tail.fetch_add(1, Relaxed))
    }

    fn has_room(&self, ticket: u64) -> bool {
        let slots = self.ring.slots.len() as i64;
        let ahead = |of: u64| ticket.wrapping_sub(of) as i64;
        let seen = self.counters.consumed_seen.load(Acquire);
        if ahead(seen) < slots {
            return true;
        }
        if self.tickets == Tickets::Add && ahead(seen) > slots {
            return false;
        }
        let now = self.ring.consumed.load(Acquire);
        self.counters.consumed_seen.store(now, Release);
        ahead(now) < slots
    }

    /// Posts a fence, if anything was posted since the last one, and since the last quiet that has ended;
    /// returns its ticket.
    pub fn fence(&self, words: [u64; WORDS], wait: impl FnMut()) -> Option<u64> {
        let fenced = self.counters.fenced.load(Acquire);
        let quieted = self.counters.quieted.load(Acquire);
        let tail = self.counters.tail.load(Relaxed);
        if tail.wrapping_sub(fenced) as i64 <= 0 || tail.wrapping_sub(quieted) as i64 <= 0 {
            return None;
        }
        Some(self.post_as(What::Fence, words, wait).0)
    }

    /// Has everything posted so far completed, by a descriptor where it takes one; returns its ticket.
    pub fn quiet(&self, words: [u64; WORDS], wait: impl FnMut()) -> Option<u64> {
        let quieted = self.counters.quieted.load(Acquire);
        if self.counters.tail.load(Relaxed).wrapping_sub(quieted) as i64 <= 0 {
            return None;
        }
        Some(self.post_as(What::Quiet, words, wait).0)
    }
}
