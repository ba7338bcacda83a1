//! Collectives that the host calls, of 2 and 4 PEs, beside those of the MPIs that are here, Open MPI and
//! MPICH: all on this machine, in turns. `mpi.c` is built by an MPI's own compiler and started by its
//! launcher, so that this program needs none.

pub(crate) mod pe;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::args::HostArgs;
use crate::job::{self, Failure, Result};
use crate::lines::{take, text_of, Samples};
use crate::report::{Beside, Limit, Row};
use crate::stats::Summary;

/// PEs.
const JOBS: [u32; 2] = [2, 4];
/// How often each of the programs takes its turn; of few samples it is once.
const TURNS: u32 = 3;
const FEW: u32 = 30;
/// Seconds of one turn, at most.
const TURN_LIMIT_S: u32 = 120;

const PROGRAM: &str = include_str!("mpi.c");

/// An MPI.
struct Mpi {
    name: &'static str,
    launcher: &'static str,
    options: &'static [&'static str],
    program: PathBuf,
    samples: Samples,
}

pub(super) fn measure(args: &HostArgs) -> Result<Vec<Row>> {
    let folder = tempfile::tempdir()?;
    let mut rows = Vec::new();
    for pes in JOBS {
        let mut ours = Samples::new();
        let mut mpis = mpis(folder.path(), pes);
        for _ in 0..turns(args) {
            take(&mut ours, &text_of(&mut our_job(args, pes)?, "the measuring PEs")?)?;
            mpis.retain_mut(|mpi| {
                let said =
                    text_of(&mut mpi.job(args, pes), mpi.name).and_then(|text| take(&mut mpi.samples, &text));
                if let Err(why) = &said {
                    eprintln!("rushmem-perf: {} is left out: {why}", mpi.name);
                }
                said.is_ok()
            });
        }
        for (key, samples) in ours {
            rows.push(row(pes, &key, samples, &mpis)?);
        }
    }
    Ok(rows)
}

/// Ours, against the quicker MPI; the other one stands beside it.
fn row(pes: u32, key: &(String, u64), samples: Vec<f64>, mpis: &[Mpi]) -> Result<Row> {
    let (name, bytes) = (key.0.as_str(), (key.1 > 0).then_some(key.1));
    let summary = |samples: Vec<f64>| {
        let us = samples.into_iter().map(|ns| ns / 1e3).collect();
        Summary::of(us).ok_or_else(|| Failure::new(format!("{name}: no samples")))
    };
    let row = Row::new(name, bytes, pes, "us", summary(samples)?);
    let mut theirs = Vec::new();
    for mpi in mpis {
        if let Some(samples) = mpi.samples.get(key) {
            theirs.push((mpi.name, summary(samples.clone())?));
        }
    }
    theirs.sort_by(|a, b| a.1.median.total_cmp(&b.1.median));
    let mut theirs = theirs.into_iter();
    let Some((quicker, best)) = theirs.next() else { return Ok(row) };
    let mut row = row.against(quicker, best).limit(Limit::Ratio(1.0));
    row.peer = theirs.next().map(|(name, summary)| Beside { name: name.to_owned(), value: summary.median });
    Ok(row)
}

fn sizes(args: &HostArgs) -> Vec<String> {
    args.collective_sizes.iter().map(u64::to_string).collect()
}

fn our_job(args: &HostArgs, pes: u32) -> Result<Command> {
    let mut command = job::command(pes, TURN_LIMIT_S)?;
    command.args(["collective-pe", "--samples", &samples(args), "--sizes", &sizes(args).join(",")]);
    command.args(args.corrupt.then_some("--corrupt"));
    // They take host memory.
    command.env("RUSHMEM_DEVICE", "cpu");
    Ok(command)
}

/// Of one turn.
fn samples(args: &HostArgs) -> String {
    args.samples.div_ceil(turns(args)).to_string()
}

fn turns(args: &HostArgs) -> u32 {
    if args.samples < FEW {
        1
    } else {
        TURNS
    }
}

/// The MPIs of which there is a compiler that builds the program.
fn mpis(folder: &Path, pes: u32) -> Vec<Mpi> {
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    const AS_ROOT: &[&str] = &["--oversubscribe", "--allow-run-as-root"];
    let known = [
        ("Open MPI", "mpicc.openmpi", "mpirun.openmpi", AS_ROOT),
        ("MPICH", "mpicc.mpich", "mpirun.mpich", &[]),
    ];
    let mut found = Vec::new();
    for (name, compiler, launcher, options) in known {
        if name == "MPICH" && pes as usize > cores {
            eprintln!("rushmem-perf: {name} of {pes} PEs is left out: it spins, and there are {cores} cores");
            continue;
        }
        let (source, program) = (folder.join("mpi.c"), folder.join(compiler));
        let built = std::fs::write(&source, PROGRAM)
            .and_then(|()| Command::new(compiler).arg("-O2").arg(&source).arg("-o").arg(&program).output());
        match built {
            Ok(output) if output.status.success() => {
                found.push(Mpi { name, launcher, options, program, samples: Samples::new() });
            }
            Ok(output) => eprintln!(
                "rushmem-perf: {name} is left out: {compiler}: {}",
                String::from_utf8_lossy(&output.stderr).trim()
            ),
            Err(why) => eprintln!("rushmem-perf: {name} is left out: {compiler}: {why}"),
        }
    }
    found
}

impl Mpi {
    fn job(&self, args: &HostArgs, pes: u32) -> Command {
        // A launcher that hangs is ended; coreutils are where an MPI is.
        let mut command = Command::new("timeout");
        command.arg(TURN_LIMIT_S.to_string()).arg(self.launcher).args(self.options);
        command.args(["-n", &pes.to_string()]).arg(&self.program);
        command.args([pes.to_string(), samples(args)]).args(sizes(args)).stdin(Stdio::null());
        command
    }
}
