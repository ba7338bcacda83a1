//! `rushmem-perf far`: operations on PEs that are reached over a network, each beside what `ucx_perftest` of the same UCX
//! shows over the same transport on the same machine, turn by turn in the same run.
//!
//! Two PEs of this machine count as two hosts (`RUSHMEM_PES_PER_NODE=1`), and UCX is told which transport and which
//! interface to use, on both sides alike. Between GPUs there is nothing to compare with: those figures stand alone
//! ([`device`]).

mod device;
pub(crate) mod device_pe;
pub(crate) mod pe;
mod perftest;

use std::process::{ExitCode, Stdio};

use clap::ValueEnum;

use crate::args::FarArgs;
use crate::environment::Environment;
use crate::gpu;
use crate::job::{self, Failure, Result};
use crate::report::{Limit, Report, Row};
use crate::stats::Summary;
use pe::Found;
use perftest::{Final, Perftest};

/// Seconds that a job may take.
const JOB_LIMIT_S: u32 = 120;

/// What is measured.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Figure {
    /// Bandwidth of puts of 1 MiB.
    Bandwidth,
    /// Latency of an 8-byte put.
    Latency,
    /// Latency of fetch_add on 8 bytes.
    FetchAdd,
    /// Rate of 8-byte puts by a kernel on the CPU device.
    Rate,
}

impl Figure {
    /// Operations in one run, on both sides.
    fn iterations(self) -> u32 {
        match self {
            Figure::Bandwidth => 500,
            Figure::Latency | Figure::FetchAdd => 5000,
            Figure::Rate => 200_000,
        }
    }

    /// The arguments of the same measure for `ucx_perftest`.
    fn perftest(self) -> Vec<String> {
        let (test, bytes) = match self {
            Figure::Bandwidth => ("ucp_put_bw", 1 << 20),
            Figure::Latency => ("ucp_put_lat", 8),
            Figure::FetchAdd => ("ucp_fadd", 8),
            Figure::Rate => ("ucp_put_bw", 8),
        };
        let n = self.iterations();
        ["-t", test, "-s", &bytes.to_string(), "-n", &n.to_string(), "-w", &(n / 10).to_string()]
            .map(str::to_owned)
            .to_vec()
    }

    /// The figure of such a run, in the unit of the row.
    fn of_perftest(self, found: Final) -> f64 {
        match self {
            Figure::Bandwidth => found.mib_s * f64::from(1 << 20) / 1e9,
            Figure::Latency | Figure::FetchAdd => found.median_us,
            Figure::Rate => found.messages_s / 1e6,
        }
    }

    /// Its row: ours and theirs, and what the project promises.
    fn row(self, ours: Summary, theirs: Summary) -> Row {
        let (name, bytes, unit, limit) = match self {
            Figure::Bandwidth => ("put bandwidth", 1 << 20, "GB/s", 0.9),
            Figure::Latency => ("put latency", 8, "us", 1.5),
            Figure::FetchAdd => ("fetch_add latency", 8, "us", 1.5),
            Figure::Rate => ("put rate, kernel on CPU", 8, "M/s", 0.5),
        };
        Row::new(name, Some(bytes), 2, unit, ours).against("ucx_perftest", theirs).limit(Limit::Ratio(limit))
    }
}

/// `rushmem-perf far …`.
pub(crate) fn run(args: &FarArgs) -> Result<ExitCode> {
    let environment = Environment::here();
    if job::inside() {
        return Err(Failure::new("far starts jobs of its own: run rushmem-perf without a launcher for it"));
    }
    let (mut rows, mut about, mut missing) = (Vec::new(), Vec::new(), Vec::new());
    if !args.figures.is_empty() || !args.device {
        compare(args, &mut rows, &mut about, &mut missing)?;
    }
    if args.device || (args.figures.is_empty() && gpu::count()? > 0) {
        device::measure(args, &mut rows, &mut about, &mut missing)?;
    }
    about.iter().for_each(|line| println!("{line}"));
    let report = Report {
        schema: 1,
        tool: concat!("rushmem-perf ", env!("CARGO_PKG_VERSION"), " far").to_owned(),
        environment,
        parameters: serde_json::json!({
            "samples": args.samples, "tls": args.tls, "interface": args.interface, "about": about, "missing": missing,
        }),
        rows,
    };
    let shown = report.show(args.json.as_deref(), args.csv.as_deref(), args.check)?;
    match missing[..] {
        [] => Ok(shown),
        _ => Err(Failure::new(missing.join("\n"))),
    }
}

/// Ours and ucx_perftest's, turn by turn.
fn compare(
    args: &FarArgs,
    rows: &mut Vec<Row>,
    about: &mut Vec<String>,
    missing: &mut Vec<String>,
) -> Result<()> {
    let Some(mut perftest) = Perftest::find() else {
        eprintln!("SKIP far: no ucx_perftest in PATH to compare with (Debian and Ubuntu: ucx-utils)");
        return Ok(());
    };
    let figures: Vec<Figure> = match args.figures[..] {
        [] => Figure::value_variants().to_vec(),
        ref some => some.to_vec(),
    };
    let ucx = [("UCX_TLS", args.tls.as_str()), ("UCX_NET_DEVICES", args.interface.as_str())];
    let (mut ours, mut theirs) = (vec![Vec::new(); figures.len()], vec![Vec::new(); figures.len()]);
    let mut why_none = vec![None; figures.len()];
    let mut found = Found::default();
    for round in 0..args.samples {
        job::note(&format!("round {} of {}", round + 1, args.samples));
        found = start(&figures, &ucx)?;
        if let Some(library) = &found.library {
            perftest.with_library(library);
        }
        for (at, figure) in figures.iter().enumerate() {
            match found.figures.get(at) {
                Some(Ok(value)) => ours[at].push(*value),
                Some(Err(why)) => why_none[at] = Some(why.clone()),
                None => why_none[at] = Some("PE 0 left no such figure".to_owned()),
            }
            theirs[at].push(perftest.run(*figure, &ucx)?);
        }
    }
    for (at, figure) in figures.iter().enumerate() {
        match (Summary::of(std::mem::take(&mut ours[at])), Summary::of(std::mem::take(&mut theirs[at]))) {
            (Some(ours), Some(theirs)) => rows.push(figure.row(ours, theirs)),
            _ => missing.push(format!("there is no {figure:?}: {}", why_none[at].take().unwrap_or_default())),
        }
    }
    about.push(found.reason);
    Ok(())
}

/// The figures of one job.
fn start(figures: &[Figure], ucx: &[(&str, &str)]) -> Result<Found> {
    let folder = tempfile::tempdir()?;
    let mut command = job::command(2, JOB_LIMIT_S)?;
    command.arg("far-pe").arg("--folder").arg(folder.path());
    for figure in figures.iter().filter_map(ValueEnum::to_possible_value) {
        command.arg(figure.get_name());
    }
    command.envs(ucx.iter().copied());
    command.env("RUSHMEM_PES_PER_NODE", "1").env("RUSHMEM_DEVICE", "cpu").stdout(Stdio::null());
    let status = command.status().map_err(|e| Failure::new(format!("cannot start the PEs: {e}")))?;
    if !status.success() {
        return Err(Failure::new(format!("the job of two PEs ended with {status}")));
    }
    let text = std::fs::read(pe::found(folder.path()));
    Ok(serde_json::from_slice(&text.map_err(|e| Failure::new(format!("PE 0 left no figures: {e}")))?)?)
}
