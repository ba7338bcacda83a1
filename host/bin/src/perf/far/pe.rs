//! One of the two PEs of a measure of `far`: each operation as a program would call it, on a PE whose memory is not mapped.

use std::path::{Path, PathBuf};
use std::time::Instant;

use rushmem::{Cmp, Launch, Pe, Source, World};
use serde::{Deserialize, Serialize};

use super::Figure;
use crate::args::FarPeArgs;
use crate::job::{Failure, Result};

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

/// Where PE 0 leaves it.
pub(super) fn found(folder: &Path) -> PathBuf {
    folder.join("found.json")
}

/// `rushmem-perf far-pe`.
pub(crate) fn run(args: &FarPeArgs) -> Result<()> {
    let world = World::init()?;
    let other = Pe::new(1 - world.my_pe().number().min(1));
    let peer = world.peer(other)?;
    if world.n_pes() != 2 || peer.transport != "ucx" {
        return Err(Failure::new(format!(
            "{other} is reached by {} ({}), not by UCX",
            peer.transport, peer.reason
        )));
    }
    let pair = Pair { world: &world, other, first: world.my_pe().number() == 0 };
    let mut own = Found { library: library(), reason: peer.reason, figures: Vec::new() };
    for figure in &args.figures {
        let value = match figure {
            Figure::Latency => Ok(pair.latency(figure.iterations())?),
            Figure::FetchAdd => Ok(pair.fetch_add(figure.iterations())?),
            Figure::Bandwidth => Ok(pair.bandwidth(figure.iterations())?),
            Figure::Rate => pair.rate(figure.iterations()),
        };
        // The other's kernel or call may have failed where ours did not: then the next call says so.
        own.figures.push(value.map_err(|e| e.to_string()));
        world.barrier_all()?;
    }
    if pair.first {
        std::fs::write(found(&args.folder), serde_json::to_vec(&own)?)?;
    }
    Ok(world.finalize()?)
}

/// The file of the UCX in this process.
fn library() -> Option<PathBuf> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let path = maps.lines().filter_map(|line| line.split_once('/')).map(|(_, path)| format!("/{path}"));
    path.map(PathBuf::from)
        .find(|path| path.file_name().is_some_and(|n| n.to_string_lossy().starts_with("libucp.so")))
}

struct Pair<'a> {
    world: &'a World,
    other: Pe,
    first: bool,
}

impl Pair<'_> {
    /// Microseconds from a put until it is seen: half the median round trip, as `ucp_put_lat`.
    fn latency(&self, n: u32) -> Result<f64> {
        let word = self.world.alloc::<u64>(1)?;
        let mut times = Vec::with_capacity(n as usize);
        for round in 1..=u64::from(n + n / 10) {
            let begin = Instant::now();
            if self.first {
                word.put(&[round], self.other)?;
                word.wait_until(0, Cmp::Ge, round)?;
            } else {
                word.wait_until(0, Cmp::Ge, round)?;
                word.put(&[round], self.other)?;
            }
            times.push(begin.elapsed().as_secs_f64() * 1e6 / 2.0);
        }
        word.free()?;
        Ok(median(times.split_off((n / 10) as usize)))
    }

    /// Microseconds of the median fetch_add, while the other waits.
    fn fetch_add(&self, n: u32) -> Result<f64> {
        let word = self.world.alloc::<u64>(1)?;
        let mut times = Vec::with_capacity(n as usize);
        if self.first {
            for _ in 0..n + n / 10 {
                let begin = Instant::now();
                word.at(0, self.other).fetch_add(1)?;
                times.push(begin.elapsed().as_secs_f64() * 1e6);
            }
        }
        self.world.barrier_all()?;
        word.free()?;
        Ok(if self.first { median(times.split_off((n / 10) as usize)) } else { 0.0 })
    }

    /// GB in a second, of puts that are all begun before the first is waited for.
    fn bandwidth(&self, n: u32) -> Result<f64> {
        const BYTES: usize = 1 << 20;
        let inbox = self.world.alloc::<u8>(BYTES)?;
        let source = vec![7u8; BYTES];
        let mut seconds = 1.0;
        for count in [n / 10, n] {
            let begin = Instant::now();
            if self.first {
                self.world
                    .nbi(|scope| (0..count).try_for_each(|_| scope.put(&inbox, &source, self.other)))?;
            }
            seconds = begin.elapsed().as_secs_f64();
            self.world.barrier_all()?;
        }
        if !self.first && inbox.to_vec()? != source {
            return Err(Failure::new("puts of 1 MiB brought something else"));
        }
        inbox.free()?;
        Ok(f64::from(n) * BYTES as f64 / seconds / 1e9)
    }

    /// Millions in a second of 8-byte puts by one thread of a kernel, until all have arrived.
    fn rate(&self, n: u32) -> Result<f64> {
        let words = self.world.alloc::<u64>(WORDS as usize)?;
        let module = self.world.load(Source::text(KERNEL).name("far.cu"))?;
        let rate = module.kernel("rate")?;
        let mut seconds = 1.0;
        for count in [n / 10, n] {
            let begin = Instant::now();
            if self.first {
                let count = count as i32;
                // SAFETY: the kernel writes words of `words`, which outlives it, on a PE that reads them later.
                unsafe { rate.launch(Launch::new(1, 1), (&words, self.other.number() as i32, count)) }?;
                self.world.synchronize()?;
            }
            seconds = begin.elapsed().as_secs_f64();
            self.world.barrier_all()?;
        }
        let last = |at: u64| (0..u64::from(n)).rev().find(|i| i % WORDS == at).unwrap_or(0);
        if !self.first && !words.to_vec()?.into_iter().eq((0..WORDS).map(last)) {
            return Err(Failure::new("puts by the kernel have not all arrived, or not in this order"));
        }
        words.free()?;
        Ok(f64::from(n) / seconds / 1e6)
    }
}

/// Words that the kernel puts to in turn; a power of two.
const WORDS: u64 = 256;

const KERNEL: &str = r#"
#include <rushmem/rushmem.cuh>
extern "C" __global__ void rate(uint64_t *words, int pe, int n) {
  for (int i = 0; i < n; ++i) rushmem::p(words + i % 256, uint64_t(i), pe);
  rushmem::quiet();
}
"#;

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or(f64::NAN)
}
