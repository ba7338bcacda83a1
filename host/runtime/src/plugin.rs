//! Finds and loads the MPI bootstrap plug-in.
//!
//! The runtime never links MPI: a plug-in that does (`librushmem_bootstrap_<flavour>.so`, one for each MPI)
//! is loaded when a world needs it, and stays loaded for as long as the process lives, because MPI libraries
//! do not survive being unloaded. Two MPIs in one process would resolve each other's `MPI_*` symbols, so
//! which flavour is wanted is settled before anything is loaded, first of all by what the process has loaded
//! already.
//!
//! A plug-in is looked for around the runtime and the program; in the installation whose `rushmem-run` is on
//! `PATH`, because a program that was built elsewhere has nothing of it beside itself; and in the tree that
//! the runtime was built from, for a crate that depends on it by path.

use std::ffi::{c_char, c_int, c_void, CStr, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use libloading::os::unix::{Library, RTLD_LAZY, RTLD_LOCAL, RTLD_NOW};
use rushmem_bootstrap_abi::ffi::{PluginEntry, PLUGIN_ENTRY};
use rushmem_bootstrap_abi::plugin::{ForeignBootstrap, Limits};
use rushmem_bootstrap_abi::{BootError, BootErrorKind, Bootstrap, Result};

/// The variable that names the plug-in's file, or the directory that holds it.
const VARIABLE: &str = "RUSHMEM_MPI_PLUGIN";
/// The flavours that plug-ins are built for, in the order of trying.
const FLAVOURS: [&str; 2] = ["openmpi", "mpich"];
/// Larger than any MPI's `MPI_MAX_LIBRARY_VERSION_STRING` (MPICH's is 8192).
const VERSION_BYTES: usize = 16 << 10;

/// Loads the plug-in for `flavour` (`openmpi` or `mpich`; `None`: what the process has loaded, else what the
/// environment looks like) and starts its bootstrap on `comm`, a `MPI_Comm *` or null for `MPI_COMM_WORLD`.
///
/// # Safety
/// `comm` is null or points to a communicator of the MPI that this process uses.
pub(crate) unsafe fn load_mpi(
    flavour: Option<&str>,
    comm: *const c_void,
    limits: Limits,
) -> Result<Box<dyn Bootstrap>> {
    let flavours = choose(flavour, loaded_mpi(), |name| std::env::var_os(name).is_some())?;
    let candidates = candidates(std::env::var_os(VARIABLE).map(PathBuf::from), &flavours, &home());
    let mut tried = String::new();
    for path in &candidates {
        // A bare name is looked up by the system's loader, anything else must exist before loading it says
        // anything.
        if path.is_absolute() && !path.exists() {
            tried.push_str(&format!("\n  {}: not there", path.display()));
            continue;
        }
        // SAFETY: a rushmem plug-in's initialisers are those of Rust and MPI.
        let library = match unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) } {
            Ok(library) => library,
            Err(e) => {
                tried.push_str(&format!("\n  {}: {}", path.display(), chain(&e)));
                continue;
            }
        };
        // SAFETY: a library that exports this name gives it this type.
        let entry = match unsafe { library.get::<PluginEntry>(PLUGIN_ENTRY.as_bytes()) } {
            Ok(entry) => *entry,
            Err(_) => {
                tried.push_str(&format!("\n  {}: has no function {PLUGIN_ENTRY}", path.display()));
                continue;
            }
        };
        std::mem::forget(library);
        // Its MPI came with it: said once for a job of several installations, of which one was taken.
        log::info!("MPI plug-in {}: {}", path.display(), loaded_version().unwrap_or_default());
        // SAFETY: the entry's library was just made to stay; `comm` is the caller's promise.
        return match unsafe { ForeignBootstrap::open(entry, comm, limits) } {
            Ok(bootstrap) => Ok(Box::new(bootstrap)),
            Err(e) => Err(BootError { message: format!("{} (plug-in {})", e.message, path.display()), ..e }),
        };
    }
    Err(BootError::new(
        BootErrorKind::Environment,
        format!(
            "no MPI bootstrap plug-in for {} could be loaded: in rushmem's sources, `make install PREFIX=...` \
             installs one for the mpicc on PATH (with PREFIX/bin on PATH it is found) and `make mpi-plugins` \
             builds it in place; or name its file in {VARIABLE}. Tried:{tried}",
            flavours.join(" or ")
        ),
    ))
}

/// The plug-ins that are here, one for each MPI at most: what [`load_mpi`] would try first for it. Loads
/// nothing: two MPIs in one process would be one too many.
pub(crate) fn present() -> Vec<PathBuf> {
    let asked = std::env::var_os(VARIABLE).map(PathBuf::from);
    let mut found: Vec<PathBuf> = Vec::new();
    for flavour in FLAVOURS {
        let mut files = candidates(asked.clone(), &[flavour], &home()).into_iter();
        // The last one is a bare name, which only the system's loader could find.
        let file = files.find(|path| path.is_absolute() && path.is_file());
        found.extend(file.filter(|file| !found.contains(file)));
    }
    found
}

/// An error with all its causes: libloading keeps the loader's own words in them.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(c) = cause {
        if !text.contains(&c.to_string()) {
            text.push_str(&format!(": {c}"));
        }
        cause = c.source();
    }
    text
}

/// Which flavours to try. `is_set` asks the environment.
fn choose(
    wanted: Option<&str>,
    loaded: Option<&'static str>,
    is_set: impl Fn(&str) -> bool,
) -> Result<Vec<&'static str>> {
    let wanted = match wanted {
        None => None,
        Some(name) => Some(*FLAVOURS.iter().find(|f| **f == name).ok_or_else(|| {
            BootError::new(
                BootErrorKind::InvalidArgument,
                format!("no MPI is called {name}: use {}", FLAVOURS.join(" or ")),
            )
        })?),
    };
    match (wanted, loaded) {
        (Some(wanted), Some(loaded)) if wanted != loaded => Err(BootError::new(
            BootErrorKind::Environment,
            format!(
                "this process was started by {wanted}, but has {loaded} loaded: start the program with the mpirun of the \
                 MPI that it is linked to"
            ),
        )),
        (Some(one), _) | (None, Some(one)) => Ok(vec![one]),
        (None, None) if is_set("OMPI_COMM_WORLD_SIZE") => Ok(vec!["openmpi"]),
        (None, None) if is_set("PMI_RANK") || is_set("HYDI_CONTROL_FD") => Ok(vec!["mpich"]),
        (None, None) => Ok(FLAVOURS.to_vec()),
    }
}

/// The directories in which libraries of this installation may lie.
fn home() -> Vec<PathBuf> {
    let mut dirs: Vec<PathBuf> = Vec::new();
    let mut add = |dir: PathBuf| {
        if !dirs.contains(&dir) {
            dirs.push(dir);
        }
    };
    let exe = std::env::current_exe().ok();
    for file in [own_file(), exe].into_iter().flatten() {
        let Some(dir) = file.parent() else { continue };
        // Cargo puts libraries of dependencies and test programs into `deps`, final ones above it; an
        // installation puts programs into `bin` beside `lib`.
        let near = [Some(dir.to_owned()), dir.parent().map(Path::to_owned), Some(dir.join("deps"))];
        let lib = dir.parent().map(|up| up.join("lib"));
        near.into_iter().chain([lib]).flatten().for_each(&mut add);
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).find_map(|dir| installed(&dir)).into_iter().flatten().for_each(&mut add);
    // Cargo's target folder of the tree that this was compiled in.
    let tree = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target");
    let built = ["release", "debug"].into_iter().filter_map(|profile| tree.join(profile).canonicalize().ok());
    built.filter(|dir| ours(dir)).for_each(&mut add);
    dirs
}

/// Where libraries lie beside a `rushmem-run` in `bin`, if there is one: of an installation, or in cargo's
/// own folder.
fn installed(bin: &Path) -> Option<[PathBuf; 2]> {
    // What is relative depends on where a program happens to stand.
    let launcher = bin.is_absolute().then(|| bin.join("rushmem-run").canonicalize().ok())??;
    let bin = launcher.parent()?;
    Some([bin.parent()?.join("lib"), bin.to_owned()])
}

/// Whether a folder is this user's or root's. The tree's path is compiled in: nobody else may have put
/// something there since.
fn ours(dir: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    // SAFETY: takes nothing, cannot fail.
    let me = unsafe { libc::geteuid() };
    let others_may_write = |meta: &std::fs::Metadata| meta.mode() & 0o002 != 0 && meta.mode() & 0o1000 == 0;
    dir.ancestors().all(|dir| {
        dir.metadata().is_ok_and(|meta| (meta.uid() == me || meta.uid() == 0) && !others_may_write(&meta))
    })
}

/// What to try to load, in order. With the variable set, nothing else is.
fn candidates(variable: Option<PathBuf>, flavours: &[&str], dirs: &[PathBuf]) -> Vec<PathBuf> {
    let names: Vec<String> = flavours.iter().map(|f| format!("librushmem_bootstrap_{f}.so")).collect();
    if let Some(path) = variable.filter(|p| !p.as_os_str().is_empty()) {
        // Made absolute, because a path without a slash would be taken for a name to look up.
        let path = std::path::absolute(&path).unwrap_or(path);
        return if path.is_dir() { names.iter().map(|n| path.join(n)).collect() } else { vec![path] };
    }
    let near = names.iter().flat_map(|n| dirs.iter().map(move |d| d.join(n)));
    near.chain(names.iter().map(PathBuf::from)).collect()
}

/// The file that this code was loaded from: librushmem_host.so, or a program that has it built in.
fn own_file() -> Option<PathBuf> {
    let mut info = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    let here = own_file as *const c_void;
    // SAFETY: any address may be asked for; the struct is written before it is read.
    let info = unsafe {
        if libc::dladdr(here, info.as_mut_ptr()) == 0 {
            return None;
        }
        info.assume_init()
    };
    if info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: the loader's own string, valid while this code is loaded.
    let name = unsafe { CStr::from_ptr(info.dli_fname) };
    std::fs::canonicalize(OsStr::from_bytes(name.to_bytes())).ok()
}

/// The flavour of the MPI that this process has loaded already, if there is one.
fn loaded_mpi() -> Option<&'static str> {
    // Everything but Open MPI that has an ABI in common with others shares MPICH's.
    loaded_version().map(|text| if text.contains("Open MPI") { "openmpi" } else { "mpich" })
}

/// What the MPI of this process says of itself, in one line.
fn loaded_version() -> Option<String> {
    type Version = unsafe extern "C" fn(*mut c_char, *mut c_int) -> c_int;
    let ask = |library: &Library| -> Option<String> {
        // SAFETY: a library that exports this name is an MPI, which gives it this type.
        let version = unsafe { library.get::<Version>(b"MPI_Get_library_version\0") }.ok()?;
        let mut text = vec![0u8; VERSION_BYTES];
        let mut len = 0;
        // SAFETY: MPI allows the call at any time; the buffer is larger than any MPI's limit.
        unsafe { version(text.as_mut_ptr().cast(), &mut len) };
        let text =
            String::from_utf8_lossy(&text[..usize::try_from(len).ok()?.min(VERSION_BYTES)]).into_owned();
        // MPICH goes on with how it was configured.
        let first = text.trim_end_matches('\0').lines().next().unwrap_or_default();
        Some(first.split_whitespace().collect::<Vec<_>>().join(" "))
    };
    // Linked into the program, or visible to everybody.
    if let Some(version) = ask(&Library::this()) {
        return Some(version);
    }
    let mut names: Vec<Vec<u8>> = Vec::new();
    // SAFETY: the callback has the demanded type and gets the vector that outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(note_mpi_library), (&raw mut names).cast()) };
    names.iter().find_map(|name| {
        let path = OsStr::from_bytes(name);
        // SAFETY: RTLD_NOLOAD only finds what is there.
        let library =
            unsafe { Library::open(Some(path), RTLD_LAZY | RTLD_LOCAL | libc::RTLD_NOLOAD) }.ok()?;
        ask(&library)
    })
}

/// Collects the paths of loaded libraries that are called like an MPI.
///
/// # Safety
/// The loader calls it; `names` is a `Vec<Vec<u8>>` that nobody else uses meanwhile.
unsafe extern "C" fn note_mpi_library(
    info: *mut libc::dl_phdr_info,
    _size: usize,
    names: *mut c_void,
) -> c_int {
    // SAFETY: the loader's struct, and the vector that `loaded_mpi` handed over.
    let (name, names) = unsafe { ((*info).dlpi_name, &mut *names.cast::<Vec<Vec<u8>>>()) };
    if !name.is_null() {
        // SAFETY: the loader's own NUL-terminated string.
        let name = unsafe { CStr::from_ptr(name) }.to_bytes();
        let base = name.rsplit(|&b| b == b'/').next().unwrap_or(name);
        if base.starts_with(b"libmpi.so") || base.starts_with(b"libmpich.so") {
            names.push(name.to_vec());
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unset(_: &str) -> bool {
        false
    }

    #[test]
    fn the_flavour_that_is_loaded_wins_over_guesses_and_contradicts_the_launcher_aloud() {
        assert_eq!(choose(Some("mpich"), None, unset).unwrap(), ["mpich"]);
        assert_eq!(choose(None, Some("mpich"), |v| v == "OMPI_COMM_WORLD_SIZE").unwrap(), ["mpich"]);
        assert_eq!(choose(None, None, |v| v == "OMPI_COMM_WORLD_SIZE").unwrap(), ["openmpi"]);
        assert_eq!(choose(None, None, |v| v == "PMI_RANK").unwrap(), ["mpich"]);
        assert_eq!(choose(None, None, unset).unwrap(), FLAVOURS);
        let error = choose(Some("openmpi"), Some("mpich"), unset).unwrap_err();
        assert!(error.message.contains("openmpi") && error.message.contains("mpich"), "{error}");
        let error = choose(Some("lam"), None, unset).unwrap_err();
        assert_eq!(error.kind, BootErrorKind::InvalidArgument);
    }

    #[test]
    fn the_variable_alone_is_tried_when_set_and_may_be_a_directory() {
        let dirs = [PathBuf::from("/a"), PathBuf::from("/b")];
        let want: Vec<PathBuf> =
            ["/a/", "/b/", ""].map(|d| format!("{d}librushmem_bootstrap_mpich.so").into()).into();
        assert_eq!(candidates(None, &["mpich"], &dirs), want);
        assert_eq!(candidates(Some("".into()), &["mpich"], &dirs), want);
        assert_eq!(candidates(Some("/x.so".into()), &["mpich"], &dirs), [PathBuf::from("/x.so")]);
        let here = std::env::temp_dir();
        let want = here.join("librushmem_bootstrap_mpich.so");
        assert_eq!(candidates(Some(here), &["mpich"], &dirs), [want]);
        assert!(candidates(Some("plain.so".into()), &["mpich"], &dirs)[0].is_absolute());
    }

    #[test]
    fn this_code_knows_its_file_and_looks_beside_and_above_it() {
        let exe = std::fs::canonicalize(std::env::current_exe().unwrap()).unwrap();
        assert_eq!(own_file().unwrap(), exe);
        let dir = exe.parent().unwrap();
        let home = home();
        for want in [dir.to_owned(), dir.parent().unwrap().to_owned(), dir.parent().unwrap().join("lib")] {
            assert!(home.contains(&want), "{want:?} not in {home:?}");
        }
    }

    #[test]
    fn an_installation_on_path_is_searched_and_the_tree_that_this_was_built_from() {
        let temp = tempfile::tempdir().unwrap();
        let (bin, links) = (temp.path().join("prefix/bin"), temp.path().join("links"));
        std::fs::create_dir_all(&bin).unwrap();
        std::fs::create_dir_all(&links).unwrap();
        std::fs::write(bin.join("rushmem-run"), "").unwrap();
        std::os::unix::fs::symlink(bin.join("rushmem-run"), links.join("rushmem-run")).unwrap();
        let prefix = temp.path().canonicalize().unwrap().join("prefix");
        let want = Some([prefix.join("lib"), prefix.join("bin")]);
        assert_eq!(installed(&bin), want);
        assert_eq!(installed(&links), want, "a module system's links");
        assert_eq!(installed(temp.path()), None);
        assert_eq!(installed(Path::new("prefix/bin")), None, "a relative folder");
    }

    #[test]
    fn a_folder_that_others_may_write_to_is_not_trusted() {
        use std::os::unix::fs::PermissionsExt;
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path().join("a/b");
        std::fs::create_dir_all(&dir).unwrap();
        let allow =
            |dir: &Path, mode| std::fs::set_permissions(dir, PermissionsExt::from_mode(mode)).unwrap();
        assert!(ours(&dir));
        for open in [&dir, dir.parent().unwrap()] {
            allow(open, 0o777);
            assert!(!ours(&dir), "{open:?}");
            allow(open, 0o755);
        }
        assert!(!ours(&dir.join("missing")));
    }
}
