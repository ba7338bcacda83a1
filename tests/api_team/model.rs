//! Splits as the specification has them: teams are lists of PEs of the world, and every PE works all of them
//! out from a seed, also those that it is no member of.

use std::collections::BTreeMap;

use crate::api_common::Rng;
use rushmem::{Pe, Team, TeamComparison, World};

/// A split of a team of `n` members.
#[derive(Debug, Clone)]
pub(crate) enum How {
    Strided(u32, i32, u32),
    Grid(u32),
    /// Colour and key of each member.
    Coloured(Vec<(Option<u32>, i32)>),
    Listed(Vec<u32>),
}

impl How {
    pub(crate) fn random(rng: &mut Rng, n: u32) -> How {
        match rng.below(4) {
            0 => {
                let (start, end) = (rng.below(n as usize) as i32, rng.below(n as usize) as i32);
                let stride = match end - start {
                    0 => rng.below(5) as i32 - 2,
                    apart => apart.signum() * (1 + rng.below(apart.unsigned_abs() as usize) as i32),
                };
                let size = if start == end || stride == 0 { 1 } else { (end - start) / stride + 1 };
                How::Strided(start as u32, stride, size as u32)
            }
            1 => How::Grid(1 + rng.below(n as usize + 1) as u32),
            2 => {
                let colours = 1 + rng.below(3);
                let colour = |rng: &mut Rng| {
                    Some(rng.below(colours + 1)).filter(|c| *c < colours).map(|c| c as u32 * 7)
                };
                How::Coloured((0..n).map(|_| (colour(rng), rng.below(3) as i32 - 1)).collect())
            }
            _ => {
                let mut left: Vec<u32> = (0..n).collect();
                let count = rng.below(n as usize + 1);
                How::Listed((0..count).map(|_| left.swap_remove(rng.below(left.len()))).collect())
            }
        }
    }

    /// The new teams, as lists of members of the parent. A grid has its rows first.
    fn parts(&self, n: u32) -> Vec<Vec<u32>> {
        match self {
            How::Strided(start, stride, size) => {
                vec![(0..*size).map(|i| start.wrapping_add_signed(i as i32 * stride)).collect()]
            }
            How::Grid(x_range) => {
                let x_range = (*x_range).min(n);
                let row = |y| (0..n).filter(|i| i / x_range == y).collect();
                let column = |x| (0..n).filter(|i| i % x_range == x).collect();
                (0..n.div_ceil(x_range)).map(row).chain((0..x_range).map(column)).collect()
            }
            How::Coloured(members) => {
                let mut parts: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
                for (i, (colour, _)) in (0u32..).zip(members) {
                    parts.entry(colour.unwrap_or(u32::MAX)).or_default().push(i);
                }
                parts.remove(&u32::MAX);
                let mut parts: Vec<_> = parts.into_values().collect();
                // Stable: members of one key stay in order.
                parts.iter_mut().for_each(|part| part.sort_by_key(|i| members[*i as usize].1));
                parts
            }
            How::Listed(list) if list.is_empty() => Vec::new(),
            How::Listed(list) => vec![list.clone()],
        }
    }

    /// What this PE gets: its new teams, in the order of [`How::parts`].
    fn split<'w>(&self, team: &Team<'w>) -> Vec<Team<'w>> {
        match self {
            How::Strided(start, stride, size) => {
                team.split_strided(*start, *stride, *size).unwrap().into_iter().collect()
            }
            How::Grid(x_range) => {
                let (x, y) = team.split_2d(*x_range).unwrap();
                vec![x, y]
            }
            How::Coloured(members) => {
                let (colour, key) = members[team.my_pe() as usize];
                team.split(colour, key).unwrap().into_iter().collect()
            }
            How::Listed(list) => team.split_list(list).unwrap().into_iter().collect(),
        }
    }
}

/// A team by its members in the world; what this PE has of it, if it is one of them.
pub(crate) struct Known<'w> {
    pub(crate) pes: Vec<u32>,
    pub(crate) team: Option<Team<'w>>,
}

impl<'w> Known<'w> {
    pub(crate) fn world(world: &'w World) -> Known<'w> {
        Known { pes: (0..world.n_pes()).collect(), team: Some(world.team()) }
    }

    /// All teams that come of it.
    #[track_caller]
    pub(crate) fn split(&self, world: &World, how: &How) -> Vec<Known<'w>> {
        let mut mine = self.team.as_ref().map_or(Vec::new(), |team| how.split(team)).into_iter();
        let me = world.my_pe().number();
        let made = how.parts(self.pes.len() as u32).into_iter().map(|part| {
            let pes: Vec<u32> = part.iter().map(|member| self.pes[*member as usize]).collect();
            let team = if pes.contains(&me) { mine.next() } else { None };
            let known = Known { pes, team };
            known.check(world);
            known
        });
        let made = made.collect();
        assert!(mine.next().is_none(), "{how:?} of {:?} made a team too many for PE {me}", self.pes);
        made
    }

    /// The team says what the model says.
    #[track_caller]
    pub(crate) fn check(&self, world: &World) {
        let me = self.pes.iter().position(|pe| *pe == world.my_pe().number());
        let Some(team) = &self.team else {
            return assert_eq!(me, None, "a member of {:?} has no team", self.pes);
        };
        assert_eq!(
            (Some(team.my_pe() as usize), team.n_pes() as usize),
            (me, self.pes.len()),
            "{:?}",
            self.pes
        );
        assert_eq!(team.members().map(Pe::number).collect::<Vec<_>>(), self.pes);
        for (member, pe) in (0u32..).zip(&self.pes) {
            assert_eq!(team.world_pe(member).unwrap().number(), *pe);
        }
    }

    /// Two teams of this PE translate and compare as their lists do.
    pub(crate) fn check_against(&self, other: &Known<'_>) {
        let (Some(team), Some(theirs)) = (&self.team, &other.team) else { return };
        for (member, pe) in (0u32..).zip(&self.pes) {
            let expected = other.pes.iter().position(|p| p == pe).map(|i| i as u32);
            assert_eq!(team.translate(member, theirs).unwrap(), expected);
        }
        let sorted = |pes: &[u32]| {
            let mut pes = pes.to_vec();
            pes.sort_unstable();
            pes
        };
        let expected = match (self.pes == other.pes, sorted(&self.pes) == sorted(&other.pes)) {
            (true, _) => TeamComparison::Identical,
            (_, true) => TeamComparison::Reordered,
            _ => TeamComparison::Different,
        };
        assert_eq!(team.compare(theirs).unwrap(), expected, "{:?} and {:?}", self.pes, other.pes);
    }
}
