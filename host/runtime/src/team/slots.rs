//! A team's slot sets: the symmetric memory in which its collectives meet, at one heap offset on every
//! member. `abi.h` has the layout; a set begins with words of this PE, then comes a line for each member,
//! then packets, then a word for each block of a grid. The world's first set may have more packets than the
//! others, for larger calls, and wide packets behind them, for calls by a whole grid.

use crate::topology::members::Members;
use rushmem_abi::device::{RawTeam, SyncLine, TeamSlots, RUSHMEM_TEAM_PHASES, RUSHMEM_TEAM_WIDE};

/// Bytes of a packet: a word of data and its sequence number.
const PACKET: usize = 16;
/// What the slot sets of the world take at most, but for the lines of its PEs and the fewest packets; where
/// its first set is wide, that one takes so much more.
const WORLD: usize = 1 << 20;
const FIRST: usize = 9 << 18;
/// Wide packets of the world's first set, in bytes, at most, and of those from one member in one phase: 1 MiB
/// of data and more, in rows of 1 KiB (`impl/coll/wide.h`).
const WIDE_BYTES: usize = 9 << 19;
const MOST_WIDE: usize = 9 << 17;
const LEAST_WIDE: usize = 64 << 10;
/// Slot sets of the world.
const WORLD_SETS: usize = 4;
/// Packets from one member in one phase: 8 KiB of data at most, in a wide set 128 KiB, 32 bytes at least.
const MOST_PACKETS: usize = 1024;
const WIDE_PACKETS: usize = 16384;
const FEWEST_PACKETS: usize = 4;

/// How large a team's slot sets are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Slots {
    pub(crate) n: usize,
    pub(crate) sets: usize,
    /// A power of two.
    pub(crate) packets: usize,
    /// Those of the first set: as many, or more.
    pub(crate) first: usize,
    /// The first set's bytes of wide packets from one member in one phase; 0: it has none.
    pub(crate) wide: usize,
    /// Whether there is one more set behind them, for what the host has a GPU do: its calls are no kernel's,
    /// and meet none.
    pub(crate) hosts: bool,
}

impl Slots {
    /// `sets` of them for `n` members, and the host's, with as many packets as `bytes` allow.
    pub(crate) fn within(n: usize, sets: usize, hosts: bool, bytes: usize) -> Slots {
        let of = |packets| Slots { n, sets, packets, first: packets, wide: 0, hosts };
        let mut slots = of(MOST_PACKETS);
        while slots.packets > FEWEST_PACKETS && slots.bytes() > bytes {
            slots = of(slots.packets / 2);
        }
        slots
    }

    /// Those of a world of `n` PEs.
    pub(crate) fn of_world(n: usize, hosts: bool) -> Slots {
        Slots::within(n, WORLD_SETS, hosts, WORLD)
    }

    /// The same with a wide first set.
    pub(crate) fn widened(self) -> Slots {
        let mut wide = self;
        while wide.first < WIDE_PACKETS && bytes_of_set(self.n, 2 * wide.first, 0) <= FIRST {
            wide.first *= 2;
        }
        wide
    }

    /// The same with wide packets in the first set, where members are few enough for it.
    pub(crate) fn with_wide_packets(self) -> Slots {
        let places = RUSHMEM_TEAM_WIDE * self.n;
        let wide = (WIDE_BYTES / places / 1024 * 1024).min(MOST_WIDE);
        Slots { wide: if wide < LEAST_WIDE { 0 } else { wide }, ..self }
    }

    /// Bytes by which the first set is larger than the others.
    pub(crate) fn extra(&self) -> usize {
        bytes_of_set(self.n, self.first, self.wide) - self.set_bytes()
    }

    /// From one set to the next, but for the first.
    pub(crate) fn set_bytes(&self) -> usize {
        bytes_of_set(self.n, self.packets, 0)
    }

    /// Of all sets.
    pub(crate) fn bytes(&self) -> usize {
        (self.sets + usize::from(self.hosts)) * self.set_bytes() + self.extra()
    }

    /// The world as a team of this PE's device: slot sets at `at` in the heap at `heap_base`. `near_apart`:
    /// how far apart copies of two PEs in a row are mapped, where all are near.
    pub(crate) fn world_team(
        &self,
        my_pe: i32,
        at: usize,
        heap_base: usize,
        near_apart: Option<u64>,
    ) -> RawTeam {
        self.team(0, &Members::all(self.n), my_pe as usize, at, heap_base, near_apart)
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
        near_apart: Option<u64>,
    ) -> RawTeam {
        let (start, stride, table) = match members {
            Members::Steps { start, stride, .. } => (*start, *stride, 0),
            Members::List(_) => (0, 0, at + self.bytes()),
        };
        let to_right = (members.pe((me + 1) % self.n) as u64).wrapping_sub(members.pe(me) as u64);
        RawTeam {
            my_pe: me as i32,
            n_pes: self.n as i32,
            start,
            stride,
            table: table as *const i32,
            slots: at as u64,
            slot_bytes: self.set_bytes() as u64,
            slot_sets: self.sets as u32,
            packets: self.first as u32,
            id: id as u32,
            all_near: near_apart.is_some().into(),
            heap_base: heap_base as u64,
            first_bytes: bytes_of_set(self.n, self.first, self.wide) as u64,
            next_packets: self.packets as u32,
            wide: self.wide as u32,
            right: to_right.wrapping_mul(near_apart.unwrap_or(0)),
            pair_bytes: if self.n == 2 && near_apart.is_some() { 8 * self.first as u32 } else { 0 },
            packed_rows: 0,
        }
    }
}

/// A slot set of so many packets, and of so many bytes of wide ones, for each member in each phase, in whole
/// cache lines.
fn bytes_of_set(n: usize, packets: usize, wide: usize) -> usize {
    let lines = size_of::<TeamSlots>() + n * size_of::<SyncLine>();
    let channels = (packets * size_of::<u64>()).next_multiple_of(128);
    lines + channels + n * (RUSHMEM_TEAM_PHASES * packets * PACKET + RUSHMEM_TEAM_WIDE * wide)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sets of a team lie one behind the other, whichever is larger, and the host's is the last.
    #[test]
    fn sets_do_not_overlap_and_end_where_the_team_s_memory_does() {
        for n in [1, 2, 5, 64] {
            let wide = Slots::of_world(n, true).widened().with_wide_packets();
            let raw = wide.world_team(0, 0x40000, 0x10000, Some(1 << 32));
            let mut end = 0x40000;
            for set in 0..=raw.slot_sets {
                let at = raw.on(set);
                assert_eq!(at.slots, end, "set {set} of {wide:?}");
                end += bytes_of_set(n, at.packets as usize, at.wide as usize) as u64;
            }
            assert_eq!(end, 0x40000 + wide.bytes() as u64, "{wide:?}");
            assert_eq!(raw.on(2).on(1).slots, raw.on(3).slots);
        }
    }

    #[test]
    fn packets_are_as_many_as_there_is_room_for() {
        for n in [1, 2, 3, 4, 7, 8, 64, 1000, 10_000] {
            let slots = Slots::of_world(n, n % 2 == 0);
            assert!(slots.packets.is_power_of_two() && slots.set_bytes() % 128 == 0, "{slots:?}");
            assert!((FEWEST_PACKETS..=MOST_PACKETS).contains(&slots.packets), "{slots:?}");
            assert!(slots.bytes() <= WORLD || slots.packets == FEWEST_PACKETS, "{slots:?}");
            let twice = Slots { packets: 2 * slots.packets, first: 2 * slots.packets, ..slots };
            assert!(slots.packets == MOST_PACKETS || twice.bytes() > WORLD, "{slots:?}");
            let wide = slots.widened();
            assert!(
                wide.first.is_power_of_two()
                    && wide.first >= wide.packets
                    && wide.set_bytes() == slots.set_bytes()
            );
            assert_eq!(wide.bytes() - wide.extra(), slots.bytes());
            assert!(wide.extra() <= FIRST && (n > 4 || wide.first >= 8192), "{wide:?}");
            let both = wide.with_wide_packets();
            assert!(both.extra() <= FIRST + WIDE_BYTES && both.wide % 1024 == 0, "{both:?}");
            assert_eq!(both.wide > 0, n <= 36, "{both:?}");
        }
    }
}
