//! One PE of a job of `mixed`. PE 0 measures, PE 1 answers, and those that are far sleep until PE 0 has done:
//! nothing between the first two waits for them, as a barrier of all would.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rushmem::{Cmp, Kernel, Launch, Pe, Source, SymSlice, World};
use serde::{Deserialize, Serialize};

use crate::args::PeArgs;
use crate::job::{self, Failure, Result};
use crate::stats::Summary;

/// Timed batches of each figure, and operations of one.
pub(super) const BATCHES: u32 = 40;
pub(super) const ITERATIONS: u32 = 2000;
/// What ends in it has no limit: quiet is about far PEs too, and has to look whether anything is under way to
/// them.
pub(super) const QUIET: &str = "put + quiet";
/// Between two looks of an idle PE at whether all is done.
const IDLE: Duration = Duration::from_millis(5);

/// Words of 8 bytes in a line of memory, of which each figure has one to itself.
const LINE: usize = 16;
const LINES: usize = 8;

/// Whose a line is.
#[derive(Clone, Copy)]
enum Word {
    Put,
    PutQuiet,
    Add,
    Ping,
    KernelPut,
    KernelAdd,
    KernelPing,
    /// What a kernel tells the host of its own PE: its nanoseconds, and how many wrong values it saw.
    Told,
}

impl Word {
    fn at(self) -> usize {
        self as usize * LINE
    }
}

/// What PE 0 found.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Found {
    /// How it reaches the far PEs, where there are any.
    pub(super) far: Option<String>,
    /// Each figure's name, and the median batch's nanoseconds of one operation.
    pub(super) figures: Vec<(String, f64)>,
}

/// Where PE 0 leaves it.
pub(super) fn found(folder: &Path) -> PathBuf {
    folder.join("found.json")
}

/// `rushmem-perf mixed-pe`.
pub(crate) fn run(args: &PeArgs) -> Result<()> {
    let world = World::init()?;
    let me = world.my_pe().number();
    let words = world.alloc_aligned::<u64>(LINES * LINE, 128)?;
    let done = world.alloc::<u64>(1)?;
    world.barrier_all()?;
    if me < 2 {
        job::pin(me as usize);
        let other = Pe::new(1 - me);
        let reached = world.peer(other)?;
        if reached.transport != "direct" {
            return Err(Failure::new(format!("{other} is reached by {}: it is not near", reached.transport)));
        }
        let (salt, corrupt) = (args.salt >> 1 | 1, args.corrupt);
        let pair = Pair { world: &world, words: &words, other, first: me == 0, salt, corrupt };
        let mut own = Found::default();
        let mut keep = |name: &str, samples: Vec<f64>| {
            own.figures.extend(Summary::of(samples).map(|summary| (name.to_owned(), summary.median)));
        };
        keep("host's put", pair.put(Word::Put)?);
        keep("host's put + quiet", pair.put(Word::PutQuiet)?);
        keep("host's fetch_add", pair.fetch_add()?);
        keep("host's signal ping-pong", pair.pingpong()?);
        // Only now: a PE that has kernels and far PEs looks after the kernels' ring from time to time.
        let module = world.load(Source::text(KERNELS).name("mixed.cu"))?;
        keep("kernel's put + quiet", pair.kernel(&module.kernel("put")?, Word::KernelPut)?);
        keep("kernel's fetch_add", pair.kernel(&module.kernel("add")?, Word::KernelAdd)?);
        keep("kernel's signal ping-pong", pair.kernel(&module.kernel("pingpong")?, Word::KernelPing)?);
        pair.verify()?;
        if me == 0 {
            if world.n_pes() > 2 {
                let far = world.peer(world.pe(2)?)?;
                own.far = Some(format!("{} ({})", far.transport, far.reason));
            }
            std::fs::write(found(&args.folder), serde_json::to_vec(&own)?)?;
            world.pes().skip(2).try_for_each(|pe| done.p(0, 1, pe))?;
        }
    } else {
        while !done.test(0, Cmp::Ne, 0)? {
            std::thread::sleep(IDLE);
        }
    }
    world.barrier_all()?;
    Ok(world.finalize()?)
}

struct Pair<'a> {
    world: &'a World,
    words: &'a SymSlice<'a, u64>,
    other: Pe,
    first: bool,
    /// Of the data, the same on both PEs; small enough that counts may be added to it.
    salt: u64,
    corrupt: bool,
}

impl Pair<'_> {
    /// Nanoseconds of one operation in each batch. `batch` gets the number of operations before it, and
    /// returns its nanoseconds.
    fn batches(&self, mut batch: impl FnMut(u64) -> Result<f64>) -> Result<Vec<f64>> {
        let mut samples = Vec::new();
        for at in 0..=BATCHES {
            samples.push(batch(u64::from(at) * u64::from(ITERATIONS))? / f64::from(ITERATIONS));
        }
        // The first has warmed up.
        Ok(samples.split_off(1))
    }

    /// The same of calls of the host.
    fn calls(&self, mut call: impl FnMut(u64) -> Result<()>) -> Result<Vec<f64>> {
        self.batches(|done| {
            let begin = Instant::now();
            (1..=u64::from(ITERATIONS)).try_for_each(|i| call(done + i))?;
            Ok(begin.elapsed().as_nanos() as f64)
        })
    }

    /// One after another; with a quiet behind each, or one behind each batch.
    fn put(&self, word: Word) -> Result<Vec<f64>> {
        let (at, each) = (word.at(), matches!(word, Word::PutQuiet));
        let word = self.words.slice(at..at + 1)?;
        if !self.first {
            return Ok(Vec::new());
        }
        self.calls(|round| {
            word.put(&[self.salt + round], self.other)?;
            if each || round % u64::from(ITERATIONS) == 0 {
                self.world.quiet()?;
            }
            Ok(())
        })
    }

    fn fetch_add(&self) -> Result<Vec<f64>> {
        if !self.first {
            return Ok(Vec::new());
        }
        let mut wrong = 0;
        let samples = self.calls(|round| {
            let old = self.words.at(Word::Add.at(), self.other).fetch_add(self.salt)?;
            wrong |= old ^ self.salt.wrapping_mul(round - 1);
            Ok(())
        })?;
        match wrong {
            0 => Ok(samples),
            _ => Err(Failure::new("the host's fetch_add fetched a wrong value: its figures mean nothing")),
        }
    }

    fn pingpong(&self) -> Result<Vec<f64>> {
        let at = Word::Ping.at();
        self.calls(|round| {
            let value = self.salt + round;
            if self.first {
                self.words.p(at, value, self.other)?;
            }
            self.words.wait_until(at, Cmp::Ge, value)?;
            if !self.first {
                self.words.p(at, value, self.other)?;
            }
            Ok(())
        })
    }

    /// One thread's, timed by the device.
    fn kernel(&self, kernel: &Kernel<'_>, word: Word) -> Result<Vec<f64>> {
        if !self.first && !matches!(word, Word::KernelPing) {
            return Ok(Vec::new());
        }
        let (at, told) = (self.words.as_ptr().wrapping_add(word.at()), Word::Told.at());
        let (to, first) = (self.other.number() as i32, i32::from(self.first));
        self.batches(|done| {
            let told_at = self.words.as_ptr().wrapping_add(told);
            // SAFETY: the kernel touches its own line and the one it tells in, which outlive it and are
            // nobody else's now.
            unsafe {
                let arguments = (at, self.salt, done, ITERATIONS as i32, to, first, told_at);
                kernel.launch(Launch::new(1, 1), arguments)
            }?;
            self.world.synchronize()?;
            match self.words.slice(told..told + 2)?.to_vec()?[..] {
                [ns, 0] => Ok(ns as f64),
                _ => Err(Failure::new("a kernel fetched a wrong value: its figures mean nothing")),
            }
        })
    }

    /// Has all arrived? The last ping-pong came after everything else.
    fn verify(&self) -> Result<()> {
        let rounds = u64::from(BATCHES + 1) * u64::from(ITERATIONS);
        let (last, sum) = (self.salt + rounds, self.salt.wrapping_mul(rounds));
        let both = [(Word::Ping, last), (Word::KernelPing, last)];
        let puts = [Word::Put, Word::PutQuiet, Word::KernelPut].map(|word| (word, last));
        let here = puts.into_iter().chain([Word::Add, Word::KernelAdd].map(|word| (word, sum)));
        let here = here.filter(|_| !self.first);
        for (word, right) in both.into_iter().chain(here) {
            let there = self.words.slice(word.at()..word.at() + 1)?.to_vec()?[0] ^ u64::from(self.corrupt);
            if there != right {
                return Err(Failure::new(format!(
                    "line {} of {} holds {there:#x}, not {right:#x}: the figures mean nothing",
                    word as usize,
                    self.world.my_pe()
                )));
            }
        }
        Ok(())
    }
}

const KERNELS: &str = r#"
#include <rushmem/rushmem.cuh>

#define TIMED(name, operation)                                                                                \
  extern "C" __global__ void name(uint64_t *word, uint64_t salt, uint64_t done, int n, int pe, int first,     \
                                  uint64_t *told) {                                                           \
    uint64_t wrong = 0;                                                                                       \
    const uint64_t begin = rushmem::impl::now_ns();                                                           \
    for (uint64_t round = done + 1; round <= done + uint64_t(n); ++round) { operation; }                      \
    told[0] = rushmem::impl::now_ns() - begin;                                                                \
    told[1] = wrong != 0;                                                                                     \
    static_cast<void>(first);                                                                                 \
  }

TIMED(put, rushmem::p(word, salt + round, pe); rushmem::quiet())
TIMED(add, wrong |= rushmem::atomic_fetch_add(word, salt, pe) ^ (salt * (round - 1)))
TIMED(pingpong,
      if (first) rushmem::signal_op(word, salt + round, rushmem::signal::set, pe);
      rushmem::signal_wait_until(word, rushmem::cmp::ge, salt + round);
      if (!first) rushmem::signal_op(word, salt + round, rushmem::signal::set, pe))
"#;
