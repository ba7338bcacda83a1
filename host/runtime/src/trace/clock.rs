//! The PEs' clocks, and how far they are apart.
//!
//! Times are CLOCK_MONOTONIC's, in nanoseconds: one clock for all processes of a host, but for those of
//! another time namespace (time_namespaces(7)). For PEs with other clocks a few rounds at the start bound the
//! distance: in each, all PEs tell when they entered it and, in the next one, when they left it. Nobody
//! leaves a round before all have entered. So of PE a's entry and PE b's leaving it is known which came
//! first, whatever the clocks show, and both ways around. Each pair of times gives a bound; the closest
//! bounds of all rounds and of all PEs that share a clock count, and no assumption is made about delays.

use std::hash::{DefaultHasher, Hash, Hasher};

/// Rounds of the exchange. The closest one counts, so a late PE in some of them does no harm.
pub(crate) const ROUNDS: usize = 16;

/// Nanoseconds of this process's CLOCK_MONOTONIC.
pub(crate) fn now() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is a timespec to write to; CLOCK_MONOTONIC always exists on Linux.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// What processes with the same clock have in common: the boot of their kernel and their time namespace.
/// Never 0.
pub(crate) fn identity() -> u64 {
    let mut hasher = DefaultHasher::new();
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().hash(&mut hasher);
    std::fs::read_link("/proc/self/ns/time").unwrap_or_default().hash(&mut hasher);
    hasher.finish() | 1
}

/// When a PE entered a round and left it, by its own clock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Times {
    pub(crate) entered: u64,
    pub(crate) left: u64,
}

/// How far this PE's clock is ahead of PE 0's: between two bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Distance {
    /// In the middle of them.
    pub(crate) ahead_ns: i64,
    /// And so wrong by this at most.
    pub(crate) error_ns: u64,
}

impl Distance {
    /// Of one clock from itself.
    pub(crate) const NONE: Distance = Distance { ahead_ns: 0, error_ns: 0 };

    /// From the times of all PEs in each round, and whose clocks are whose. `None` without rounds.
    pub(crate) fn between(rounds: &[Vec<Times>], clocks: &[u64], me: usize) -> Option<Distance> {
        if clocks[me] == clocks[0] {
            return Some(Distance::NONE);
        }
        let of = |clock| move |pe: &usize| clocks[*pe] == clock;
        let (mut least, mut most) = (i64::MIN, i64::MAX);
        for times in rounds {
            let each = |clock| (0..times.len()).filter(of(clock)).map(|pe| times[pe]);
            // The tightest of each side: the last to enter, and the first to leave.
            let entered = |clock| each(clock).map(|t| t.entered).max().map(|t| t as i64);
            let left = |clock| each(clock).map(|t| t.left).min().map(|t| t as i64);
            // Their entry came before my leaving, and mine before theirs.
            most = most.min(left(clocks[me])? - entered(clocks[0])?);
            least = least.max(entered(clocks[me])? - left(clocks[0])?);
        }
        let width = most.checked_sub(least)?;
        // Clocks that are slewed meanwhile may cross the bounds by a few nanoseconds.
        Some(Distance { ahead_ns: least + width / 2, error_ns: width.unsigned_abs().div_ceil(2) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::random::Random;

    #[test]
    fn the_true_distance_lies_within_the_bounds() {
        let mut random = Random::new("the_true_distance_lies_within_the_bounds");
        let mut draw = |most: u64| random.next() % most;
        for _ in 0..200 {
            let n = 2 + draw(6) as usize;
            let hosts: Vec<u64> = (0..n).map(|_| 1 + draw(3)).collect();
            let ahead: Vec<u64> = (0..4).map(|_| draw(1 << 40)).collect();
            let mut now = 1 << 41;
            let rounds: Vec<Vec<Times>> = (0..ROUNDS)
                .map(|_| {
                    let entered: Vec<u64> = (0..n).map(|_| now + draw(50_000)).collect();
                    let all = *entered.iter().max().expect("two PEs at least");
                    now = all + 100_000;
                    let of = |pe: usize, t: u64| t + ahead[hosts[pe] as usize];
                    let left: Vec<u64> = (0..n).map(|_| all + draw(30_000)).collect();
                    (0..n).map(|pe| Times { entered: of(pe, entered[pe]), left: of(pe, left[pe]) }).collect()
                })
                .collect();
            for me in 0..n {
                let truth = ahead[hosts[me] as usize] as i64 - ahead[hosts[0] as usize] as i64;
                let found = Distance::between(&rounds, &hosts, me).expect("there were rounds");
                assert!((found.ahead_ns - truth).unsigned_abs() <= found.error_ns, "{found:?}, not {truth}");
                assert!(found.error_ns <= 40_000, "{found:?}");
                assert!(hosts[me] != hosts[0] || found == Distance::NONE);
            }
        }
        assert_eq!(Distance::between(&[], &[1, 2], 1), None);
    }
}
