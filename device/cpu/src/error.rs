//! Why a kernel source did not become a module.

use std::fmt;

/// Why a kernel source did not become a module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// The source is wrong: the compiler's messages, or ours about its kernels, with the source's own line
    /// numbers.
    Compile {
        /// The messages.
        text: String,
    },
    /// No C++ compiler was found, or it could not be run.
    NoCompiler {
        /// What was tried and what to do.
        text: String,
    },
    /// The compiler was killed, or took too long: this says nothing about the source.
    Interrupted {
        /// What happened.
        text: String,
    },
    /// A file could not be written, read or loaded.
    Io {
        /// What, where and why.
        text: String,
    },
    /// An environment variable makes no sense.
    Environment {
        /// Which and why.
        text: String,
    },
}

impl Error {
    pub(crate) fn io(what: impl fmt::Display, error: impl fmt::Display) -> Self {
        Error::Io { text: format!("{what}: {error}") }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Compile { text }
            | Error::NoCompiler { text }
            | Error::Interrupted { text }
            | Error::Io { text }
            | Error::Environment { text } => out.write_str(text),
        }
    }
}

impl std::error::Error for Error {}
