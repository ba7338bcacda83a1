//! What others may do to a job, and what a program may do to the runtime: random calls, nonsense in every
//! setting, another user at the node's socket, world after world. The sizes here are what CI can bear;
//! `make attack` takes the large ones (`RUSHMEM_TEST_ATTACK=1`, or a factor in `RUSHMEM_TEST_ROUNDS`).
//!
//! More of the same lives beside what it attacks: kills in `tests/faults.rs`, cut hosts and stopped processes
//! in `tests/hosts`, strangers at the rendezvous in `bootstrap/uid/tests/strangers.rs`, the kernel cache in
//! `device/cpu/tests/trust.rs`, the parsers in `fuzz/`.

mod calls;
mod settings;
mod user;
mod worlds;

use std::time::{SystemTime, UNIX_EPOCH};

/// How many rounds where CI has `few`.
fn rounds(few: u32) -> u32 {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.trim().parse::<u32>().ok());
    few * number("RUSHMEM_TEST_ROUNDS").or(number("RUSHMEM_TEST_ATTACK").map(|_| 20)).unwrap_or(1)
}

/// xorshift64*.
struct Random(u64);

const SEED: &str = "RUSHMEM_TEST_SEED";

impl Random {
    /// A fresh one, or the environment's.
    fn new() -> Random {
        let given = std::env::var(SEED).ok().and_then(|text| text.parse().ok());
        let now = || SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_nanos() as u64;
        let seed = given.unwrap_or_else(|| now() ^ u64::from(std::process::id()));
        println!("{SEED}={seed}");
        Random(seed | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, end: usize) -> usize {
        ((self.next() >> 11) % end as u64) as usize
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }
}
