//! `rushmem-perf far`: operations on PEs that are reached over a network, each beside what `ucx_perftest` of
//! the same UCX shows over the same transport on the same machine, turn by turn in the same run.
//!
//! Two PEs of this machine count as two hosts (`RUSHMEM_PES_PER_NODE=1`). UCX's settings fix transport and
//! interface, on both sides alike. The reference keeps a number of independent puts in flight ([`WINDOWS`]):
//! it is measured with each number, and what is promised is compared with its best. Between GPUs there is
//! nothing to compare with: those figures stand alone ([`device`]).

mod device;
pub(crate) mod device_pe;
mod pair;
pub(crate) mod pe;
mod perftest;
mod posts;

use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use clap::ValueEnum;

use crate::args::{FarArgs, Figure};
use crate::environment::{without_folders, Environment};
use crate::gpu;
use crate::job::{self, Failure, Result};
use crate::peer::Peers;
use crate::progress::Progress;
use crate::report::{Limit, Report, Row};
use crate::stats::Summary;
use pe::Found;
use perftest::{Final, Perftest};

/// Seconds that a job may take.
const JOB_LIMIT_S: u32 = 120;

/// Puts that `ucx_perftest` has on their way at once (`-O`), where it may have several. The last is its
/// default (UCX 1.13 to 1.22); over tcp fewer can be faster.
const WINDOWS: [u32; 3] = [1, 8, 32];

impl Figure {
    /// What the command line calls it.
    fn name(self) -> &'static str {
        match self {
            Figure::Bandwidth => "bandwidth",
            Figure::Latency => "latency",
            Figure::FetchAdd => "fetch-add",
            Figure::Rate => "rate",
        }
    }

    /// Operations in one run, on both sides.
    fn iterations(self) -> u32 {
        match self {
            Figure::Bandwidth => 500,
            Figure::Latency | Figure::FetchAdd => 5000,
            Figure::Rate => 200_000,
        }
    }

    /// The windows of the reference; one after the other where there is none.
    fn windows(self) -> &'static [Option<u32>] {
        const EACH: [Option<u32>; WINDOWS.len()] = [Some(WINDOWS[0]), Some(WINDOWS[1]), Some(WINDOWS[2])];
        match self {
            Figure::Bandwidth | Figure::Rate => &EACH,
            Figure::Latency | Figure::FetchAdd => &[None],
        }
    }

    /// The arguments of the same measure for `ucx_perftest`.
    fn perftest(self, window: Option<u32>) -> Vec<String> {
        let (test, bytes) = match self {
            Figure::Bandwidth => ("ucp_put_bw", 1 << 20),
            Figure::Latency => ("ucp_put_lat", 8),
            Figure::FetchAdd => ("ucp_fadd", 8),
            Figure::Rate => ("ucp_put_bw", 8),
        };
        let n = self.iterations();
        let mut arguments =
            ["-t", test, "-s", &bytes.to_string(), "-n", &n.to_string(), "-w", &(n / 10).to_string()]
                .map(str::to_owned)
                .to_vec();
        arguments.extend(window.into_iter().flat_map(|window| ["-O".to_owned(), window.to_string()]));
        arguments
    }

    /// The figure of such a run, in the unit of the row.
    fn of_perftest(self, found: Final) -> f64 {
        match self {
            Figure::Bandwidth => found.mib_s * f64::from(1 << 20) / 1e9,
            Figure::Latency | Figure::FetchAdd => found.median_us,
            Figure::Rate => found.messages_s / 1e6,
        }
    }

    /// Its rows, one for each of the reference's windows. What the project promises is said of the one in
    /// which that did best.
    fn rows(self, ours: &Summary, theirs: Vec<(Option<u32>, Summary)>) -> Vec<Row> {
        let (name, bytes, unit, limit) = match self {
            Figure::Bandwidth => ("put bandwidth", 1 << 20, "GB/s", 0.9),
            Figure::Latency => ("put latency", 8, "us", 1.5),
            Figure::FetchAdd => ("fetch_add latency", 8, "us", 1.5),
            Figure::Rate => ("put rate, kernel on CPU", 8, "M/s", 0.5),
        };
        let row = |(window, summary): (Option<u32>, Summary)| {
            let reference = window
                .map_or_else(|| "ucx_perftest".to_owned(), |window| format!("ucx_perftest -O {window}"));
            Row::new(name, Some(bytes), 2, unit, ours.clone()).against(&reference, summary)
        };
        let mut rows: Vec<Row> = theirs.into_iter().map(row).collect();
        // Of rates the best reference makes the least ratio, of times the greatest.
        let ratio =
            |row: &&mut Row| row.ratio.map_or(f64::NAN, |r| if row.more_is_better() { r } else { -r });
        if let Some(best) = rows.iter_mut().min_by(|a, b| ratio(a).total_cmp(&ratio(b))) {
            best.limit = Some(Limit::Ratio(limit));
        }
        rows
    }
}

/// `rushmem-perf far …`.
pub(crate) fn run(args: &FarArgs) -> Result<ExitCode> {
    let environment = Environment::here().with_gpus();
    let peers = Peers::read(&args.output.compare)?;
    if job::inside() {
        return Err(Failure::new("far starts jobs of its own: run rushmem-perf without a launcher for it"));
    }
    let (mut rows, mut about, mut missing) = (Vec::new(), Vec::new(), Vec::new());
    let device = args.device || args.posts;
    if !args.figures.is_empty() || !device {
        compare(args, &mut rows, &mut about, &mut missing)?;
    }
    if device || (args.figures.is_empty() && gpu::count()? > 0) {
        device::measure(args, &mut rows, &mut about, &mut missing)?;
    }
    about.iter().for_each(|line| println!("{line}"));
    rows.iter_mut().for_each(|row| peers.set(row));
    let report = Report {
        schema: 1,
        tool: concat!("rushmem-perf ", env!("CARGO_PKG_VERSION"), " far").to_owned(),
        environment,
        parameters: serde_json::json!({
            "samples": args.samples, "tls": args.tls, "interface": args.interface,
            "about": told(&about), "missing": told(&missing),
        }),
        rows,
    };
    let shown = report.show(&args.output)?;
    match missing[..] {
        [] => Ok(shown),
        _ => Err(Failure::new(missing.join("\n"))),
    }
}

/// Texts for a record, which keeps no paths of this machine.
fn told(lines: &[String]) -> Vec<String> {
    lines.iter().map(|line| without_folders(line)).collect()
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
    let mut ours = vec![Vec::new(); figures.len()];
    let mut theirs: Vec<Vec<_>> = figures.iter().map(|f| vec![Vec::new(); f.windows().len()]).collect();
    let mut why_none = vec![None; figures.len()];
    let mut found = Found::default();
    let runs: usize = figures.iter().map(|figure| 1 + figure.windows().len()).sum();
    let progress = Progress::new(args.samples as usize * runs);
    for _ in 0..args.samples {
        found = start(args, &figures, &ucx)?;
        figures.iter().for_each(|figure| progress.step(figure.name().to_owned()));
        if let Some(library) = &found.library {
            perftest.with_library(library);
        }
        for (at, figure) in figures.iter().enumerate() {
            match found.figures.get(at) {
                Some(Ok(value)) => ours[at].push(*value),
                Some(Err(why)) => why_none[at] = Some(why.clone()),
                None => why_none[at] = Some("PE 0 left no such figure".to_owned()),
            }
            for (window, values) in figure.windows().iter().zip(&mut theirs[at]) {
                values.push(perftest.run(*figure, *window, &ucx)?);
                progress.step(format!("{}, ucx_perftest", figure.name()));
            }
        }
    }
    for ((at, figure), theirs) in figures.iter().enumerate().zip(theirs) {
        let Some(ours) = Summary::of(std::mem::take(&mut ours[at])) else {
            let why = why_none[at].take().unwrap_or_default();
            missing.push(format!("there is no figure for {}: {why}", figure.name()));
            continue;
        };
        let each = figure.windows().iter().zip(theirs);
        let theirs = each.filter_map(|(window, values)| Some((*window, Summary::of(values)?))).collect();
        rows.extend(figure.rows(&ours, theirs));
    }
    about.push(found.reason);
    Ok(())
}

/// A job of two PEs, each a host by itself, whose further arguments are the caller's.
fn two_hosts(args: &FarArgs, what: &str, folder: &Path, limit_s: u32) -> Result<Command> {
    let mut command = job::command(2, limit_s)?;
    command.arg(what).arg("--folder").arg(folder).args(["--salt", &job::salt().to_string()]);
    command.args(args.corrupt.then_some("--corrupt"));
    command.env("RUSHMEM_PES_PER_NODE", "1").stdout(Stdio::null());
    Ok(command)
}

/// The figures of one job.
fn start(args: &FarArgs, figures: &[Figure], ucx: &[(&str, &str)]) -> Result<Found> {
    let folder = tempfile::tempdir()?;
    let mut command = two_hosts(args, "far-pe", folder.path(), JOB_LIMIT_S)?;
    for figure in figures.iter().filter_map(ValueEnum::to_possible_value) {
        command.arg(figure.get_name());
    }
    command.envs(ucx.iter().copied());
    command.env("RUSHMEM_DEVICE", "cpu");
    let status = command.status().map_err(|e| Failure::new(format!("cannot start the PEs: {e}")))?;
    if !status.success() {
        return Err(Failure::new(format!("the job of two PEs ended with {status}")));
    }
    let text = std::fs::read(pair::found(folder.path()));
    Ok(serde_json::from_slice(&text.map_err(|e| Failure::new(format!("PE 0 left no figures: {e}")))?)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_of_the_references_windows_is_what_counts() {
        let of = |figure: Figure, ours: f64, theirs: &[f64]| {
            let theirs =
                theirs.iter().zip(WINDOWS).map(|(value, w)| (Some(w), Summary::single(*value))).collect();
            let rows = figure.rows(&Summary::single(ours), theirs);
            let limited: Vec<&Row> = rows.iter().filter(|row| row.limit.is_some()).collect();
            assert_eq!((rows.len(), limited.len()), (3, 1));
            (limited[0].reference.as_ref().unwrap().name.clone(), limited[0].verdict())
        };
        assert_eq!(of(Figure::Bandwidth, 1.0, &[1.0, 1.2, 0.5]), ("ucx_perftest -O 8".to_owned(), "UNDER"));
        assert_eq!(of(Figure::Rate, 1.0, &[1.0, 1.2, 2.0]), ("ucx_perftest -O 32".to_owned(), "ok"));
        assert_eq!(of(Figure::Latency, 1.6, &[1.0, 1.2, 2.0]), ("ucx_perftest -O 1".to_owned(), "OVER"));
    }

    #[test]
    fn the_window_is_told_to_the_reference() {
        for window in WINDOWS {
            let told = Figure::Rate.perftest(Some(window)).join(" ");
            assert!(
                told.starts_with("-t ucp_put_bw -s 8 ") && told.ends_with(&format!(" -O {window}")),
                "{told}"
            );
        }
        assert!(!Figure::Latency.perftest(None).contains(&"-O".to_owned()));
    }
}
