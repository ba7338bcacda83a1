//! Collectives of a team that the host puts on a stream, or has in a graph: on f32, with the sizes of those
//! in kernels (`kernels/collective.cuh`). After the timed batches: does every PE have what it should?

use rushmem::{doctor, Prepared, Stream, Sum, SymRef};

use super::bench::{Bench, Shape};
use super::driver::{Empty, Graph};
use super::measure::What;
use super::pattern::floats;
use super::scope::Scope;
use super::spec::Spec;
use crate::job::{Failure, Result};

/// Calls that are looked at, each with another root.
const LOOKED_AT: u64 = 2;

/// Elements of each member where they have a share each, else of all.
fn elements(bench: &Bench<'_>, spec: &Spec) -> usize {
    let n = spec.bytes as usize / size_of::<f32>();
    match spec.what {
        What::StreamReduce | What::StreamBroadcast => n,
        _ => (n / bench.world.n_pes() as usize).max(1),
    }
}

/// What is moved, and where to.
pub(super) struct Arrays<'b> {
    to: SymRef<'b, f32>,
    from: SymRef<'b, f32>,
}

impl<'b> Arrays<'b> {
    pub(super) fn to(&self) -> *mut u8 {
        self.to.as_ptr().cast()
    }

    pub(super) fn from(&self) -> *mut u8 {
        self.from.as_ptr().cast()
    }

    pub(super) fn of(bench: &'b Bench<'_>, spec: &Spec) -> Result<Arrays<'b>> {
        let (n, pes) = (elements(bench, spec), bench.world.n_pes() as usize);
        let (to, from) = match spec.what {
            What::StreamReducescatter => (n, n * pes),
            What::StreamFcollect => (n * pes, n),
            What::StreamAlltoall => (n * pes, n * pes),
            _ => (n, n),
        };
        let (to, from) = (bench.collective_to.slice(..to)?, bench.collective_from.slice(..from)?);
        Ok(Arrays { to, from })
    }
}

/// Loads what the calls need, which nothing does while a stream is captured.
pub(super) fn prepare(bench: &Bench<'_>, spec: &Spec) -> Result<()> {
    let what = match spec.what {
        What::StreamReduce => Prepared::reduce::<f32, _>(Sum),
        What::StreamReducescatter => Prepared::reducescatter::<f32, _>(Sum),
        What::StreamBroadcast => Prepared::broadcast(),
        What::StreamFcollect => Prepared::fcollect(),
        What::StreamAlltoall => Prepared::alltoall(),
        _ => Prepared::barrier(),
    };
    Ok(bench.world.team().prepare(&[what])?)
}

/// Puts one call on the stream. `round` says which PE is a broadcast's root.
pub(super) fn queue(
    bench: &Bench<'_>,
    spec: &Spec,
    arrays: &Arrays<'_>,
    round: u64,
    stream: &Stream<'_>,
) -> Result<()> {
    let (team, Arrays { to, from }) = (bench.world.team(), arrays);
    match spec.what {
        What::StreamReduce => stream.reduce(&team, to, from, Sum)?,
        What::StreamReducescatter => stream.reducescatter(&team, to, from, Sum)?,
        What::StreamBroadcast => stream.broadcast(&team, to, from, root(bench, round))?,
        What::StreamFcollect => stream.fcollect(&team, to, from)?,
        What::StreamAlltoall => stream.alltoall(&team, to, from)?,
        What::StreamTeamBarrier => stream.barrier(&team)?,
        _ => return Err(Failure::new(format!("{} is no collective on streams", spec.measure()))),
    }
    Ok(())
}

fn root(bench: &Bench<'_>, round: u64) -> u32 {
    (round % u64::from(bench.world.n_pes())) as u32
}

/// The launch that the runtime makes of it: the last of its rows that begin at that size or before.
pub(super) fn shape(spec: &Spec, gpu: bool) -> Result<Option<Shape>> {
    let Some(name) = spec.stream_collective() else { return Ok(None) };
    let rows = doctor::collective_launches(gpu)?;
    let bytes = if spec.what == What::StreamTeamBarrier { 0 } else { spec.bytes };
    let row = rows.iter().rfind(|row| row.collective == name && row.from_bytes <= bytes);
    Ok(row.map(|row| Shape { blocks: row.blocks, threads: row.threads }))
}

/// The floor: an empty kernel in the same launch.
pub(super) fn floor(spec: &Spec) -> Result<Empty> {
    let shape = shape(spec, true)?.unwrap_or(Shape { blocks: 1, threads: 32 });
    Empty::new(shape.blocks, shape.threads)
}

/// Has every PE what it should have after the calls that `queue` puts on a stream, of each round? Collective.
pub(super) fn told(
    bench: &Bench<'_>,
    spec: &Spec,
    queue: impl Fn(&Arrays<'_>, u64, &Stream<'_>) -> Result<()>,
) -> Result<()> {
    let _context = (spec.scope == Scope::Graph).then(|| bench.context()).transpose()?;
    let arrays = Arrays::of(bench, spec)?;
    let (world, stream) = (bench.world, bench.world.stream()?);
    let n = elements(bench, spec);
    let shares = if matches!(spec.what, What::StreamReducescatter | What::StreamAlltoall) {
        members_of(bench)
    } else {
        1
    };
    let members: Vec<Vec<f32>> = world.pes().map(|pe| floats(bench.seed, pe, n * shares)).collect();
    let me = world.my_pe();
    for round in 0..LOOKED_AT {
        arrays.to.fill(-1.0)?;
        world.barrier_all()?;
        match spec.scope {
            Scope::Graph => {
                let graph = Graph::capture(&stream, || queue(&arrays, round, &stream))?;
                // All have uploaded theirs before one runs that waits for the others' (`Graph::capture`).
                world.barrier_all()?;
                graph.launch(&stream)?;
                stream.synchronize()?;
            }
            _ => queue(&arrays, round, &stream)?,
        }
        stream.synchronize()?;
        let sum = |i: usize| members.iter().skip(1).fold(members[0][i], |sum, m| sum + m[i]);
        let right = |i: usize| match spec.what {
            What::StreamReduce => sum(i),
            What::StreamReducescatter => sum(me.index() * n + i),
            What::StreamBroadcast => members[root(bench, round) as usize][i],
            What::StreamFcollect => members[i / n][i % n],
            What::StreamAlltoall => members[i / n][me.index() * n + i % n],
            _ => -1.0,
        };
        let mut seen = arrays.to.to_vec()?;
        if spec.corrupt {
            seen[n / 2] = f32::from_bits(seen[n / 2].to_bits() ^ 1 << 12);
        }
        for (i, seen) in seen.iter().enumerate() {
            let right = right(i);
            // Data is any bits, so that some of it is no number.
            if seen != &right && !(seen.is_nan() && right.is_nan()) {
                return Err(Failure::new(format!(
                    "{}, {}, {} bytes: {me} has {seen} for {right} at {i}: its figures mean nothing",
                    spec.measure(),
                    spec.scope.word(),
                    spec.bytes
                )));
            }
        }
        world.barrier_all()?;
    }
    Ok(stream.destroy()?)
}

fn members_of(bench: &Bench<'_>) -> usize {
    bench.world.n_pes() as usize
}
