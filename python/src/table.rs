//! The C ABI as this crate sees it: tables of function pointers, filled from the loaded library.
//!
//! The package goes through the C ABI and not through the Rust API: types of elements and lifetimes of arrays
//! are known at run time here, and the C ABI checks both at run time.

use std::ffi::{CStr, OsStr};
use std::os::raw::{c_char, c_void};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use rushmem_abi::c::*;

use crate::error;

const LIBRARY: &str = "librushmem_host.so";

macro_rules! table {
    ($name:ident: $($family:ident { $(fn $field:ident = $symbol:ident ( $($arg:ty),* $(,)? ) -> $ret:ty;)* })*) => {
        pub(crate) struct $name {
            $($(pub(crate) $field: unsafe extern "C" fn($($arg),*) -> $ret,)*)*
        }

        impl $name {
            /// The functions' addresses.
            fn all(&self) -> Vec<usize> {
                vec![$($(self.$field as usize,)*)*]
            }

            /// # Safety
            /// The library must be rushmem's, of this ABI version: a symbol's type is taken on trust.
            unsafe fn load(library: &Library) -> Result<$name, libloading::Error> {
                Ok($name {
                    // SAFETY: the caller vouches for the library; the runtime has checked the type.
                    $($($field: unsafe { *library.get(concat!(stringify!($symbol), "\0").as_bytes())? },)*)*
                })
            }
        }
    };
}

macro_rules! shared_table { ($($all:tt)*) => { table!(Shared: $($all)*); }; }
macro_rules! other_table { ($($all:tt)*) => { table!(Others: $($all)*); }; }
rushmem_abi::functions!(shared_table);
rushmem_abi::functions_for_c!(other_table);

/// The functions of `librushmem_host.so`.
pub(crate) struct Table {
    shared: Shared,
    /// Those that the Rust API has no use for.
    pub(crate) others: Others,
}

impl std::ops::Deref for Table {
    type Target = Shared;
    fn deref(&self) -> &Shared {
        &self.shared
    }
}

/// Where the package has its library; said when it is imported.
static OWN: Mutex<Option<PathBuf>> = Mutex::new(None);

pub(crate) fn set_own(path: PathBuf) {
    *OWN.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(path);
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
    let own = OWN.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone();
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
    let loaded = unsafe { Ok::<_, libloading::Error>((Shared::load(&library), Others::load(&library))) };
    let (shared, others) = loaded.map_err(not_ours)?;
    let table = Table { shared: shared.map_err(not_ours)?, others: others.map_err(not_ours)? };
    if table.shared.all().into_iter().chain(table.others.all()).any(|address| address == 0) {
        let text = format!("{} has functions without an address", path.display());
        return Err(error::of(py, error::LIBRARY_NOT_FOUND, &text));
    }
    // Never unloaded: it owns threads.
    std::mem::forget(library);
    // SAFETY: a function that stays as long as the process, as this module is never unloaded, and that does
    // not unwind.
    unsafe { (table.others.on_wait)(Some(crate::call::ask)) };
    Ok(table)
}

/// Copies a C string of the runtime; null becomes the empty string.
///
/// # Safety
/// `text` is null or a C string that lives through the call.
pub(crate) unsafe fn text(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: not null, and the caller vouches for the rest.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}
