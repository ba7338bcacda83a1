//! Where the heaps are: one reservation for all near PEs, `stride` apart, so that a peer's address is the local one
//! plus a difference. Each stride holds a PE's heap in its lower half and its registered regions in the upper.

use std::os::fd::{AsFd, OwnedFd};

use crate::error::{err, Result};
use crate::memory::{Reservation, RESERVE_ALIGN};
use crate::node::card::Card;

/// Address space that all worlds' windows of one process may take together: half of what x86-64 gives a process.
const ADDRESS_BUDGET: u64 = 64 << 40;
/// A heap smaller than this serves nobody; the address space must hold at least that much for each PE.
const LEAST_HEAP: u64 = 16 << 20;

/// The window as one PE sees it.
#[derive(Debug)]
pub(crate) struct Window {
    reservation: Reservation,
    slots: usize,
    me: usize,
    half: usize,
}

/// The heap's limit on this node, the same on each of its PEs: what was asked for, or less where that was only the
/// default and the address space of a process holds too little (many PEs in one process).
pub(crate) fn heap_limit(cards: &[Card], asked: u64, given: bool) -> Result<u64> {
    let in_one = |c: &Card| cards.iter().filter(|o| o.process == c.process).count() as u64;
    let most = cards.iter().map(in_one).max().unwrap_or(1);
    let room = ADDRESS_BUDGET / (most * cards.len() as u64) / 2;
    let asked = asked.next_multiple_of(RESERVE_ALIGN as u64);
    if asked <= room {
        return Ok(asked);
    }
    if given || room < LEAST_HEAP {
        return Err(err!(
            ENVIRONMENT,
            "RUSHMEM_HEAP_MAX={asked}: {} PEs on one host, {most} of them in one process, leave address space for {room} \
             bytes each; lower it or start fewer PEs a process",
            cards.len()
        ));
    }
    Ok(room / RESERVE_ALIGN as u64 * RESERVE_ALIGN as u64)
}

impl Window {
    /// Reserves a window for `slots` PEs of which this is number `me`, each with at most `heap_max` bytes.
    pub(crate) fn reserve(slots: usize, me: usize, heap_max: u64) -> Result<Window> {
        let half = (heap_max as usize).next_multiple_of(RESERVE_ALIGN);
        Ok(Window { reservation: Reservation::new(slots * half * 2)?, slots, me, half })
    }

    /// Address of this PE's heap.
    pub(crate) fn base(&self) -> usize {
        self.reservation.base() + self.me * self.stride()
    }

    /// Distance from one PE's heap to the next one's.
    pub(crate) fn stride(&self) -> usize {
        self.half * 2
    }

    /// Limit of each PE's heap, and offset at which its regions start.
    pub(crate) fn half(&self) -> usize {
        self.half
    }

    /// True where `at` lies in any PE's part of the window.
    pub(crate) fn covers(&self, at: usize, bytes: usize) -> bool {
        let (start, end) = (self.reservation.base(), self.reservation.base() + self.reservation.bytes());
        at < end && at.saturating_add(bytes) > start
    }

    /// Maps every PE's memory, by slot, at `offset` of its heap. All or nothing.
    pub(crate) fn map(&self, offset: usize, bytes: usize, fds: &[OwnedFd]) -> Result<()> {
        assert_eq!(fds.len(), self.slots);
        for (slot, fd) in fds.iter().enumerate() {
            if let Err(e) = self.reservation.map(slot * self.stride() + offset, bytes, fd.as_fd()) {
                self.unmap_slots(0..slot, offset, bytes);
                return Err(e);
            }
        }
        Ok(())
    }

    /// Takes every PE's memory at `offset` out of the window again.
    pub(crate) fn unmap(&self, offset: usize, bytes: usize) {
        self.unmap_slots(0..self.slots, offset, bytes);
    }

    fn unmap_slots(&self, slots: std::ops::Range<usize>, offset: usize, bytes: usize) {
        for slot in slots {
            self.reservation.unmap(slot * self.stride() + offset, bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    fn cards(n: usize, processes: u64) -> Vec<Card> {
        let card = Card::mine(&Config::from_lookup(&|_| None).unwrap(), 0).unwrap();
        (0..n).map(|i| Card { process: i as u64 % processes, ..card.clone() }).collect()
    }

    #[test]
    fn the_default_shrinks_to_the_address_space_and_a_wish_does_not() {
        assert_eq!(heap_limit(&cards(8, 8), 64 << 30, false).unwrap(), 64 << 30);
        let threads = heap_limit(&cards(64, 1), 64 << 30, false).unwrap();
        assert!(threads >= 4 << 30 && threads * 2 * 64 * 64 <= ADDRESS_BUDGET, "{threads}");
        assert!(heap_limit(&cards(64, 1), 64 << 30, true).unwrap_err().message.contains("RUSHMEM_HEAP_MAX"));
    }
}
