//! Where a UCX may be: what `RUSHMEM_UCX_LIB` names, what the dynamic loader finds, and the folders of Python
//! packages.
//!
//! PyPI's `libucx-cu13` and `libucx-cu12` both unpack to `libucx/lib` in a site folder, outside the loader's
//! path. Sites are found by looking at folders and not by asking Python: a library that starts a process to
//! load another one would surprise its host. Looking loads nothing and changes nothing.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

/// The file name that UCX's UCP library has had since 1.0.
pub(crate) const SONAME: &str = "libucp.so.0";

/// The places in which a UCX is looked for, in the order of trying.
#[derive(Clone, Debug, Default)]
pub struct Search {
    /// A file or a folder: `RUSHMEM_UCX_LIB`. Where it is set, nothing else is tried.
    pub explicit: Option<PathBuf>,
    /// Whether to ask the dynamic loader (its cache, `LD_LIBRARY_PATH`) for `libucp.so.0`.
    pub loader: bool,
    /// Files of UCX in Python environments, and the environment of conda itself.
    pub packages: Vec<PathBuf>,
    /// The site folders that have been looked at, for the error's text.
    pub sites: Vec<PathBuf>,
}

impl Search {
    /// The search that this process' environment asks for.
    pub fn from_environment() -> Search {
        let sites = sites();
        let mut packages: Vec<PathBuf> = sites
            .iter()
            .map(|site| site.join("libucx/lib").join(SONAME))
            .filter(|file| file.is_file())
            .collect();
        // conda-forge's UCX is no Python package: it lies in the environment's lib folder.
        packages.extend(
            folder_of("CONDA_PREFIX")
                .map(|prefix| prefix.join("lib").join(SONAME))
                .filter(|file| file.is_file()),
        );
        Search { explicit: folder_of("RUSHMEM_UCX_LIB"), loader: true, packages, sites }
    }

    /// The file that an explicit path means: itself, or in a folder `libucp.so.0`, there or in `lib`.
    pub(crate) fn file_of(path: &Path) -> Option<PathBuf> {
        // A name without a folder would send the loader searching; what was meant is a file here.
        let path = std::path::absolute(path).ok()?;
        if path.is_file() {
            return Some(path);
        }
        ["", "lib", "libucx/lib"]
            .iter()
            .map(|below| path.join(below).join(SONAME))
            .find(|file| file.is_file())
    }
}

/// A variable that holds a path; empty is as good as unset.
fn folder_of(variable: &str) -> Option<PathBuf> {
    env::var_os(variable).filter(|value| !value.is_empty()).map(PathBuf::from)
}

/// The site folders of the Pythons that this process may have to do with, nearest first, each once.
fn sites() -> Vec<PathBuf> {
    let mut sites = Vec::new();
    if let Some(path) = env::var_os("PYTHONPATH") {
        sites.extend(env::split_paths(&path).filter(|folder| folder.is_dir()));
    }
    for prefix in prefixes() {
        sites.extend(sites_below(&prefix));
    }
    let mut seen = std::collections::HashSet::new();
    sites.retain(|site| seen.insert(fs::canonicalize(site).unwrap_or_else(|_| site.clone())));
    sites
}

/// Where Pythons are installed. A virtual environment's own folder comes before that of the Python it
/// borrows.
fn prefixes() -> Vec<PathBuf> {
    let mut prefixes = Vec::new();
    // This process, where it is a Python: its path as called tells the environment, its real one the
    // installation.
    let called = env::args_os().next().map(PathBuf::from).filter(|program| program.components().count() > 1);
    for program in called.into_iter().chain(env::current_exe().ok()) {
        let is_python = program.file_name().is_some_and(|name| name.to_string_lossy().starts_with("python"));
        prefixes.extend(is_python.then(|| prefix_of(&program)).flatten());
    }
    prefixes.extend(folder_of("VIRTUAL_ENV"));
    prefixes.extend(folder_of("CONDA_PREFIX"));
    for folder in env::var_os("PATH").iter().flat_map(env::split_paths) {
        let python = folder.join("python3");
        if python.is_file() {
            prefixes.extend(prefix_of(&python));
            prefixes.extend(fs::canonicalize(&python).ok().and_then(|real| prefix_of(&real)));
        }
    }
    prefixes.extend(folder_of("HOME").map(|home| home.join(".local")));
    prefixes.extend(["/usr/local", "/usr"].map(PathBuf::from));
    prefixes
}

/// `prefix` of `prefix/bin/python3`.
fn prefix_of(program: &Path) -> Option<PathBuf> {
    program.parent()?.parent().map(Path::to_path_buf)
}

/// `lib/python3*/site-packages` and Debian's `dist-packages` below a prefix, newest Python first.
fn sites_below(prefix: &Path) -> Vec<PathBuf> {
    let mut pythons = Vec::new();
    for lib in ["lib", "lib64"] {
        let entries = fs::read_dir(prefix.join(lib)).into_iter().flatten().flatten();
        let names = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("python3"));
        pythons.extend(names.map(|entry| entry.path()));
    }
    pythons.sort_by_key(|python| std::cmp::Reverse(minor(python.file_name().unwrap_or_default())));
    let both =
        pythons.iter().flat_map(|python| ["site-packages", "dist-packages"].map(|name| python.join(name)));
    both.filter(|site| site.is_dir()).collect()
}

/// 12 of `python3.12`; 0 of Debian's `python3`.
fn minor(name: &OsStr) -> u32 {
    name.to_string_lossy().rsplit('.').next().and_then(|digits| digits.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn site_folders_newest_python_first() {
        let root = tempfile::tempdir().expect("a temporary folder");
        for below in
            ["lib/python3.9/site-packages", "lib/python3.12/site-packages", "lib/python3/dist-packages"]
        {
            fs::create_dir_all(root.path().join(below)).expect("a folder");
        }
        let found = sites_below(root.path());
        let found: Vec<_> = found.iter().map(|site| site.strip_prefix(root.path()).expect("below")).collect();
        let expected =
            ["lib/python3.12/site-packages", "lib/python3.9/site-packages", "lib/python3/dist-packages"];
        assert_eq!(found, expected.map(Path::new));
    }

    #[test]
    fn a_path_may_be_the_file_or_a_folder_above_it() {
        let root = tempfile::tempdir().expect("a temporary folder");
        let lib = root.path().join("site/libucx/lib");
        fs::create_dir_all(&lib).expect("a folder");
        let file = lib.join(SONAME);
        fs::write(&file, b"").expect("a file");
        for path in [&file, &lib, &root.path().join("site/libucx"), &root.path().join("site")] {
            assert_eq!(Search::file_of(path).as_ref(), Some(&file), "{}", path.display());
        }
        assert_eq!(Search::file_of(root.path()), None);
    }
}
