//! Operations called from the host. A job of two PEs measures the operations, each against a reference that
//! works on the same memory in the same batch; the start-up measure starts jobs of its own.

mod atomic;
mod barrier;
mod c_abi;
pub(crate) mod collective;
mod pair;
mod pingpong;
mod rma;
pub(crate) mod startup;

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};

use crate::args::{HostArgs, Measure};
use crate::environment::Environment;
use crate::host::pair::Pair;
use crate::job::{self, Failure, Result};
use crate::peer::Peers;
use crate::progress::Progress;
use crate::report::{Report, Row};

/// Seconds that a job of PEs may take; far above what any sensible choice of options needs.
const JOB_LIMIT_S: u32 = 1200;

/// `rushmem-perf host …`.
pub(crate) fn run(args: &HostArgs) -> Result<ExitCode> {
    // Before anything runs, so that the load is that of others.
    let environment = Environment::here();
    let peers = Peers::read(&args.output.compare)?;
    let measures = Measure::expand(&args.measures);
    if job::inside() {
        if let Some(measure) = args.measures.iter().find(|measure| !measure.needs_job()) {
            return Err(Failure::new(format!(
                "{} starts jobs of its own: run rushmem-perf without a launcher for it",
                measure.word()
            )));
        }
        let rows = measure_as_pe(args, &measures)?;
        return match (rows, &args.rows) {
            (None, _) => Ok(ExitCode::SUCCESS),
            (Some(rows), Some(file)) => {
                std::fs::write(file, serde_json::to_vec(&rows)?)?;
                Ok(ExitCode::SUCCESS)
            }
            (Some(rows), None) => show(args, environment, &peers, rows),
        };
    }

    let in_job: Vec<Measure> = measures.iter().copied().filter(|measure| measure.needs_job()).collect();
    let progress = Progress::new(measures.len());
    let mut rows = if in_job.is_empty() { Vec::new() } else { measure_in_a_job(args, &in_job, &progress)? };
    if measures.contains(&Measure::Startup) {
        rows.extend(startup::measure(args)?);
        progress.step("startup");
    }
    if measures.contains(&Measure::Collective) {
        rows.extend(collective::measure(args)?);
        progress.step("collective");
    }
    drop(progress);
    show(args, environment, &peers, rows)
}

/// Where PE 0 names each measure that is over, beside its rows.
fn steps_file(rows: &Path) -> PathBuf {
    rows.with_extension("steps")
}

/// Runs the measures as one PE of a job. PE 0 gets the rows.
fn measure_as_pe(args: &HostArgs, measures: &[Measure]) -> Result<Option<Vec<Row>>> {
    let pair = Pair::join(args.corrupt)?;
    let mut rows = Vec::new();
    for &measure in measures.iter().filter(|measure| measure.needs_job()) {
        match measure {
            Measure::Put => rma::put(&pair, args, &mut rows)?,
            Measure::Get => rma::get(&pair, args, &mut rows)?,
            Measure::Pingpong => pingpong::measure(&pair, args, &mut rows)?,
            Measure::Atomic => atomic::measure(&pair, args, &mut rows)?,
            Measure::CAbi => c_abi::measure(&pair, args, &mut rows)?,
            Measure::Barrier => barrier::measure(&pair, args, &mut rows)?,
            Measure::All | Measure::Startup | Measure::Collective => {}
        }
        pair.world.barrier_all()?;
        if let Some(rows) = args.rows.as_ref().filter(|_| pair.measures()) {
            let mut steps = OpenOptions::new().create(true).append(true).open(steps_file(rows))?;
            writeln!(steps, "{}", measure.word())?;
        }
    }
    let first = pair.measures();
    pair.world.finalize()?;
    Ok(first.then_some(rows))
}

/// Starts two PEs that run the measures, and reads what they found.
fn measure_in_a_job(args: &HostArgs, measures: &[Measure], progress: &Progress) -> Result<Vec<Row>> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("rows.json");
    let sizes: Vec<String> = args.sizes.iter().map(u64::to_string).collect();
    let mut command = job::command(2, JOB_LIMIT_S)?;
    command.arg("host").args(measures.iter().map(|measure| measure.word()));
    command.args(["--samples", &args.samples.to_string(), "--batch", &args.batch.to_string()]);
    command.args(["--sizes", &sizes.join(",")]).arg("--rows").arg(&file).stdout(Stdio::null());
    command.args(args.corrupt.then_some("--corrupt"));
    let mut job = command.spawn().map_err(|error| Failure::new(format!("cannot start the PEs: {error}")))?;
    let status = progress.follow(&mut job, &steps_file(&file), str::to_owned)?;
    if !status.success() {
        return Err(Failure::new(format!("the measuring PEs ended with {status}")));
    }
    let text = std::fs::read(&file).map_err(|error| Failure::new(format!("PE 0 left no rows: {error}")))?;
    Ok(serde_json::from_slice(&text)?)
}

fn show(args: &HostArgs, environment: Environment, peers: &Peers, mut rows: Vec<Row>) -> Result<ExitCode> {
    rows.iter_mut().for_each(|row| peers.set(row));
    let report = Report {
        schema: 1,
        tool: concat!("rushmem-perf ", env!("CARGO_PKG_VERSION"), " host").to_owned(),
        environment,
        parameters: serde_json::json!({
            "samples": args.samples, "batch_us": args.batch, "starts": args.starts, "sizes": args.sizes,
        }),
        rows,
    };
    report.show(&args.output)
}
