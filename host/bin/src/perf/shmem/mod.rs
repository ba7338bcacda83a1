//! A C program of OpenSHMEM (`program.c`), compiled by our `oshcc` and by those of other OpenSHMEM libraries
//! on this machine, and run with each of them in turns. The 8-byte put also stands beside the Rust API's.

mod library;
pub(crate) mod pe;

use std::process::ExitCode;

use crate::args::ShmemArgs;
use crate::environment::Environment;
use crate::job::{self, Failure, Result};
use crate::lines::{take, text_of, Samples};
use crate::peer::Peers;
use crate::progress::Progress;
use crate::report::{Limit, Report, Row};
use crate::shmem::library::Library;
use crate::stats::Summary;

/// How often each library takes its turn, each time with memory of its own: where pages lie makes a tenth of
/// the time of a megabyte. Of few samples it is once.
const TURNS: u32 = 9;
const FEW: u32 = 30;
/// Seconds of one turn, at most.
const TURN_LIMIT_S: u32 = 120;
/// Ours over another library's time, at most: level means within five in a hundred.
const LEVEL: f64 = 1.05;
/// Nanoseconds that a C program's 8-byte put may take more than the Rust API's.
const BEHIND_RUST_NS: f64 = 20.0;

/// `rushmem-perf shmem …`.
pub(crate) fn run(args: &ShmemArgs) -> Result<ExitCode> {
    // Before anything runs, so that the load is that of others.
    let environment = Environment::here();
    let peers = Peers::read(&args.output.compare)?;
    if job::inside() {
        return Err(Failure::new("shmem starts jobs of its own: run rushmem-perf without a launcher for it"));
    }
    let folder = tempfile::tempdir()?;
    let ours = library::ours(folder.path())?;
    let mut others = library::others(folder.path());
    let mut rows = Vec::new();
    let progress = Progress::new(args.pes.len() * turns(args) as usize);
    for &pes in &args.pes {
        measure(args, pes, &ours, &mut others, &mut rows, &progress)?;
    }
    drop(progress);
    rows.iter_mut().for_each(|row| peers.set(row));
    let report = Report {
        schema: 1,
        tool: concat!("rushmem-perf ", env!("CARGO_PKG_VERSION"), " shmem").to_owned(),
        environment,
        parameters: serde_json::json!({
            "samples": args.samples, "sizes": args.sizes, "collective_sizes": args.collective_sizes,
        }),
        rows,
    };
    report.show(&args.output)
}

/// How often each library takes its turn.
fn turns(args: &ShmemArgs) -> u32 {
    if args.samples < FEW {
        1
    } else {
        TURNS
    }
}

/// All rows of so many PEs.
fn measure(
    args: &ShmemArgs,
    pes: u32,
    ours: &Library,
    others: &mut Vec<Library>,
    rows: &mut Vec<Row>,
    progress: &Progress,
) -> Result<()> {
    let turns = turns(args);
    let samples = args.samples.div_ceil(turns);
    let (mut here, mut rust) = (Samples::new(), Samples::new());
    let mut theirs = vec![Samples::new(); others.len()];
    for _ in 0..turns {
        take(&mut here, &text_of(&mut ours.job(args, pes, samples), "the measuring PEs")?)?;
        if pes == 2 {
            let mut command = job::command(2, TURN_LIMIT_S)?;
            command.args(["shmem-pe", "--samples", &samples.to_string()]).env("RUSHMEM_DEVICE", "cpu");
            take(&mut rust, &text_of(&mut command, "the PEs of the Rust API")?)?;
        }
        for i in (0..others.len()).rev() {
            let text = text_of(&mut others[i].job(args, pes, samples), &others[i].name);
            if let Err(why) = text.and_then(|text| take(&mut theirs[i], &text)) {
                eprintln!("rushmem-perf: {} is left out: {why}", others[i].name);
                others.remove(i);
                theirs.remove(i);
            }
        }
        progress.step(format!("{pes} PEs"));
    }
    for (key, samples) in &here {
        let (name, bytes) = (key.0.as_str(), (key.1 > 0).then_some(key.1));
        let figure = figure(name);
        let summary = |samples: &Vec<f64>| summary(&figure, key.1, samples);
        let row = || -> Result<Row> { Ok(Row::new(figure.name, bytes, pes, figure.unit, summary(samples)?)) };
        for (library, samples) in others.iter().zip(&theirs) {
            if let Some(samples) = samples.get(key) {
                let most = if figure.unit.ends_with("/s") { 1.0 / LEVEL } else { LEVEL };
                rows.push(row()?.against(&library.name, summary(samples)?).limit(Limit::Ratio(most)));
            }
        }
        if let Some(samples) = rust.get(key) {
            let rust = summary(samples)?;
            let most = Limit::Median(rust.median + BEHIND_RUST_NS);
            rows.push(row()?.against("the Rust API", rust).limit(most));
        } else if others.is_empty() {
            rows.push(row()?);
        }
    }
    Ok(())
}

/// How a line's figure is shown.
struct Figure {
    name: &'static str,
    unit: &'static str,
}

fn figure(line: &str) -> Figure {
    let (name, unit) = match line {
        "put" => ("put", "ns"),
        "p" => ("p", "ns"),
        "put_quiet" => ("put + quiet", "us"),
        "put_bandwidth" => ("put bandwidth", "GB/s"),
        "put_rate" => ("put_nbi rate", "M/s"),
        "get" => ("get", "us"),
        "get_bandwidth" => ("get bandwidth", "GB/s"),
        "fetch_add" => ("fetch_add", "ns"),
        "compare_swap" => ("compare_swap", "ns"),
        "barrier" => ("barrier", "us"),
        "broadcast" => ("broadcast", "us"),
        "reduce" => ("reduce", "us"),
        "fcollect" => ("fcollect", "us"),
        "alltoall" => ("alltoall", "us"),
        _ => ("another line of the program", "ns"),
    };
    Figure { name, unit }
}

/// Nanoseconds of one call, in the unit of the figure.
fn summary(figure: &Figure, bytes: u64, samples: &[f64]) -> Result<Summary> {
    let convert = |&ns: &f64| match figure.unit {
        "us" => ns / 1e3,
        "GB/s" => bytes as f64 / ns,
        "M/s" => 1e3 / ns,
        _ => ns,
    };
    let name = figure.name;
    Summary::of(samples.iter().map(convert).collect())
        .ok_or_else(|| Failure::new(format!("{name}: no samples")))
}
