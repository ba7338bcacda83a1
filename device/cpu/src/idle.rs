//! What a block does while all its threads only wait: spins while it has a core to itself, yields when it
//! hasn't, and naps in the end, or as soon as yielding is found to cost whole time slices (another program
//! computes on this core). A nap is a small part of the time waited so far, so it never adds much to it.

use std::hint;
use std::time::Duration;

use crate::monotonic::now_ns;

/// Idle rounds before the first yield, when yields are found to return at once.
const SPIN_ROUNDS: u32 = 64;
/// A yield that takes longer has let another thread run.
const SHARED_CORE_NS: u64 = 2_000;
/// A yield that takes longer has cost a time slice: the kernel's scheduler lets others run after a yield, but
/// wakes a sleeper soon.
const SLICE_NS: u64 = 400_000;
/// Naps instead of yields after such a yield.
const NAPS_PER_SLICE: u32 = 64;
/// Waits longer than this nap.
const NAP_AFTER_NS: u64 = 5_000_000;
/// A nap is this part of the time waited so far, within its bounds.
const NAP_PART: u64 = 256;
const NAP_NS: (u64, u64) = (20_000, 1_000_000);
/// The longest that a block which may be doing honest work keeps its core after a yield.
const WORK_NS: u64 = 2_000_000;

/// The state of one block's waiting.
#[derive(Default)]
pub(crate) struct Idle {
    rounds: u32,
    spin_rounds: u32,
    since: u64,
    naps: u32,
    next_yield: u64,
    now: u64,
}

impl Idle {
    /// Something happened.
    pub(crate) fn progress(&mut self) {
        self.rounds = 0;
        self.since = 0;
    }

    /// Since when nothing has happened, and for how many nanoseconds; 0 and 0 while that is short.
    pub(crate) fn still(&self) -> (u64, u64) {
        match self.since {
            0 => (0, 0),
            since => (since, self.now.saturating_sub(since)),
        }
    }

    /// Every thread that can run has been resumed once more and nothing came of it. `waits`: all of them are
    /// in a wait; else some may be doing honest work with many fences.
    pub(crate) fn step(&mut self, waits: bool) {
        self.rounds += 1;
        if self.rounds <= self.spin_rounds {
            hint::spin_loop();
            return;
        }
        let before = now_ns();
        self.now = before;
        if self.since == 0 {
            self.since = before;
        }
        if waits {
            let waited = before - self.since;
            if waited > NAP_AFTER_NS || self.naps > 0 {
                self.naps = self.naps.saturating_sub(1);
                std::thread::sleep(Duration::from_nanos((waited / NAP_PART).clamp(NAP_NS.0, NAP_NS.1)));
                return;
            }
        } else if before < self.next_yield {
            return;
        }
        std::thread::yield_now();
        let after = now_ns();
        let took = after - before;
        self.spin_rounds = if took > SHARED_CORE_NS { 0 } else { (self.spin_rounds + 1).min(SPIN_ROUNDS) };
        self.naps = if took > SLICE_NS { NAPS_PER_SLICE } else { 0 };
        // Half of the time at least is for the work.
        self.next_yield = after + took.min(WORK_NS);
    }
}
