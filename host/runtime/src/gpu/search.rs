//! Where NVIDIA's libraries are that are found at run time. They come as pip packages, with the toolkit, or
//! from the system, and those of one place fit each other, so a second one is looked for beside the first.

use std::ffi::{c_void, CStr, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rushmem_device_cpu::cache::build_id;

/// A struct of a library's functions, by NVIDIA's names. All return a number that is 0 for success.
macro_rules! functions {
    ($($name:ident: fn($($arg:ty),*);)*) => {
        #[allow(non_snake_case, reason = "NVIDIA's names")]
        struct Functions { $($name: unsafe extern "C" fn($($arg),*) -> std::ffi::c_int,)* }

        impl Functions {
            /// # Safety
            /// The library is the one whose documentation the types are from, and outlives the result.
            unsafe fn of(
                library: &libloading::os::unix::Library,
            ) -> std::result::Result<Self, libloading::Error> {
                // SAFETY: the types have not changed since the functions came, as the caller knows.
                unsafe { Ok(Functions { $($name: *library.get(concat!(stringify!($name), "\0").as_bytes())?,)* }) }
            }
        }
    };
}
pub(super) use functions;

/// The paths to try, the best first. `names` are file names, the best first; `asked` is what a setting says:
/// the library, or a folder that holds it, and nothing else is tried then; `beside` is a library that this
/// one should fit.
pub(super) fn places(names: &[&str], asked: Option<&Path>, beside: Option<&Path>) -> Vec<PathBuf> {
    let within = |dir: PathBuf| names.iter().map(move |name| dir.join(name));
    match asked {
        Some(dir) if dir.is_dir() => return within(dir.to_owned()).collect(),
        Some(file) => return vec![file.to_owned()],
        None => {}
    }
    let env = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let mut dirs = Vec::new();
    if let Some(dir) = beside.and_then(Path::parent) {
        dirs.push(dir.to_owned());
        // Until CUDA 12 each pip package has its own folder: nvidia/cuda_nvrtc/lib, nvidia/nvjitlink/lib.
        if let Some(wheels) = dir.ancestors().nth(2).filter(|dir| dir.ends_with("nvidia")) {
            dirs.extend(wheel_dirs(wheels));
        }
    }
    for python in [env("VIRTUAL_ENV"), env("CONDA_PREFIX")].into_iter().flatten() {
        let versions = entries(&python.join("lib"));
        dirs.extend(versions.flat_map(|dir| wheel_dirs(&dir.join("site-packages/nvidia"))));
        dirs.push(python.join("lib"));
    }
    let toolkits = [env("CUDA_HOME"), env("CUDA_PATH"), Some("/usr/local/cuda".into())];
    dirs.extend(toolkits.into_iter().flatten().map(|dir| dir.join("lib64")));
    let mut places: Vec<PathBuf> = dirs.into_iter().flat_map(within).collect();
    places.extend(names.iter().map(PathBuf::from));
    places
}

/// The `lib` folders of pip's packages; that of CUDA 13, which holds everything, first.
fn wheel_dirs(nvidia: &Path) -> impl Iterator<Item = PathBuf> {
    let mut packages: Vec<PathBuf> = entries(nvidia).collect();
    packages.sort_by_key(|dir| !dir.ends_with("cu13"));
    packages.into_iter().map(|dir| dir.join("lib"))
}

fn entries(dir: &Path) -> impl Iterator<Item = PathBuf> {
    std::fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path())
}

/// The first of `places` that `open` takes, or what to tell where none is: why those that are there do not
/// work, and the names of the folders.
pub(super) fn first<T>(
    places: &[PathBuf],
    open: impl Fn(&Path) -> Result<T, libloading::Error>,
) -> Result<T, String> {
    let mut why = String::new();
    for place in places {
        match open(place) {
            Ok(found) => return Ok(found),
            Err(e) if place.is_file() => why = format!(" ({e})"),
            Err(_) => {}
        }
    }
    let folder = |place: &PathBuf| match place.parent().map(|dir| dir.to_string_lossy()) {
        Some(dir) if !dir.is_empty() => dir.into_owned(),
        _ => "the loader's path".into(),
    };
    let mut folders: Vec<String> = places.iter().map(folder).collect();
    folders.dedup();
    Err(format!("{why}, looked in {}", folders.join(", ")))
}

/// The file that holds a function.
pub(super) fn path_of(function: *const c_void) -> Option<PathBuf> {
    // SAFETY: all zero is a valid value.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: takes any address; writes the struct.
    if unsafe { libc::dladdr(function, &mut info) } == 0 || info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: a C string that lives as long as the library.
    let name = unsafe { CStr::from_ptr(info.dli_fname) };
    std::fs::canonicalize(Path::new(OsStr::from_bytes(name.to_bytes()))).ok()
}

/// Tells a library from another: its build ID, which is the same wherever it is installed, so that what it
/// made on one machine serves on another; without one, size and age of the file.
pub(super) fn stamp(path: &Path) -> String {
    let age = || std::fs::metadata(path).map(|m| format!("{}:{}", m.len(), m.mtime())).unwrap_or_default();
    build_id(path).unwrap_or_else(age)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A copy on another machine is another file of another age.
    #[test]
    fn a_library_is_told_by_its_build_id_and_a_file_without_one_by_its_age() {
        use std::fs::File;
        use std::time::{Duration, SystemTime};

        let temp = tempfile::tempdir().unwrap();
        let stamps = |from: &Path, years: u64| {
            let copy = temp.path().join(format!("copy-{years}"));
            std::fs::copy(from, &copy).unwrap();
            let then = SystemTime::now() - Duration::from_secs(years * 31_536_000);
            File::options().write(true).open(&copy).unwrap().set_modified(then).unwrap();
            stamp(&copy)
        };
        let libc = path_of(libc::malloc as *const c_void).unwrap();
        assert_eq!(stamps(&libc, 1), stamps(&libc, 2));
        assert_eq!(stamps(&libc, 1), stamp(&libc));
        let plain = temp.path().join("plain");
        std::fs::write(&plain, "no ELF file").unwrap();
        assert_ne!(stamps(&plain, 1), stamps(&plain, 2));
        assert_ne!(stamps(&libc, 1), stamps(&plain, 1));
        assert_eq!(stamp(Path::new("/nonexistent")), "");
    }

    #[test]
    fn the_order_of_places() {
        let temp = tempfile::tempdir().unwrap();
        let dir = |name: &str| {
            let dir = temp.path().join(name);
            std::fs::create_dir_all(&dir).unwrap();
            dir
        };
        let names = ["libx.so.2", "libx.so"];
        // What was asked for, and nothing else.
        let own = dir("own");
        assert_eq!(places(&names, Some(&own), None), [own.join("libx.so.2"), own.join("libx.so")]);
        let file = own.join("any name");
        assert_eq!(places(&names, Some(&file), None), [file]);
        // Beside the other library first, also where pip gives each package a folder; by the loader last.
        let (nvrtc, link) = (dir("nvidia/cuda_nvrtc/lib"), dir("nvidia/nvjitlink/lib"));
        let found = places(&names, None, Some(&nvrtc.join("libnvrtc.so.12")));
        assert_eq!(found[..2], [nvrtc.join("libx.so.2"), nvrtc.join("libx.so")]);
        let position = |path: &Path| found.iter().position(|place| place == path);
        let toolkit = position(Path::new("/usr/local/cuda/lib64/libx.so.2")).unwrap();
        assert!(position(&link.join("libx.so.2")).unwrap() < toolkit);
        assert!(found.ends_with(&names.map(PathBuf::from)));
    }

    #[test]
    fn what_is_told_where_nothing_is_found() {
        let temp = tempfile::tempdir().unwrap();
        let mut places = places(&["libx.so"], Some(temp.path()), None);
        places.push("libx-of-rushmem-that-nobody-has.so".into());
        let open = |path: &Path| {
            // SAFETY: no such library.
            unsafe { libloading::os::unix::Library::open(Some(path), libloading::os::unix::RTLD_NOW) }
        };
        let text = first(&places, open).unwrap_err();
        assert_eq!(text, format!(", looked in {}, the loader's path", temp.path().display()));
        std::fs::write(temp.path().join("libx.so"), "rubbish").unwrap();
        let text = first(&places, open).unwrap_err();
        assert!(text.contains("too short"), "{text}");
    }
}
