//! Teams: which PEs are members, the rounds of their host calls, and the symmetric memory by which their
//! collectives meet on devices.
//!
//! * [`split`]: which members of a team a new one has.
//! * [`places`], [`books`]: what a PE has given to its teams: a number, and room for slot sets.
//! * [`agreement`]: how members come to a place that is free on all of them.
//! * [`slots`]: how large slot sets are, and a team as kernels see it.
//!
//! A team's number is its board in the control segment. PEs of other teams may have another team of that
//! number; a PE never has two.

pub(crate) mod agreement;
pub(crate) mod books;
pub(crate) mod places;
pub(crate) mod slots;
pub(crate) mod split;

use crate::collective::Collective;
use crate::topology::members::Members;
use books::TeamPlace;
use rushmem_abi::device::RawTeam;

/// A team that this PE is a member of.
#[derive(Debug)]
pub(crate) struct Team {
    rounds: Collective,
    raw: RawTeam,
    place: TeamPlace,
}

// SAFETY: `raw` is numbers and addresses for kernels, which nothing here follows.
unsafe impl Send for Team {}
// SAFETY: `raw` is never written, and its addresses are not followed.
unsafe impl Sync for Team {}

impl Team {
    /// The team that meets in `rounds`, has that place, and which kernels see as `raw`.
    pub(crate) fn new(rounds: Collective, raw: RawTeam, place: TeamPlace) -> Team {
        Team { rounds, raw, place }
    }

    /// Its host calls.
    #[inline]
    pub(crate) fn rounds(&self) -> &Collective {
        &self.rounds
    }

    /// Its members.
    pub(crate) fn members(&self) -> &Members {
        self.rounds.members()
    }

    /// As kernels take it.
    pub(crate) fn raw(&self) -> &RawTeam {
        &self.raw
    }

    /// The same with the host's slot set as its only one, where it has that: on GPU heaps.
    pub(crate) fn of_host(&self) -> RawTeam {
        RawTeam { slot_sets: 1, ..self.raw.on(self.raw.slot_sets) }
    }

    /// This PE's number in it.
    pub(crate) fn my_pe(&self) -> usize {
        self.raw.my_pe as usize
    }

    /// What it takes.
    pub(crate) fn place(&self) -> &TeamPlace {
        &self.place
    }
}

/// How the members of two teams compare.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Comparison {
    /// The same, in the same order.
    Identical,
    /// The same, in another order.
    Reordered,
    Different,
}

/// See [`Comparison`].
pub(crate) fn compare(a: &Members, b: &Members) -> Comparison {
    if a.n() != b.n() {
        return Comparison::Different;
    }
    if a.pes().eq(b.pes()) {
        return Comparison::Identical;
    }
    let sorted = |members: &Members| {
        let mut pes: Vec<usize> = members.pes().collect();
        pes.sort_unstable();
        pes
    };
    if sorted(a) == sorted(b) {
        Comparison::Reordered
    } else {
        Comparison::Different
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn teams_compare_by_members_and_order() {
        let members = |pes: &[i32]| Members::new(pes);
        let all = members(&[0, 1, 2, 3]);
        for (other, expected) in [
            (members(&[0, 1, 2, 3]), Comparison::Identical),
            (members(&[3, 2, 1, 0]), Comparison::Reordered),
            (members(&[1, 0, 2, 3]), Comparison::Reordered),
            (members(&[0, 1, 2]), Comparison::Different),
            (members(&[0, 1, 2, 4]), Comparison::Different),
        ] {
            assert_eq!((compare(&all, &other), compare(&other, &all)), (expected, expected), "{other:?}");
        }
    }
}
