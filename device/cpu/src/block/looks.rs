//! What a thread that does not yield looked like whenever it was interrupted (`crate::watch`): instruction,
//! registers and top of the stack. So a loop that polls and one that counts are known from a computation.

use std::collections::VecDeque;

use crate::signals::HAS_FLOATS;

/// Looks that are kept.
const LOOKS: usize = 32;
/// Looks at one instruction by which a loop is known that does nothing but count.
const COUNTS: usize = 4;
/// Looks at instructions where it was too seldom before, one after the other, after which a thread has left
/// its loop. Signals find a thread at some instructions of a short loop a hundred times more often than at
/// others.
const STRAYS: u32 = 4;

/// What one thread looked like, the last times.
#[derive(Default)]
pub(super) struct Looks {
    last: VecDeque<Vec<u64>>,
    /// It looked as it had before.
    pub(super) repeats: bool,
    /// All that differed was a number that counts.
    pub(super) counts: bool,
    strays: u32,
}

impl Looks {
    /// The thread was interrupted and looks like this; whether it has moved since the last time.
    pub(super) fn moved(&mut self, looks: Vec<u64>) -> bool {
        // It counted, and looks as it did the last time: it has not run since. Signals arrive late on a busy
        // machine, two at once.
        if self.counts && self.last.back() == Some(&looks) {
            return false;
        }
        self.repeats = self.last.contains(&looks);
        self.counts = !self.repeats && HAS_FLOATS && self.still_counts(&looks);
        if !self.repeats {
            if self.last.len() == LOOKS {
                self.last.pop_front();
            }
            self.last.push_back(looks);
        }
        !self.repeats && !self.counts
    }

    /// Whether it counts: where it was too seldom to say, as before, but for a while only if that is not
    /// between instructions at which it was of late.
    fn still_counts(&mut self, now: &[u64]) -> bool {
        if let Some(counts) = has_counted(&self.last, now) {
            self.strays = 0;
            return counts;
        }
        let is_near = |near: fn(&u64, &u64) -> bool| self.last.iter().any(|then| near(&then[0], &now[0]));
        if !(is_near(u64::le) && is_near(u64::ge)) {
            self.strays += 1;
        }
        self.counts && self.strays <= STRAYS
    }
}

/// Whether a thread that looks like this has only counted since the last times that it was at this
/// instruction: all that differs is one number, always in one direction, which may be in several places. A
/// computation changes more than how often it went round. `None`: it was there too seldom.
fn has_counted(last: &VecDeque<Vec<u64>>, now: &[u64]) -> Option<bool> {
    let before: Vec<_> = last.iter().filter(|then| then[0] == now[0]).collect();
    if before.len() < COUNTS {
        return None;
    }
    let first = step(before[0], now);
    Some(first.is_some() && before.iter().all(|then| step(then, now) == first))
}

/// Where two looks differ, and whether by more or by less, if it is by one number.
fn step(then: &[u64], now: &[u64]) -> Option<(Vec<usize>, bool)> {
    if then.len() != now.len() {
        return None;
    }
    let places: Vec<usize> = (0..now.len()).filter(|&i| then[i] != now[i]).collect();
    let mut steps = places.iter().map(|&i| difference(then[i], now[i]));
    let first = steps.next()?;
    steps.all(|step| step == first).then_some((places, first > 0))
}

/// By how much a number has grown that is a register or a word of the stack, or a half of one: unoptimised
/// code keeps two `int` in a word.
fn difference(then: u64, now: u64) -> i64 {
    let half = |shift: u32| ((now >> shift) as u32).wrapping_sub((then >> shift) as u32) as i32;
    match (half(0), half(32)) {
        (low, 0) => low.into(),
        (0, high) => high.into(),
        (low, high) if low == high => low.into(),
        _ => now.wrapping_sub(then) as i64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks at a loop of one instruction, by what two registers hold.
    fn seen(looks: &mut Looks, registers: impl IntoIterator<Item = (u64, u64)>) -> Vec<bool> {
        registers.into_iter().map(|(a, b)| looks.moved(vec![0x1000, a, b])).collect()
    }

    #[test]
    fn what_looks_the_same_has_not_moved() {
        let mut looks = Looks::default();
        assert_eq!(seen(&mut looks, [(7, 1), (7, 2), (7, 1), (7, 2)]), [true, true, false, false]);
        assert!(looks.repeats && !looks.counts);
    }

    #[cfg_attr(not(target_arch = "x86_64"), ignore = "loops that count are found on x86-64 alone")]
    #[test]
    fn a_number_that_grows_is_a_loop_that_counts() {
        let mut looks = Looks::default();
        let moved = seen(&mut looks, (0..40).map(|i| (i * 1000, 5 + i * 1000)));
        assert_eq!(moved, (0..40).map(|i| i < COUNTS).collect::<Vec<_>>());
        assert!(looks.counts && !looks.repeats);
        // Over the end of 32 bits, in a register that has no more.
        let mut looks = Looks::default();
        let mut wraps =
            seen(&mut looks, (0..40u32).map(|i| (u64::from((i << 20).wrapping_sub(10 << 20)), 3)));
        assert!(wraps.drain(COUNTS..).all(|moved| !moved));
    }

    #[test]
    fn numbers_grow_in_words_and_in_their_halves() {
        let (then, now) = (0xffff_fff0_u64, 0x1_0000_0010_u64);
        assert_eq!(difference(then, now), 32, "over the end of the lower half");
        assert_eq!((difference(5, 9), difference(9, 5)), (4, -4));
        assert_eq!(difference(7 << 32 | 3, 11 << 32 | 3), 4, "the upper half");
        assert_eq!(difference(7 << 32 | 3, 11 << 32 | 7), 4, "both");
        assert_eq!(difference(0xffff_ffff << 32 | 3, 1 << 32 | 3), 2, "over its end");
    }

    /// Two signals at once find the thread where it was. It is still one that counts, which is not ended.
    #[cfg_attr(not(target_arch = "x86_64"), ignore = "loops that count are found on x86-64 alone")]
    #[test]
    fn what_has_not_run_between_two_looks_counts_as_before() {
        let mut looks = Looks::default();
        for i in 0..200 {
            let moved = seen(&mut looks, [(i / 2 * 77, 0)])[0];
            assert_eq!(moved, i % 2 == 0 && i / 2 < COUNTS as u64, "look {i}");
            assert!(i / 2 < COUNTS as u64 || looks.counts && !looks.repeats, "look {i}");
        }
    }

    /// Signals find it at one instruction nearly always, at others of the loop now and then.
    #[cfg_attr(not(target_arch = "x86_64"), ignore = "loops that count are found on x86-64 alone")]
    #[test]
    fn an_instruction_that_is_seldom_seen_is_of_the_loop() {
        let mut looks = Looks::default();
        for i in 0..2000 {
            let place = if i % 150 == 149 { 4 + i % 3 } else { 0 };
            assert_eq!(looks.moved(vec![0x1000 + place, i * 100, 5]), i < COUNTS as u64, "look {i}");
        }
        // It leaves the loop for a computation.
        let moves = (0..20).map(|i| looks.moved(vec![0x2000 + i % 7, i * i, i * 3]));
        assert_eq!(moves.filter(|moves| !moves).count(), STRAYS as usize);
    }

    #[test]
    fn what_computes_moves() {
        let mut looks = Looks::default();
        let mut x = 1u64;
        let moved = seen(
            &mut looks,
            (0..100).map(|i| {
                x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (i, x)
            }),
        );
        assert!(moved.iter().all(|&moved| moved));
    }
}
