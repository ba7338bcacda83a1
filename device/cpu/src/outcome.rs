//! How a launch can fail, as callers learn it: why, and which thread gave up first.

use std::fmt;

/// Why a kernel gave up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The number that it passed to `rushmem_cpu_exit` (a `RUSHMEM_DEVICE_FAIL_*`).
    Code(u32),
    /// A trap, a failed assertion, an exception, a deadlock, no memory.
    Text(String),
    /// A block has not moved for longer than [`crate::Reports::limit`].
    Stuck(String),
}

/// `blockIdx` and `threadIdx` of a thread.
pub type Place = ([u32; 3], [u32; 3]);

/// Which thread gave up first, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Why.
    pub cause: Cause,
    /// Which thread; of a deadlock or lack of memory, the block's first.
    pub place: Option<Place>,
    /// ` at k.cu:12 in rushmem::wait_until()`, from the debug information, or empty.
    pub at: String,
    /// What waits should know of blocks that take turns and had not begun: `; 5 of 9 blocks ...`, or empty.
    pub turns: String,
}

/// How a launch can fail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunError {
    /// Nothing has run: the shape is impossible or too large for this machine. The text names the largest
    /// grid.
    Refused(String),
    /// A thread gave up.
    Failed(Failure),
    /// The caller's stop flag was set.
    Stopped,
}

impl fmt::Display for RunError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RunError::Refused(text) => write!(out, "launch refused: {text}"),
            RunError::Stopped => write!(out, "stopped"),
            RunError::Failed(Failure { cause, place, at, turns }) => {
                if let Some(place) = place {
                    write!(out, "{}{at}: ", place_text(place).trim_start_matches(", "))?;
                }
                match cause {
                    Cause::Code(code) => write!(out, "the kernel gave up with code {code}{turns}"),
                    Cause::Text(text) | Cause::Stuck(text) => out.write_str(text),
                }
            }
        }
    }
}

impl std::error::Error for RunError {}

/// `, block (0,0,0), thread (5,0,0)`.
pub(crate) fn place_text(place: &Place) -> String {
    let ([bx, by, bz], [tx, ty, tz]) = place;
    format!(", block ({bx},{by},{bz}), thread ({tx},{ty},{tz})")
}
