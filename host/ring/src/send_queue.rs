//! A card's send queue as kernels share it, for loom: `impl/net/send_queue.h`'s functions with the same steps
//! in the same order, which a test compares with that file's text (`steps.rs`), and a card, of which nothing
//! but the order of its accesses is modelled. Nothing of it runs in a runtime.

use std::sync::atomic::AtomicU64 as Counter;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crate::model::Tickets;
use crate::sync::{fence, AtomicU64, Cell};

/// The memory of a queue, and what its requests name.
pub(crate) struct SendQueue {
    /// A request is its index.
    slots: Vec<Cell>,
    stamps: Vec<AtomicU64>,
    record: AtomicU64,
    /// One past the index that was rung for last.
    bell: AtomicU64,
    /// 0: there was no completion; else one past the lowest digits of the last one's index.
    completion: AtomicU64,
    pub(crate) tail: AtomicU64,
    rung: AtomicU64,
    ringing: AtomicU64,
    completed: AtomicU64,
    /// One for each request, by index: written before it is posted, read and written by the card, read by the
    /// thread that has waited for it.
    memory: Vec<Cell>,
    tickets: Tickets,
    first: u64,
    /// How far the card's counter goes, a power of two: 2^16 in a card, here as few as slots allow.
    lap: u64,
    /// How many requests are complete in truth. Nobody learns from it.
    done: Counter,
}

impl SendQueue {
    /// For so many requests, of which the first has the number `first`, in so many slots.
    pub(crate) fn new(requests: u64, slots: usize, tickets: Tickets, first: u64, lap: u64) -> SendQueue {
        let at_first = || AtomicU64::new(first);
        SendQueue {
            slots: (0..slots).map(|_| Cell::new(u64::MAX)).collect(),
            stamps: (0..slots).map(|_| AtomicU64::new(0)).collect(),
            record: AtomicU64::new(first % lap),
            bell: at_first(),
            completion: AtomicU64::new(if first == 0 { 0 } else { 1 + (first - 1) % lap }),
            tail: at_first(),
            rung: at_first(),
            ringing: AtomicU64::new(0),
            completed: at_first(),
            memory: (0..requests).map(|_| Cell::new(0)).collect(),
            tickets,
            first,
            lap,
            done: Counter::new(first),
        }
    }

    fn slot(&self, index: u64) -> usize {
        index as usize & (self.slots.len() - 1)
    }

    /// Posts a request, and waits for its completion where `waits` says so; its index. While there is nothing
    /// to do it calls `idle`.
    pub(crate) fn post(&self, waits: bool, mut idle: impl FnMut()) -> u64 {
        let (mut index, mut taken, mut written, mut told) = (0, false, false, false);
        loop {
            if !taken {
                if let Some(first) = self.take() {
                    (index, taken) = (first, true);
                }
            }
            if taken && !written && self.has_room(index + 1) {
                // SAFETY: the slot is this index's from when it is free until the card has read it; the
                // memory until it is posted.
                unsafe {
                    self.memory[(index - self.first) as usize].write(1);
                    self.slots[self.slot(index)].write(index);
                }
                self.stamp(index);
                written = true;
            }
            if written && !told {
                told = self.ring(index + 1);
            }
            if told && (!waits || self.is_complete(index + 1)) {
                if waits {
                    // SAFETY: complete: nobody writes it.
                    assert_eq!(unsafe { self.memory[(index - self.first) as usize].read() }, 2);
                }
                return index;
            }
            // The card first, where this thread is the card: then no other has a turn before it may go on.
            idle();
            if let Some(complete) = self.look() {
                let done = self.done.load(Relaxed);
                assert!(complete <= done, "{done} are complete, not {complete}");
            }
        }
    }

    fn has_room(&self, end: u64) -> bool {
        end.wrapping_sub(self.completed.load(Acquire)) as i64 <= self.slots.len() as i64
    }

    fn is_complete(&self, end: u64) -> bool {
        self.completed.load(Acquire).wrapping_sub(end) as i64 >= 0
    }

    fn take(&self) -> Option<u64> {
        if self.tickets == Tickets::Swap {
            let mut first = self.tail.load(Relaxed);
            while self.has_room(first + 1) {
                match self.tail.compare_exchange(first, first + 1, Relaxed, Relaxed) {
                    Ok(_) => return Some(first),
                    Err(found) => first = found,
                }
            }
            return None;
        }
        Some(self.tail.fetch_add(1, Relaxed))
    }

    fn stamp(&self, index: u64) {
        fence(AcqRel);
        self.stamps[self.slot(index)].store(index + 1, Relaxed);
    }

    fn ring(&self, end: u64) -> bool {
        if self.rung.load(Acquire).wrapping_sub(end) as i64 >= 0 {
            return true;
        }
        if self.ringing.compare_exchange(0, 1, Relaxed, Relaxed).is_err() {
            return false;
        }
        fence(AcqRel);
        let from = self.rung.load(Relaxed);
        let mut to = from;
        while self.stamps[self.slot(to)].load(Relaxed) == to + 1 {
            to += 1;
        }
        if to != from {
            fence(AcqRel);
            self.record.store(to % self.lap, Relaxed);
            fence(AcqRel);
            self.bell.store(to, Relaxed);
            self.rung.store(to, Release);
        }
        self.ringing.store(0, Release);
        to.wrapping_sub(end) as i64 >= 0
    }

    /// How many requests it says are complete, where it does.
    fn look(&self) -> Option<u64> {
        let before = self.completed.load(Acquire);
        let last = self.completion.load(Relaxed);
        if last == 0 {
            return None;
        }
        // As the difference of two counts of few digits, with its sign.
        let more = last.wrapping_sub(before) % self.lap;
        if more == 0 || more >= self.lap / 2 {
            return None;
        }
        fence(AcqRel);
        let raised = self.completed.compare_exchange(before, before + more, Relaxed, Relaxed);
        raised.is_ok().then_some(before + more)
    }
}

/// The card's half.
pub(crate) struct Card {
    heard: u64,
    known: u64,
    pub(crate) done: u64,
    /// Doorbells that it has heard.
    pub(crate) bells: u64,
}

impl Card {
    pub(crate) fn new(queue: &SendQueue) -> Card {
        Card { heard: queue.first, known: queue.first, done: queue.first, bells: 0 }
    }

    /// Hears the doorbell, and carries out what it tells of, each request by a completion. True where there
    /// was something to do.
    pub(crate) fn step(&mut self, queue: &SendQueue) -> bool {
        // The software card takes the value out of its register. Here it stays: of two stores that nothing
        // orders but the exchange that came between, loom may show either as the last.
        let rung = queue.bell.load(Acquire);
        if rung != self.heard {
            self.heard = rung;
            let record = queue.record.load(Acquire);
            let more = record.wrapping_sub(self.known) % queue.lap;
            self.known += more;
            self.bells += 1;
            assert!(rung <= self.known, "rung for {rung}, and the record counts {}", self.known);
            assert!(self.known - self.done <= queue.slots.len() as u64);
        }
        if self.done == self.known {
            return false;
        }
        while self.done < self.known {
            let index = self.done;
            let memory = &queue.memory[(index - queue.first) as usize];
            // SAFETY: the card's from the doorbell to the completion; loom sees where a kernel's thread
            // writes them meanwhile.
            unsafe {
                assert_eq!(queue.slots[queue.slot(index)].read(), index);
                assert_eq!(memory.read(), 1);
                memory.write(2);
            }
            self.done = index + 1;
            queue.done.store(self.done, Relaxed);
            queue.completion.store(1 + index % queue.lap, Release);
        }
        true
    }
}
