//! Collective host calls: rounds of a team through the node's control segment, with the checks that turn a
//! mistake into an error on every member instead of a hang.
//!
//! A call enters once (a second thread of the same PE is refused, not mixed up), then makes one or more
//! rounds. All members see the same arrivals and so reach the same verdict; a refused call leaves the team
//! usable. The world is the team of all PEs.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use rushmem_device_cpu::check;

use crate::error::{self, err, Error, Result};
use crate::health::{Health, OutsideGuard};
use crate::node::control::{Arrival, Call, Control, RoundWords, AHEAD, WITHIN};
use crate::topology::card::Card;
use crate::topology::members::Members;
use crate::trace::event::About;
use crate::trace::Trace;

/// Reports this PE's arrival to these PEs, the leaders of other nodes, with the data that the call carries.
pub(crate) type Announce = Box<dyn Fn(&[usize], Arrival, (&[u8], bool)) -> Result<()> + Send + Sync>;

/// How long the name of a dead PE may take to come to all.
const NAME_LIMIT: Duration = Duration::from_secs(2);

/// What the rounds of all teams of a world go through.
pub(crate) struct Rounds {
    pub(crate) control: Arc<Control>,
    /// How other nodes learn of this PE's arrivals, where there are other nodes.
    pub(crate) announce: Option<Announce>,
    pub(crate) health: Arc<Health>,
    pub(crate) cards: Arc<Vec<Card>>,
    /// Of a run that is checked.
    pub(crate) check: Option<Arc<check::World>>,
    /// Of a run that is traced.
    pub(crate) trace: Option<Arc<Trace>>,
    /// Each round ends within this.
    pub(crate) limit: Duration,
}

/// The rounds of one team.
#[derive(Debug)]
pub(crate) struct Collective {
    board: usize,
    members: Members,
    /// The leaders of the other nodes that have members.
    leaders: Vec<usize>,
    count: Mutex<Count>,
}

/// The number of the last round on the board, and its kind.
#[derive(Debug)]
struct Count {
    number: u64,
    previous: u8,
}

/// A team's name: its board is its number.
pub(crate) struct Name(usize);

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => f.write_str("the world"),
            board => write!(f, "team {board}"),
        }
    }
}

/// A collective call in progress.
pub(crate) struct Entered<'a> {
    of: &'a Collective,
    rounds: &'a Rounds,
    count: MutexGuard<'a, Count>,
}

impl Collective {
    /// Rounds of `members` over `board`, on which nobody of them has made one with a number past `from`.
    /// `leaders` lead the other nodes that have members.
    pub(crate) fn new(board: usize, members: Members, leaders: Vec<usize>, from: u64) -> Collective {
        let count = Mutex::new(Count { number: from, previous: Call::TeamFree as u8 });
        Collective { board, members, leaders, count }
    }

    /// The board, which is the team's number.
    pub(crate) fn board(&self) -> usize {
        self.board
    }

    /// For texts.
    pub(crate) fn name(&self) -> Name {
        Name(self.board)
    }

    /// Who takes part.
    pub(crate) fn members(&self) -> &Members {
        &self.members
    }

    /// Begins a collective call.
    #[inline]
    pub(crate) fn enter<'a>(&'a self, rounds: &'a Rounds) -> Result<Entered<'a>> {
        let count = match self.count.try_lock() {
            Ok(count) => count,
            Err(TryLockError::Poisoned(p)) => PoisonError::into_inner(p),
            Err(TryLockError::WouldBlock) => {
                return Err(err!(
                    BUSY,
                    "another thread of {} is inside a collective call of {}; collective calls of one team come one at \
                     a time",
                    rounds.health.who(),
                    self.name()
                ))
            }
        };
        Ok(Entered { of: self, rounds, count })
    }
}

impl Entered<'_> {
    /// One round: returns once every member has entered the same one; an error on every member where their
    /// calls differ.
    #[inline]
    pub(crate) fn round(&mut self, kind: Call, words: RoundWords) -> Result<()> {
        self.round_with(kind, words, 0, 0)
    }

    /// Whether all members are on this node.
    #[inline]
    pub(crate) fn is_of_one_node(&self) -> bool {
        self.of.leaders.is_empty()
    }

    /// Bytes that a round may carry of each member.
    #[inline]
    pub(crate) fn room(&self) -> usize {
        self.rounds.control.room()
    }

    /// Where this member puts what the next round is to carry of it. `whole` decides where that is: up to
    /// so many bytes, which all members know of each other.
    #[inline]
    pub(crate) fn carried_here(&mut self, whole: usize) -> *mut u8 {
        let me = self.rounds.control.my_pe();
        self.rounds.control.carried(self.of.board, me, self.count.number + 1, whole)
    }

    /// What the last round has carried of member `i`: good until the next round but one begins.
    #[inline]
    pub(crate) fn carried(&self, i: usize, whole: usize) -> *const u8 {
        self.rounds.control.carried(self.of.board, self.of.members.pe(i), self.count.number, whole)
    }

    /// An error where a member has given the last round up and made others since: what it has carried may be
    /// something else by now.
    #[inline]
    pub(crate) fn check_kept(&self) -> Result<()> {
        let (board, number) = (self.of.board, self.count.number);
        let gone = |pe: &usize| self.rounds.control.arrived(board, *pe, number) == Some(AHEAD);
        match self.of.members.pes().find(gone) {
            None => Ok(()),
            Some(pe) => Err(err!(TIMEOUT, "{} has given up this call", self.rounds.cards[pe].who())),
        }
    }

    /// [`Entered::round`] that carries the first `bytes` bytes at [`Entered::carried_here`].
    #[inline]
    pub(crate) fn round_with(
        &mut self,
        kind: Call,
        words: RoundWords,
        bytes: usize,
        whole: usize,
    ) -> Result<()> {
        let Collective { board, members, leaders, .. } = self.of;
        let (board, rounds) = (*board, self.rounds);
        self.count.number += 1;
        let number = self.count.number;
        let arrival = Arrival { board, number, kind: kind as u8, previous: self.count.previous, words };
        let _span = rounds.trace.as_ref().map(|trace| {
            let about = About { round: Some((board as u64, number)), ..About::default() };
            trace.span("collective", Call::name(kind as u8), about)
        });
        let team = || check::TeamRounds { board, first: members.pe(0) };
        if let Some(check) = &rounds.check {
            check.come(team(), number);
        }
        rounds.control.arrive(&arrival);
        if let Some(announce) = &rounds.announce {
            let data = rounds.control.carried(board, rounds.control.my_pe(), number, whole);
            // SAFETY: this PE's own room, which nobody writes to before its next round but one.
            let data = unsafe { std::slice::from_raw_parts(data, bytes) };
            announce(leaders, arrival, (data, whole <= WITHIN))?;
        }
        self.count.previous = kind as u8;
        let (n, mut next) = (members.n(), 0);
        let mut same = true;
        let report = || {
            let late = members.pes().filter(|pe| rounds.control.arrived(board, *pe, number).is_none());
            let late: Vec<String> = late.map(|pe| rounds.cards[pe].who()).collect();
            let of = if board == 0 { String::new() } else { format!(" of {}", self.of.name()) };
            format!("for {} to enter {}{of}", late.join(", "), Call::name(kind as u8))
        };
        rounds.health.wait(Some(rounds.limit), &report, &mut || {
            while next < n {
                match rounds.control.arrived(board, members.pe(next), number) {
                    Some(theirs) => {
                        same &= theirs == kind as u8 || (theirs == AHEAD && kind == Call::TeamFree)
                    }
                    None => return false,
                }
                next += 1;
            }
            true
        })?;
        if let Some(check) = &rounds.check {
            check.leave(team(), number);
        }
        if same {
            Ok(())
        } else {
            Err(self.different_calls())
        }
    }

    #[cold]
    fn different_calls(&self) -> Error {
        let number = self.count.number;
        let told: Vec<String> = self
            .of
            .members
            .pes()
            .map(|pe| {
                let kind = self.rounds.control.arrived(self.of.board, pe, number).unwrap_or(0);
                format!("PE {pe} called {}", Call::name(kind))
            })
            .collect();
        let who = if self.of.board == 0 {
            "the PEs".to_owned()
        } else {
            format!("the members of {}", self.of.name())
        };
        err!(MISMATCH, "{who} made different collective calls: {}", told.join(", "))
    }

    /// The number of the last round.
    pub(crate) fn number(&self) -> u64 {
        self.count.number
    }

    /// How many members there are.
    pub(crate) fn n(&self) -> usize {
        self.of.members.n()
    }

    /// What member `i` gave to the last round.
    pub(crate) fn words(&self, i: usize) -> RoundWords {
        self.rounds.control.words(self.of.board, self.of.members.pe(i), self.count.number)
    }

    /// Member `i`, for texts.
    pub(crate) fn who(&self, i: usize) -> String {
        self.rounds.cards[self.of.members.pe(i)].who()
    }

    /// Checks that all members gave the same value as word `k` of the last round; `what` names it.
    pub(crate) fn agree(&self, k: usize, what: &str) -> Result<()> {
        self.agree_by(what, |words| words[k])
    }

    /// The same of what `value` reads from the words.
    pub(crate) fn agree_by<T: PartialEq + fmt::Display>(
        &self,
        what: &str,
        value: impl Fn(&RoundWords) -> T,
    ) -> Result<()> {
        let first = value(&self.words(0));
        if (1..self.n()).all(|i| value(&self.words(i)) == first) {
            return Ok(());
        }
        let told = self.of.members.pes().enumerate();
        let told: Vec<String> = told.map(|(i, pe)| format!("{} on PE {pe}", value(&self.words(i)))).collect();
        Err(err!(MISMATCH, "{what} differs between the PEs: {}", told.join(", ")))
    }

    /// As [`Health::outside`].
    pub(crate) fn outside(&self, what: impl FnOnce() -> String) -> Option<OutsideGuard<'_>> {
        self.rounds.health.outside(what)
    }

    /// One more round in which every member says whether its part went well; all fail where one did.
    pub(crate) fn all_well<T>(&mut self, mine: Result<T>, what: &str) -> Result<T> {
        let code = mine.as_ref().err().map_or(0, |e| e.code);
        self.round(Call::Step, [code as i64 as u64, 0, 0, 0])?;
        let mine = mine.map_err(|e| e.context(what))?;
        match (0..self.n()).map(|i| (i, self.words(i)[0] as i64 as i32)).find(|(_, code)| *code != 0) {
            None => Ok(mine),
            Some((i, code)) => Err(self.failed_elsewhere(i, code, what)),
        }
    }

    /// The error where `what` failed on member `i`.
    pub(crate) fn failed_elsewhere(&self, i: usize, code: i32, what: &str) -> Error {
        failed_on(&self.rounds.health, &self.who(i), code, what, NAME_LIMIT)
    }
}

/// The error where `what` failed on the member `who`. Where a death was the reason, `who` is not the dead PE,
/// whose name is on its way here: it is awaited for so long.
fn failed_on(health: &Health, who: &str, code: i32, what: &str, patience: Duration) -> Error {
    if code == error::code::PEER_DEAD {
        let report = || format!("for the name of the PE whose death {who} knows of");
        if let Err(nothing) = health.wait(Some(patience), &report, &mut || false) {
            log::debug!("{what}: {nothing}");
        }
        if let Err(death) = health.check() {
            return death.context(what);
        }
    }
    let text = format!("{what}: {who} failed (its own error says why), so the call failed everywhere");
    Error::new(code, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_that_failed_elsewhere_names_the_dead_and_not_the_messenger() {
        let health = Health::new("PE 0".into(), false, None);
        let failed = |code, patience| failed_on(&health, "PE 1 (host a)", code, "team_reduce", patience);
        let (long, short) = (Duration::from_secs(60), Duration::from_millis(20));
        // Other failures, and a death of which no news comes, are given as they are.
        assert!(failed(error::code::HEAP_EXHAUSTED, long).message.contains("PE 1 (host a) failed"));
        assert!(failed(error::code::PEER_DEAD, short).message.contains("PE 1 (host a) failed"));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(20));
                health.break_job("PE 2 is gone".into());
            });
            let error = failed(error::code::PEER_DEAD, long);
            assert_eq!(error.code, error::code::PEER_DEAD);
            assert_eq!(error.message, "team_reduce: PE 2 is gone");
        });
    }
}
