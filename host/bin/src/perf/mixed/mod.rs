//! `rushmem-perf mixed`: do PEs that are far slow those that are near? The same operations between two PEs of
//! a host, on the CPU device, in a job of these two alone, and in one that has two more on another host,
//! which are idle (`RUSHMEM_PES_PER_NODE=2`). A sample is the median of one job; jobs of the two kinds take
//! turns.

pub(crate) mod pe;

use std::process::{ExitCode, Stdio};

use crate::args::MixedArgs;
use crate::environment::{without_folders, Environment};
use crate::job::{self, Failure, Result};
use crate::peer::Peers;
use crate::progress::Progress;
use crate::report::{Limit, Report, Row};
use crate::stats::Summary;
use pe::Found;

/// Seconds that a job may take; the first compiles its kernels.
const JOB_LIMIT_S: u32 = 120;
/// The most that far PEs may cost: more would be work done for them, less is what two runs of one job differ
/// by.
const MOST: f64 = 1.1;

/// PEs of a host, and of both jobs.
const NEAR: u32 = 2;
const BOTH: u32 = 4;

/// `rushmem-perf mixed …`.
pub(crate) fn run(args: &MixedArgs) -> Result<ExitCode> {
    let environment = Environment::here();
    let peers = Peers::read(&args.output.compare)?;
    if job::inside() {
        return Err(Failure::new("mixed starts jobs of its own: run rushmem-perf without a launcher for it"));
    }
    let progress = Progress::new(2 * (args.samples as usize + 1));
    let step = |pes: u32| -> Result<Found> {
        let found = start(pes, args)?;
        progress.step(format!("{pes} PEs"));
        Ok(found)
    };
    // The first of each compiles, and is not counted.
    let mut transport = [step(NEAR)?, step(BOTH)?].map(|found| found.far);
    let (mut alone, mut mixed) = (Vec::new(), Vec::new());
    for turn in 0..args.samples {
        // Who goes first changes, so that neither always runs in the other's wake.
        let [first, second] = if turn % 2 == 0 { [NEAR, BOTH] } else { [BOTH, NEAR] };
        for pes in [first, second] {
            let samples = if pes == NEAR { &mut alone } else { &mut mixed };
            samples.push(step(pes)?.figures);
        }
    }
    drop(progress);
    let names: Vec<String> = alone.first().into_iter().flatten().map(|(name, _)| name.clone()).collect();
    let of = |jobs: &[Vec<(String, f64)>], at: usize| {
        let samples = jobs.iter().filter_map(|job| job.get(at)).map(|(_, ns)| *ns).collect();
        Summary::of(samples).ok_or_else(|| Failure::new("no job has left figures"))
    };
    let mut rows = Vec::new();
    for (at, name) in names.iter().enumerate() {
        let (alone, mixed) = (of(&alone, at)?, of(&mixed, at)?);
        let row = Row::new(name, Some(8), BOTH, "ns", mixed).against("2 PEs alone", alone);
        rows.push(if name.ends_with(pe::QUIET) { row } else { row.limit(Limit::Ratio(MOST)) });
    }
    rows.iter_mut().for_each(|row| peers.set(row));
    let far = without_folders(&transport[1].take().unwrap_or_default());
    println!("between two PEs of a host; in the same job two idle ones that are reached by {far}");
    let report = Report {
        schema: 1,
        tool: concat!("rushmem-perf ", env!("CARGO_PKG_VERSION"), " mixed").to_owned(),
        environment,
        parameters: serde_json::json!({
            "samples": args.samples, "batches": pe::BATCHES, "iterations": pe::ITERATIONS, "far": far,
        }),
        rows,
    };
    report.show(&args.output)
}

/// One job of so many PEs, two on a host.
fn start(pes: u32, args: &MixedArgs) -> Result<Found> {
    let folder = tempfile::tempdir()?;
    let mut command = job::command(pes, JOB_LIMIT_S)?;
    command.arg("mixed-pe").arg("--folder").arg(folder.path()).args(["--salt", &job::salt().to_string()]);
    command.args(args.corrupt.then_some("--corrupt")).stdout(Stdio::null());
    command.env("RUSHMEM_PES_PER_NODE", NEAR.to_string()).env("RUSHMEM_DEVICE", "cpu");
    let status = command.status().map_err(|e| Failure::new(format!("cannot start the PEs: {e}")))?;
    if !status.success() {
        return Err(Failure::new(format!("the job of {pes} PEs ended with {status}")));
    }
    let text = std::fs::read(pe::found(folder.path()));
    Ok(serde_json::from_slice(&text.map_err(|e| Failure::new(format!("PE 0 left no figures: {e}")))?)?)
}
