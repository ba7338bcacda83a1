//! The runtime that this process uses: found, checked and loaded once.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use rushmem_abi::c::*;

use crate::call;
use crate::error;
use crate::table::Table;

const LIBRARY: &str = "librushmem_host.so";

/// Where the package has its library; said when it is imported.
static OWN: Mutex<Option<PathBuf>> = Mutex::new(None);

pub(crate) fn set_own(path: PathBuf) {
    *OWN.lock().unwrap_or_else(PoisonError::into_inner) = Some(path);
}

/// The process's runtime, loaded by the first call that can. A failure is not remembered.
pub(crate) fn table(py: Python<'_>) -> PyResult<&'static Table> {
    static TABLE: PyOnceLock<Table> = PyOnceLock::new();
    let table = TABLE.get_or_try_init(py, || load(py))?;
    // SAFETY: a static is never dropped.
    Ok(unsafe { &*std::ptr::from_ref(table) })
}

/// As for the Rust API: a library of that name that the process has loaded, what the user names, the
/// package's own, and what the loader finds.
fn load(py: Python<'_>) -> PyResult<Table> {
    // SAFETY: RTLD_NOLOAD loads nothing and runs nothing; it only looks.
    let there = unsafe { Library::open(Some(LIBRARY), RTLD_NOW | RTLD_LOCAL | libc::RTLD_NOLOAD) };
    if let Ok(library) = there {
        return bind(py, library, Path::new(LIBRARY));
    }
    let named = std::env::var_os("RUSHMEM_HOST_LIB").filter(|path| !path.is_empty());
    let own = OWN.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let places = match named {
        Some(path) => vec![PathBuf::from(path)],
        None => own.into_iter().chain([PathBuf::from(LIBRARY)]).collect(),
    };
    let mut failures = Vec::new();
    for path in places {
        if path.components().count() > 1 && !path.exists() {
            failures.push(format!("{}: not there", path.display()));
            continue;
        }
        // SAFETY: loading runs the library's initialisers; it is rushmem's by its name and place.
        match unsafe { Library::open(Some(&path as &dyn AsRef<OsStr>), RTLD_NOW | RTLD_LOCAL) } {
            Ok(library) => return bind(py, library, &path),
            Err(error) => failures.push(format!("{}: {error}", path.display())),
        }
    }
    let text = format!(
        "cannot load {LIBRARY}: install the wheel anew, or set RUSHMEM_HOST_LIB to its path. Tried:\n  {}",
        failures.join("\n  ")
    );
    Err(error::of(py, error::LIBRARY_NOT_FOUND, &text))
}

fn bind(py: Python<'_>, library: Library, path: &Path) -> PyResult<Table> {
    let not_ours = |why: libloading::Error| {
        let text = format!("{} is not a {LIBRARY} that fits this package: {why}", path.display());
        error::of(py, error::LIBRARY_NOT_FOUND, &text)
    };
    // SAFETY: this one function keeps its type in every ABI version, takes nothing and touches nothing.
    let version =
        unsafe { library.get::<unsafe extern "C" fn() -> u32>(b"rushmem_abi_version\0").map(|f| f()) };
    let version = version.map_err(not_ours)?;
    if version != RUSHMEM_ABI_VERSION {
        let text = format!(
            "this package was built for ABI version {RUSHMEM_ABI_VERSION} of rushmem, but {} has version {version}; unset \
             RUSHMEM_HOST_LIB, or install the package that belongs to it",
            path.display()
        );
        return Err(error::of(py, RUSHMEM_ERR_VERSION, &text));
    }
    // SAFETY: a rushmem library of this ABI version.
    let table = unsafe { Table::load(&library) }.map_err(not_ours)?;
    if !table.is_whole() {
        let text = format!("{} has functions without an address", path.display());
        return Err(error::of(py, error::LIBRARY_NOT_FOUND, &text));
    }
    // Never unloaded: it owns threads.
    std::mem::forget(library);
    // SAFETY: a function that stays as long as the process, as this module is never unloaded, and that does
    // not unwind.
    unsafe { (table.others.on_wait)(Some(call::ask)) };
    Ok(table)
}
