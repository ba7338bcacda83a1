//! One PE of a job: measures the figures of a plan, one after the other. PE 0 adds each figure to a file at
//! once: the process that started the job shows progress from it, and keeps those figures if the job fails.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use rushmem::World;
use serde::{Deserialize, Serialize};

use super::args::PlanArgs;
use super::bare;
use super::bench::{Bench, Rounds, Shape};
use super::collectives;
use super::from_host::{self, Doer};
use super::measure::{Figure, Probe};
use super::plan::Plan;
use super::spec::{Spec, PROBE};
use super::verify;
use crate::job::{self, Failure, Result};
use crate::report::{Beside, Row, Shape as Shown};
use crate::spread;
use crate::stats::Summary;

/// Where the plan is, in the job's folder.
pub(super) fn plan_file(folder: &Path) -> PathBuf {
    folder.join("plan.json")
}

/// Where PE 0 leaves its rows, a line each.
pub(super) fn rows_file(folder: &Path) -> PathBuf {
    folder.join("rows.jsonl")
}

/// Where PE 0 leaves what the job was made of.
pub(super) fn about_file(folder: &Path) -> PathBuf {
    folder.join("about.json")
}

/// What a job was made of.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct About {
    /// PE 0's.
    pub(super) device: String,
    /// Its clock's step in nanoseconds.
    pub(super) clock_step_ns: u64,
    /// How PE 0 reaches PE 1.
    pub(super) transport: String,
}

/// `rushmem-perf plan-pe`.
pub(crate) fn run(args: &PlanArgs) -> Result<()> {
    let text = std::fs::read(plan_file(&args.folder))?;
    let plan: Plan = serde_json::from_slice(&text)?;
    spread::each_pe(&args.spread, |world| {
        let mut rows: Option<File> = None;
        let about = measure(world, &plan, |row| {
            if rows.is_none() {
                rows = Some(OpenOptions::new().create(true).append(true).open(rows_file(&args.folder))?);
            }
            let mut line = serde_json::to_vec(&row)?;
            line.push(b'\n');
            if let Some(file) = &mut rows {
                file.write_all(&line)?;
            }
            Ok(())
        })?;
        if world.my_pe().number() == 0 {
            std::fs::write(about_file(&args.folder), serde_json::to_vec(&about)?)?;
        }
        Ok(())
    })
}

/// Makes all figures of the plan; PE 0 hands each on. Collective.
pub(super) fn measure(world: &World, plan: &Plan, mut found: impl FnMut(Row) -> Result<()>) -> Result<About> {
    if world.device() == rushmem::Device::Cpu {
        job::pin(world.my_pe().index());
    }
    let bench = Bench::new(world, plan)?;
    let transport = world.peer(world.pe(1)?)?.transport;
    let about = About { device: world.device_name(), clock_step_ns: bench.clock_step()?, transport };
    for spec in &plan.specs {
        let row = figure(&bench, spec)?;
        if bench.first() {
            found(row)?;
        }
    }
    Ok(about)
}

/// One figure, verified, and its probe's beside it.
fn figure(bench: &Bench<'_>, spec: &Spec) -> Result<Row> {
    let name = spec.kernel();
    let (ours, shape, rounds) = sampled(bench, spec, &name, None)?;
    let bytes = spec.shows_bytes().then_some(spec.bytes);
    let unit = unit(spec);
    let mut row = Row::new(&spec.measure(), bytes, bench.world.n_pes(), unit, ours);
    row.limit = spec.limit;
    let mut notes = Vec::new();
    if shape.is_some_and(|shape| (shape.blocks, shape.threads) != (spec.blocks, spec.threads)) {
        notes.push(format!("{} x {} were asked for", spec.blocks, spec.threads));
    }
    if bench.plan.share > 1 {
        notes.push(format!("{} PEs on a GPU", bench.plan.share));
    }
    let on_gpu = bench.world.device() != rushmem::Device::Cpu;
    let launched = shape.or(collectives::shape(spec, on_gpu)?).unwrap_or(Shape { blocks: 0, threads: 0 });
    let peer = match spec.stream_collective().is_some() {
        true => "best of NVSHMEM, NCCL, torch",
        false => "NVSHMEM 3.8.0",
    };
    row.peer = spec.peer.map(|value| Beside { name: peer.to_owned(), value });
    let best = best_inside(bench, spec, launched, rounds)?;
    notes.extend(best.as_ref().map(|(form, _)| format!("bare: {form}")));
    row.shape = Some(Shown {
        scope: spec.scope.word().to_owned(),
        blocks: launched.blocks,
        threads: launched.threads,
        iterations: rounds.iterations,
        note: (!notes.is_empty()).then(|| notes.join("; ")),
    });
    if let Some((_, bare)) = best {
        return Ok(row.against("bare instructions", bare));
    }
    let (who, there) = match spec.what.is_from_host() {
        true if bare::is_there(spec) => ("bare instructions", bench.has_driver()),
        true if spec.what.row().probe == Probe::Empty => ("empty kernel", bench.has_driver()),
        true => ("bare driver call", bench.has_driver()),
        false => ("bare instructions", true),
    };
    match spec.probe().filter(|_| there) {
        // As many operations in a batch: what its end takes is shared out among them.
        Some(probe) => {
            let mut bare = sampled(bench, spec, &probe, Some(rounds))?.0;
            if spec.what.row().probe == Probe::Copy {
                (row.ours, bare) = in_turns(bench, spec, &probe, rounds)?;
            }
            Ok(row.against(who, bare))
        }
        None => Ok(row),
    }
}

/// The best of the bare forms of a collective inside a kernel, each verified, and its name; none where there
/// are none. Collective.
fn best_inside(
    bench: &Bench<'_>,
    spec: &Spec,
    shape: Shape,
    rounds: Rounds,
) -> Result<Option<(&'static str, Summary)>> {
    let mut found = Vec::new();
    if bench.to.ptr_at(bench.peer()).is_some() {
        for form in bare::inside(spec, shape) {
            found.push((form, sampled(bench, spec, &bare::kernel_inside(spec, form), Some(rounds))?.0));
        }
    }
    Ok(found.into_iter().min_by(|(_, a), (_, b)| a.median.total_cmp(&b.median)))
}

/// Times of a kernel, or of what the host does, as the row shows them; as often as `rounds` says, or as short
/// runs find. What PEs other than 0 get is of no use.
fn sampled(
    bench: &Bench<'_>,
    spec: &Spec,
    name: &str,
    rounds: Option<Rounds>,
) -> Result<(Summary, Option<Shape>, Rounds)> {
    let shape = match spec.what.is_from_host() {
        true => None,
        false => Some(bench.shape(&bench.kernel(spec.family_of(name), name)?, spec)?),
    };
    let doer = if name.starts_with(PROBE) { Doer::Driver } else { Doer::Library };
    let run = |rounds| match shape {
        Some(shape) => bench.launch(spec, name, shape, rounds),
        None => from_host::times(bench, spec, rounds, &[doer]),
    };
    let rounds = match rounds {
        Some(rounds) => {
            // Once for cold caches, as calibration does.
            run(Rounds { iterations: 3, batches: 1, warm_up: 2 })?;
            rounds
        }
        None => bench.calibrate(spec.places().1, run)?,
    };
    verify::prepare(bench, spec)?;
    let times = run(rounds)?;
    if spec.corrupt {
        verify::spoil(bench, spec, rounds)?;
    }
    verify::verify(bench, spec, name, rounds)?;
    let summary = summary(bench, spec, name, times)?;
    // The next measure begins when all have looked.
    bench.world.barrier_all()?;
    Ok((summary, shape, rounds))
}

/// An operation and the driver's call, each verified by itself before, in turns on one stream.
fn in_turns(bench: &Bench<'_>, spec: &Spec, name: &str, rounds: Rounds) -> Result<(Summary, Summary)> {
    verify::prepare(bench, spec)?;
    let times = from_host::times(bench, spec, rounds, &[Doer::Library, Doer::Driver])?;
    verify::verify(bench, spec, name, rounds)?;
    let of = |turn| times.iter().copied().skip(turn).step_by(2).collect();
    let both = (summary(bench, spec, name, of(0))?, summary(bench, spec, name, of(1))?);
    bench.world.barrier_all()?;
    Ok(both)
}

/// Of the times of batches, as the row shows them. Collective where both PEs of a pair have their own.
fn summary(bench: &Bench<'_>, spec: &Spec, name: &str, times: Vec<f64>) -> Result<Summary> {
    let mut samples: Vec<f64> = times.into_iter().map(|ns| shown(spec, ns)).collect();
    samples.resize(bench.plan.samples as usize, f64::NAN);
    if spec.both {
        let theirs = bench.of_second(&samples)?;
        samples.iter_mut().zip(theirs).for_each(|(ours, theirs)| *ours += theirs);
    }
    Summary::of(samples).ok_or_else(|| Failure::new(format!("{name}: no samples")))
}

fn shown(spec: &Spec, ns: f64) -> f64 {
    // Shorter than the clock's step: as short as can be said.
    let ns = ns.max(1e-3);
    match spec.what.row().figure {
        Figure::Us => ns / 1e3,
        Figure::Ns => ns,
        Figure::Bandwidth => spec.bytes as f64 / ns,
        Figure::Rate => spec.bytes as f64 / 8.0 / ns * 1e3,
    }
}

fn unit(spec: &Spec) -> &'static str {
    match spec.what.row().figure {
        Figure::Us => "us",
        Figure::Ns => "ns",
        Figure::Bandwidth => "GB/s",
        Figure::Rate => "M/s",
    }
}
