//! Errors are values: a code to act on and a text for a person. Codes are those of the C ABI, so that a Rust
//! program and a C library in the same process speak of the same things.

use std::fmt;

use rushmem_abi::c;

/// The result of a rushmem call.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of rushmem: what went wrong, and its text (who, where, what to do next).
#[derive(Clone, PartialEq, Eq)]
pub struct Error {
    code: ErrorCode,
    message: String,
}

impl Error {
    pub(crate) fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Error { code, message: message.into() }
    }

    /// What went wrong, to act on.
    pub fn code(&self) -> ErrorCode {
        self.code
    }

    /// The text for a person, without the code's name.
    pub fn message(&self) -> &str {
        &self.message
    }
}

/// That no elements of a slice of `len` are there for `what`.
pub(crate) fn out_of_bounds(what: std::fmt::Arguments<'_>, len: usize) -> Error {
    Error::new(ErrorCode::OutOfBounds, format!("{what} of a symmetric slice of {len} elements"))
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.message, self.code.name())
    }
}

/// What `unwrap`, and a `main` that returns an error, show a person: the same text, unescaped, because a
/// compiler's messages have many lines.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Error {}

/// The enum, its C constants and its C names, said once.
macro_rules! codes {
    ($($(#[$doc:meta])* $variant:ident = $constant:ident;)*) => {
        /// What went wrong, coarsely enough to act on.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum ErrorCode {
            $($(#[$doc])* $variant,)*
            /// `librushmem_host.so` was not found or cannot be loaded; the text lists every path tried.
            LibraryNotFound,
            /// A code that this version of the API does not know.
            Unknown,
        }

        impl ErrorCode {
            /// The error behind a return code of the C ABI.
            pub(crate) fn from_raw(code: i32) -> Self {
                match code {
                    $(c::$constant => ErrorCode::$variant,)*
                    _ => ErrorCode::Unknown,
                }
            }

            /// The name that C programs and logs use, such as `RUSHMEM_ERR_BAD_PE`.
            pub fn name(self) -> &'static str {
                match self {
                    $(ErrorCode::$variant => stringify!($constant),)*
                    ErrorCode::LibraryNotFound => "librushmem_host.so not loaded",
                    ErrorCode::Unknown => "unknown error code",
                }
            }
        }
    };
}

codes! {
    /// An argument makes no sense (zero where not allowed, overflow).
    InvalidArgument = RUSHMEM_ERR_INVALID_ARGUMENT;
    /// A PE number outside `0..n_pes`.
    BadPe = RUSHMEM_ERR_BAD_PE;
    /// An address that is not symmetric: outside the heap and every registered region, or already freed.
    BadAddress = RUSHMEM_ERR_BAD_ADDRESS;
    /// A range that ends past its allocation, an index past a slice.
    OutOfBounds = RUSHMEM_ERR_OUT_OF_BOUNDS;
    /// PEs disagree in a collective call (different calls, different arguments).
    Mismatch = RUSHMEM_ERR_MISMATCH;
    /// The symmetric heap cannot grow far enough.
    HeapExhausted = RUSHMEM_ERR_HEAP_EXHAUSTED;
    /// A time limit passed.
    Timeout = RUSHMEM_ERR_TIMEOUT;
    /// A PE of the job died or left; the text names it.
    PeerDead = RUSHMEM_ERR_PEER_DEAD;
    /// The bootstrap failed.
    Bootstrap = RUSHMEM_ERR_BOOTSTRAP;
    /// An environment variable is missing, malformed or contradicts another.
    Environment = RUSHMEM_ERR_ENVIRONMENT;
    /// Library versions do not fit.
    Version = RUSHMEM_ERR_VERSION;
    /// A kernel source did not compile; the text holds the compiler's messages.
    Compile = RUSHMEM_ERR_COMPILE;
    /// A launch was refused (unknown kernel, wrong arguments, too many blocks).
    Launch = RUSHMEM_ERR_LAUNCH;
    /// Not possible on this device, transport or build.
    Unsupported = RUSHMEM_ERR_UNSUPPORTED;
    /// Work is still in flight, or another thread is inside a collective call of this world.
    Busy = RUSHMEM_ERR_BUSY;
    /// The operating system refused.
    Io = RUSHMEM_ERR_IO;
    /// A handle that was never made, or was finalised.
    BadHandle = RUSHMEM_ERR_BAD_HANDLE;
    /// A defect in rushmem; please report it.
    Internal = RUSHMEM_ERR_INTERNAL;
    /// The call was made in a child of fork: only the process that joined the job is its PE.
    Forked = RUSHMEM_ERR_FORKED;
    /// A wait that was ended on this side (`rushmem_on_wait`, as front ends for other languages set it).
    Interrupted = RUSHMEM_ERR_INTERRUPTED;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_c_code_has_its_own_variant() {
        for code in -20..=-1 {
            let known = ErrorCode::from_raw(code);
            assert_ne!(known, ErrorCode::Unknown, "code {code}");
            assert!(known.name().starts_with("RUSHMEM_ERR_"), "code {code}: {}", known.name());
        }
        assert_eq!(ErrorCode::from_raw(-21), ErrorCode::Unknown);
    }

    #[test]
    fn main_and_unwrap_show_what_display_shows() {
        let error = Error::new(ErrorCode::Compile, "f.cu:1: \"x\"\nf.cu:2: y");
        let text = "f.cu:1: \"x\"\nf.cu:2: y (RUSHMEM_ERR_COMPILE)";
        assert_eq!((format!("{error}"), format!("{error:?}")), (text.to_owned(), text.to_owned()));
    }
}
