//! `rushmem-info`: what rushmem finds on this machine, what it would do with it, and what is missing.
//!
//! - [`facts`]: what can be known by looking; [`machine`]: of the host itself.
//! - [`missing`]: what of it a program would miss.
//! - [`job`]: what only joining tells: how each PE is reached. Under a launcher PE 0 shows it for all.
//! - [`collectives`]: how collectives on streams are launched.
//! - [`timeline`]: what timelines of a run (`RUSHMEM_TRACE`) say of its waits.
//! - [`text`]: everything for a person; `--json` shows the same facts as they are.
//!
//! It ends with exit code 1 where something needed is missing, each with a line that says what to do next.

mod collectives;
mod facts;
mod job;
mod machine;
mod missing;
mod text;
mod timeline;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use serde::Serialize;

use crate::facts::Facts;
use crate::job::Job;

/// Shows what rushmem finds here: versions, GPUs and which of them reach each other, the launcher, how PEs
/// meet, and how each PE is reached, with the reasons.
///
/// It joins the job that it is started in, as any program would, so that `rushmem-run -n 4 rushmem-info`
/// shows the ways between 4 PEs; by itself it is a job of one PE. The exit code is 1 where something needed
/// is missing.
#[derive(Parser, Debug)]
#[command(name = "rushmem-info", version, max_term_width = 110)]
struct Args {
    /// Shows everything as one JSON object
    #[arg(long)]
    json: bool,
    /// Only looks: joins no job, starts nothing on a GPU
    #[arg(long)]
    no_join: bool,
    /// Shows how collectives on streams are launched, by size, on GPUs and on the CPU device, and nothing
    /// else: the built-in table, or what RUSHMEM_COLLECTIVES says in its place
    #[arg(long)]
    collectives: bool,
    /// Shows the longest waits of a run that was traced (RUSHMEM_TRACE=out.json), who waited for whom and
    /// where, and nothing else: out.json stands for the files of all PEs
    #[arg(long, value_name = "FILE", num_args = 1.., conflicts_with_all = ["json", "collectives"])]
    trace: Vec<PathBuf>,
    /// With --trace: writes all timelines to one file, their times by PE 0's clock
    #[arg(long, value_name = "FILE", requires = "trace")]
    merge: Option<PathBuf>,
}

/// Everything that is shown.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    #[serde(flatten)]
    pub(crate) facts: Facts,
    /// None where this process did not join.
    pub(crate) job: Option<Job>,
    /// What is missing, and what to do about it.
    pub(crate) missing: Vec<String>,
    /// Whether nothing is.
    pub(crate) ok: bool,
}

fn main() -> ExitCode {
    let args = Args::parse();
    if !args.trace.is_empty() {
        return timeline::show(&args.trace, args.merge.as_deref());
    }
    if args.collectives {
        return collectives::show(args.json);
    }
    let facts = Facts::look();
    let mut missing = missing::here(&facts);
    // Settings that make no sense would only be refused once more.
    let joins = facts.launch.as_ref().filter(|launch| !args.no_join && launch.bootstrap.is_some());
    if joins.is_none() {
        missing.extend(missing::to_join(&facts));
    }
    let joined = joins.map(|launch| job::join(launch, &missing));
    let (shows, job) = match joined {
        None => (facts.launch.as_ref().is_none_or(|launch| launch.rank.unwrap_or(0) == 0), None),
        Some(Ok(job::Part::Shows(job))) => {
            missing = job.missing();
            (true, Some(job))
        }
        Some(Ok(job::Part::Told)) => (false, None),
        Some(Err(failure)) => {
            // A text that says it all already says it once.
            if !missing.iter().any(|known| failure.text.contains(known.as_str())) {
                missing.push(failure.text);
            }
            (failure.pe == 0, None)
        }
    };
    let code = if missing.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    if !shows {
        let pe = facts.launch.as_ref().and_then(|launch| launch.rank).unwrap_or(0);
        for text in &missing {
            eprintln!("rushmem-info: PE {pe}: {text}");
        }
        return code;
    }
    let report = Report { facts, job, ok: missing.is_empty(), missing };
    let shown = match args.json {
        true => {
            serde_json::to_string_pretty(&report).map(|text| text + "\n").unwrap_or_else(|e| e.to_string())
        }
        false => text::render(&report),
    };
    // Where stdout is closed, nobody reads the report.
    let _ = std::io::stdout().write_all(shown.as_bytes());
    code
}
