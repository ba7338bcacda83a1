//! One of the two PEs of a measure of `far`: each operation as a program would call it, on a PE whose memory
//! is not mapped.
//!
//! What is moved is new in each run and in each phase, and differs from place to place; it is compared with
//! what should be there after the timed loop, at the end that can see it. Wrong data ends the job without
//! figures.

use std::path::PathBuf;
use std::time::Instant;

use rushmem::{Cmp, Launch, Source, World};
use serde::{Deserialize, Serialize};

use super::pair::{words, Pair};
use super::Figure;
use crate::args::FarPeArgs;
use crate::job::{Failure, Result};
use crate::stats::Summary;

/// What PE 0 found.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Found {
    /// The UCX that was loaded.
    pub(super) library: Option<PathBuf>,
    /// How the other PE is reached, for people.
    pub(super) reason: String,
    /// In the order of the figures that were asked for; `Err` says why there is none.
    pub(super) figures: Vec<std::result::Result<f64, String>>,
}

/// `rushmem-perf far-pe`.
pub(crate) fn run(args: &FarPeArgs) -> Result<()> {
    let world = World::init()?;
    let pair = Pair::of(&world, &args.pe)?;
    let mut own = Found { library: library(), reason: pair.reason.clone(), figures: Vec::new() };
    for figure in &args.figures {
        let value = match figure {
            Figure::Latency => Ok(pair.latency(figure.iterations())?),
            Figure::FetchAdd => Ok(pair.fetch_add(figure.iterations())?),
            Figure::Bandwidth => Ok(pair.bandwidth(figure.iterations())?),
            Figure::Rate => pair.rate(figure.iterations())?,
        };
        own.figures.push(value);
        world.barrier_all()?;
    }
    pair.leave(&args.pe, &own)?;
    Ok(world.finalize()?)
}

/// The file of the UCX in this process.
fn library() -> Option<PathBuf> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let path = maps.lines().filter_map(|line| line.split_once('/')).map(|(_, path)| format!("/{path}"));
    path.map(PathBuf::from)
        .find(|path| path.file_name().is_some_and(|n| n.to_string_lossy().starts_with("libucp.so")))
}

impl Pair<'_> {
    /// Microseconds from a put until it is seen: half the median round trip, as `ucp_put_lat`.
    fn latency(&self, n: u32) -> Result<f64> {
        let word = self.world.alloc::<u64>(1)?;
        let rounds = u64::from(n + n / 10);
        let mut times = Vec::with_capacity(rounds as usize);
        // New in each run, and growing.
        let value = |round: u64| (self.salt >> 1) + round;
        for round in 1..=rounds {
            let begin = Instant::now();
            if self.first {
                word.put(&[value(round)], self.other)?;
                word.wait_until(0, Cmp::Ge, value(round))?;
            } else {
                word.wait_until(0, Cmp::Ge, value(round))?;
                word.put(&[value(round)], self.other)?;
            }
            times.push(begin.elapsed().as_secs_f64() * 1e6 / 2.0);
        }
        self.holds("a ping-pong of 8 B", word.to_vec()?, &[value(rounds)])?;
        word.free()?;
        Ok(median(times.split_off((n / 10) as usize)))
    }

    /// Microseconds of the median fetch_add, while the other waits.
    fn fetch_add(&self, n: u32) -> Result<f64> {
        let word = self.world.alloc::<u64>(1)?;
        let rounds = u64::from(n + n / 10);
        let mut times = Vec::with_capacity(rounds as usize);
        let mut fetched = Vec::with_capacity(rounds as usize);
        let step = self.salt | 1;
        if self.first {
            for _ in 0..rounds {
                let begin = Instant::now();
                let old = word.at(0, self.other).fetch_add(step)?;
                times.push(begin.elapsed().as_secs_f64() * 1e6);
                fetched.push(old);
            }
            // Nobody else adds: each fetches what those before it have added.
            if !fetched.into_iter().eq((0..rounds).map(|i| step.wrapping_mul(i))) {
                return Err(Failure::new("fetch_add fetched something else than the sum so far"));
            }
        }
        self.world.barrier_all()?;
        if !self.first {
            self.holds("fetch_add", word.to_vec()?, &[step.wrapping_mul(rounds)])?;
        }
        word.free()?;
        Ok(if self.first { median(times.split_off((n / 10) as usize)) } else { 0.0 })
    }

    /// GB in a second, of puts that are all begun before the first is waited for.
    fn bandwidth(&self, n: u32) -> Result<f64> {
        const BYTES: usize = 1 << 20;
        let inbox = self.world.alloc::<u64>(BYTES / 8)?;
        let (mut seconds, mut source) = (1.0, Vec::new());
        for (count, phase) in [(n / 10, 1), (n, 2)] {
            source = words(self.salt ^ phase, BYTES / 8);
            let begin = Instant::now();
            if self.first {
                self.world
                    .nbi(|scope| (0..count).try_for_each(|_| scope.put(&inbox, &source, self.other)))?;
            }
            seconds = begin.elapsed().as_secs_f64();
            self.world.barrier_all()?;
        }
        if !self.first {
            self.holds("puts of 1 MiB", inbox.to_vec()?, &source)?;
        }
        inbox.free()?;
        Ok(f64::from(n) * BYTES as f64 / seconds / 1e9)
    }

    /// Millions in a second of 8-byte puts by one thread of a kernel, until all have arrived.
    /// Why not, where kernels cannot be loaded, which is so on both PEs alike.
    fn rate(&self, n: u32) -> Result<std::result::Result<f64, String>> {
        let module = match self.world.load(Source::text(KERNEL).name("far.cu")) {
            Ok(module) => module,
            Err(why) => return Ok(Err(why.to_string())),
        };
        let words = self.world.alloc::<u64>(WORDS as usize)?;
        let rate = module.kernel("rate")?;
        let (mut seconds, mut salt) = (1.0, 0);
        for (count, phase) in [(n / 10, 1), (n, 2)] {
            salt = self.salt ^ phase << 32;
            let begin = Instant::now();
            if self.first {
                let (to, count) = (self.other.number() as i32, count as i32);
                // SAFETY: the kernel writes words of `words`, which outlives it, on a PE that reads them
                // later.
                unsafe { rate.launch(Launch::new(1, 1), (&words, salt, to, count)) }?;
                self.world.synchronize()?;
            }
            seconds = begin.elapsed().as_secs_f64();
            self.world.barrier_all()?;
        }
        if !self.first {
            let last = |at: u64| (0..u64::from(n)).rev().find(|i| i % WORDS == at).unwrap_or(0);
            let right: Vec<u64> = (0..WORDS).map(|at| salt.wrapping_add(last(at))).collect();
            self.holds("puts by the kernel, which arrive in order,", words.to_vec()?, &right)?;
        }
        words.free()?;
        Ok(Ok(f64::from(n) / seconds / 1e6))
    }
}

/// Words that the kernel puts to in turn; a power of two.
const WORDS: u64 = 256;

const KERNEL: &str = r#"
#include <rushmem/rushmem.cuh>
extern "C" __global__ void rate(uint64_t *words, uint64_t salt, int pe, int n) {
  for (int i = 0; i < n; ++i) rushmem::p(words + i % 256, salt + uint64_t(i), pe);
  rushmem::quiet();
}
"#;

fn median(times: Vec<f64>) -> f64 {
    Summary::of(times).map_or(f64::NAN, |summary| summary.median)
}
