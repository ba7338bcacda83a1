//! How the members of a new team come to one place, a number and room that are free on all of them.
//!
//! In each round of the parent team every member says where it has free places, as a window of 64
//! ([`super::places`]). Where all say the same window, and their bits have one in common, that is the place;
//! else they go on with the furthest of the windows, or the next one. So the rounds are at most as many as
//! there are windows, and nearly always one. Then each takes the place. Another thread of a PE may be in the
//! split of another team and have taken it meanwhile: then all give it back and choose again, each team by
//! its own number, so that two that met do not meet for ever.
//!
//! All members have the same answers, and so draw the same conclusions.

use super::books::{TeamBooks, TeamPlace};
use crate::node::control::RoundWords;
use rushmem_abi::c::RUSHMEM_ERR_BUSY;

/// Choices before a split gives up.
const ATTEMPTS: usize = 1000;

/// A window's number and bits; `None` where no place will do.
type Window = Option<(usize, u64)>;

/// What a member of the parent says in a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Said {
    /// There is nothing to do any more.
    Done,
    /// Where it has places.
    Free { board: Window, memory: Window },
    /// It has taken the place, and made it ready. No round that it knows on the board had a larger number.
    Taken { last: u64 },
    /// The place is taken.
    Again,
    /// It cannot go on, for this code's reason.
    Failed(i32),
}

/// The number of a window that is none.
const NONE: u64 = u32::MAX as u64;

impl Said {
    /// As words of a round.
    pub(crate) fn words(&self) -> RoundWords {
        let (number, bits) = (
            |w: &Window| w.map_or(NONE, |(number, _)| number as u64),
            |w: &Window| w.map_or(0, |(_, bits)| bits),
        );
        match self {
            Said::Done => [0; 4],
            Said::Free { board, memory } => {
                [1, number(board) | number(memory) << 32, bits(board), bits(memory)]
            }
            Said::Taken { last } => [2, *last, 0, 0],
            Said::Again => [3, 0, 0, 0],
            Said::Failed(code) => [4, *code as i64 as u64, 0, 0],
        }
    }

    /// What the words say.
    pub(crate) fn of(words: RoundWords) -> Said {
        let window = |number: u64, bits| (number != NONE).then_some((number as usize, bits));
        match words[0] {
            0 => Said::Done,
            1 => Said::Free {
                board: window(words[1] & NONE, words[2]),
                memory: window(words[1] >> 32, words[3]),
            },
            2 => Said::Taken { last: words[1] },
            3 => Said::Again,
            _ => Said::Failed(words[1] as i64 as i32),
        }
    }
}

/// What a member does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NextStep {
    /// Says where it has places; a place that it has taken is given back.
    Search,
    Take(TeamPlace),
    /// The team has its place. Its rounds are counted from this number on.
    Made(u64),
    /// There is none: the member that has no place left, and what for.
    Exhausted {
        member: usize,
        what: Lack,
    },
    /// This code's reason.
    GiveUp(i32),
}

/// What a PE has no place left for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lack {
    Number,
    Memory,
}

/// One of the two things that are looked for.
#[derive(Debug, Default)]
struct Search {
    /// Windows before this one are of no use.
    from: usize,
    found: Option<usize>,
}

/// A member's part, for one new team.
#[derive(Debug)]
pub(crate) struct Agreement {
    room: usize,
    /// The parent's number: of the splits that a PE is in at once, each has another.
    parent: usize,
    attempt: usize,
    board: Search,
    memory: Search,
}

impl Agreement {
    /// For a team with so much room, in granules.
    pub(crate) fn new(room: usize, parent: usize) -> Agreement {
        Agreement { room, parent, attempt: 0, board: Search::default(), memory: Search::default() }
    }

    /// Where this PE has places.
    pub(crate) fn offer(&self, books: &TeamBooks) -> Said {
        Said::Free {
            board: books.boards.window(1, self.board.from),
            memory: books.memory.window(self.room, self.memory.from),
        }
    }

    /// What all members of the new team have said, in their order.
    pub(crate) fn hear(&mut self, said: &[Said]) -> NextStep {
        let taken = |one: &Said| if let Said::Taken { last } = one { Some(*last) } else { None };
        if let Some(last) = said.iter().map(taken).collect::<Option<Vec<_>>>() {
            return NextStep::Made(last.into_iter().max().unwrap_or(0));
        }
        let mut windows = Vec::with_capacity(said.len());
        for one in said {
            let Said::Free { board, memory } = one else { return self.again() };
            windows.push((*board, *memory));
        }
        let turn = if self.attempt == 0 { 0 } else { mix(self.parent, self.attempt) };
        let found = self.board.hear(windows.iter().map(|w| w.0), turn);
        if let Err(member) = found {
            return NextStep::Exhausted { member, what: Lack::Number };
        }
        let found = self.memory.hear(windows.iter().map(|w| w.1), turn);
        if let Err(member) = found {
            return NextStep::Exhausted { member, what: Lack::Memory };
        }
        match (self.board.found, self.memory.found) {
            (Some(board), Some(at)) => NextStep::Take(TeamPlace { board, at, room: self.room }),
            _ => NextStep::Search,
        }
    }

    /// Some have not got the place.
    fn again(&mut self) -> NextStep {
        self.attempt += 1;
        (self.board, self.memory) = (Search::default(), Search::default());
        if self.attempt == ATTEMPTS {
            return NextStep::GiveUp(RUSHMEM_ERR_BUSY);
        }
        NextStep::Search
    }
}

impl Search {
    /// Goes on with what the members have said; the first of them that has no place left.
    fn hear(&mut self, windows: impl Iterator<Item = Window> + Clone, turn: u64) -> Result<(), usize> {
        if self.found.is_some() {
            return Ok(());
        }
        if let Some(member) = windows.clone().position(|w| w.is_none()) {
            return Err(member);
        }
        let furthest = windows.clone().flatten().map(|(number, _)| number).max().unwrap_or(0);
        self.from = furthest;
        if windows.clone().flatten().any(|(number, _)| number != furthest) {
            return Ok(());
        }
        let common = windows.flatten().fold(u64::MAX, |common, (_, bits)| common & bits);
        match common.count_ones() {
            0 => self.from = furthest + 1,
            n => {
                let skip = turn % u64::from(n);
                let bits = (0..skip).fold(common, |bits, _| bits & (bits - 1));
                self.found = Some(furthest * 64 + bits.trailing_zeros() as usize);
            }
        }
        Ok(())
    }
}

/// Different numbers for different teams and attempts.
fn mix(parent: usize, attempt: usize) -> u64 {
    let z = (parent as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
        ^ (attempt as u64).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (z ^ (z >> 29)).wrapping_mul(0x94d0_49bb_1331_11eb) >> 33
}

#[cfg(test)]
#[path = "agreement_tests.rs"]
mod tests;
