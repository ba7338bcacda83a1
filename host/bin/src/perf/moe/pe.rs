//! One PE of a job of `moe`: each point's exchange is verified, timed, and verified again. PE 0 leaves its
//! figures in a file, a line for each point.

use std::io::Write;
use std::path::{Path, PathBuf};

use rushmem::{Device, Launch, Module, Source, Stream, SymSlice, World};
use rushmem_moe::AllToAll;
use serde::{Deserialize, Serialize};

use super::bench::{said, Bench};
use super::point::Point;
use crate::args::{MoePeArgs, PeArgs};
use crate::device::driver::{Context, Empty, Graph};
use crate::job::Result;
use crate::spread;

/// Timed graphs, and rounds in each.
pub(super) const SAMPLES: u32 = 40;
pub(super) const ROUNDS: u32 = 20;
/// The same on the CPU device, which is not for speed.
const CPU_SAMPLES: u32 = 5;
const CPU_ROUNDS: u32 = 2;
/// Graphs that are not timed.
const WARM_UP: u32 = 3;
const STAMP: &str = "#include <rushmem/rushmem.cuh>\n\
    extern \"C\" __global__ void stamp(uint64_t *at) { *at = rushmem::impl::now_ns(); }\n";

/// What PE 0 found of a point, in microseconds.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Found {
    pub(super) point: Point,
    pub(super) blocks: u32,
    pub(super) threads: u32,
    pub(super) in_graphs: bool,
    /// An empty kernel in the same launch; 0 where that was not measured.
    pub(super) empty_us: f64,
    pub(super) dispatch: Vec<f64>,
    pub(super) pair: Vec<f64>,
}

/// Where the points are.
pub(super) fn plan_file(folder: &Path) -> PathBuf {
    folder.join("points.json")
}

pub(super) fn found_file(folder: &Path) -> PathBuf {
    folder.join("found.jsonl")
}

/// What PE 0 has left.
pub(super) fn read_found(folder: &Path) -> Result<Vec<Found>> {
    let text = std::fs::read_to_string(found_file(folder)).unwrap_or_default();
    Ok(text.lines().map(serde_json::from_str).collect::<std::result::Result<_, _>>()?)
}

/// `rushmem-perf moe-pe`.
pub(crate) fn run(args: &MoePeArgs) -> Result<()> {
    let PeArgs { folder, salt, corrupt } = &args.pe;
    let points: Vec<Point> = serde_json::from_slice(&std::fs::read(plan_file(folder))?)?;
    spread::each_pe(&args.spread, |world| {
        let stamps = Stamps::new(world)?;
        for (i, point) in points.iter().enumerate() {
            let found = figure(world, point, salt.wrapping_add(i as u64), *corrupt, &stamps)?;
            if world.my_pe().number() == 0 {
                let mut file =
                    std::fs::OpenOptions::new().create(true).append(true).open(found_file(folder))?;
                writeln!(file, "{}", serde_json::to_string(&found)?)?;
            }
        }
        stamps.end()
    })
}

/// The device's clock in a stream's turn.
struct Stamps<'w> {
    samples: u32,
    rounds: u32,
    module: Module<'w>,
    times: SymSlice<'w, u64>,
}

impl<'w> Stamps<'w> {
    fn new(world: &'w World) -> Result<Stamps<'w>> {
        let (samples, rounds) = match world.device() {
            Device::Cpu => (CPU_SAMPLES, CPU_ROUNDS),
            _ => (SAMPLES, ROUNDS),
        };
        let module = world.load(Source::text(STAMP).name("stamp.cu"))?;
        Ok(Stamps { samples, rounds, module, times: world.alloc(2 * samples as usize)? })
    }

    fn stamp(&self, at: u32, stream: &Stream<'_>) -> Result<()> {
        let to = self.times.as_ptr().wrapping_add(at as usize);
        // SAFETY: one word of the array's, which nobody else touches.
        unsafe { self.module.kernel("stamp")?.launch_on(Launch::new(1, 1), (to,), stream) }?;
        Ok(())
    }

    /// Microseconds of a round in each sample.
    fn times(&self) -> Result<Vec<f64>> {
        let times = self.times.to_vec()?;
        Ok(times.chunks(2).map(|two| (two[1] - two[0]) as f64 / 1e3 / f64::from(self.rounds)).collect())
    }

    fn end(self) -> Result<()> {
        self.module.unload()?;
        Ok(self.times.free()?)
    }
}

fn figure(world: &World, point: &Point, seed: u64, corrupt: bool, stamps: &Stamps<'_>) -> Result<Found> {
    let team = world.team();
    let bench = Bench::new(&team, point, seed)?;
    let gpu = match world.device() {
        Device::Cuda(Some(ordinal)) => Some(Context::of(ordinal)?),
        _ => None,
    };
    let stream = world.stream()?;
    let places = bench.produce()?;
    let run = |rounds: u32, pairs: bool| -> Result<()> {
        (0..rounds).try_for_each(|_| bench.round(pairs, &stream))
    };
    run(1, true)?;
    stream.synchronize()?;
    if corrupt {
        bench.out.write(&[0x4242])?;
    }
    bench.verify(&places)?;
    let timed = |pairs: bool| -> Result<Vec<f64>> {
        let graph =
            gpu.as_ref().map(|_| Graph::capture(&stream, || run(stamps.rounds, pairs))).transpose()?;
        let batch = || match &graph {
            Some(graph) => graph.launch(&stream),
            None => run(stamps.rounds, pairs),
        };
        world.barrier_all()?;
        for _ in 0..if gpu.is_some() { WARM_UP } else { 1 } {
            batch()?;
        }
        for sample in 0..stamps.samples {
            stamps.stamp(2 * sample, &stream)?;
            batch()?;
            stamps.stamp(2 * sample + 1, &stream)?;
        }
        stream.synchronize()?;
        stamps.times()
    };
    let dispatch = timed(false)?;
    bench.out_x.slice(..bench.out_x.len().min(1 << 20))?.fill(0xee)?;
    bench.out.fill(0xeeee)?;
    let pair = timed(true)?;
    bench.exchange.check().map_err(said)?;
    bench.verify(&places)?;
    let threads = bench.exchange.threads();
    let empty_us = match &gpu {
        Some(_) => empty(&bench.exchange, stamps, &stream)?,
        None => 0.0,
    };
    let blocks = bench.exchange.blocks();
    stream.destroy()?;
    bench.free()?;
    Ok(Found { point: point.clone(), blocks, threads, in_graphs: gpu.is_some(), empty_us, dispatch, pair })
}

/// An empty kernel in a graph, in the same launch.
fn empty(exchange: &AllToAll<'_, '_>, stamps: &Stamps<'_>, stream: &Stream<'_>) -> Result<f64> {
    let empty = Empty::new(exchange.blocks(), exchange.threads())?;
    let graph = Graph::capture(stream, || (0..stamps.rounds).try_for_each(|_| empty.queue(stream)))?;
    for sample in 0..stamps.samples {
        stamps.stamp(2 * sample, stream)?;
        graph.launch(stream)?;
        stamps.stamp(2 * sample + 1, stream)?;
    }
    stream.synchronize()?;
    let mut times = stamps.times()?;
    times.sort_by(f64::total_cmp);
    Ok(times[times.len() / 2])
}
