//! The numbers of one PE's messages, as its receiver has seen them: each number counts once, in whatever
//! order they come.
//!
//! A receiver keeps of what came ahead of its turn no more than [`AHEAD`] numbers. It reports to the sender
//! how far it is, and a sender has no more messages on their way than fit ([`credit`](super::credit)): what
//! an honest PE sends so is never refused.

/// Messages that may be on their way to one PE.
pub(super) const AHEAD: u64 = 4096;

/// What a number is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Seen {
    First,
    /// It has come before.
    Again,
    /// No honest PE can have got that far.
    TooFar,
}

/// All numbers below `next` have come, and some of the [`AHEAD`] from there on.
#[derive(Debug, Default)]
pub(super) struct ReplayWindow {
    pub(super) next: u64,
    /// A bit for each number that came ahead of its turn, by its remainder; made when one does.
    ahead: Vec<u64>,
    early: u32,
}

impl ReplayWindow {
    /// Notes a number.
    pub(super) fn take(&mut self, number: u64) -> Seen {
        if number < self.next {
            return Seen::Again;
        }
        if number - self.next >= AHEAD {
            return Seen::TooFar;
        }
        if number != self.next {
            if self.ahead.is_empty() {
                self.ahead = vec![0; (AHEAD / 64) as usize];
            }
            let (word, bit) = place(number);
            if self.ahead[word] & bit != 0 {
                return Seen::Again;
            }
            self.ahead[word] |= bit;
            self.early += 1;
            return Seen::First;
        }
        self.next += 1;
        while self.early > 0 {
            let (word, bit) = place(self.next);
            if self.ahead[word] & bit == 0 {
                break;
            }
            self.ahead[word] &= !bit;
            self.early -= 1;
            self.next += 1;
        }
        Seen::First
    }
}

fn place(number: u64) -> (usize, u64) {
    let slot = number % AHEAD;
    ((slot / 64) as usize, 1 << (slot % 64))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::topology::card::random;

    #[test]
    fn numbers_count_once_in_any_order() {
        let mut window = ReplayWindow::default();
        for (number, next) in [(0, 1), (3, 1), (2, 1), (1, 4), (4, 5), (6, 5), (5, 7)] {
            assert_eq!(window.take(number), Seen::First);
            assert_eq!(window.next, next, "after {number}");
            assert_eq!(window.take(number), Seen::Again);
        }
        assert_eq!(window.take(7 + AHEAD), Seen::TooFar);
        assert_eq!(window.take(u64::MAX), Seen::TooFar);
        assert_eq!(window.take(7 + AHEAD - 1), Seen::First, "the last that fits");
    }

    /// Against a set, with numbers from before the window to behind it.
    #[test]
    fn a_window_is_a_set() {
        let mut state = u64::from_le_bytes(random().unwrap()) | 1;
        println!("seed {state:#x}");
        let mut below = |n: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % n
        };
        let (mut window, mut seen, mut next) = (ReplayWindow::default(), BTreeSet::new(), 0);
        for _ in 0..100_000 {
            let reach = [4, 70, AHEAD + 9][below(3) as usize];
            let number = (next + below(reach)).saturating_sub(below(3));
            let expected = match number {
                n if n < next || seen.contains(&n) => Seen::Again,
                n if n >= next + AHEAD => Seen::TooFar,
                _ => Seen::First,
            };
            assert_eq!(window.take(number), expected, "{number} at {next}");
            if expected == Seen::First {
                seen.insert(number);
                while seen.remove(&next) {
                    next += 1;
                }
            }
            assert_eq!(window.next, next);
        }
        assert!(next > AHEAD, "it has gone round");
    }
}
