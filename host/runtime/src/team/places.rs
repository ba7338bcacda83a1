//! Places that are free: a team's number, or room for its slot sets in the memory of teams.
//!
//! A new team needs the same place on all of its members, each of which has others in use. So a PE can say
//! which places it could give as a *window*: a number and 64 bits, bit b for the place 64 * number + b. The
//! members' bits and-ed are what they have in common ([`super::agreement`]). Everything is bookkeeping; the
//! same calls leave the same places.

use std::collections::BTreeMap;

/// Places of a window.
const WINDOW: usize = 64;

/// Free and taken places.
#[derive(Debug)]
pub(crate) struct Places {
    /// Runs of free places: the first, and how many. Neighbours are merged.
    free: BTreeMap<usize, usize>,
    all: usize,
    taken: usize,
}

impl Places {
    /// So many, all free.
    pub(crate) fn new(all: usize) -> Places {
        let free = if all > 0 { BTreeMap::from([(0, all)]) } else { BTreeMap::new() };
        Places { free, all, taken: 0 }
    }

    /// How many there are.
    pub(crate) fn all(&self) -> usize {
        self.all
    }

    /// How many are taken.
    pub(crate) fn taken(&self) -> usize {
        self.taken
    }

    /// The first window from number `from` on with a place where `len` of them in a row are free, and its
    /// bits.
    pub(crate) fn window(&self, len: usize, from: usize) -> Option<(usize, u64)> {
        let begin = from.checked_mul(WINDOW)?;
        // The first and the last place of each run that will do.
        let fits = self.free.iter().filter(|(_, n)| **n >= len).map(|(at, n)| (*at, at + n - len));
        let mut fits = fits.filter(|(_, last)| *last >= begin).peekable();
        let number = fits.peek()?.0.max(begin) / WINDOW;
        let (low, high) = (number * WINDOW, number * WINDOW + WINDOW - 1);
        let bits = fits.take_while(|(first, _)| *first <= high).fold(0, |bits, (first, last)| {
            let (first, last) = (first.max(low) - low, last.min(high) - low);
            bits | (u64::MAX >> (WINDOW - 1 - (last - first))) << first
        });
        Some((number, bits))
    }

    /// Takes `len` places from `at` on; false where one of them is not free.
    pub(crate) fn take(&mut self, at: usize, len: usize) -> bool {
        let Some((&first, &n)) = self.free.range(..=at).next_back() else { return false };
        let (end, run_end) = (at + len, first + n);
        if end > run_end {
            return false;
        }
        self.free.remove(&first);
        if at > first {
            self.free.insert(first, at - first);
        }
        if run_end > end {
            self.free.insert(end, run_end - end);
        }
        self.taken += len;
        true
    }

    /// Gives back what was taken.
    pub(crate) fn give(&mut self, at: usize, len: usize) {
        self.taken -= len;
        let (mut first, mut n) = (at, len);
        if let Some((&before, &before_n)) = self.free.range(..at).next_back() {
            if before + before_n == at {
                (first, n) = (before, before_n + n);
            }
        }
        if let Some(after_n) = self.free.remove(&(at + len)) {
            n += after_n;
        }
        self.free.insert(first, n);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::random::Random;

    /// The first window, by looking at each place.
    fn model(taken: &[bool], len: usize, from: usize) -> Option<(usize, u64)> {
        let fits = |at: usize| taken.get(at..at + len).is_some_and(|run| run.iter().all(|taken| !taken));
        (from..taken.len().div_ceil(WINDOW)).find_map(|number| {
            let bits =
                (0..WINDOW).filter(|bit| fits(number * WINDOW + bit)).fold(0, |bits, bit| bits | 1 << bit);
            (bits != 0).then_some((number, bits))
        })
    }

    #[test]
    fn places_are_those_of_a_plain_list() {
        let mut random = Random::new("places_are_those_of_a_plain_list");
        for all in [1, 63, 64, 65, 300, 1024] {
            let (mut places, mut taken) = (Places::new(all), vec![false; all]);
            let mut held: Vec<(usize, usize)> = Vec::new();
            for _ in 0..400 {
                let most = [4, 4, 4, 90][random.below(4)];
                let len = 1 + random.below(most);
                let from = random.below(all / WINDOW + 2);
                assert_eq!(
                    places.window(len, from),
                    model(&taken, len, from),
                    "{len} from {from}: {places:?}"
                );
                let at = random.below(all);
                let free = taken.get(at..at + len).is_some_and(|run| run.iter().all(|taken| !taken));
                assert_eq!(places.take(at, len), free);
                if free {
                    taken[at..at + len].fill(true);
                    held.push((at, len));
                } else if !held.is_empty() && random.below(3) > 0 {
                    let (at, len) = held.swap_remove(random.below(held.len()));
                    places.give(at, len);
                    taken[at..at + len].fill(false);
                }
                assert_eq!(places.taken(), taken.iter().filter(|taken| **taken).count());
            }
            held.into_iter().for_each(|(at, len)| places.give(at, len));
            assert_eq!((places.free.len(), places.taken(), places.all()), (1, 0, all));
        }
    }
}
