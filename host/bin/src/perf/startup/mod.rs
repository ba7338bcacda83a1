//! `rushmem-perf startup`: what it takes, in time and in memory, until a program can use rushmem, step by
//! step, and how much of that is CUDA's. Each sample is a fresh job of fresh processes (`pe`).

mod meeting;
mod memory;
pub(crate) mod pe;
mod rows;

use std::collections::BTreeMap;
use std::process::{ExitCode, Stdio};

use rushmem::doctor;

use crate::args::StartupArgs;
use crate::environment::Environment;
use crate::job::{self, monotonic_ns, Failure, Result};
use crate::peer::Peers;
use crate::progress::Progress;
use crate::report::{Report, Row};
use crate::text::align;
use rows::Job;

/// Seconds that a job may take: contexts of many processes on one GPU start one after the other.
const JOB_LIMIT_S: u32 = 120;
/// A line for each PE is of no use beyond this.
const MOST_LINES: u32 = 16;

/// `rushmem-perf startup …`.
pub(crate) fn run(args: &StartupArgs) -> Result<ExitCode> {
    // Before anything runs, so that the load is that of others.
    let environment = Environment::here();
    let peers = Peers::read(&args.output.compare)?;
    if job::inside() {
        return Err(Failure::new(
            "startup starts jobs of its own: run rushmem-perf without a launcher for it",
        ));
    }
    let sizes = if args.pes.is_empty() { vec![usual()?] } else { args.pes.clone() };
    let (mut rows, mut devices) = (Vec::new(), BTreeMap::new());
    for &pes in &sizes {
        let jobs = measure(pes, args.samples)?;
        let figures = || jobs.iter().flatten();
        if pes <= MOST_LINES {
            println!("medians of {} starts of {pes} PEs, in ms", args.samples);
            print!("{}", align(&rows::by_pe(&jobs), &[1]));
        }
        if let Some(why) = figures().find_map(|pe| pe.no_kernel.as_ref()) {
            println!("no kernel was loaded: {why}");
        }
        println!();
        let mut names: Vec<String> = figures().map(|pe| pe.device.clone()).collect();
        names.sort();
        names.dedup();
        devices.insert(pes.to_string(), names);
        rows.extend(rows::rows(pes, &jobs));
    }
    rows.iter_mut().for_each(|row| peers.set(row));
    let report = Report {
        schema: 1,
        tool: concat!("rushmem-perf ", env!("CARGO_PKG_VERSION"), " startup").to_owned(),
        // This starts CUDA, and what it takes in this process is none of the PEs': it is last.
        environment: environment.with_gpus(),
        parameters: serde_json::json!({ "pes": sizes, "samples": args.samples, "devices": devices }),
        rows,
    };
    report.show(&args.output)
}

/// As many PEs as the project's promises are about.
fn usual() -> Result<u32> {
    match doctor::job()?.device {
        Ok((kind, _)) => Ok(if kind == "cuda" { 8 } else { 4 }),
        Err(why) => Err(Failure::new(why)),
    }
}

/// The rows of jobs of `pes` PEs, for a report about other things.
pub(crate) fn measured(pes: u32, samples: u32) -> Result<Vec<Row>> {
    Ok(rows::rows(pes, &measure(pes, samples)?))
}

fn measure(pes: u32, samples: u32) -> Result<Vec<Job>> {
    // The first start pays for reading programs and libraries from the disk and for compiling the kernel; it
    // is not counted.
    let progress = Progress::new(samples as usize + 1);
    let step = || {
        let found = start(pes)?;
        progress.step(format!("starts of {pes} PEs"));
        Ok(found)
    };
    step()?;
    (0..samples).map(|_| step()).collect()
}

/// The figures of one job.
fn start(pes: u32) -> Result<Job> {
    let folder = tempfile::tempdir()?;
    let mut command = job::command(pes, JOB_LIMIT_S)?;
    command.arg("startup-pe").arg("--folder").arg(folder.path()).stdout(Stdio::null());
    command.args(["--exec", &monotonic_ns().to_string()]);
    let status = command.status().map_err(|e| Failure::new(format!("cannot start the PEs: {e}")))?;
    if !status.success() {
        return Err(Failure::new(format!("a job of {pes} PEs ended with {status}")));
    }
    let text = std::fs::read(pe::figures(folder.path()));
    Ok(serde_json::from_slice(&text.map_err(|e| Failure::new(format!("PE 0 left no figures: {e}")))?)?)
}
