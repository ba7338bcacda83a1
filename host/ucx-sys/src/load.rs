//! Finds UCX at run time, judges it, and keeps it: [`Ucp::load`].
//!
//! Two different UCX in one process crash each other: their libraries share file names, and the dynamic
//! loader gives the second `libucp` the first one's `libucs`. So a UCX that is in the process already (Open
//! MPI brings one) is the only one that may be used, a candidate's sibling libraries are loaded from its own
//! folder before it, and after a refusal that could not be unloaded the search ends. What has been loaded for
//! good stays: UCX has threads and hooks.

use crate::bindings::Ucp;
use crate::functions::FUNCTIONS;
use crate::hooks;
use crate::search::{Search, SONAME};
use libloading::os::unix::{Library, RTLD_LAZY, RTLD_LOCAL, RTLD_NOW};
use std::ffi::{c_uint, c_void, CStr};
use std::fmt;
use std::path::{Path, PathBuf};

use once_cell::sync::OnceCell;

/// UCX's version: major, minor, release.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(pub u32, pub u32, pub u32);

/// The oldest UCX that rushmem talks to: Debian 12's.
pub const OLDEST: Version = Version(1, 13, 0);

/// What `UCX` needs beside `libucp`, in the order in which they can be loaded.
const SIBLINGS: [&str; 3] = ["libucm.so.0", "libucs.so.0", "libuct.so.0"];

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.0, self.1, self.2)
    }
}

/// One place that was tried, and why it would not do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tried {
    /// The place, in words.
    pub what: String,
    /// What was wrong with it.
    pub why: String,
}

/// No usable UCX. Its text lists what was tried and says how to get one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadError {
    /// Every place, in the order of trying.
    pub tried: Vec<Tried>,
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Version(major, minor, _) = OLDEST;
        writeln!(
            f,
            "no usable UCX: PEs on other hosts are reached through UCX {major}.{minor} or newer. Tried:"
        )?;
        for Tried { what, why } in &self.tried {
            writeln!(f, "  {what}: {why}")?;
        }
        write!(
            f,
            "Get it with `apt-get install libucx0` (Debian, Ubuntu) or `pip install libucx-cu13` (with CUDA), \
             or set RUSHMEM_UCX_LIB to a libucp.so.0 or its folder."
        )
    }
}

impl std::error::Error for LoadError {}

impl Ucp {
    /// The process' UCX, looked up until it is found; later calls get the same.
    ///
    /// Order: a UCX that the process has already; `RUSHMEM_UCX_LIB` (a file or a folder) and then nothing
    /// else; the dynamic loader's `libucp.so.0`; PyPI's `libucx-cu13` or `-cu12` in the Python environments
    /// at hand; conda's. The library is [`OLDEST`] or newer and has every one of [`FUNCTIONS`], so no method
    /// of `Ucp` can panic.
    ///
    /// # Errors
    ///
    /// [`LoadError`], whose text is meant for the user.
    pub fn load() -> Result<&'static Ucp, LoadError> {
        static UCP: OnceCell<Ucp> = OnceCell::new();
        UCP.get_or_try_init(|| Ucp::load_from(&Search::from_environment()))
    }

    /// As [`Ucp::load`], in the places given, not remembered. The library stays loaded when the value is
    /// dropped.
    ///
    /// # Errors
    ///
    /// [`LoadError`] as there.
    pub fn load_from(search: &Search) -> Result<Ucp, LoadError> {
        let mut tried = Vec::new();
        let candidates = candidates(search, &mut tried);
        for (index, (what, path)) in candidates.iter().enumerate() {
            match hooks::without(|| open(path)) {
                Ok(ucp) => return Ok(ucp),
                Err(why) => tried.push(Tried { what: what.clone(), why }),
            }
            // Whatever is next must not meet the libraries of the one just refused.
            let rest = &candidates[index + 1..];
            if let (Some(left), false) = (resident(), rest.is_empty()) {
                let why = format!("not tried, because {} could not be unloaded again", left.display());
                tried.extend(rest.iter().map(|(what, _)| Tried { what: what.clone(), why: why.clone() }));
                break;
            }
        }
        if search.explicit.is_none() && search.packages.is_empty() {
            let sites: Vec<_> = search.sites.iter().map(|site| site.display().to_string()).collect();
            let why = if sites.is_empty() {
                "no Python found".into()
            } else {
                format!("none in {}", sites.join(", "))
            };
            tried.push(Tried { what: "PyPI's libucx-cu13, libucx-cu12".into(), why });
        }
        Err(LoadError { tried })
    }

    /// The version of the library: `ucp_get_version`.
    pub fn version(&self) -> Version {
        let mut version = Version(0, 0, 0);
        // SAFETY: writes three integers.
        unsafe { self.ucp_get_version(&mut version.0, &mut version.1, &mut version.2) };
        version
    }

    /// The file that the library was loaded from.
    pub fn path(&self) -> PathBuf {
        let function = self.ucp_get_version.as_ref().map_or(std::ptr::null(), |&f| f as *const c_void);
        file_with(function).unwrap_or_else(|| PathBuf::from(SONAME))
    }
}

/// What to open, each with its name for the error; places that hold nothing go to `tried` at once.
fn candidates(search: &Search, tried: &mut Vec<Tried>) -> Vec<(String, PathBuf)> {
    let explicit = search.explicit.as_ref().map(|path| (format!("RUSHMEM_UCX_LIB={}", path.display()), path));
    let named = match explicit {
        None => None,
        Some((what, path)) => match Search::file_of(path) {
            Some(file) => Some((what, file)),
            None => {
                let why = if path.exists() { "no libucp.so.0 in it" } else { "no such file or folder" };
                tried.push(Tried { what, why: why.into() });
                return Vec::new();
            }
        },
    };
    if let Some(resident) = resident() {
        let folder = resident.parent().unwrap_or(Path::new("/"));
        return match named {
            Some((what, file)) if !same_folder(&file, &resident) => {
                let why = format!(
                    "this process has the UCX of {} loaded already, and two of them do not mix; unset RUSHMEM_UCX_LIB \
                     or keep the other from loading (Open MPI: --mca pml ob1 --mca osc ^ucx)",
                    folder.display()
                );
                tried.push(Tried { what, why });
                Vec::new()
            }
            Some(named) => vec![named],
            None => vec![(format!("{} (already in this process)", folder.display()), folder.join(SONAME))],
        };
    }
    if let Some(named) = named {
        return vec![named];
    }
    let mut found = Vec::new();
    if search.loader {
        found.push((format!("the dynamic loader's {SONAME}"), PathBuf::from(SONAME)));
    }
    found.extend(search.packages.iter().map(|file| (file.display().to_string(), file.clone())));
    found
}

/// Loads and judges one library. Nothing of a refused one is kept.
fn open(path: &Path) -> Result<Ucp, String> {
    // Kept until libucp has them by name: those that the loader would find elsewhere may be of another
    // version.
    let mut siblings = Vec::new();
    if let Some(folder) = path.parent().filter(|folder| folder.is_absolute()) {
        for file in SIBLINGS.iter().map(|name| folder.join(name)).filter(|file| file.is_file()) {
            // Lazily: libucm calls functions of libucs, which needs libucm, and is loaded before it.
            // SAFETY: UCX's libraries initialise themselves on loading; that is what their user asked for.
            siblings.push(unsafe { Library::open(Some(&file), RTLD_LAZY | RTLD_LOCAL) }.map_err(text)?);
        }
    }
    // SAFETY: UCX's libraries initialise themselves on loading; that is what their user asked for.
    let library = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) }.map_err(text)?;

    type GetVersion = unsafe extern "C" fn(*mut c_uint, *mut c_uint, *mut c_uint);
    // SAFETY: the function has had this signature since UCX 1.0; the pointer does not outlive the library.
    let get_version = unsafe { library.get::<GetVersion>(b"ucp_get_version\0") }
        .map_err(|_| "it has no ucp_get_version: not UCX's libucp".to_owned())?;
    let mut found = Version(0, 0, 0);
    // SAFETY: writes three integers.
    unsafe { get_version(&mut found.0, &mut found.1, &mut found.2) };
    if found < OLDEST {
        return Err(format!("UCX {found} is too old; needed: {OLDEST} or newer"));
    }
    let has = |name: &str| {
        // SAFETY: the address is only compared with null.
        unsafe { library.get::<*const c_void>(format!("{name}\0").as_bytes()) }.is_ok()
    };
    let missing: Vec<_> = FUNCTIONS.iter().copied().filter(|name| !has(name)).collect();
    if !missing.is_empty() {
        return Err(format!("UCX {found} lacks {}", missing.join(", ")));
    }
    // SAFETY: the file is in the process; this only marks it as never to be unloaded.
    let kept = unsafe { Library::open(Some(path), RTLD_NOW | libc::RTLD_NOLOAD | libc::RTLD_NODELETE) };
    std::mem::forget(kept.map_err(text)?);
    // SAFETY: the signatures are those of UCX 1.13's headers, and the library is that or newer.
    unsafe { Ucp::from_library(library) }.map_err(text)
}

/// An error of the loader with its cause, which `libloading` tells apart from it.
fn text(error: libloading::Error) -> String {
    match std::error::Error::source(&error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

/// The `libucs` that this process has loaded, if it has one. Every part of UCX needs that.
fn resident() -> Option<PathBuf> {
    // SAFETY: RTLD_NOLOAD loads nothing: it finds what is there.
    let library = unsafe { Library::open(Some("libucs.so.0"), RTLD_NOW | libc::RTLD_NOLOAD) }.ok()?;
    // SAFETY: the address is looked up, never called.
    let symbol = unsafe { library.get::<*const c_void>(b"ucs_status_string\0") }.ok()?;
    file_with(*symbol)
}

/// The file of the loaded object that holds an address.
fn file_with(address: *const c_void) -> Option<PathBuf> {
    use std::os::unix::ffi::OsStrExt;
    let mut info = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: any address may be asked about; `info` is written when the answer is not 0.
    let found = unsafe { libc::dladdr(address, info.as_mut_ptr()) };
    // SAFETY: zeroed at the least, and pointers may be null.
    let info = unsafe { info.assume_init() };
    if found == 0 || info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: the loader's own NUL-terminated name of an object that stays loaded for this call.
    let name = unsafe { CStr::from_ptr(info.dli_fname) };
    Some(PathBuf::from(std::ffi::OsStr::from_bytes(name.to_bytes())))
}

/// Whether two files lie in one folder, whatever links lead there.
fn same_folder(a: &Path, b: &Path) -> bool {
    let folder = |path: &Path| path.parent().and_then(|parent| std::fs::canonicalize(parent).ok());
    folder(a).is_some() && folder(a) == folder(b)
}
