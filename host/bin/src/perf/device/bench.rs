//! What one PE needs to make figures: the kernels, memory for them, and the way from a launch to times. All
//! PEs of a job call everything here together; those that have no part in a measure wait for the others.

use std::collections::BTreeMap;

use rushmem::{ByValue, Device, Kernel, Launch, Module, Pe, Signals, SymSlice, World};

use super::driver::Context;
use super::kernels::{Family, Job, BARE_ROOM, CHECK, HEAD, LINE};
use super::measure::{Part, What};
use super::pattern::{floats, pattern};
use super::plan::Plan;
use super::spec::Spec;
use crate::job::{Failure, Result};

/// Bytes behind the data that nothing may touch.
pub(super) const GUARD: usize = 64;
/// A batch is at least this long, in nanoseconds, so that the clock's step does not matter.
const SHORTEST_BATCH: f64 = 50_000.0;

/// Blocks and threads as launched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) blocks: u32,
    pub(super) threads: u32,
}

/// Of packed messages, the largest: their packets lie behind the data.
fn most_packed(plan: &Plan) -> usize {
    let packed = plan.specs.iter().filter(|spec| spec.what == What::PackedPingpong);
    packed.map(|spec| spec.bytes as usize).max().unwrap_or(0)
}

/// How often: `batches` of `iterations`, after `warm_up`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rounds {
    pub(super) iterations: u32,
    pub(super) batches: u32,
    pub(super) warm_up: u32,
}

impl Rounds {
    /// All of them.
    pub(super) fn total(&self) -> u64 {
        u64::from(self.warm_up) + u64::from(self.iterations) * u64::from(self.batches)
    }
}

/// One PE's share of the benchmark.
pub(super) struct Bench<'w> {
    pub(super) world: &'w World,
    pub(super) plan: &'w Plan,
    /// Of all PEs' data; the same on all.
    pub(super) seed: u64,
    pub(super) to: SymSlice<'w, u8>,
    pub(super) from: SymSlice<'w, u8>,
    pub(super) words: SymSlice<'w, u64>,
    pub(super) stamps: SymSlice<'w, u64>,
    pub(super) signals: Signals<'w>,
    /// Both sides of collectives on streams.
    pub(super) collective_to: SymSlice<'w, f32>,
    pub(super) collective_from: SymSlice<'w, f32>,
    /// Of bare collectives: what they count, and packets.
    pub(super) room: SymSlice<'w, u64>,
    exchange: SymSlice<'w, u64>,
    modules: BTreeMap<Family, Module<'w>>,
}

impl<'w> Bench<'w> {
    /// Compiles the kernels and allocates. Collective.
    pub(super) fn new(world: &'w World, plan: &'w Plan) -> Result<Bench<'w>> {
        let n_pes = world.n_pes() as usize;
        if n_pes < 2 {
            return Err(Failure::new("rushmem-perf measures between PEs: this job has one"));
        }
        let mut modules = BTreeMap::new();
        let bare = |family| plan.specs.iter().any(move |spec| spec.bare && spec.bare_family() == family);
        let bare: Vec<Family> = [Family::Bare, Family::BareInside].into_iter().filter(|&f| bare(f)).collect();
        let families = plan.specs.iter().map(|spec| spec.what.row().family).chain([Family::Local]);
        for family in families.chain(bare.iter().copied()) {
            if let std::collections::btree_map::Entry::Vacant(place) = modules.entry(family) {
                place.insert(world.load(family.source())?);
            }
        }
        let most = plan.specs.iter().map(|spec| spec.bytes).max().unwrap_or(8) as usize;
        let blocks = plan.specs.iter().map(|spec| spec.blocks).max().unwrap_or(1) as usize;
        // Whole pages, as programs have them that care.
        let mut bytes = (most + 16 + GUARD).next_multiple_of(4096);
        let room = |of: fn(&Spec) -> u64| {
            let most = plan.specs.iter().map(of).max().unwrap_or(8) as usize;
            (most + 16 + GUARD).next_multiple_of(4096)
        };
        let (to, from) = (room(Spec::target_bytes), room(Spec::source_bytes));
        if plan.specs.iter().any(|spec| spec.what == What::PackedPingpong) {
            bytes = bytes.max((3 * most_packed(plan) + 2 * GUARD).next_multiple_of(4096));
        }
        // Where there are collectives on streams, and then as many elements as the largest has.
        let on_streams = plan.specs.iter().filter(|spec| spec.stream_collective().is_some());
        let elements = on_streams.map(|spec| spec.bytes as usize / 4).max().map_or(0, |n| n.max(2 * n_pes));
        let elements = elements.next_multiple_of(2);
        // Of a batch of each block, or of two batches that take turns on a stream.
        let stamps = HEAD + 2 * (plan.samples as usize + 1) * blocks.max(2);
        let mut bench = Bench {
            world,
            plan,
            seed: 0,
            to: world.alloc_aligned::<u8>(bytes.max(to), 4096)?,
            from: world.alloc_aligned::<u8>(bytes.max(from), 4096)?,
            words: world.alloc_aligned::<u64>(CHECK + n_pes.next_multiple_of(LINE), 128)?,
            stamps: world.alloc::<u64>(stamps)?,
            signals: world.signals(1)?,
            collective_to: world.alloc_aligned::<f32>(elements, 4096)?,
            collective_from: world.alloc_aligned::<f32>(elements, 4096)?,
            room: world.alloc_aligned::<u64>(if bare.is_empty() { 0 } else { BARE_ROOM / 8 }, 4096)?,
            exchange: world.alloc::<u64>(plan.samples as usize + 1)?,
            modules,
        };
        bench.seed = bench.agree(plan.seed)?;
        let pattern: Vec<u8> = pattern(bench.seed, world.my_pe(), bench.from.len() / 8).collect();
        bench.from.write(&pattern)?;
        let floats = floats(bench.seed, world.my_pe(), bench.collective_from.len());
        bench.collective_from.write(&floats)?;
        bench.room.fill(0)?;
        world.barrier_all()?;
        Ok(bench)
    }

    /// PE 0's value, on all. Collective.
    pub(super) fn agree(&self, value: u64) -> Result<u64> {
        Ok(self.of_first(&[value])?[0])
    }

    /// As many words as there are here, PE 0's on all.
    fn of_first(&self, values: &[u64]) -> Result<Vec<u64>> {
        let place = self.exchange.slice(..values.len())?;
        self.world.barrier_all()?;
        if self.first() {
            for pe in self.world.pes() {
                place.put(values, pe)?;
            }
        }
        self.world.barrier_all()?;
        Ok(place.to_vec()?)
    }

    /// PE 1's numbers, on PE 0.
    pub(super) fn of_second(&self, values: &[f64]) -> Result<Vec<f64>> {
        let bits: Vec<u64> = values.iter().map(|value| value.to_bits()).collect();
        self.world.barrier_all()?;
        if self.world.my_pe().number() == 1 {
            self.exchange.put(&bits, self.world.pe(0)?)?;
        }
        self.world.barrier_all()?;
        Ok(self.exchange.to_vec()?.into_iter().take(bits.len()).map(f64::from_bits).collect())
    }

    /// Whether this is the PE that reports.
    pub(super) fn first(&self) -> bool {
        self.world.my_pe().number() == 0
    }

    /// Whether this PE runs the kernel of such a measure.
    pub(super) fn runs(&self, part: Part) -> bool {
        let me = self.world.my_pe().number();
        match part {
            Part::First => me == 0,
            Part::Pair => me < 2,
            Part::All => true,
        }
    }

    /// The other one of the pair; for those outside of it PE 0.
    pub(super) fn peer(&self) -> Pe {
        Pe::new(u32::from(self.first()))
    }

    /// A kernel by its name.
    pub(super) fn kernel(&self, family: Family, name: &str) -> Result<Kernel<'_>> {
        let module =
            self.modules.get(&family).ok_or_else(|| Failure::new(format!("no kernels for {name}")))?;
        Ok(module.kernel(name)?)
    }

    /// As many blocks and threads as were asked for, or as many as fit: all blocks must be resident, and PEs
    /// that share a GPU share it out.
    pub(super) fn shape(&self, kernel: &Kernel<'_>, spec: &Spec) -> Result<Shape> {
        let mut threads = spec.threads;
        let mut most = kernel.max_blocks(threads, spec.stage as usize)?;
        while most == 0 && threads > 1 {
            threads /= 2;
            most = kernel.max_blocks(threads, spec.stage as usize)?;
        }
        let most = (most / u64::from(self.plan.share)).max(1);
        Ok(Shape { blocks: u64::from(spec.blocks).min(most) as u32, threads })
    }

    /// Operations of a batch, found by short runs. All PEs learn the same. The first run of a kernel, or of a
    /// shape, meets cold caches, and three operations on a stream cost less than the stamps around them; so
    /// what a run says is tried by a batch of as many, until that says no more than a quarter more. Before
    /// the first timed batch each of `places` is visited once, where a batch's time is enough for that: what
    /// lies there is in the memory's cache then, for whatever is timed.
    pub(super) fn calibrate(&self, places: u32, run: impl Fn(Rounds) -> Result<Vec<f64>>) -> Result<Rounds> {
        let plan = self.plan;
        let time = f64::from(plan.budget_ms) * 1e6 / f64::from(plan.samples);
        let (mut iterations, mut in_a_batch) = (3, 0);
        for attempt in 0..6 {
            let few = Rounds { iterations, batches: 1, warm_up: 2 };
            let each = run(few)?.first().map_or(1.0, |ns| ns.max(1.0));
            let wanted = f64::from(plan.iterations).max(SHORTEST_BATCH / each);
            let found = [wanted.min(time / each), time / each].map(|n| n.clamp(1.0, 1e6) as u64);
            let last = iterations;
            iterations = self.agree(found[0])? as u32;
            in_a_batch = self.agree(found[1])? as u32;
            if attempt > 0 && iterations <= last + last / 4 {
                break;
            }
        }
        let warm_up = plan.warm_up.min(iterations).max((places + 1).min(in_a_batch));
        Ok(Rounds { iterations, batches: plan.samples, warm_up })
    }

    /// Runs a kernel on the PEs that have a part. Nanoseconds of one operation, for each batch; none on PEs
    /// without a part. A batch begins with its first block and ends with its last.
    pub(super) fn launch(&self, spec: &Spec, name: &str, shape: Shape, rounds: Rounds) -> Result<Vec<f64>> {
        let part = spec.what.part(spec.both);
        self.words.fill(0)?;
        self.stamps.slice(..HEAD)?.fill(0)?;
        if spec.what == What::Wait {
            self.words.slice(super::kernels::PONG..)?.write(&[self.salt()])?;
        }
        if spec.what == What::PackedPingpong {
            // Rounds count from 1 again, and the last run's packets would pass for this one's.
            self.to.slice(..3 * spec.bytes as usize + 2 * GUARD)?.fill(0)?;
        }
        if spec.family_of(name) == Family::BareInside {
            // Calls count from 1 again.
            self.room.fill(0)?;
        }
        self.world.barrier_all()?;
        let mut times = Vec::new();
        if self.runs(part) {
            let kernel = self.kernel(spec.family_of(name), name)?;
            let job = self.job(spec, rounds, part);
            let launch = Launch::new(shape.blocks, shape.threads).shared_bytes(spec.stage as usize);
            // SAFETY: the kernel stays within these allocations, which live as long as the bench; its PEs
            // touch the same words by atomics and signals only, and what they move is read when all are done.
            unsafe { kernel.launch(launch, (ByValue(job),)) }?;
            self.world.synchronize()?;
            times = self.times(shape, rounds)?;
        }
        self.world.barrier_all()?;
        Ok(times)
    }

    /// For captures and bare calls of the driver: the context of this PE's GPU.
    pub(super) fn context(&self) -> Result<Context> {
        match self.world.device() {
            Device::Cuda(Some(ordinal)) => Context::of(ordinal),
            _ => Err(Failure::new("graphs are CUDA's: there are none on the CPU device")),
        }
    }

    /// Whether a copy to the peer is one call of CUDA's.
    pub(super) fn has_driver(&self) -> bool {
        let mapped = self.to.ptr_at(self.peer()).is_some();
        matches!(self.world.device(), Device::Cuda(Some(_))) && mapped
    }

    /// The data of operations that take a value.
    pub(super) fn salt(&self) -> u64 {
        self.seed | 1
    }

    pub(super) fn job(&self, spec: &Spec, rounds: Rounds, part: Part) -> Job {
        let (step, places) = spec.places();
        Job {
            to: self.to.as_ptr().wrapping_add(spec.shift as usize),
            from: self.from.as_ptr(),
            words: self.words.as_ptr(),
            stamps: self.stamps.as_ptr(),
            bytes: spec.bytes,
            salt: self.salt(),
            step,
            iterations: rounds.iterations,
            batches: rounds.batches,
            warm_up: rounds.warm_up,
            peer: self.peer().number() as i32,
            both: u32::from(part == Part::Pair),
            op: spec.stage,
            places,
            room: self.room.as_ptr(),
        }
    }

    fn times(&self, shape: Shape, rounds: Rounds) -> Result<Vec<f64>> {
        let blocks = shape.blocks as usize;
        let stamps = self.stamps.slice(HEAD..HEAD + 2 * blocks * (rounds.batches as usize + 1))?.to_vec()?;
        let span = |batch: &[u64]| {
            let begin = batch.iter().step_by(2).min().copied().unwrap_or(0);
            let end = batch.iter().skip(1).step_by(2).max().copied().unwrap_or(0);
            end.saturating_sub(begin) as f64 / f64::from(rounds.iterations)
        };
        // Batch 0 is the warm-up.
        Ok(stamps.chunks(2 * blocks).skip(1).map(span).collect())
    }

    /// The smallest step of the device's clock, in nanoseconds.
    pub(super) fn clock_step(&self) -> Result<u64> {
        let spec = Spec::new(What::Wait);
        self.launch_local("clock_step", &spec)?;
        Ok(self.stamps.slice(1..2)?.to_vec()?[0])
    }

    /// A kernel of one thread that only stamps.
    fn launch_local(&self, name: &str, spec: &Spec) -> Result<()> {
        let kernel = self.kernel(Family::Local, name)?;
        let rounds = Rounds { iterations: 0, batches: 0, warm_up: 0 };
        let job = self.job(spec, rounds, Part::First);
        // SAFETY: the kernel writes one stamp of this PE's.
        unsafe { kernel.launch(Launch::new(1, 1), (ByValue(job),)) }?;
        Ok(self.world.synchronize()?)
    }
}
