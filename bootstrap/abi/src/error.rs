//! Bootstrap errors: a kind that the runtime maps to one of its codes, and a text for a person.

use std::fmt;

/// What went wrong, coarsely. The discriminants are the C vtable's return codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(i32)]
pub enum BootErrorKind {
    /// A rank, size or address given by the caller is not usable.
    InvalidArgument = -1,
    /// The time limit passed; the text names who never came.
    Timeout = -2,
    /// A rank died or left; the text names it.
    PeerDead = -3,
    /// The environment lacks a variable or contradicts itself; the text says which.
    Environment = -4,
    /// The operating system, a socket or MPI refused.
    Io = -5,
    /// Ranks disagree (blob sizes, number of ranks, versions).
    Mismatch = -6,
    /// A panic or a broken invariant inside the bootstrap.
    Internal = -7,
}

impl BootErrorKind {
    /// The kind behind a vtable return code; unknown codes count as [`BootErrorKind::Internal`].
    pub fn from_code(code: i32) -> Self {
        use BootErrorKind::*;
        [InvalidArgument, Timeout, PeerDead, Environment, Io, Mismatch]
            .into_iter()
            .find(|k| *k as i32 == code)
            .unwrap_or(Internal)
    }
}

/// A bootstrap error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BootError {
    /// What went wrong.
    pub kind: BootErrorKind,
    /// The rank at fault, where one is.
    pub rank: Option<u32>,
    /// The text for a person: who, where, and what to do next.
    pub message: String,
}

impl BootError {
    /// An error of `kind` with its text.
    pub fn new(kind: BootErrorKind, message: impl Into<String>) -> Self {
        BootError { kind, rank: None, message: message.into() }
    }

    /// Names the rank at fault.
    pub fn with_rank(mut self, rank: u32) -> Self {
        self.rank = Some(rank);
        self
    }
}

impl fmt::Display for BootError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for BootError {}
