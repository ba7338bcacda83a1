//! Random numbers and delays of the software card, from a seed.

use std::time::{Duration, Instant};

pub(super) struct Chance {
    state: u64,
    /// The usual longest delay, in microseconds.
    delay: u64,
}

impl Chance {
    pub(super) fn new(seed: u64, delay: u64) -> Chance {
        Chance { state: seed | 1, delay }
    }

    pub(super) fn number(&mut self) -> u64 {
        // xorshift64*: Vigna, "An experimental exploration of Marsaglia's xorshift generators, scrambled".
        self.state ^= self.state >> 12;
        self.state ^= self.state << 25;
        self.state ^= self.state >> 27;
        self.state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    pub(super) fn one_in(&mut self, n: u64) -> bool {
        self.number() % n == 0
    }

    /// Some time from now on: at once as often as not, and now and then long.
    pub(super) fn due(&mut self) -> Instant {
        let micros = match self.number() % 8 {
            0..=3 => 0,
            4 => self.number() % (self.delay * 4 + 1),
            _ => self.number() % (self.delay + 1),
        };
        Instant::now() + Duration::from_micros(micros)
    }

    /// Some time from now on that may be long: up to fifty usual longest delays.
    pub(super) fn due_late(&mut self) -> Instant {
        Instant::now() + Duration::from_micros(self.number() % (self.delay * 50 + 1))
    }
}
