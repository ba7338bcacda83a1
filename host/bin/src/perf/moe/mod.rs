//! `rushmem-perf moe`: dispatch and combine of mixture-of-experts exchanges (`rushmem-moe`), timed by the
//! device, in CUDA graphs on GPUs, verified before and after, beside the figures of other libraries and what
//! the link allows.

mod bench;
mod data;
pub(crate) mod pe;
mod peers;
mod point;

use std::process::{ExitCode, Stdio};

use crate::args::MoeArgs;
use crate::device;
use crate::environment::Environment;
use crate::job::{self, Failure, Result};
use crate::progress::Progress;
use crate::report::{Beside, Limit, Report, Row};
use crate::spread::Spread;
use crate::stats::Summary;
use pe::Found;
use peers::Peers;

/// Seconds that a job may take besides its points: starting and compiling.
const START_S: u32 = 60;
const POINT_S: u32 = 20;

/// `rushmem-perf moe …`.
pub(crate) fn run(args: &MoeArgs) -> Result<ExitCode> {
    let environment = Environment::here().with_gpus();
    let peers = Peers::read(&args.output.compare)?;
    if job::inside() {
        return Err(Failure::new("moe starts a job of its own: run rushmem-perf without a launcher for it"));
    }
    let points = point::plan(args);
    let folder = tempfile::tempdir()?;
    std::fs::write(pe::plan_file(folder.path()), serde_json::to_vec(&points)?)?;
    let machine = device::machine()?;
    let spread = Spread::over(args.pes, machine.gpus);
    let mut command = spread.command("moe-pe", folder.path(), START_S + POINT_S * points.len() as u32)?;
    command
        .args(["--salt", &job::salt().to_string()])
        .args(args.corrupt.then_some("--corrupt"))
        .stdout(Stdio::null());
    let mut job = command.spawn().map_err(|e| Failure::new(format!("cannot start the PEs: {e}")))?;
    let progress = Progress::new(points.len());
    let named = |line: &str| {
        serde_json::from_str::<Found>(line).map_or_else(|_| String::new(), |f| f.point.to_string())
    };
    let status = progress.follow(&mut job, &pe::found_file(folder.path()), named)?;
    drop(progress);
    // What was found before a failure is shown, too.
    let found = pe::read_found(folder.path())?;
    let rows =
        found.iter().flat_map(|found| rows(found, args.pes, machine.share(args.pes), &peers)).collect();
    let report = Report {
        schema: 1,
        tool: concat!("rushmem-perf ", env!("CARGO_PKG_VERSION"), " moe").to_owned(),
        environment,
        parameters: serde_json::json!({
            "points": points, "samples": pe::SAMPLES, "rounds": pe::ROUNDS,
            "combine": "the time of a round less that of its dispatch",
        }),
        rows,
    };
    let shown = report.show(&args.output)?;
    if !status.success() {
        return Err(Failure::new(format!("the job ended with {status}")));
    }
    Ok(shown)
}

/// The rows of a point: dispatch, a round, and combine, which is what a round takes longer.
fn rows(found: &Found, pes: u32, share: u32, peers: &Peers) -> Vec<Row> {
    let point = &found.point;
    let summary = |samples: &[f64]| Summary::of(samples.to_vec());
    let (Some(dispatch), Some(pair)) = (summary(&found.dispatch), summary(&found.pair)) else {
        return Vec::new();
    };
    let less = |a: f64, b: f64| (a - b).max(0.0);
    let combine = Summary {
        median: less(pair.median, dispatch.median),
        min: less(pair.min, dispatch.median),
        p99: less(pair.p99, dispatch.median),
        samples: pair.samples,
    };
    let (there, back) = point.bytes_over_the_link(pes);
    [("dispatch", dispatch, there), ("combine", combine, back), ("pair", pair, there + back)]
        .into_iter()
        .map(|(phase, summary, bytes)| {
            let mut row = Row::new(&format!("moe {phase}, {point}"), None, pes, "us", summary);
            // The link's time alone, and an empty kernel in a graph for each launch.
            let launches = if phase == "pair" { 2.0 } else { 1.0 };
            let floor = bytes / point::LINK_BYTES_PER_US + launches * found.empty_us;
            if floor > 0.0 {
                row = row.against("floor", Summary::single(floor));
            }
            row.limit = point.limit(phase, pes).filter(|_| found.in_graphs).map(Limit::Median);
            row.peer = peers.best(point, pes, phase).map(|(name, value)| Beside { name, value });
            row.shape = Some(crate::report::Shape {
                scope: if found.in_graphs { "graph" } else { "stream" }.to_owned(),
                blocks: found.blocks,
                threads: found.threads,
                iterations: pe::ROUNDS,
                note: (share > 1).then(|| format!("{share} PEs on a GPU")),
            });
            row
        })
        .collect()
}
