//! Errors: what is wrong with a configuration or a call, what rushmem reports, and what a round was wrong in.

use std::fmt;

/// The result of a call of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// A configuration or an argument: nothing was done.
    Invalid(String),
    /// A call came out of turn (dispatch, then combine): nothing was put on the stream.
    Order(String),
    /// What the runtime reports: a dead PE, memory that is used up, a kernel that does not compile.
    #[cfg(feature = "api")]
    Rushmem(rushmem::Error),
    /// A round that was refused on the device, on all ranks alike; see [`Failure`].
    Round(Failure),
}

/// Why a round was refused. All ranks report the same; of that round nothing was written but counts of 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failure {
    /// The round's number, from 1 on.
    pub round: u64,
    /// What was wrong.
    pub why: Why,
}

/// What was wrong with a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Why {
    /// More tokens for an expert than its capacity; in the flat layout (`expert` is none) for a rank.
    OverCapacity {
        /// The rank that would receive them.
        rank: u32,
        /// The expert.
        expert: Option<u32>,
        /// Rows that would be needed.
        count: u64,
        /// Rows that there are.
        capacity: u64,
    },
    /// A rank had more tokens than the `max_tokens` of [`Config::new`](crate::Config::new).
    TooManyTokens {
        /// The rank.
        rank: u32,
        /// Its tokens.
        count: u64,
        /// The most that it may have.
        max_tokens: u64,
    },
    /// A token names an expert that does not exist.
    NoSuchExpert {
        /// The rank of the token.
        rank: u32,
        /// The token.
        token: u64,
    },
    /// A round was combined a second time.
    CombinedTwice,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "round {} was refused: ", self.round)?;
        match self.why {
            Why::OverCapacity { rank, expert: Some(expert), count, capacity } => {
                write!(f, "{count} tokens for expert {expert} of rank {rank}, whose capacity is {capacity}")
            }
            Why::OverCapacity { rank, expert: None, count, capacity } => {
                write!(
                    f,
                    "rank {rank} would receive {count} rows, padding included; its capacity is {capacity}"
                )
            }
            Why::TooManyTokens { rank, count, max_tokens } => {
                write!(f, "rank {rank} has {count} tokens, more than max_tokens, which is {max_tokens}")
            }
            Why::NoSuchExpert { rank, token } => {
                write!(f, "token {token} of rank {rank} names an expert that does not exist")
            }
            Why::CombinedTwice => {
                write!(f, "it has been combined already; each combine answers one dispatch")
            }
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Invalid(text) | Error::Order(text) => f.write_str(text),
            #[cfg(feature = "api")]
            Error::Rushmem(error) => error.fmt(f),
            Error::Round(failure) => failure.fmt(f),
        }
    }
}

impl std::error::Error for Error {}

#[cfg(feature = "api")]
impl From<rushmem::Error> for Error {
    fn from(error: rushmem::Error) -> Self {
        Error::Rushmem(error)
    }
}
