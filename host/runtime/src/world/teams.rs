//! Teams of a world: made and freed, collectively, and their host calls.
//!
//! A split is rounds of the parent team. The first carries the arguments, which are compared; then each new
//! team's members agree on a place ([`crate::team::agreement`]), take it and make it ready. Other new teams
//! of the same call do so in the same rounds. All of them are made, or none.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{MutexGuard, PoisonError};

use super::World;
use crate::collective::{Collective, Entered};
use crate::error::{code, err, Error, Result};
use crate::exec::order;
use crate::node::control::{Call, RoundWords};
use crate::team::agreement::{Agreement, Lack, NextStep, Said};
use crate::team::books::{granules, TeamBooks, TeamPlace, GRANULE};
use crate::team::slots::Slots;
use crate::team::split::{self, Group};
use crate::team::Team;
use crate::topology::members::Members;
use rushmem_abi::device::{RawTeam, RUSHMEM_NUMBERED_TEAMS};

/// Slot sets of a team, at most.
const MOST_SETS: u32 = 1024;

/// How a team is split in one.
#[derive(Debug, Clone, Copy)]
pub(crate) enum TeamSplit<'a> {
    Strided {
        start: i32,
        stride: i32,
        size: i32,
    },
    Coloured {
        colour: Option<u64>,
        key: i64,
    },
    Listed(&'a [i32]),
    /// Only the world: PEs of a node, where they all map each other.
    Node,
    /// Only the world: PEs of a node.
    Host,
}

/// A team to come.
struct TeamPlan {
    group: Group,
    members: Members,
    slots: Slots,
    agreement: Agreement,
}

impl World {
    /// The team of all PEs.
    #[inline]
    pub(crate) fn team(&self) -> &Team {
        &self.team
    }

    /// Kernels find `team` by that number from now on, or no team.
    pub(crate) fn number_team(&self, number: i32, team: Option<&Team>) -> Result<()> {
        let at = usize::try_from(number).ok().filter(|number| *number < RUSHMEM_NUMBERED_TEAMS).ok_or_else(
            || {
                err!(
                    INVALID_ARGUMENT,
                    "teams have numbers from 0 to {}, not {number}",
                    RUSHMEM_NUMBERED_TEAMS - 1
                )
            },
        )?;
        let teams = self.kernels.state().raw().teams as usize;
        let bytes = match team {
            // SAFETY: a struct of integers and an address without room between its fields (`rushmem/abi.h`).
            Some(team) => unsafe { std::mem::transmute::<RawTeam, [u8; size_of::<RawTeam>()]>(*team.raw()) },
            None => [0; size_of::<RawTeam>()],
        };
        // SAFETY: memory of the heap that is reserved for the table, of which this is one entry.
        unsafe { self.symmetric.window().backing().write(teams + at * size_of::<RawTeam>(), &bytes) }
    }

    pub(super) fn books(&self) -> MutexGuard<'_, TeamBooks> {
        // Whole between any two statements.
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Collective over the team: every member has entered. The world's is `sync_all`.
    pub(crate) fn team_sync(&self, team: &Team) -> Result<()> {
        self.health.check()?;
        let call = if team.rounds().board() == 0 { Call::SyncAll } else { Call::TeamSync };
        team.rounds().enter(&self.rounds)?.round(call, [0; 4])
    }

    /// The same behind a quiet. The world's is `barrier_all`.
    pub(crate) fn team_barrier(&self, team: &Team) -> Result<()> {
        order::quiet(self)?;
        self.health.check()?;
        let call = if team.rounds().board() == 0 { Call::BarrierAll } else { Call::TeamBarrier };
        team.rounds().enter(&self.rounds)?.round(call, [0; 4])
    }

    /// Collective over the team: the least of its members' values.
    pub(crate) fn team_least(&self, team: &Team, value: i64) -> Result<i64> {
        self.health.check()?;
        let mut call = team.rounds().enter(&self.rounds)?;
        call.round(Call::TeamLeast, [value as u64, 0, 0, 0])?;
        Ok((0..call.n()).map(|i| call.words(i)[0] as i64).min().unwrap_or(value))
    }

    /// Collective over the parent: its part that this PE is a member of, with so many slot sets.
    pub(crate) fn split(&self, parent: &Team, how: TeamSplit<'_>, sets: u32) -> Result<Option<Team>> {
        self.health.check()?;
        let mut call = parent.rounds().enter(&self.rounds)?;
        let (n, me, budget) = (call.n(), parent.my_pe(), self.books().budget() as u64);
        let with_sets = |low: u32| u64::from(low) | u64::from(sets) << 32;
        let (kind, words): (Call, RoundWords) = match how {
            TeamSplit::Strided { start, stride, size } => {
                let range = u64::from(start as u32) | u64::from(stride as u32) << 32;
                (Call::SplitStrided, [range, with_sets(size as u32), 0, budget])
            }
            TeamSplit::Coloured { colour, key } => {
                // A colour's top bit says that there is one.
                let colour = colour.map_or(0, |colour| colour | 1 << 63);
                (Call::Split, [colour, with_sets(0), key as u64, budget])
            }
            TeamSplit::Listed(list) => {
                (Call::SplitList, [digest(list), with_sets(list.len() as u32), 0, budget])
            }
            TeamSplit::Node => {
                let maps_all = self.near.count() == self.nodes.members(me).len();
                (Call::TeamNode, [maps_all.into(), with_sets(0), 0, budget])
            }
            TeamSplit::Host => (Call::TeamHost, [1, with_sets(0), 0, budget]),
        };
        call.round(kind, words)?;
        let what = what(kind, parent);
        check_sets(&call, &what)?;
        let group = match how {
            TeamSplit::Strided { start, stride, size } => {
                call.agree_by(&format!("the start of {what}"), |w| w[0] as u32 as i32)?;
                call.agree_by(&format!("the stride of {what}"), |w| (w[0] >> 32) as u32 as i32)?;
                call.agree_by(&format!("the size of {what}"), |w| w[1] as u32 as i32)?;
                split::strided(n, me, start, stride, size)
            }
            TeamSplit::Coloured { .. } => {
                let colour = |w: &RoundWords| (w[0] >> 63 == 1).then_some(w[0] & (u64::MAX >> 1));
                let all: Vec<_> = (0..n).map(|i| call.words(i)).map(|w| (colour(&w), w[2] as i64)).collect();
                Ok(split::coloured(&all, me))
            }
            TeamSplit::Listed(list) => {
                call.agree_by(&format!("the length of the list of {what}"), |w| w[1] as u32)?;
                let digest = |w: &RoundWords| format!("one of digest {:x}", w[0]);
                call.agree_by(&format!("the list of {what}"), digest)?;
                split::listed(n, me, list)
            }
            TeamSplit::Node | TeamSplit::Host => {
                let node = self.nodes.members(me);
                let together = node.iter().all(|pe| call.words(*pe)[0] == 1);
                let members = if together { node } else { &[me] };
                let colours: Vec<_> = (0..n).map(|pe| (members.contains(&pe).then_some(0), 0)).collect();
                Ok(split::coloured(&colours, me))
            }
        };
        let group = group.map_err(|e| e.context(&what))?;
        self.make(&mut call, parent.rounds(), group, sets, &what)
    }

    /// Collective over the parent: this PE's row and column.
    pub(crate) fn split_2d(&self, parent: &Team, x_range: i32, sets: u32) -> Result<(Team, Team)> {
        self.health.check()?;
        let mut call = parent.rounds().enter(&self.rounds)?;
        let words =
            |w: &World| [u64::from(x_range as u32), u64::from(sets) << 32, 0, w.books().budget() as u64];
        call.round(Call::Split2d, words(self))?;
        let what = what(Call::Split2d, parent);
        check_sets(&call, &what)?;
        call.agree_by(&format!("the x range of {what}"), |w| w[0] as u32 as i32)?;
        let (row, column) = split::grid(call.n(), parent.my_pe(), x_range).map_err(|e| e.context(&what))?;
        let nobody = || err!(INTERNAL, "{what} gave no team to a member");
        let x = self.make(&mut call, parent.rounds(), Some(row), sets, &what)?.ok_or_else(nobody)?;
        let rest = call.round(Call::Step, words(self));
        let y = rest.and_then(|()| self.make(&mut call, parent.rounds(), Some(column), sets, &what));
        match y.and_then(|y| y.ok_or_else(nobody)) {
            Ok(y) => Ok((x, y)),
            Err(e) => {
                // All members of the row have failed alike, and nobody has used it; but for an end of
                // waiting, of which others may know nothing.
                if e.code != code::TIMEOUT && self.health.check().is_ok() {
                    self.books().give(x.place(), 0);
                }
                Err(e)
            }
        }
    }

    /// The teams of a split whose arguments were compared in the last round, word 3 of which is each member's
    /// budget: `group` is this PE's.
    pub(super) fn make(
        &self,
        call: &mut Entered<'_>,
        parent: &Collective,
        group: Option<Group>,
        sets: u32,
        what: &str,
    ) -> Result<Option<Team>> {
        let mut plan = group.map(|group| {
            let pes: Vec<i32> = group.members.iter().map(|i| parent.members().pe(*i) as i32).collect();
            let budget = group.members.iter().map(|i| call.words(*i)[3]).min().unwrap_or(0);
            let slots = Slots::within(pes.len(), sets as usize, self.apart, budget as usize);
            let members = Members::new(&pes);
            let room = granules(slots.bytes_with_table(&members));
            TeamPlan { group, members, slots, agreement: Agreement::new(room, parent.board()) }
        });
        let mut next = plan.as_ref().map(|_| NextStep::Search);
        let (mut held, mut from, mut failure) = (None, 0, None);
        loop {
            let said = match (&next, &plan) {
                (Some(NextStep::Search), Some(plan)) => plan.agreement.offer(&self.books()),
                (Some(NextStep::Take(place)), Some(plan)) => {
                    let taken = self.take(place, plan);
                    held = matches!(taken, Ok(Some(_))).then_some(*place);
                    match taken {
                        Ok(Some(last)) => Said::Taken { last },
                        Ok(None) => Said::Again,
                        Err(e) => fail(&mut failure, e),
                    }
                }
                (Some(NextStep::Exhausted { member, what }), Some(plan)) => {
                    let who = call.who(plan.group.members[*member]);
                    fail(&mut failure, self.exhausted(&who, *what, plan))
                }
                (Some(NextStep::GiveUp(code)), _) => {
                    let text =
                        "other teams of its members are made at the same time, and took each place before it";
                    fail(&mut failure, Error::new(*code, text.to_owned()))
                }
                _ => Said::Done,
            };
            // Where a round fails, others may have seen it succeed, and use what they hold: nothing of that
            // is given to another team any more.
            call.round(Call::Step, said.words())?;
            let heard: Vec<Said> = (0..call.n()).map(|i| Said::of(call.words(i))).collect();
            let failed = |(i, said): (usize, &Said)| {
                if let Said::Failed(code) = said {
                    Some((i, *code))
                } else {
                    None
                }
            };
            if let Some((i, code)) = heard.iter().enumerate().find_map(failed) {
                held.iter().for_each(|place| self.books().give(place, 0));
                return Err(failure.map_or_else(|| call.failed_elsewhere(i, code, what), |e| e.context(what)));
            }
            if let (Some(plan), Some(_)) = (&mut plan, &next) {
                let group: Vec<Said> = plan.group.members.iter().map(|i| heard[*i]).collect();
                next = match plan.agreement.hear(&group) {
                    NextStep::Made(last) => {
                        from = last;
                        None
                    }
                    other => {
                        held.take().iter().for_each(|place| self.books().give(place, 0));
                        Some(other)
                    }
                };
            }
            if heard.iter().all(|said| matches!(said, Said::Done | Said::Taken { .. })) {
                break;
            }
        }
        let (Some(plan), Some(place)) = (plan, held) else { return Ok(None) };
        Ok(Some(self.made(plan, place, from)))
    }

    /// Takes the place and makes it ready; `None` where another team has it already.
    fn take(&self, place: &TeamPlace, plan: &TeamPlan) -> Result<Option<u64>> {
        let Some(last) = self.books().take(place) else { return Ok(None) };
        let at = self.address(place);
        let backing = self.symmetric.window().backing();
        // SAFETY: memory of this PE's heap, mapped from the start, that is this team's alone, which nobody
        // knows yet. What its last team's members sent here has come, as each completed it before its free.
        let mut ready = unsafe { backing.zero(at, place.room * GRANULE) };
        if let Members::List(pes) = &plan.members {
            let table: Vec<u8> = pes.iter().flat_map(|pe| pe.to_ne_bytes()).collect();
            // SAFETY: this team's own memory: the table's room is behind its slot sets.
            ready = ready.and_then(|()| unsafe { backing.write(at + plan.slots.bytes(), &table) });
        }
        ready.inspect_err(|_| self.books().give(place, 0))?;
        if let (Some(check), 0) = (&self.check, plan.group.me) {
            let raw = plan.slots.team(place.board, &plan.members, 0, at, 0, None);
            let (base, first) = (self.symmetric.base() as u64, plan.members.pe(0) as i32);
            (0..=raw.slot_sets).for_each(|set| check.new_slots(raw.on(set).slots - base, first));
        }
        Ok(Some(last))
    }

    /// Bytes of symmetric memory that a team takes here.
    pub(crate) fn team_bytes(&self, team: &Team) -> usize {
        team.place().room * GRANULE
    }

    /// Where in this PE's heap a place's memory is.
    fn address(&self, place: &TeamPlace) -> usize {
        self.symmetric.base() + self.team_memory + place.at * GRANULE
    }

    /// The team that has its place.
    fn made(&self, plan: TeamPlan, place: TeamPlace, from: u64) -> Team {
        let TeamPlan { group, members, slots, .. } = plan;
        let base = self.symmetric.base();
        let run = |pe: usize| (pe as u64).wrapping_sub(self.me as u64).wrapping_mul(self.near.apart());
        let all_near = members.pes().all(|pe| self.near.distance(pe as i32) == Some(run(pe)));
        let apart = all_near.then(|| self.near.apart());
        let is_mapped = members.pes().all(|pe| self.near.contains(pe as i32));
        let raw = RawTeam {
            packed_rows: (self.wide_packets && is_mapped).into(),
            ..slots.team(place.board, &members, group.me, self.address(&place), base, apart)
        };
        Team::new(self.rounds_of(place.board, members, from), raw, place)
    }

    /// Rounds of these PEs over that board.
    pub(super) fn rounds_of(&self, board: usize, members: Members, from: u64) -> Collective {
        let mine = self.nodes.leader(self.me as usize);
        let mut leaders: Vec<usize> =
            members.pes().map(|pe| self.nodes.leader(pe)).filter(|pe| *pe != mine).collect();
        leaders.sort_unstable();
        leaders.dedup();
        Collective::new(board, members, leaders, from)
    }

    fn exhausted(&self, who: &str, lack: Lack, plan: &TeamPlan) -> Error {
        let (slots, sets) = (plan.slots, plan.slots.sets);
        match lack {
            Lack::Number => err!(
                UNSUPPORTED,
                "{who} is in as many teams as a PE can be, or each place that it has free is taken on another \
                 member: free some teams"
            ),
            Lack::Memory => {
                let (taken, all) = self.books().bytes();
                err!(
                    HEAP_EXHAUSTED,
                    "a team of {} PEs with {sets} slot sets takes {} bytes, which {who} has not left in the memory of teams \
                     where the other members have; here {taken} of {all} bytes are in use (RUSHMEM_TEAM_MEMORY sets how \
                     much there is)",
                    slots.n,
                    plan.slots.bytes_with_table(&plan.members)
                )
            }
        }
    }

    /// Collective over the team: its members have no more use for it, and others get its place.
    pub(crate) fn free_team(&self, team: &Team) -> Result<()> {
        if team.rounds().board() == 0 {
            return Err(err!(INVALID_ARGUMENT, "the world's team cannot be freed: it ends with the world"));
        }
        self.health.check()?;
        // What this PE has sent to members must not come to those who have the place next.
        order::quiet(self)?;
        let mut call = team.rounds().enter(&self.rounds)?;
        call.round(Call::TeamFree, [0; 4])?;
        self.books().give(team.place(), call.number());
        Ok(())
    }

    /// Says which teams a world that ends still has.
    pub(super) fn tell_teams(&self) {
        let teams = self.books().teams();
        if teams > 0 {
            log::debug!("{}: {teams} teams were not freed: they end with the world", self.health.who());
        }
    }
}

/// Keeps the reason for a member's own error.
fn fail(failure: &mut Option<Error>, e: Error) -> Said {
    let said = Said::Failed(e.code);
    *failure = Some(e);
    said
}

/// `team_split of team 3`.
fn what(kind: Call, parent: &Team) -> String {
    format!("{} of {}", Call::name(kind as u8), parent.rounds().name())
}

/// Word 1's upper half is the number of slot sets.
pub(super) fn check_sets(call: &Entered<'_>, what: &str) -> Result<()> {
    call.agree_by(&format!("the number of slot sets of {what}"), |w| w[1] >> 32)?;
    let sets = call.words(0)[1] >> 32;
    if sets == 0 || sets > u64::from(MOST_SETS) {
        return Err(err!(INVALID_ARGUMENT, "{what}: {sets} slot sets: expected 1 to {MOST_SETS}"));
    }
    Ok(())
}

/// What tells lists apart: every PE of a job runs this same code.
pub(super) fn digest(list: &[i32]) -> u64 {
    let mut hasher = DefaultHasher::new();
    list.hash(&mut hasher);
    hasher.finish()
}
