//! A GPU's clock beside the host's. The GPU's counts nanoseconds, too (`%globaltimer`), from another start
//! and by another crystal.
//!
//! In a *meeting* a kernel reads its clock several times, each time after the host has asked and before the
//! host sees the answer. So each reading was made between two times of the host's, which bounds the distance
//! of the clocks; the closest bounds of all readings count. A later meeting shows how the distance changes,
//! and times after it are reckoned with that.

/// Lower bits of a time that a record has.
const BITS: u32 = 48;
/// Meetings that are closer together say nothing of how fast the clocks part.
const APART: u64 = 200_000_000;
/// No crystal is worse: one part in so many.
const WORST: u64 = 2_000;

/// A reading of the GPU's clock, which was made between two times of the host's.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reading {
    pub(crate) asked: u64,
    pub(crate) gpu: u64,
    pub(crate) seen: u64,
}

/// What was once the time, by both clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ClockMeeting {
    gpu: u64,
    host: u64,
    /// The host's is wrong by this at most.
    error: u64,
}

impl ClockMeeting {
    fn of(readings: &[Reading]) -> Option<ClockMeeting> {
        let last = readings.last()?;
        let ahead = |host: u64, gpu: u64| host as i64 - gpu as i64;
        let least = readings.iter().map(|r| ahead(r.asked, r.gpu)).max()?;
        let most = readings.iter().map(|r| ahead(r.seen, r.gpu)).min()?;
        // A clock that ticks in steps may cross the bounds by a step.
        let (middle, width) = (least + (most - least) / 2, (most - least).unsigned_abs());
        let host = last.gpu.wrapping_add_signed(middle);
        Some(ClockMeeting { gpu: last.gpu, host, error: width.div_ceil(2) })
    }
}

/// How the host's time follows from the GPU's.
#[derive(Debug, Default)]
pub(crate) struct GpuClock {
    first: Option<ClockMeeting>,
    last: Option<ClockMeeting>,
}

impl GpuClock {
    /// Notes a meeting; false where nothing was read.
    pub(crate) fn meet(&mut self, readings: &[Reading]) -> bool {
        let Some(meeting) = ClockMeeting::of(readings) else { return false };
        self.first.get_or_insert(meeting);
        self.last = Some(meeting);
        true
    }

    /// How far the clocks are known at the times of meetings, in nanoseconds.
    pub(crate) fn error(&self) -> Option<u64> {
        self.first.into_iter().chain(self.last).map(|meeting| meeting.error).max()
    }

    /// The host's time at a time of the GPU's, of which the lower 48 bits are known: of some days, the one
    /// around `now`, at which the record was read. Without a meeting that is the time.
    pub(crate) fn host_time(&self, gpu: u64, now: u64) -> u64 {
        let (Some(first), Some(last)) = (self.first, self.last) else { return now };
        // From the last meeting, before or after.
        let passed = gpu.wrapping_sub(last.gpu) << (u64::BITS - BITS);
        let passed = passed as i64 >> (u64::BITS - BITS);
        let (by_gpu, by_host) = (last.gpu.saturating_sub(first.gpu), last.host.saturating_sub(first.host));
        let slower = by_host as i64 - by_gpu as i64;
        let is_known = by_gpu >= APART && slower.unsigned_abs() <= by_gpu / WORST;
        let more = if is_known { i128::from(passed) * i128::from(slower) / i128::from(by_gpu) } else { 0 };
        // Nothing is read before it has happened.
        last.host.saturating_add_signed(passed.saturating_add(more as i64)).min(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::random::Random;

    /// A GPU whose clock is `slower` parts in a million slow, and that was 7 at the host's time `START`.
    const START: u64 = 1 << 44;
    const AT_START: u64 = (1 << 60) + 7;

    fn gpu_time(host: u64, slower: u64) -> u64 {
        let passed = host - START;
        AT_START + passed - passed / 1_000_000 * slower
    }

    fn meeting(host: u64, slower: u64, random: &mut Random) -> Vec<Reading> {
        let mut draw = |most: u64| random.next() % most;
        let each = |i: u64| {
            let asked = host + i * 10_000;
            let read = asked + 300 + draw(4000);
            Reading { asked, gpu: gpu_time(read, slower), seen: read + 300 + draw(4000) }
        };
        (0..16).map(each).collect()
    }

    #[test]
    fn times_are_right_within_the_error_and_clocks_that_part_are_followed() {
        let mut random = Random::new("times_are_right_within_the_error_and_clocks_that_part_are_followed");
        for slower in [0, 20, 80] {
            let mut clock = GpuClock::default();
            assert_eq!((clock.host_time(5, 99), clock.error()), (99, None));
            assert!(!clock.meet(&[]) && clock.meet(&meeting(START, slower, &mut random)));
            let error = |clock: &GpuClock| clock.error().expect("they have met");
            assert!(error(&clock) < 4000, "{clock:?}");
            let wrong = |clock: &GpuClock, host: u64| {
                let record = gpu_time(host, slower) & ((1 << BITS) - 1);
                clock.host_time(record, host + 20_000_000).abs_diff(host)
            };
            // Soon after: within the error. Ten seconds later: as far as they have parted.
            assert!(wrong(&clock, START + 1_000_000) <= error(&clock) + 100);
            assert!(wrong(&clock, START + 10_000_000_000) <= error(&clock) + 10_000 * slower + 100);
            assert!(clock.meet(&meeting(START + 10_000_000_000, slower, &mut random)));
            for later in [9_000_000_000, 11_000_000_000, 15_000_000_000] {
                assert!(wrong(&clock, START + later) <= 3 * error(&clock) + 100, "{clock:?} {later}");
            }
            // Nothing lies ahead.
            let ahead = gpu_time(START + 1_000_000_000, slower);
            assert_eq!(clock.host_time(ahead, START + 500), START + 500);
        }
    }
}
