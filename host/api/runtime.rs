//! Finds and loads `librushmem_host.so`, the one runtime of a process, and turns its return codes into
//! errors.
//!
//! The Rust API never links the runtime: a Rust program and a C library in it that both use rushmem must
//! share one instance. So a library of that name which is already in the process comes first; then
//! `RUSHMEM_HOST_LIB`; then the folders around the executable, `deps/` before the executable's own because
//! that is where cargo keeps the freshest build; then `../lib`; then the copy that the program carries
//! (`embedded.rs`); then the system's search path. It is loaded with local scope: a C library linked against
//! it shares the instance by its file (or soname), and nothing else should find its symbols by accident. It
//! is never unloaded: it owns threads.
//!
//! A file that merely lies around the executable may be another release's, of an installation that the
//! program was copied into. Where the program carries its own, such a file is passed over; what the user
//! names, and what the process has loaded already, has to fit.

use std::ffi::{CStr, OsStr};
use std::os::raw::c_char;
use std::path::{Path, PathBuf};

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use once_cell::sync::OnceCell;
use rushmem_abi::c::{RUSHMEM_ABI_VERSION, RUSHMEM_OK};

use crate::embedded;
use crate::loaded;
use crate::table::Table;
use crate::{Error, ErrorCode, Result};

const LIBRARY: &str = "librushmem_host.so";
/// The same, as the library calls itself, whatever file it is in.
const SONAME: &CStr = c"librushmem_host.so";

/// The loaded library.
pub(crate) struct Runtime {
    table: Table,
}

impl std::ops::Deref for Runtime {
    type Target = Table;
    fn deref(&self) -> &Table {
        &self.table
    }
}

impl Runtime {
    /// The process's runtime, loaded by the first call that can. A failure is not remembered: once the
    /// library is where it belongs, or `RUSHMEM_HOST_LIB` says where it is, the next call finds it.
    pub(crate) fn get() -> Result<&'static Runtime> {
        static RUNTIME: OnceCell<Runtime> = OnceCell::new();
        RUNTIME.get_or_try_init(load)
    }

    /// `Ok` for success, else the error with this thread's text.
    #[inline(always)]
    pub(crate) fn check(&self, code: i32) -> Result<()> {
        if code == RUSHMEM_OK {
            Ok(())
        } else {
            Err(self.error(code))
        }
    }

    #[cold]
    #[inline(never)]
    fn error(&self, code: i32) -> Error {
        // SAFETY: takes nothing; the text is this thread's until its next call, and is copied here.
        let text = unsafe { copy_text((self.last_error)()) };
        Error::new(ErrorCode::from_raw(code), text)
    }

    /// Path of the loaded library, as the library itself knows it.
    pub(crate) fn path(&self) -> PathBuf {
        // SAFETY: takes nothing, returns a string that lives as long as the library: for ever.
        PathBuf::from(unsafe { copy_text((self.library_path)()) })
    }

    /// Version of the loaded library, such as `0.1.0`.
    pub(crate) fn version(&self) -> String {
        // SAFETY: takes nothing, returns a string that lives as long as the library: for ever.
        unsafe { copy_text((self.library_version)()) }
    }
}

/// Copies a C string of the runtime; null becomes the empty string.
///
/// # Safety
/// `text` is null or a C string that lives through the call.
pub(crate) unsafe fn copy_text(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: not null, and the caller vouches for the rest.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

fn load() -> Result<Runtime> {
    let mut failures = Vec::new();
    if let Some(library) = already_loaded() {
        return bind(library, Path::new(LIBRARY));
    }
    let (named, exe) = (std::env::var_os("RUSHMEM_HOST_LIB"), std::env::current_exe().ok());
    for place in candidates(named.as_deref(), exe.as_deref()) {
        let path = match place {
            Candidate::File(path) => path,
            Candidate::Embedded => match embedded::open() {
                Some(Ok((library, path))) => return bind(library, &path),
                Some(Err(why)) => {
                    failures.push(why);
                    continue;
                }
                None => continue,
            },
        };
        // A bare name is for the system's search; every other candidate must exist.
        if path.components().count() > 1 && !path.exists() {
            failures.push(format!("{}: not there", path.display()));
            continue;
        }
        // SAFETY: loading runs the library's initialisers; it is rushmem's by its name and place.
        match unsafe { Library::open(Some(&path), RTLD_NOW | RTLD_LOCAL) } {
            Ok(library) => match bind(library, &path) {
                Err(error) if named_is_empty(named.as_deref()) && embedded::is_there() => {
                    failures.push(error.to_string());
                }
                bound => return bound,
            },
            Err(error) => failures.push(format!("{}: {error}", path.display())),
        }
    }
    Err(Error::new(
        ErrorCode::LibraryNotFound,
        format!(
            "cannot load {LIBRARY}; set RUSHMEM_HOST_LIB to its path, or put it beside the executable or where the \
             loader looks. Tried:\n  {}",
            failures.join("\n  ")
        ),
    ))
}

/// The library of that name which something else (a C library linked against it) brought into the process.
fn already_loaded() -> Option<Library> {
    if !loaded::is_loaded(SONAME) {
        return None;
    }
    // SAFETY: RTLD_NOLOAD loads nothing and runs nothing; it finds what is there.
    unsafe { Library::open(Some(LIBRARY), RTLD_NOW | RTLD_LOCAL | libc::RTLD_NOLOAD) }.ok()
}

/// Where a runtime may come from.
#[derive(Debug, PartialEq, Eq)]
enum Candidate {
    File(PathBuf),
    /// The copy that this program carries.
    Embedded,
}

fn named_is_empty(named: Option<&OsStr>) -> bool {
    named.is_none_or(OsStr::is_empty)
}

/// Where to look, in order. `RUSHMEM_HOST_LIB` is the user's word: when it is set, nothing else is tried.
fn candidates(named: Option<&OsStr>, exe: Option<&Path>) -> Vec<Candidate> {
    if let Some(path) = named.filter(|path| !path.is_empty()) {
        return vec![Candidate::File(PathBuf::from(path))];
    }
    let mut places = Vec::new();
    if let Some(folder) = exe.and_then(Path::parent) {
        // target/<profile>/program, target/<profile>/deps/test-…, target/<profile>/examples/program,
        // prefix/bin/program
        for place in ["deps", "", "../deps", "..", "../lib"] {
            places.push(Candidate::File(folder.join(place).join(LIBRARY)));
        }
    }
    places.push(Candidate::Embedded);
    places.push(Candidate::File(PathBuf::from(LIBRARY)));
    places
}

fn bind(library: Library, path: &Path) -> Result<Runtime> {
    let not_ours = |error: libloading::Error| {
        Error::new(
            ErrorCode::LibraryNotFound,
            format!("{} is not a {LIBRARY} that fits this program: {error}", path.display()),
        )
    };
    // SAFETY: this one function keeps its type in every ABI version.
    let version = unsafe { library.get::<unsafe extern "C" fn() -> u32>(b"rushmem_abi_version\0") }
        .map(|function|
            // SAFETY: takes nothing and touches nothing.
            unsafe { function() })
        .map_err(not_ours)?;
    if version != RUSHMEM_ABI_VERSION {
        let program = std::env::current_exe().unwrap_or_else(|_| PathBuf::from("(unknown)"));
        return Err(Error::new(
            ErrorCode::Version,
            format!(
                "the program {} was built for ABI version {RUSHMEM_ABI_VERSION} of rushmem, but {} has version {version}; \
                 rebuild one of them, or set RUSHMEM_HOST_LIB to the library that belongs to the program",
                program.display(),
                path.display()
            ),
        ));
    }
    // SAFETY: a rushmem library of this ABI version.
    let table = unsafe { Table::load(&library) }.map_err(not_ours)?;
    // Never unloaded: it owns threads, and its functions are kept for the life of the process.
    std::mem::forget(library);
    Ok(Runtime { table })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_users_word_is_final() {
        let paths = candidates(Some(OsStr::new("/a/b.so")), Some(Path::new("/x/bin/program")));
        assert_eq!(paths, [Candidate::File("/a/b.so".into())]);
    }

    #[test]
    fn cargo_folders_come_before_the_carried_copy_and_that_before_the_system() {
        let paths = candidates(None, Some(Path::new("/t/debug/deps/test-1")));
        assert!(paths.contains(&Candidate::File("/t/debug/deps/librushmem_host.so".into())), "{paths:?}");
        let paths = candidates(None, Some(Path::new("/t/debug/examples/ring")));
        assert!(
            paths.contains(&Candidate::File("/t/debug/examples/../deps/librushmem_host.so".into())),
            "{paths:?}"
        );
        assert_eq!(paths[paths.len() - 2..], [Candidate::Embedded, Candidate::File(LIBRARY.into())]);
    }
}
