//! Errors as values: a code of the C ABI and a text that names the PE, the peer and what to do next.
//!
//! The last error's text is kept for each thread, because that is how a C caller asks for it.

use std::cell::RefCell;
use std::ffi::{CStr, CString};
use std::fmt;

use rushmem_bootstrap_abi::{BootError, BootErrorKind};

use rushmem_abi::c;

/// The result of a call into the runtime.
pub(crate) type Result<T> = std::result::Result<T, Error>;

/// An error: one of the `RUSHMEM_ERR_*` codes and its text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Error {
    /// One of `RUSHMEM_ERR_*`.
    pub(crate) code: i32,
    /// The text for a person.
    pub(crate) message: String,
}

impl Error {
    /// An error of `code` with its text.
    pub(crate) fn new(code: i32, message: impl Into<String>) -> Self {
        Error { code, message: message.into() }
    }

    /// The system call `what` failed with the current `errno`. Where a process or the system has too many
    /// files open, the text says what to do.
    pub(crate) fn os(what: impl fmt::Display) -> Self {
        Error::io(what, &std::io::Error::last_os_error())
    }

    /// [`Error::os`] of an error at hand.
    pub(crate) fn io(what: impl fmt::Display, e: &std::io::Error) -> Self {
        let advice = match e.raw_os_error() {
            Some(libc::EMFILE) => format!("; {}", raise_the_limit()),
            Some(libc::ENFILE) => "; the whole system has too many files open (sysctl fs.file-max)".into(),
            _ => String::new(),
        };
        Error::new(c::RUSHMEM_ERR_IO, format!("{what}: {e}{advice}"))
    }

    /// A thread that cannot be started.
    pub(crate) fn thread(what: impl fmt::Display, e: &std::io::Error) -> Self {
        let advice = match e.raw_os_error() {
            Some(libc::EAGAIN) => {
                "; this user or this container may start no more threads: raise the limit (ulimit -u, \
                 pids.max)"
            }
            _ => "",
        };
        Error::new(c::RUSHMEM_ERR_IO, format!("starting {what}: {e}{advice}"))
    }

    /// The same error, its text preceded by what was being done.
    pub(crate) fn context(self, what: impl fmt::Display) -> Self {
        Error { code: self.code, message: format!("{what}: {}", self.message) }
    }
}

/// `raise the limit …`, for texts about a process that can have no more descriptors.
pub(crate) fn raise_the_limit() -> String {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a place for the answer.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) };
    format!(
        "raise the limit of open files where this PE is started (ulimit -n; it is {} now, {} at most)",
        limit.rlim_cur, limit.rlim_max
    )
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

impl From<BootError> for Error {
    fn from(e: BootError) -> Self {
        let code = match e.kind {
            BootErrorKind::InvalidArgument => c::RUSHMEM_ERR_INVALID_ARGUMENT,
            BootErrorKind::Timeout => c::RUSHMEM_ERR_TIMEOUT,
            BootErrorKind::PeerDead => c::RUSHMEM_ERR_PEER_DEAD,
            BootErrorKind::Environment => c::RUSHMEM_ERR_ENVIRONMENT,
            BootErrorKind::Mismatch => c::RUSHMEM_ERR_MISMATCH,
            BootErrorKind::Io => c::RUSHMEM_ERR_BOOTSTRAP,
            BootErrorKind::Internal => c::RUSHMEM_ERR_INTERNAL,
        };
        Error::new(code, e.message)
    }
}

/// `err!(BAD_PE, "PE {pe} …")`: an [`Error`] by the code's name without its prefix.
macro_rules! err {
    ($code:ident, $($text:tt)*) => {
        $crate::error::Error::new($crate::error::code::$code, format!($($text)*))
    };
}
pub(crate) use err;

/// The codes by their names without the prefix, for [`err!`].
#[allow(missing_docs)]
pub(crate) mod code {
    use rushmem_abi::c;
    pub(crate) const INVALID_ARGUMENT: i32 = c::RUSHMEM_ERR_INVALID_ARGUMENT;
    pub(crate) const BAD_PE: i32 = c::RUSHMEM_ERR_BAD_PE;
    pub(crate) const BAD_ADDRESS: i32 = c::RUSHMEM_ERR_BAD_ADDRESS;
    pub(crate) const OUT_OF_BOUNDS: i32 = c::RUSHMEM_ERR_OUT_OF_BOUNDS;
    pub(crate) const MISMATCH: i32 = c::RUSHMEM_ERR_MISMATCH;
    pub(crate) const HEAP_EXHAUSTED: i32 = c::RUSHMEM_ERR_HEAP_EXHAUSTED;
    pub(crate) const TIMEOUT: i32 = c::RUSHMEM_ERR_TIMEOUT;
    pub(crate) const PEER_DEAD: i32 = c::RUSHMEM_ERR_PEER_DEAD;
    pub(crate) const INTERRUPTED: i32 = c::RUSHMEM_ERR_INTERRUPTED;
    pub(crate) const ENVIRONMENT: i32 = c::RUSHMEM_ERR_ENVIRONMENT;
    pub(crate) const VERSION: i32 = c::RUSHMEM_ERR_VERSION;
    pub(crate) const COMPILE: i32 = c::RUSHMEM_ERR_COMPILE;
    pub(crate) const LAUNCH: i32 = c::RUSHMEM_ERR_LAUNCH;
    pub(crate) const UNSUPPORTED: i32 = c::RUSHMEM_ERR_UNSUPPORTED;
    pub(crate) const BUSY: i32 = c::RUSHMEM_ERR_BUSY;
    pub(crate) const IO: i32 = c::RUSHMEM_ERR_IO;
    pub(crate) const BAD_HANDLE: i32 = c::RUSHMEM_ERR_BAD_HANDLE;
    pub(crate) const INTERNAL: i32 = c::RUSHMEM_ERR_INTERNAL;
}

thread_local! {
    static LAST: RefCell<CString> = RefCell::new(CString::default());
}

/// Keeps `text` as this thread's last error.
pub(crate) fn set_last(text: &str) {
    let clean = CString::new(text.replace('\0', "\u{fffd}")).unwrap_or_default();
    // A thread that is being torn down has no last error to keep.
    let _ = LAST.try_with(|last| *last.borrow_mut() = clean);
}

/// This thread's last error text; the pointer holds until the thread's next failing call.
pub(crate) fn last() -> *const std::os::raw::c_char {
    const NONE: &CStr = c"";
    LAST.try_with(|last| last.borrow().as_ptr()).unwrap_or(NONE.as_ptr())
}
