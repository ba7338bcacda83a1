//! What the examples share, so that each shows only what it is about: here the way out, which all take; in
//! files beside it what some need.

use std::process::ExitCode;

/// How an example ends. Any error will do: it is printed for a person, and the program exits with 1.
pub(crate) type Outcome = Result<(), Box<dyn std::error::Error + Send + Sync>>;

/// Prints what went wrong, if anything did, and makes it the program's exit code.
pub(crate) fn exit(name: &str, outcome: Outcome) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{name}: {error}");
            ExitCode::FAILURE
        }
    }
}
