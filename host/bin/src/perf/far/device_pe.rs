//! One of the two PEs of a measure of `far --device`: their heaps are in the memory of their devices, and
//! neither maps the other's.

use std::time::Instant;

use rushmem::{Device, Kernel, Launch, Source, SymSlice, World};
use serde::{Deserialize, Serialize};

use super::pair::{words, Pair};
use super::posts;
use crate::args::FarDevicePeArgs;
use crate::job::{Failure, Result};

/// Bytes of the puts whose bandwidth is measured.
const SIZES: [usize; 3] = [1 << 20, 16 << 20, 128 << 20];
/// How long a sample should take.
const SAMPLE_S: f64 = 0.1;
/// Rounds of a latency's sample, and of the first one, which is not counted.
const ROUNDS: [i32; 2] = [200, 20];

/// One figure.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Figure {
    pub(super) name: String,
    pub(super) bytes: u64,
    pub(super) unit: String,
    pub(super) samples: Vec<f64>,
    /// Why there are none.
    pub(super) failed: Option<String>,
}

/// What PE 0 found.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Found {
    /// How the other PE is reached, for people.
    pub(super) reason: String,
    pub(super) device: String,
    pub(super) figures: Vec<Figure>,
}

/// `rushmem-perf far-device-pe`.
pub(crate) fn run(args: &FarDevicePeArgs) -> Result<()> {
    let world = World::init()?;
    let pair = Pair::by(&world, &args.pe, &["ucx", "queue-emulated"])?;
    let bench = Bench { pair: &pair, samples: args.samples };
    let mut own = Found { reason: pair.reason.clone(), device: world.device_name(), figures: Vec::new() };
    let source = Source::text([KERNELS, posts::KERNEL].concat()).name("far_device.cu");
    // On GPUs kernels have queues where they are compiled for them.
    let queues = !matches!(world.device(), Device::Cpu) && pair.way != "ucx";
    let module = world.load(if queues { source.option("-DRUSHMEM_NET_QUEUE") } else { source })?;
    let mut keep = |name: &str, bytes: usize, unit: &str, found: Result<Vec<f64>>| -> Result<()> {
        let mut figure =
            Figure { name: name.into(), bytes: bytes as u64, unit: unit.into(), ..Figure::default() };
        let went_wrong = found.as_ref().err().map(ToString::to_string);
        match found {
            Ok(samples) => figure.samples = samples,
            Err(why) => figure.failed = Some(why.to_string()),
        }
        own.figures.push(figure);
        // Anew after each figure: what is known survives whatever comes next.
        pair.leave(&args.pe, &own)?;
        // The other PE is somewhere else now: nothing that follows would meet it.
        went_wrong.map_or(Ok(()), |why| Err(Failure::new(why)))
    };
    let (posted, arrived) = match posts::measure(&pair, &module.kernel("post")?, args.samples) {
        Ok(found) => (Ok(found.posted), Ok(found.arrived)),
        Err(why) => (Err(Failure::new(why.to_string())), Err(why)),
    };
    keep("kernel's p, posted", 8, "M/s", posted)?;
    keep("kernel's p, arrived", 8, "M/s", arrived)?;
    if args.posts {
        return Ok(world.finalize()?);
    }
    keep("kernel's put_signal, one way", 8, "us", bench.pingpong(&module.kernel("pingpong")?))?;
    keep("kernel's fetch_add", 8, "us", bench.kernel_add(&module.kernel("add")?))?;
    keep("host's fetch_add", 8, "us", bench.host_add())?;
    let put = module.kernel("put")?;
    for bytes in SIZES {
        keep("host's put", bytes, "GB/s", bench.bandwidth(bytes, None))?;
        keep("kernel's put", bytes, "GB/s", bench.bandwidth(bytes, Some(&put)))?;
    }
    Ok(world.finalize()?)
}

struct Bench<'a> {
    pair: &'a Pair<'a>,
    samples: u32,
}

impl Bench<'_> {
    /// Calls `batch` with rounds, once to warm up and then for each sample; microseconds of one round.
    fn latencies(&self, mut batch: impl FnMut(i32) -> Result<f64>) -> Result<Vec<f64>> {
        let [rounds, first] = ROUNDS;
        batch(first)?;
        (0..self.samples).map(|_| batch(rounds).map(|seconds| seconds * 1e6 / f64::from(rounds))).collect()
    }

    /// Half the time of a round trip.
    fn pingpong(&self, kernel: &Kernel<'_>) -> Result<Vec<f64>> {
        let (words, sig) = (self.pair.world.alloc::<u64>(2)?, self.pair.world.alloc::<u64>(1)?);
        let mut done = 0;
        let found = self.latencies(|rounds| {
            self.pair.world.barrier_all()?;
            let begin = Instant::now();
            let (to, first) = (self.pair.other.number() as i32, i32::from(self.pair.first));
            // SAFETY: the kernel writes words that outlive it.
            unsafe { kernel.launch(Launch::new(1, 1), (&words, &sig, to, done, rounds, first)) }?;
            self.pair.world.synchronize()?;
            done += rounds;
            Ok(begin.elapsed().as_secs_f64() / 2.0)
        })?;
        self.pair.holds("a ping-pong", sig.to_vec()?, &[done as u64])?;
        self.pair.holds("a ping-pong", words.to_vec()?.split_off(1), &[done as u64])?;
        self.pair.world.barrier_all()?;
        words.free()?;
        sig.free()?;
        Ok(found)
    }

    /// One thread's fetch_adds, one after the other, on a device that does nothing.
    fn kernel_add(&self, kernel: &Kernel<'_>) -> Result<Vec<f64>> {
        let wrong = self.pair.world.alloc::<u64>(1)?;
        let (to, step) = (self.pair.other.number() as i32, self.step());
        let found = self.adds(|word, done, rounds| {
            // SAFETY: the kernel adds to a word that outlives it, as does the one in which it counts wrong
            // values.
            unsafe {
                kernel.launch(Launch::new(1, 1), (word, step, step.wrapping_mul(done), to, rounds, &wrong))
            }?;
            Ok(self.pair.world.synchronize()?)
        })?;
        let wrong_values = wrong.to_vec()?[0];
        wrong.free()?;
        match wrong_values {
            0 => Ok(found),
            n => Err(Failure::new(format!("the kernel's fetch_add fetched {n} wrong values"))),
        }
    }

    fn host_add(&self) -> Result<Vec<f64>> {
        let step = self.step();
        self.adds(|word, done, rounds| {
            for i in 0..rounds as u64 {
                let old = word.at(0, self.pair.other).fetch_add(step)?;
                if old != step.wrapping_mul(done + i) {
                    return Err(Failure::new(format!(
                        "the host's fetch_add fetched {old:#x}, a wrong value"
                    )));
                }
            }
            Ok(())
        })
    }

    /// What is added: another in each run.
    fn step(&self) -> u64 {
        self.pair.salt | 1
    }

    /// `batch` gets the number of adds before it, and the number that it makes.
    fn adds(&self, mut batch: impl FnMut(&SymSlice<'_, u64>, u64, i32) -> Result<()>) -> Result<Vec<f64>> {
        let word = self.pair.world.alloc::<u64>(1)?;
        let mut done = 0;
        let found = self.latencies(|rounds| {
            self.pair.world.barrier_all()?;
            let begin = Instant::now();
            if self.pair.first {
                batch(&word, done, rounds)?;
            }
            done += rounds as u64;
            let seconds = begin.elapsed().as_secs_f64();
            self.pair.world.barrier_all()?;
            Ok(seconds)
        })?;
        if !self.pair.first {
            self.pair.holds("fetch_add", word.to_vec()?, &[self.step().wrapping_mul(done)])?;
        }
        self.pair.world.barrier_all()?;
        word.free()?;
        Ok(found)
    }

    /// GB in a second, until all have arrived.
    fn bandwidth(&self, bytes: usize, kernel: Option<&Kernel<'_>>) -> Result<Vec<f64>> {
        let (inbox, source) =
            (self.pair.world.alloc::<u64>(bytes / 8)?, self.pair.world.alloc::<u64>(bytes / 8)?);
        source.write(&words(self.pair.salt, bytes / 8))?;
        let put = |count: i32| -> Result<f64> {
            self.pair.world.barrier_all()?;
            let begin = Instant::now();
            if self.pair.first {
                match kernel {
                    Some(kernel) => {
                        let (to, n) = (self.pair.other.number() as i32, bytes as u64 / 8);
                        // SAFETY: the kernel writes memory that outlives it, and that nobody reads meanwhile.
                        unsafe { kernel.launch(Launch::new(1, 256), (&inbox, &source, n, to, count)) }?;
                        self.pair.world.synchronize()?;
                    }
                    None => {
                        for _ in 0..count {
                            inbox.put_from_nbi(&source, self.pair.other)?;
                        }
                        self.pair.world.quiet()?;
                    }
                }
            }
            let seconds = begin.elapsed().as_secs_f64();
            self.pair.world.barrier_all()?;
            Ok(seconds)
        };
        put(1)?;
        // PE 0 says how many fill a sample: the other takes no part in them.
        let once = put(1)?.max(1e-6);
        let count = if self.pair.first { (SAMPLE_S / once).clamp(1.0, 1000.0) as i32 } else { 1 };
        // What the first puts brought is none of this.
        let data = words(self.pair.salt ^ if kernel.is_some() { 1 } else { 2 }, bytes / 8);
        source.write(&data)?;
        let mut found = Vec::new();
        for _ in 0..self.samples {
            found.push(f64::from(count) * bytes as f64 / put(count)? / 1e9);
        }
        if !self.pair.first {
            self.pair.holds(&format!("puts of {bytes} bytes"), inbox.to_vec()?, &data)?;
        }
        self.pair.world.barrier_all()?;
        inbox.free()?;
        source.free()?;
        Ok(found)
    }
}

const KERNELS: &str = r#"
#include <rushmem/rushmem.cuh>

// words[0] goes out, words[1] comes in; the signal says which round it is of.
extern "C" __global__ void pingpong(uint64_t *words, uint64_t *sig, int pe, int done, int rounds, int first) {
  for (int i = 1; i <= rounds; ++i) {
    uint64_t round = uint64_t(done) + i;
    if (!first) rushmem::signal_wait_until(sig, rushmem::cmp::ge, round);
    words[0] = round;
    rushmem::put_signal(words + 1, words, 1, sig, round, rushmem::signal::set, pe);
    if (first) rushmem::signal_wait_until(sig, rushmem::cmp::ge, round);
  }
}

extern "C" __global__ void add(uint64_t *word, uint64_t step, uint64_t sum, int pe, int rounds, uint64_t *wrong) {
  for (int i = 0; i < rounds; ++i, sum += step) {
    if (rushmem::atomic_fetch_add(word, step, pe) != sum) ++*wrong;
  }
}

extern "C" __global__ void put(uint64_t *inbox, const uint64_t *source, size_t n, int pe, int count) {
  for (int i = 0; i < count; ++i) rushmem::put_nbi<rushmem::block>(inbox, source, n, pe);
  rushmem::quiet();
}
"#;
