//! What a PE has given to its teams: a number each, which is their board in the control segment, and room for
//! their slot sets in the *memory of teams*, a part of the heap's front that `RUSHMEM_TEAM_MEMORY` sizes.

use super::places::Places;
use super::slots::Slots;
use crate::node::control::MEETINGS;

/// Room is given out in multiples of this.
pub(crate) const GRANULE: usize = 512;

/// Where a team is, on all of its members alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TeamPlace {
    pub(crate) board: usize,
    /// The first granule of its memory, and how many there are.
    pub(crate) at: usize,
    pub(crate) room: usize,
}

impl TeamPlace {
    /// Where the world is.
    pub(crate) fn of_world(slots: &Slots) -> TeamPlace {
        TeamPlace { board: 0, at: 0, room: granules(slots.bytes()) }
    }
}

/// See the top of the file.
#[derive(Debug)]
pub(crate) struct TeamBooks {
    pub(super) boards: Places,
    pub(super) memory: Places,
    /// Granules that the world's first slot set has beyond the others.
    wide: usize,
    /// No round on a board of a team that was freed had a larger number.
    last: u64,
}

impl TeamBooks {
    /// `bytes` of memory, of which the world has its place, and therein so many `wide` ones.
    pub(crate) fn new(bytes: usize, world: &TeamPlace, wide: usize) -> TeamBooks {
        let (boards, memory) = (Places::new(MEETINGS), Places::new(bytes / GRANULE));
        let mut books = TeamBooks { boards, memory, wide: granules(wide), last: 0 };
        assert!(books.take(world).is_some(), "{bytes} bytes for teams hold the world: {world:?}");
        books
    }

    /// Takes a place, if all of it is free: the number from which on its rounds may be counted.
    pub(crate) fn take(&mut self, place: &TeamPlace) -> Option<u64> {
        if !self.boards.take(place.board, 1) {
            return None;
        }
        if !self.memory.take(place.at, place.room) {
            self.boards.give(place.board, 1);
            return None;
        }
        Some(self.last)
    }

    /// Gives back the place of a team whose last round had that number (or which has made none: 0).
    pub(crate) fn give(&mut self, place: &TeamPlace, last: u64) {
        self.last = self.last.max(last);
        self.boards.give(place.board, 1);
        self.memory.give(place.at, place.room);
    }

    /// Bytes that the slot sets of a new team may take. A quarter of what the first half has left; nothing
    /// once that is full, so that the second half holds hundreds of small teams with as few packets as can
    /// be.
    pub(crate) fn budget(&self) -> usize {
        let (all, taken) = (self.memory.all() - self.wide, self.memory.taken() - self.wide);
        (all / 2).saturating_sub(taken) / 4 * GRANULE
    }

    /// How many teams there are beside the world.
    pub(crate) fn teams(&self) -> usize {
        self.boards.taken() - 1
    }

    /// Bytes that are taken, and all.
    pub(crate) fn bytes(&self) -> (usize, usize) {
        (self.memory.taken() * GRANULE, self.memory.all() * GRANULE)
    }
}

/// How many hold so many bytes.
pub(crate) fn granules(bytes: usize) -> usize {
    bytes.div_ceil(GRANULE)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The promise of `RUSHMEM_TEAM_MEMORY`'s default: 500 teams of up to four PEs, whatever came first. A
    /// world may give away a part of it for a front that fills what GPUs map at a time (world/front.rs).
    #[test]
    fn the_default_holds_500_teams_of_four() {
        for (n, hosts) in [(2, false), (4, false), (8, false), (64, false), (8, true)] {
            let world = Slots::of_world(n, hosts).widened();
            let least = (3 << 20) + world.extra();
            let mut books = TeamBooks::new(least, &TeamPlace::of_world(&world), world.extra());
            let mut packets = Vec::new();
            for i in 0..500 {
                let slots = Slots::within(2 + i % 3, 1, hosts, books.budget());
                let room = granules(slots.bytes());
                let (window, bits) =
                    books.memory.window(room, 0).unwrap_or_else(|| panic!("team {i} of {n} PEs"));
                let at = window * 64 + bits.trailing_zeros() as usize;
                assert_eq!(books.take(&TeamPlace { board: i + 1, at, room }), Some(0));
                packets.push(slots.packets);
            }
            assert!(packets[0] >= 256 && packets[499] == 4, "{packets:?}");
            assert_eq!(books.teams(), 500);
        }
    }

    #[test]
    fn a_place_is_taken_whole_or_not_at_all() {
        let mut books = TeamBooks::new(64 << 10, &TeamPlace { board: 0, at: 0, room: 2 }, 0);
        let place = TeamPlace { board: 3, at: 2, room: 5 };
        assert_eq!(books.take(&place), Some(0));
        assert_eq!(books.take(&TeamPlace { board: 4, ..place }), None);
        assert_eq!(books.take(&TeamPlace { at: 40, ..place }), None);
        assert_eq!((books.teams(), books.bytes()), (1, (7 * GRANULE, 64 << 10)));
        books.give(&place, 17);
        books.give(&TeamPlace { board: 0, at: 0, room: 2 }, 5);
        assert_eq!(books.take(&TeamPlace { board: 9, at: 0, room: 128 }), Some(17), "numbers never fall");
    }
}
