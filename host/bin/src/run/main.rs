//! `rushmem-run`: starts N PEs of a program on this host, and stays until the last of them, and everything that they
//! started, is gone.
//!
//! - [`args`]: the command line.
//! - [`spawn`]: one PE: its environment, its standard streams, its end tied to ours.
//! - [`output`]: whole lines with the PE's number before them.
//! - [`signals`], [`processes`]: what arrives here, and who is there to be told.
//! - [`rendezvous`]: where the PEs meet.
//! - [`supervise`]: what happens when PEs end, fail, or take too long.
//!
//! The launcher and its PEs are one process group, the one that the shell made. So the terminal's signals (Ctrl-C, Ctrl-Z)
//! reach every PE as they would reach a plain program, PE 0 may read the terminal, and killing the group kills the
//! job. Signals sent to the launcher alone are forwarded.

mod args;
mod output;
mod processes;
mod rendezvous;
mod signals;
mod spawn;
mod supervise;

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
    // Nobody is left to be told that stderr is closed.
    let _ = std::io::stderr().write_all(line.as_bytes());
}

fn main() -> ExitCode {
    match supervise::run(&args::Args::parse()) {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            say(&failure.text);
            ExitCode::from(failure.code)
        }
    }
}
