//! `rushmem-run`: starts N PEs of a program on this host or on several, and stays until the last of them, and
//! everything that they started, is gone.
//!
//! - [`args`], [`hosts`]: the command line; which host gets which PEs.
//! - [`spawn`]: one PE: its environment, its standard streams, its end tied to ours.
//! - [`output`]: what PEs write; whole lines with the PE's number before them.
//! - [`signals`], [`processes`]: signals that arrive here, and the processes that they are passed on to.
//! - [`rendezvous`]: where the PEs meet.
//! - [`deaths`], [`crew`]: which of the PEs here ended, the causes first.
//! - [`verdict`]: what happens when PEs end, fail, or take too long.
//! - [`supervise`]: a job on this host.
//! - [`remote`], [`launch`], [`agent`], [`wire`]: a job on several hosts: this side, the way there, the other
//!   side, and what they say to each other.
//!
//! The launcher and its PEs on this host are one process group, the one that the shell made. So the
//! terminal's signals (Ctrl-C, Ctrl-Z) reach every PE as they would reach a plain program, PE 0 may read the
//! terminal, and killing the group kills the job. Signals sent to the launcher alone are forwarded, and those
//! of either kind to other hosts.

mod agent;
mod args;
mod crew;
mod deaths;
mod hosts;
mod launch;
mod output;
mod processes;
mod remote;
mod rendezvous;
mod signals;
mod spawn;
mod supervise;
mod verdict;
mod wire;

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;

/// Why the launcher itself fails: its exit code, as shells and `env` use them, and the text.
#[derive(Debug)]
pub(crate) struct Failure {
    code: u8,
    text: String,
}

impl Failure {
    /// Something that the launcher needs went wrong.
    pub(crate) fn own(text: impl Into<String>) -> Failure {
        Failure { code: 125, text: text.into() }
    }
}

/// One line on stderr in one piece, so that it does not mix with what PEs write.
pub(crate) fn say(text: &str) {
    let line = format!("rushmem-run: {text}\n");
    // Where stderr is closed, nothing is left to report that on.
    let _ = std::io::stderr().write_all(line.as_bytes());
}

fn main() -> ExitCode {
    match run(&args::Args::parse()) {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            say(&failure.text);
            ExitCode::from(failure.code)
        }
    }
}

fn run(args: &args::Args) -> Result<u8, Failure> {
    if args.agent {
        return agent::run();
    }
    match hosts::shares(args)? {
        None => supervise::run(args, args.n.unwrap_or(1)),
        Some(shares) => {
            let n = shares.iter().map(|share| share.pes.len() as u32).sum();
            remote::run(args, n, shares)
        }
    }
}
