//! The command line.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, ValueEnum};

/// The largest job on one host; more processes than that is a mistake, not a job.
const MOST_PES: i64 = 16384;

/// Starts PEs of a rushmem program on this host, or on several.
///
/// Each PE gets RUSHMEM_PE, RUSHMEM_NPES, RUSHMEM_LOCAL_PE, RUSHMEM_LOCAL_NPES and RUSHMEM_UID. PE 0 reads
/// this program's standard input, the others read nothing. SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1 and
/// SIGUSR2 are forwarded; a second SIGINT or SIGTERM ends the job. When one PE fails, the others are ended
/// too.
///
/// The exit code is 0 when all PEs end well, else that of the PE that failed first (128 + its signal if one
/// killed it); 124 when the time is up, 125 when the launcher fails, 126 when the program cannot be run, 127
/// when it is not found.
#[derive(Debug, Parser)]
#[command(name = "rushmem-run", version, max_term_width = 110)]
pub(crate) struct Args {
    /// How many PEs to start; with hosts, all of their slots unless it says fewer
    #[arg(short = 'n', long = "np", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=MOST_PES))]
    #[arg(required_unless_present_any = ["hosts", "hostfile", "agent"])]
    pub(crate) n: Option<u32>,
    /// The hosts, and how many PEs each takes (its slots): a:4,b:4. Without numbers they share the PEs of -n
    #[arg(long, value_name = "HOST[:SLOTS],...", conflicts_with = "hostfile")]
    pub(crate) hosts: Option<String>,
    /// The same from a file, a host a line: `a:4`, `a slots=4` or `a 4`; # begins a comment
    #[arg(long, value_name = "FILE")]
    pub(crate) hostfile: Option<PathBuf>,
    /// How PEs are numbered over hosts: each host's in a row (slot), or one host after another in turn (node)
    #[arg(long, value_enum, default_value = "slot", value_name = "slot|node")]
    pub(crate) map_by: MapBy,
    /// The command that starts a program on a host, for all hosts; without it ssh does, but for this host.
    /// Words for a shell, in which {host} stands for the host; without that the host is its next word. The
    /// program's words follow; what it is to do arrives on its standard input
    #[arg(long, value_name = "COMMAND")]
    pub(crate) launch: Option<String>,
    /// Where rushmem-run is on the other hosts [default: where it is here]
    #[arg(long, value_name = "PATH")]
    pub(crate) remote_path: Option<PathBuf>,
    /// What a launcher starts on a host
    #[arg(long, hide = true)]
    pub(crate) agent: bool,
    /// Sets a variable for every PE; may be given several times
    #[arg(long = "env", value_name = "K=V", value_parser = variable)]
    pub(crate) env: Vec<(String, String)>,
    /// Writes `[pe] ` before each line of output
    #[arg(long)]
    pub(crate) tag_output: bool,
    /// Ends the job after so many seconds, with exit code 124
    #[arg(long, value_name = "S", value_parser = seconds)]
    pub(crate) timeout: Option<Duration>,
    /// How long the others may go on after a PE has failed, to say what they noticed
    #[arg(long, value_name = "S", default_value = "3", value_parser = seconds_or_zero)]
    pub(crate) grace: Duration,
    /// The program and its arguments
    #[arg(required_unless_present = "agent", trailing_var_arg = true, value_name = "PROGRAM")]
    pub(crate) program: Vec<OsString>,
}

/// How PEs are numbered over hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum MapBy {
    Slot,
    Node,
}

/// What the launcher itself says to PEs.
pub(crate) const OURS: [&str; 5] =
    ["RUSHMEM_PE", "RUSHMEM_NPES", "RUSHMEM_LOCAL_PE", "RUSHMEM_LOCAL_NPES", "RUSHMEM_UID"];

fn variable(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        None => Err("expected K=V".into()),
        Some(("", _)) => Err("the variable has no name".into()),
        Some((name, _)) if OURS.contains(&name) => {
            Err(format!("{name} is what rushmem-run itself gives each PE"))
        }
        Some((name, value)) => Ok((name.to_owned(), value.to_owned())),
    }
}

fn seconds_or_zero(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "expected seconds, for example 2.5".to_owned())?;
    Duration::try_from_secs_f64(seconds).map_err(|_| "expected seconds, 0 or more".to_owned())
}

fn seconds(text: &str) -> Result<Duration, String> {
    match seconds_or_zero(text)? {
        Duration::ZERO => Err("expected more than 0 seconds".into()),
        limit => Ok(limit),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &str) -> Result<Args, clap::Error> {
        Args::try_parse_from(std::iter::once("rushmem-run").chain(words.split(' ')))
    }

    #[test]
    fn the_programs_own_options_are_left_to_it() {
        for words in ["-n 2 -- prog -n 7 --env", "-n 2 prog -n 7 --env"] {
            let args = parse(words).expect(words);
            assert_eq!((args.n, args.program.len()), (Some(2), 4), "{words}");
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for words in [
            "-n 0 x",
            "-n -1 x",
            "-n 16385 x",
            "-n two x",
            "-n 2",
            "x",
            "-n 2 --timeout 0 x",
            "-n 2 --timeout -1 x",
            "-n 2 --timeout nan x",
            "-n 2 --timeout 1e300 x",
            "-n 2 --grace -1 x",
            "-n 2 --env K x",
            "-n 2 --env =V x",
            "-n 2 --env RUSHMEM_PE=3 x",
            "--hosts a:2 --hostfile b x",
            "--hosts a:2",
            "--hosts a:2 --map-by core x",
        ] {
            assert!(parse(words).is_err(), "{words}");
        }
    }

    #[test]
    fn values_are_read() {
        let args = parse("-n 3 --env A=b=c --env D= --timeout 0.5 --grace 0 --tag-output x").expect("valid");
        assert_eq!(args.env, [("A".into(), "b=c".into()), ("D".into(), String::new())]);
        assert_eq!(args.timeout, Some(Duration::from_millis(500)));
        assert_eq!((args.grace, args.tag_output), (Duration::ZERO, true));
    }
}
