//! Collective host calls: rounds through the node's control segment, with the checks that turn a mistake into
//! an error on every PE instead of a hang.
//!
//! A call enters once (a second thread of the same PE is refused, not mixed up), then makes one or more
//! rounds. All PEs see the same arrivals and so reach the same verdict; a refused call leaves the job usable.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use crate::error::{err, Result};
use crate::health::Health;
use crate::node::control::{Arrival, Call, Control, RoundWords};
use crate::topology::card::Card;

/// Tells the other nodes of this PE's arrival.
pub(crate) type Announce = Box<dyn Fn(Arrival) -> Result<()> + Send + Sync>;

/// The rounds of one world.
pub(crate) struct Collective {
    control: Arc<Control>,
    /// How other nodes hear of this PE's arrivals, where there are any.
    announce: Option<Announce>,
    n: usize,
    limit: Duration,
    count: Mutex<Count>,
}

/// Rounds so far, and the kind of the last one.
#[derive(Debug, Default)]
struct Count {
    number: u64,
    previous: u8,
}

/// A collective call in progress.
pub(crate) struct Entered<'a> {
    of: &'a Collective,
    health: &'a Health,
    cards: &'a [Card],
    count: MutexGuard<'a, Count>,
}

impl Collective {
    /// Rounds among `n` PEs; each round ends within `limit`.
    pub(crate) fn new(
        control: Arc<Control>,
        announce: Option<Announce>,
        n: usize,
        limit: Duration,
    ) -> Collective {
        Collective { control, announce, n, limit, count: Mutex::default() }
    }

    /// Begins a collective call.
    #[inline]
    pub(crate) fn enter<'a>(&'a self, health: &'a Health, cards: &'a [Card]) -> Result<Entered<'a>> {
        let count = match self.count.try_lock() {
            Ok(count) => count,
            Err(TryLockError::Poisoned(p)) => PoisonError::into_inner(p),
            Err(TryLockError::WouldBlock) => {
                return Err(err!(
                    BUSY,
                    "another thread of {} is inside a collective call; collective calls of one world come one at a time",
                    health.who()
                ))
            }
        };
        Ok(Entered { of: self, health, cards, count })
    }
}

impl Entered<'_> {
    /// One round: returns once every PE has entered the same one; an error on every PE where their calls
    /// differ.
    #[inline]
    pub(crate) fn round(&mut self, kind: Call, words: RoundWords) -> Result<()> {
        let c = self.of;
        self.count.number += 1;
        let number = self.count.number;
        let arrival = Arrival { number, kind: kind as u8, previous: self.count.previous, words };
        c.control.arrive(&arrival);
        if let Some(announce) = &c.announce {
            announce(arrival)?;
        }
        self.count.previous = kind as u8;
        let mut next = 0;
        let mut same = true;
        let report = || {
            let late = (0..c.n).filter(|i| c.control.arrived(*i, number).is_none());
            let late: Vec<String> = late.map(|i| self.cards[i].who()).collect();
            format!("for {} to enter {}", late.join(", "), Call::name(kind as u8))
        };
        self.health.wait(Some(c.limit), &report, &mut || {
            while next < c.n {
                match c.control.arrived(next, number) {
                    Some(theirs) => same &= theirs == kind as u8,
                    None => return false,
                }
                next += 1;
            }
            true
        })?;
        if same {
            Ok(())
        } else {
            Err(self.different_calls())
        }
    }

    #[cold]
    fn different_calls(&self) -> crate::error::Error {
        let number = self.count.number;
        let listed: Vec<String> = (0..self.of.n)
            .map(|i| {
                let kind = self.of.control.arrived(i, number).unwrap_or(0);
                format!("PE {} called {}", self.cards[i].pe, Call::name(kind))
            })
            .collect();
        err!(MISMATCH, "the PEs made different collective calls: {}", listed.join(", "))
    }

    /// What PE `i` gave to the last round.
    pub(crate) fn words(&self, i: usize) -> RoundWords {
        self.of.control.words(i, self.count.number)
    }

    /// Checks that all PEs gave the same value as word `k` of the last round; `what` names it.
    pub(crate) fn agree(&self, k: usize, what: &str) -> Result<()> {
        let values: Vec<u64> = (0..self.of.n).map(|i| self.words(i)[k]).collect();
        if values.iter().all(|v| *v == values[0]) {
            return Ok(());
        }
        let listed: Vec<String> =
            values.iter().zip(self.cards).map(|(v, card)| format!("{v} on PE {}", card.pe)).collect();
        Err(err!(MISMATCH, "{what} differs between the PEs: {}", listed.join(", ")))
    }

    /// One more round in which every PE says whether its part went well; all fail where one did.
    pub(crate) fn all_well<T>(&mut self, mine: Result<T>, what: &str) -> Result<T> {
        let code = mine.as_ref().err().map_or(0, |e| e.code);
        self.round(Call::Step, [code as i64 as u64, 0, 0, 0])?;
        let mine = mine.map_err(|e| e.context(what))?;
        match (0..self.of.n).map(|i| (i, self.words(i)[0] as i64 as i32)).find(|(_, code)| *code != 0) {
            None => Ok(mine),
            Some((i, code)) => Err(crate::error::Error::new(
                code,
                format!(
                    "{what}: {} failed (its own error says why), so the call failed everywhere",
                    self.cards[i].who()
                ),
            )),
        }
    }
}
