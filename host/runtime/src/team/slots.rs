//! A team's slot sets: the symmetric memory in which its collectives meet, at one heap offset on every
//! member. `abi.h` has the layout; a set begins with words of this PE, then comes a line for each member,
//! then packets.

use crate::topology::members::Members;
use rushmem_abi::device::{RawTeam, SyncLine, TeamSlots, RUSHMEM_TEAM_PHASES};

/// Bytes of a packet: a word of data and its sequence number.
const PACKET: usize = 16;
/// What the slot sets of the world take at most, but for the lines of its PEs and the fewest packets.
const WORLD: usize = 1 << 20;
/// Slot sets of the world.
const WORLD_SETS: usize = 4;
/// Packets from one member in one phase: 8 KiB of data at most, 32 bytes at least.
const MOST_PACKETS: usize = 1024;
const FEWEST_PACKETS: usize = 4;

/// How large a team's slot sets are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Slots {
    pub(crate) n: usize,
    pub(crate) sets: usize,
    /// A power of two.
    pub(crate) packets: usize,
}

impl Slots {
    /// `sets` of them for `n` members with as many packets as `bytes` allow.
    pub(crate) fn within(n: usize, sets: usize, bytes: usize) -> Slots {
        let mut slots = Slots { n, sets, packets: MOST_PACKETS };
        while slots.packets > FEWEST_PACKETS && slots.bytes() > bytes {
            slots.packets /= 2;
        }
        slots
    }

    /// Those of a world of `n` PEs.
    pub(crate) fn of_world(n: usize) -> Slots {
        Slots::within(n, WORLD_SETS, WORLD)
    }

    /// From one set to the next.
    pub(crate) fn set_bytes(&self) -> usize {
        size_of::<TeamSlots>()
            + self.n * size_of::<SyncLine>()
            + RUSHMEM_TEAM_PHASES * self.n * self.packets * PACKET
    }

    /// Of all sets.
    pub(crate) fn bytes(&self) -> usize {
        self.sets * self.set_bytes()
    }

    /// The world as a team of this PE's device: slot sets at `at` in the heap at `heap_base`.
    pub(crate) fn world_team(&self, my_pe: i32, at: usize, heap_base: usize, all_near: bool) -> RawTeam {
        self.team(0, &Members::all(self.n), my_pe as usize, at, heap_base, all_near)
    }

    /// Bytes of a team of `members`: its slot sets, and behind them the table of who they are, where kernels
    /// need one.
    pub(crate) fn bytes_with_table(&self, members: &Members) -> usize {
        let table = matches!(members, Members::List(_)).then_some(self.n * size_of::<i32>());
        self.bytes() + table.unwrap_or(0)
    }

    /// Team `id` as kernels see it, of which this PE is member `me`: at address `at`.
    pub(crate) fn team(
        &self,
        id: usize,
        members: &Members,
        me: usize,
        at: usize,
        heap_base: usize,
        all_near: bool,
    ) -> RawTeam {
        let (start, stride, table) = match members {
            Members::Steps { start, stride, .. } => (*start, *stride, 0),
            Members::List(_) => (0, 0, at + self.bytes()),
        };
        RawTeam {
            my_pe: me as i32,
            n_pes: self.n as i32,
            start,
            stride,
            table: table as *const i32,
            slots: at as u64,
            slot_bytes: self.set_bytes() as u64,
            slot_sets: self.sets as u32,
            packets: self.packets as u32,
            id: id as u32,
            all_near: all_near.into(),
            heap_base: heap_base as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_as_many_as_there_is_room_for() {
        for n in [1, 2, 3, 4, 7, 8, 64, 1000, 10_000] {
            let slots = Slots::of_world(n);
            assert!(slots.packets.is_power_of_two() && slots.set_bytes() % 128 == 0, "{slots:?}");
            assert!((FEWEST_PACKETS..=MOST_PACKETS).contains(&slots.packets), "{slots:?}");
            assert!(slots.bytes() <= WORLD || slots.packets == FEWEST_PACKETS, "{slots:?}");
            let twice = Slots { packets: 2 * slots.packets, ..slots };
            assert!(slots.packets == MOST_PACKETS || twice.bytes() > WORLD, "{slots:?}");
        }
    }
}
