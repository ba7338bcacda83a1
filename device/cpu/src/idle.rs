//! What a block does while all its threads only wait: spins while it has a core to itself, yields when it hasn't, and
//! naps in the end. A nap is a small part of the time waited so far, so it never adds much to it.

use std::hint;
use std::time::Duration;

use crate::hooks::now_ns;

/// Idle rounds before the first yield, when yields are found to return at once.
const SPIN_ROUNDS: u32 = 64;
/// A yield that takes longer has let somebody else run.
const SHARED_CORE_NS: u64 = 2_000;
/// Waits shorter than this never nap.
const NAP_AFTER_NS: u64 = 5_000_000;
/// A nap is this part of the time waited so far, within its bounds.
const NAP_PART: u64 = 256;
const NAP_NS: (u64, u64) = (20_000, 1_000_000);

/// The state of one block's waiting.
#[derive(Default)]
pub(crate) struct Idle {
    rounds: u32,
    spin_rounds: u32,
    since: u64,
}

impl Idle {
    /// Something happened.
    pub(crate) fn progress(&mut self) {
        self.rounds = 0;
        self.since = 0;
    }

    /// Every thread that can run has polled once more. `may_nap`: all of them in a wait.
    pub(crate) fn step(&mut self, may_nap: bool) {
        self.rounds += 1;
        if self.rounds <= self.spin_rounds {
            hint::spin_loop();
            return;
        }
        let before = now_ns();
        if self.since == 0 {
            self.since = before;
        }
        let waited = before - self.since;
        if may_nap && waited > NAP_AFTER_NS {
            std::thread::sleep(Duration::from_nanos((waited / NAP_PART).clamp(NAP_NS.0, NAP_NS.1)));
            return;
        }
        std::thread::yield_now();
        if now_ns() - before > SHARED_CORE_NS {
            self.spin_rounds = 0;
        } else {
            self.spin_rounds = (self.spin_rounds + 1).min(SPIN_ROUNDS);
        }
    }
}
