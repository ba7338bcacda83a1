//! Where the heaps are: one reservation for all near PEs, `stride` apart, so that a peer's address is the
//! local one plus a difference. Each stride holds a PE's heap, then its registered regions in as many bytes.
//! It is a multiple of what lets kernels multiply 32 bits (`topology/near.rs`), or, where addresses are few,
//! no more than that: each PE has the stride that it has addresses for.
//!
//! The layout is the same for every device; what it is made of, host memory or a GPU's, is the [`Backing`]'s
//! matter.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::OnceLock;

use rushmem_abi::device::RUSHMEM_NEAR_UNIT;

use crate::config::MappingWish;
use crate::error::{err, Result};
use crate::memory::backing::{Backing, BackingChunk};
use crate::os::{self, RESERVE_ALIGN};
use crate::topology::card::Card;
use crate::topology::nodes::Nodes;

/// Address space that all worlds' windows of one process may take together: half of what x86-64 gives a
/// process.
const ADDRESS_BUDGET: u64 = 64 << 40;
/// A heap smaller than this serves nobody; the address space must hold at least that much for each PE.
const LEAST_HEAP: u64 = 16 << 20;

/// The window as one PE sees it.
#[derive(Debug)]
pub(crate) struct Window {
    backing: Backing,
    slots: usize,
    me: usize,
    half: usize,
    stride: usize,
    mapping: MappingWish,
    /// Why a slot's memory is not mapped here, for those that are not; found out by the first mapping.
    unmapped: OnceLock<Vec<Option<String>>>,
}

/// The heap's limit, the same on each PE of the job: what was asked for, or less where that was only the
/// default and the address space of a process holds too little (many PEs in one process).
pub(crate) fn heap_limit(cards: &[Card], nodes: &Nodes, asked: u64, given: bool) -> Result<u64> {
    let most = heaps_of_a_process(cards, nodes);
    let room = ADDRESS_BUDGET / most / 2;
    let asked = asked.next_multiple_of(RESERVE_ALIGN as u64);
    if asked <= room {
        return Ok(asked);
    }
    if given || room < LEAST_HEAP {
        return Err(err!(
            ENVIRONMENT,
            "RUSHMEM_HEAP_MAX={asked}: the PEs of one process reserve addresses for {most} heaps (one for each PE of their \
             host, each), which leaves {room} bytes for each; lower it or start fewer PEs a process"
        ));
    }
    Ok(room / RESERVE_ALIGN as u64 * RESERVE_ALIGN as u64)
}

/// Distances from one PE's heap, of at most `heap_max` bytes, to the next one's, the better first: kernels'
/// unit, where the PEs of a process may take as many addresses as that is for `heaps`, and side by side.
fn strides(heap_max: u64, heaps: u64, slots: u64, limit: Option<u64>) -> impl Iterator<Item = u64> {
    let least = heap_max.next_multiple_of(RESERVE_ALIGN as u64) * 2;
    let apart = least.next_multiple_of(RUSHMEM_NEAR_UNIT);
    // The program needs addresses, too, and has been given few.
    let is_much = |limit: u64| apart.saturating_mul(slots) > limit / 4;
    let too_much = apart.saturating_mul(heaps) > ADDRESS_BUDGET || limit.is_some_and(is_much);
    (!too_much && apart > least).then_some(apart).into_iter().chain([least])
}

/// For how many heaps the PEs of one process reserve addresses, at most: each for all PEs of its node.
pub(crate) fn heaps_of_a_process(cards: &[Card], nodes: &Nodes) -> u64 {
    let mut taken: HashMap<u64, u64> = HashMap::new();
    for (pe, card) in cards.iter().enumerate() {
        *taken.entry(card.process).or_default() += nodes.members(pe).len() as u64;
    }
    taken.values().copied().max().unwrap_or(1)
}

impl Window {
    /// The window of `slots` PEs of which this is number `me`, each with at most `heap_max` bytes. The
    /// windows of this process hold `heaps` heaps together. `reserve` makes the backing for that many bytes
    /// of addresses.
    pub(crate) fn reserve(
        slots: usize,
        me: usize,
        heap_max: u64,
        heaps: u64,
        mapping: MappingWish,
        reserve: impl Fn(usize) -> Result<Backing>,
    ) -> Result<Window> {
        let half = (heap_max as usize).next_multiple_of(RESERVE_ALIGN);
        let reserved =
            |stride: u64| reserve(slots * stride as usize).map(|backing| (stride as usize, backing));
        let mut strides = strides(heap_max, heaps, slots as u64, os::address_limit());
        let first = strides.next().map(reserved).expect("there is one at least");
        let (stride, backing) = first.or_else(|e| strides.next().map_or(Err(e), reserved))?;
        if RESERVE_ALIGN % backing.granularity() != 0 {
            return Err(err!(
                UNSUPPORTED,
                "memory comes in pieces of {} bytes here; rushmem lays heaps out in pieces of {RESERVE_ALIGN}",
                backing.granularity()
            ));
        }
        Ok(Window { backing, slots, me, half, stride, mapping, unmapped: OnceLock::new() })
    }

    /// Address of this PE's heap.
    pub(crate) fn base(&self) -> usize {
        self.backing.base() + self.me * self.stride()
    }

    /// Distance from one PE's heap to the next one's.
    pub(crate) fn stride(&self) -> usize {
        self.stride
    }

    /// Number of PEs that it is for.
    pub(crate) fn slots(&self) -> usize {
        self.slots
    }

    /// This PE's own.
    pub(crate) fn me(&self) -> usize {
        self.me
    }

    /// Limit of each PE's heap, and offset at which its regions start.
    pub(crate) fn half(&self) -> usize {
        self.half
    }

    /// What it is made of.
    pub(crate) fn backing(&self) -> &Backing {
        &self.backing
    }

    /// True where `at` lies in any PE's part of the window.
    pub(crate) fn covers(&self, at: usize, bytes: usize) -> bool {
        let (start, end) = (self.backing.base(), self.backing.base() + self.slots * self.stride());
        at < end && at.saturating_add(bytes) > start
    }

    /// Why slot `i`'s memory is not mapped here, if it is not.
    pub(crate) fn why_unmapped(&self, slot: usize) -> Option<&str> {
        self.unmapped.get().and_then(|why| why[slot].as_deref())
    }

    /// The slots whose memory is mapped here, this PE's own among them.
    pub(crate) fn mapped(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.slots).filter(|slot| self.why_unmapped(*slot).is_none())
    }

    /// Maps every PE's memory, by slot, at `offset` of its heap: this PE's `own`, the others' by their
    /// descriptors. The first call finds out whose memory can be mapped at all; of those it is all or nothing
    /// from then on.
    pub(crate) fn map(&self, offset: usize, bytes: usize, own: &BackingChunk, fds: &[OwnedFd]) -> Result<()> {
        assert_eq!(fds.len(), self.slots);
        let first = self.unmapped.get().is_none();
        let mut found: Vec<Option<String>> = vec![None; self.slots];
        let place = |slot: usize| slot * self.stride() + offset;
        for (slot, fd) in fds.iter().enumerate() {
            if slot == self.me {
                self.backing.map_own(place(slot), bytes, own)?;
                continue;
            }
            if !first && self.why_unmapped(slot).is_some() {
                continue;
            }
            if let MappingWish::Refused(setting) = self.mapping {
                found[slot] = Some(format!("{setting} asks for the network"));
                continue;
            }
            match self.backing.map_peer(place(slot), bytes, fd) {
                Ok(()) => {}
                // Two GPUs that are no peers: a fact about the machine, not a failure.
                Err(e) if first && self.mapping == MappingWish::Wanted && self.backing.may_refuse_peers() => {
                    found[slot] = Some(e.message);
                }
                Err(e) => {
                    self.unmap(offset, bytes);
                    return Err(e);
                }
            }
        }
        let _ = self.unmapped.set(found);
        Ok(())
    }

    /// Maps a piece of registered memory of slot `slot`, unless that one's memory is not mapped here at all:
    /// this PE's own from `own`, another's by its descriptor. Pieces may be different ones on each PE.
    pub(crate) fn map_piece(
        &self,
        slot: usize,
        offset: usize,
        bytes: usize,
        own: &BackingChunk,
        fd: &OwnedFd,
    ) -> Result<()> {
        let place = slot * self.stride() + offset;
        if slot == self.me {
            return self.backing.map_own(place, bytes, own);
        }
        match self.why_unmapped(slot) {
            None => self.backing.map_peer(place, bytes, fd),
            Some(_) => Ok(()),
        }
    }

    /// Takes every PE's memory at `offset` out of the window again.
    pub(crate) fn unmap(&self, offset: usize, bytes: usize) {
        for slot in 0..self.slots {
            self.backing.unmap(slot * self.stride() + offset, bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::device::DeviceKind;
    use crate::os::Reservation;

    fn cards(n: usize, processes: u64) -> Vec<Card> {
        let card = Card::mine(&Config::from_lookup(&|_| None).unwrap(), 0, DeviceKind::Cpu).unwrap();
        (0..n).map(|i| Card { process: i as u64 % processes, ..card.clone() }).collect()
    }

    #[test]
    fn the_default_shrinks_to_the_address_space_and_a_wish_does_not() {
        let limit = |cards: &[Card], given| heap_limit(cards, &Nodes::new(cards), 64 << 30, given);
        assert_eq!(limit(&cards(8, 8), false).unwrap(), 64 << 30);
        let threads = limit(&cards(64, 1), false).unwrap();
        assert!(threads >= 4 << 30 && threads * 2 * 64 * 64 <= ADDRESS_BUDGET, "{threads}");
        assert!(limit(&cards(64, 1), true).unwrap_err().message.contains("RUSHMEM_HEAP_MAX"));
        // A process' PEs on two nodes, dealt out in turn, reserve room for half as many each.
        let mut dealt = cards(64, 1);
        dealt.iter_mut().skip(1).step_by(2).for_each(|card| card.node.push('b'));
        assert_eq!(limit(&dealt, false).unwrap(), 2 * threads);
    }

    #[test]
    fn strides_are_whole_units_as_long_as_addresses_hold_them() {
        let all = |pes: usize, heap, limit| {
            let cards = cards(pes, 1);
            strides(heap, heaps_of_a_process(&cards, &Nodes::new(&cards)), pes as u64, limit)
                .collect::<Vec<_>>()
        };
        assert_eq!(all(8, 64 << 30, None), [128 << 30]);
        for heap in [1u64, 1 << 20, (1 << 31) - 1] {
            let least = heap.next_multiple_of(RESERVE_ALIGN as u64) * 2;
            let both = if least < 4 << 30 { vec![4 << 30, least] } else { vec![least] };
            assert_eq!(all(8, heap, None), both, "{heap}");
        }
        assert_eq!(all(8, 1 << 31, None), [4 << 30]);
        assert_eq!(all(8, (1 << 31) + 1, None), [8 << 30, (4 << 30) + (4 << 20)]);
        // 128 PEs of a process reserve 2^14 heaps, 2^46 bytes at the unit; one more is too many.
        assert_eq!(all(128, 1 << 20, None), [4 << 30, 4 << 20]);
        assert_eq!(all(129, 1 << 21, None), [4 << 20]);
        // Of what `ulimit -v` lets a process have, most is the program's.
        assert_eq!(all(2, 1 << 20, Some(32 << 30)), [4 << 30, 4 << 20]);
        assert_eq!(all(2, 1 << 20, Some((32 << 30) - 1)), [4 << 20]);
    }

    #[test]
    fn heaps_lie_side_by_side_where_more_addresses_are_refused() {
        let window = |most: usize| {
            let reserve = |bytes| match bytes <= most {
                true => Ok(Backing::Host(Reservation::new(bytes)?)),
                false => Err(err!(UNSUPPORTED, "{bytes} bytes are more than {most}")),
            };
            Window::reserve(3, 1, 1 << 21, 9, MappingWish::Wanted, reserve)
        };
        assert_eq!(window(12 << 30).unwrap().stride(), 4 << 30);
        assert_eq!(window((12 << 30) - 1).unwrap().stride(), 4 << 20);
        assert!(window(1 << 20).unwrap_err().message.starts_with("12582912 bytes"));
    }

    #[test]
    fn what_could_not_be_mapped_is_left_out() {
        let mapped = |me: usize, far: &[usize]| {
            let reserve = |bytes| Ok(Backing::Host(Reservation::new(bytes)?));
            let w = Window::reserve(6, me, 1 << 21, 6, MappingWish::Wanted, reserve).unwrap();
            let why = (0..6).map(|slot| far.contains(&slot).then(|| "no cable".to_owned()));
            w.unmapped.set(why.collect()).unwrap();
            w.mapped().collect::<Vec<_>>()
        };
        assert_eq!(mapped(3, &[]), [0, 1, 2, 3, 4, 5]);
        assert_eq!(mapped(3, &[1, 5]), [0, 2, 3, 4]);
    }
}
