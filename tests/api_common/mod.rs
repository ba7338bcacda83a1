//! What the API's tests share: random data that every PE can make again, and both ways to run PEs.

pub mod bench;
pub mod card;
pub mod kill;
pub mod place;
pub mod way;

use rushmem::testing::Pes;
use rushmem::World;

const SEED: &str = "RUSHMEM_TEST_SEED";

/// The seed of this run: the environment's, so that PEs agree and a failure can be repeated, or a fresh one.
pub fn seed() -> u64 {
    if let Some(seed) = std::env::var(SEED).ok().and_then(|text| text.parse().ok()) {
        return seed;
    }
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    now.as_nanos() as u64 ^ u64::from(std::process::id())
}

/// These PEs with one [`seed`], which is printed.
pub fn seeded(pes: Pes) -> Pes {
    let seed = seed();
    println!("{SEED}={seed}");
    pes.env(SEED, seed.to_string())
}

/// Rounds of what takes part of a second each, and of which CI has few: `make attack` has eight times as many
/// (a third of `RUSHMEM_TEST_ROUNDS`).
pub fn longer(few: u32) -> u32 {
    let factor = std::env::var("RUSHMEM_TEST_ROUNDS").ok().and_then(|text| text.trim().parse::<u32>().ok());
    few * (factor.unwrap_or(1) / 3).max(1)
}

/// Runs `f` on so many PEs, for each of the counts: once as processes (where they may be processes, and need
/// not take turns on a GPU) and once as threads, with generators seeded alike.
#[track_caller]
pub fn at_counts(counts: &[u32], f: impl Fn(&World, &mut Rng) + Sync) {
    at_counts_as(counts, |pes| pes, f);
}

/// [`at_counts`] for PEs with settings.
#[track_caller]
pub fn at_counts_as(counts: &[u32], settings: impl Fn(Pes) -> Pes, f: impl Fn(&World, &mut Rng) + Sync) {
    let here = place::counts(counts);
    if here.is_empty() {
        let test = std::thread::current().name().unwrap_or_default().rsplit("::").next().unwrap().to_owned();
        place::skip(&test, format_args!("tests in brief have fewer PEs than {counts:?}"));
    }
    for n in here {
        let (threads_only, brief) = (place::threads_only(), place::is_brief());
        if !threads_only && (brief || !place::in_turns(n)) {
            seeded(settings(place::pes(n))).run(|world| f(world, &mut Rng::new(seed())));
        }
        if threads_only || !brief {
            seeded(settings(place::pes(n))).threads(|world| f(world, &mut Rng::new(seed())));
        }
    }
}

/// [`at_counts`] for one of them.
#[track_caller]
pub fn both(n: u32, f: impl Fn(&World, &mut Rng) + Sync) {
    at_counts(&[n], f);
}

/// [`at_counts`] for the usual ones.
#[track_caller]
pub fn at_all_counts(f: impl Fn(&World, &mut Rng) + Sync) {
    at_counts(&[1, 2, 3, 4, 8], f);
}

/// Runs `f` on `n` PEs, as processes unless they would take turns on a GPU, or may not be processes: then as
/// threads.
#[track_caller]
pub fn apart(n: u32, f: impl Fn(&World) + Sync) {
    apart_as(n, place::pes(n), f);
}

/// [`apart`] for PEs with settings.
#[track_caller]
pub fn apart_as(n: u32, pes: Pes, f: impl Fn(&World) + Sync) {
    if place::in_turns(n) || place::threads_only() {
        pes.threads(f);
    } else {
        pes.run(f);
    }
}

/// SplitMix64: small, and good enough for test data.
pub struct Rng(u64);

impl Rng {
    /// From this seed.
    pub fn new(seed: u64) -> Self {
        Rng(seed)
    }

    /// With the [`seed`], which is printed, for what a test does outside of its PEs.
    pub fn printed() -> Self {
        let seed = seed();
        println!("{SEED}={seed}");
        Rng(seed)
    }

    /// A generator of its own for some part of the test, the same on every PE that asks alike.
    pub fn fork(&self, part: impl Into<u64>) -> Rng {
        let mut rng = Rng(self.0 ^ part.into().wrapping_mul(0xd6e8_feb8_6659_fd93));
        rng.next();
        rng
    }

    /// A number of 64 bits.
    #[allow(
        clippy::should_implement_trait,
        reason = "it never ends, so that an iterator would only add unwrapping"
    )]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    /// So many bytes.
    pub fn bytes(&mut self, n: usize) -> Vec<u8> {
        (0..n).map(|_| self.next() as u8).collect()
    }

    /// So many words.
    pub fn words(&mut self, n: usize) -> Vec<u64> {
        (0..n).map(|_| self.next()).collect()
    }
}
