//! One PE of a job of `moe`: each point's exchange is verified, timed, and verified again. PE 0 leaves its
//! figures in a file, a line for each point.

use std::io::Write;
use std::path::{Path, PathBuf};

use rushmem::{Device, Launch, Module, Source, Stream, SymSlice, World};
use rushmem_moe::{AllToAll, Count, Layout, Received, Tokens};
use serde::{Deserialize, Serialize};

use super::data::{bf16_of, choice, token, Sequence};
use super::point::Point;
use crate::args::{MoeLayout, MoePayload, PeArgs};
use crate::device::driver::{Context, Empty, Graph};
use crate::job::{Failure, Result};

/// Timed graphs, and rounds in each.
pub(super) const SAMPLES: u32 = 40;
pub(super) const ROUNDS: u32 = 20;
/// The same on the CPU device, which is not for speed.
const CPU_SAMPLES: u32 = 5;
const CPU_ROUNDS: u32 = 2;
/// Graphs that are not timed.
const WARM_UP: u32 = 3;
/// Rows of a result that are looked at, at most; of more, random ones.
const LOOKED_AT: usize = 1024;

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

fn found_file(folder: &Path) -> PathBuf {
    folder.join("found.jsonl")
}

/// What PE 0 has left.
pub(super) fn read_found(folder: &Path) -> Result<Vec<Found>> {
    let text = std::fs::read_to_string(found_file(folder)).unwrap_or_default();
    Ok(text.lines().map(serde_json::from_str).collect::<std::result::Result<_, _>>()?)
}

/// `rushmem-perf moe-pe`.
pub(crate) fn run(args: &PeArgs) -> Result<()> {
    let points: Vec<Point> = serde_json::from_slice(&std::fs::read(plan_file(&args.folder))?)?;
    let world = World::init()?;
    let stamps = Stamps::new(&world)?;
    for (i, point) in points.iter().enumerate() {
        let found = figure(&world, point, args.salt.wrapping_add(i as u64), args.corrupt, &stamps)?;
        if world.my_pe().number() == 0 {
            let mut file = std::fs::OpenOptions::new().create(true).append(true).open(found_file(&args.folder))?;
            writeln!(file, "{}", serde_json::to_string(&found)?)?;
        }
    }
    stamps.end()?;
    Ok(world.finalize()?)
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

/// Buffers of one rank.
struct Bench<'t, 'w> {
    point: Point,
    seed: u64,
    world: &'w World,
    exchange: AllToAll<'t, 'w>,
    ranks: u32,
    me: u32,
    local: u32,
    rows: usize,
    sequence: Sequence,
    x: SymSlice<'w, u16>,
    experts: SymSlice<'w, i32>,
    weights: SymSlice<'w, f32>,
    out_x: SymSlice<'w, u8>,
    out_side: SymSlice<'w, u8>,
    counts: SymSlice<'w, i32>,
    sources: SymSlice<'w, i32>,
    y: SymSlice<'w, u16>,
    out: SymSlice<'w, u16>,
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
        let graph = gpu.as_ref().map(|_| Graph::capture(&stream, || run(stamps.rounds, pairs))).transpose()?;
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
    bench.exchange.check().map_err(|e| Failure::new(e.to_string()))?;
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

/// A row of the result: where it lies, whose product it has, and which token's it is.
struct Place {
    at: usize,
    maker: u32,
    source: u32,
    token: u32,
}

fn said(error: rushmem_moe::Error) -> Failure {
    Failure::new(error.to_string())
}

impl<'t, 'w> Bench<'t, 'w> {
    fn new(team: &'t rushmem::Team<'w>, point: &Point, salt: u64) -> Result<Bench<'t, 'w>> {
        let world = team.world();
        let mut seed = [salt];
        team.broadcast_in_place(&mut seed, 0)?;
        let config = point.config();
        let exchange = AllToAll::new(team, config).map_err(said)?;
        let (ranks, me, local) = (team.n_pes(), team.my_pe(), config.experts_a_rank(team.n_pes()));
        let rows = config.rows(ranks) as usize
            * match config.layout_of_rows() {
                Layout::ExpertMajor => local as usize,
                Layout::RankMajor => ranks as usize,
                _ => 1,
            };
        let (t, k, hidden) = (point.tokens as usize, point.top_k as usize, point.hidden as usize);
        let bench = Bench {
            sequence: Sequence::new(seed[0], point.hidden),
            seed: seed[0],
            point: point.clone(),
            world,
            exchange,
            ranks,
            me,
            local,
            rows,
            x: world.alloc(t * hidden)?,
            experts: world.alloc(t * k)?,
            weights: world.alloc(t * k)?,
            out_x: world.alloc(rows * config.row_bytes() as usize)?,
            out_side: world.alloc((rows * config.side_bytes() as usize).max(16))?,
            counts: world.alloc(local.max(ranks) as usize)?,
            sources: world.alloc(rows)?,
            y: world.alloc(rows * hidden)?,
            out: world.alloc(t * hidden)?,
        };
        let (mut x, mut experts, mut weights) = (Vec::new(), Vec::new(), Vec::new());
        for t in 0..point.tokens {
            x.extend(token(bench.seed, me, t, point.hidden).bf16);
            for (expert, weight) in choice(bench.seed, me, t, point.experts, point.top_k) {
                experts.push(expert as i32);
                weights.push(weight);
            }
        }
        bench.x.write(&x)?;
        bench.experts.write(&experts)?;
        bench.weights.write(&weights)?;
        world.barrier_all()?;
        Ok(bench)
    }

    fn free(self) -> Result<()> {
        self.world.synchronize()?;
        self.exchange.free().map_err(said)?;
        for words in [self.x, self.y, self.out] {
            words.free()?;
        }
        for bytes in [self.out_x, self.out_side] {
            bytes.free()?;
        }
        for numbers in [self.experts, self.counts, self.sources] {
            numbers.free()?;
        }
        Ok(self.weights.free()?)
    }

    /// Puts a round, or its dispatch alone, on the stream.
    fn round(&self, pair: bool, stream: &Stream<'_>) -> Result<()> {
        let tokens = Tokens {
            x: self.x.as_ptr().cast_const().cast(),
            side: std::ptr::null(),
            experts: self.experts.as_ptr().cast_const().cast(),
            weights: self.weights.as_ptr(),
            count: Count::Host(self.point.tokens),
        };
        let to = Received {
            x: self.out_x.as_ptr().cast(),
            side: self.out_side.as_ptr().cast(),
            counts: self.counts.as_ptr(),
            sources: self.sources.as_ptr(),
            experts: std::ptr::null_mut(),
            weights: std::ptr::null_mut(),
        };
        // SAFETY: buffers of the configuration's sizes, which live until the stream has been waited for.
        unsafe {
            self.exchange.dispatch(&tokens, &to, stream).map_err(said)?;
            if pair {
                let (y, out) = (self.y.as_ptr().cast_const().cast(), self.out.as_ptr().cast());
                self.exchange.combine(y, out, stream).map_err(said)?;
            }
        }
        Ok(())
    }

    /// Where everything should lie, in the order of rows.
    fn places(&self) -> Vec<Place> {
        let (point, first) = (&self.point, self.me * self.local);
        let mut of: Vec<Vec<Place>> = Vec::new();
        of.resize_with(if point.layout == MoeLayout::RankMajor { 1 } else { self.local as usize }, Vec::new);
        for source in 0..self.ranks {
            for token in 0..point.tokens {
                let chosen = choice(self.seed, source, token, point.experts, point.top_k);
                let ours = chosen.iter().map(|(e, _)| *e).filter(|e| (first..first + self.local).contains(e));
                for (i, expert) in ours.enumerate() {
                    let at = (source * point.tokens + token) as usize;
                    match point.layout {
                        MoeLayout::RankMajor if i > 0 => {}
                        MoeLayout::RankMajor => of[0].push(Place { at, maker: self.me, source, token }),
                        _ => of[(expert - first) as usize].push(Place { at: 0, maker: expert, source, token }),
                    }
                }
            }
        }
        let mut begin = 0;
        for rows in &mut of {
            if point.layout != MoeLayout::RankMajor {
                rows.iter_mut().enumerate().for_each(|(i, place)| place.at = begin + i);
            }
            begin += match point.layout {
                MoeLayout::Flat => rows.len(),
                _ => self.rows / self.local as usize,
            };
        }
        of.into_iter().flatten().collect()
    }

    /// Writes what experts make of the tokens that they will get.
    fn produce(&self) -> Result<Vec<Place>> {
        let (places, hidden) = (self.places(), self.point.hidden);
        for place in &places {
            let row = self.sequence.row(place.maker, place.source, place.token, hidden);
            self.y.slice(place.at * hidden as usize..)?.write(row)?;
        }
        Ok(places)
    }

    /// What is there must be what should be.
    fn verify(&self, places: &[Place]) -> Result<()> {
        let (point, hidden) = (&self.point, self.point.hidden as usize);
        let wrong = |what: String| Err(Failure::new(format!("moe, {point}: rank {}: {what}: its figures mean nothing", self.me)));
        let sources = self.sources.to_vec()?;
        let row = if point.payload == MoePayload::Fp8 { hidden } else { 2 * hidden };
        let (mut x, mut side) = (vec![0; row], vec![0; hidden.div_ceil(128) * 4]);
        let step = places.len().div_ceil(LOOKED_AT).max(1);
        for (i, place) in places.iter().enumerate() {
            if sources[place.at] != (place.source * point.tokens + place.token) as i32 {
                return wrong(format!("row {} is of {}", place.at, sources[place.at]));
            }
            if i % step != self.seed as usize % step {
                continue;
            }
            let token = token(self.seed, place.source, place.token, point.hidden);
            self.out_x.slice(place.at * row..(place.at + 1) * row)?.read(&mut x)?;
            let right = match point.payload {
                MoePayload::Fp8 => {
                    let bytes = side.len();
                    self.out_side.slice(place.at * bytes..(place.at + 1) * bytes)?.read(&mut side)?;
                    let scales: Vec<u8> = token.scales.iter().flat_map(|scale| scale.to_le_bytes()).collect();
                    x == token.fp8 && side == scales
                }
                MoePayload::Bf16 => x == token.bf16.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>(),
            };
            if !right {
                return wrong(format!("row {}, token {} of {}, is another one", place.at, place.token, place.source));
            }
        }
        let out = self.out.to_vec()?;
        let mut sum = vec![0f32; hidden];
        for token in 0..point.tokens {
            sum.fill(0.0);
            let chosen = choice(self.seed, self.me, token, point.experts, point.top_k);
            for rank in 0..self.ranks {
                let mut theirs = chosen.iter().filter(|(expert, _)| expert / self.local == rank).peekable();
                if point.layout == MoeLayout::RankMajor {
                    if theirs.peek().is_some() {
                        self.sequence.add(&mut sum, 1.0, rank, self.me, token);
                    }
                    continue;
                }
                theirs.for_each(|(expert, weight)| self.sequence.add(&mut sum, *weight, *expert, self.me, token));
            }
            let seen = &out[token as usize * hidden..][..hidden];
            // -0 is what some sums of zeros are.
            let differs = |(seen, sum): (&u16, &f32)| *seen != bf16_of(*sum) && (*seen & 0x7fff != 0 || *sum != 0.0);
            if let Some(column) = seen.iter().zip(&sum).position(differs) {
                return wrong(format!("token {token}, column {column}: {:#x} for {}", seen[column], sum[column]));
            }
        }
        self.world.barrier_all()?;
        Ok(())
    }
}
