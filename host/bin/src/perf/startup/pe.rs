//! One PE of a start-up measure: everything that a program does from its first line to a kernel that has run,
//! each step timed, the memory read in between. The PEs meet before each step whose time or memory is that of
//! all of them, by means of their own; the pauses that this makes are in no figure.

use std::path::{Path, PathBuf};
use std::time::Instant;

use rushmem::{Device, Launch, Source, SymRef, World};
use serde::{Deserialize, Serialize};

use super::meeting::Meeting;
use super::memory::Reading;
use crate::args::StartupPeArgs;
use crate::gpu::{self, Gpu};
use crate::job::{monotonic_ns, Failure, Result};

/// What one PE found. Times are in milliseconds.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Figures {
    /// Its device, for people; the same text is the same device.
    pub(super) device: String,
    /// From the exec of rushmem-run to this PE's first line.
    pub(super) main: f64,
    /// CUDA's own start (`cuInit`), where it was started.
    pub(super) driver: Option<f64>,
    /// A context on the GPU, where there is one.
    pub(super) context: Option<f64>,
    /// `World::init`, the loading of the runtime included.
    pub(super) init: f64,
    /// The first `barrier_all`.
    pub(super) barrier: f64,
    /// The first symmetric allocation.
    pub(super) alloc: f64,
    /// A kernel compiled (or taken from the cache), loaded, launched and done.
    pub(super) kernel: Option<f64>,
    /// Why there was no kernel.
    pub(super) no_kernel: Option<String>,
    /// `World::finalize`.
    pub(super) finalize: f64,
    /// Symmetric heap that is backed by memory, in bytes, before anything is allocated.
    pub(super) heap: u64,
    /// When all PEs have their contexts, and none has a world.
    pub(super) before: Reading,
    /// When all have a world.
    pub(super) with_world: Reading,
    /// When the kernel has run on all.
    pub(super) with_kernel: Reading,
}

/// Where the PEs of a job meet, in its folder.
fn meeting(folder: &Path) -> PathBuf {
    folder.join("meet")
}

/// Where PE 0 leaves the figures of all PEs, in order.
pub(super) fn figures(folder: &Path) -> PathBuf {
    folder.join("figures.json")
}

/// `rushmem-perf startup-pe`.
pub(crate) fn run(args: &StartupPeArgs) -> Result<()> {
    let main = since(args.exec);
    let (pe, n) = (number("RUSHMEM_PE")?, number("RUSHMEM_NPES")?);
    let mut own = Figures { main, ..Figures::default() };

    let begin = Instant::now();
    let gpus = gpu::count()?;
    own.driver = (gpus > 0).then(|| ms(begin));
    let begin = Instant::now();
    let gpu = (gpus > 0).then(|| Gpu::open(gpu::choose(pe, gpus))).transpose()?;
    own.context = gpu.as_ref().map(|_| ms(begin));

    let mut meeting = Meeting::join(&meeting(&args.folder), pe, n)?;
    let read = |meeting: &mut Meeting| -> Result<Reading> {
        meeting.meet()?;
        let reading = Reading::take(gpu.as_ref())?;
        meeting.meet()?;
        Ok(reading)
    };
    // The first reading's own memory is no matter of the second.
    read(&mut meeting)?;
    own.before = read(&mut meeting)?;

    let begin = Instant::now();
    let world = World::init()?;
    own.init = ms(begin);
    own.with_world = read(&mut meeting)?;
    same_device(&world, gpu.as_ref())?;
    own.device = world.device_name();
    own.heap = world.heap_info()?.committed;

    let begin = Instant::now();
    world.barrier_all()?;
    own.barrier = ms(begin);
    let begin = Instant::now();
    let word = world.alloc::<u64>(1)?;
    own.alloc = ms(begin);
    let begin = Instant::now();
    match kernel(&world, &word) {
        Ok(()) => own.kernel = Some(ms(begin)),
        Err(failure) => own.no_kernel = Some(first_line(&failure.to_string())),
    }
    own.with_kernel = read(&mut meeting)?;

    let mut all = gather(&world, &own)?;
    let begin = Instant::now();
    world.finalize()?;
    let finalize = begin.elapsed().as_nanos() as u64;
    // The world that brought the other figures is gone.
    for (pe, ns) in all.iter_mut().zip(meeting.gather(finalize)?) {
        pe.finalize = ns as f64 / 1e6;
    }
    if pe == 0 {
        std::fs::write(figures(&args.folder), serde_json::to_vec(&all)?)?;
    }
    Ok(())
}

/// A kernel that uses the device library: the word of the PE to the right becomes this one's number.
const KERNEL: &str = r#"
#include <rushmem/rushmem.cuh>
extern "C" __global__ void greet(uint64_t *word) {
  int me = rushmem::my_pe();
  rushmem::p(word, uint64_t(me), (me + 1) % rushmem::n_pes());
}
"#;

fn kernel(world: &World, word: &SymRef<'_, u64>) -> Result<()> {
    let module = world.load(Source::text(KERNEL).name("startup.cu"))?;
    let greet = module.kernel("greet")?;
    // SAFETY: the kernel writes one word, once on each PE, and `word` outlives it.
    unsafe { greet.launch(Launch::new(1, 1), (word,)) }?;
    Ok(world.synchronize()?)
}

/// Figures of a context that the world did not take would be wrong, and look right.
fn same_device(world: &World, gpu: Option<&Gpu>) -> Result<()> {
    let ours = gpu.map(Gpu::ordinal);
    let worlds = match world.device() {
        Device::Cuda(ordinal) => ordinal,
        Device::Cpu => None,
    };
    if ours == worlds {
        return Ok(());
    }
    let text =
        |ordinal: Option<u32>| ordinal.map_or("the CPU".to_owned(), |ordinal| format!("GPU {ordinal}"));
    Err(Failure::new(format!("the world is on {}, what was measured is {}", text(worlds), text(ours))))
}

/// Bytes that a PE's figures may take on their way.
const SLOT: usize = 4096;

/// Everybody's figures, on PE 0, through symmetric memory. Collective.
fn gather(world: &World, own: &Figures) -> Result<Vec<Figures>> {
    let mut text = serde_json::to_vec(own)?;
    if text.len() > SLOT {
        return Err(Failure::new(format!("the figures of {} take {} bytes", world.my_pe(), text.len())));
    }
    // JSON does not mind blanks.
    text.resize(SLOT, b' ');
    let slots = world.alloc::<u8>(SLOT * world.n_pes() as usize)?;
    slots.slice(world.my_pe().index() * SLOT..)?.put(&text, world.pe(0)?)?;
    world.barrier_all()?;
    if world.my_pe().number() != 0 {
        return Ok(Vec::new());
    }
    slots.to_vec()?.chunks(SLOT).map(|slot| Ok(serde_json::from_slice(slot)?)).collect()
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().chars().take(300).collect()
}

fn ms(begin: Instant) -> f64 {
    begin.elapsed().as_secs_f64() * 1e3
}

fn since(ns: u64) -> f64 {
    monotonic_ns().saturating_sub(ns) as f64 / 1e6
}

fn number(variable: &str) -> Result<u32> {
    let value = std::env::var(variable).ok().and_then(|text| text.parse().ok());
    value.ok_or_else(|| {
        Failure::new(format!("{variable} is no number: rushmem-perf startup starts these processes itself"))
    })
}
