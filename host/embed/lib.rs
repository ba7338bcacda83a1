//! [`runtime!`]: the bytes of `librushmem_host.so` as a constant of the crate that is being compiled.
//!
//! The Rust API loads its runtime as a shared library, so that everything in a process shares one. Beside a
//! program in cargo's folder it is found; a program that `cargo install` or a person has copied elsewhere
//! needs one that it carries. A build script cannot embed it: cargo runs it before, or while, the
//! dependencies are compiled, and a library's products are a build script's input only on nightly. A macro
//! can: it is expanded while the dependent crate is compiled, and cargo starts that once the runtime is
//! linked, because a crate that is also a `cdylib` is waited for as a whole. Where the runtime lies, the
//! compiler's own command line says: `--extern rushmem_host=…/librushmem_host-….rlib`, and cargo puts the
//! shared library beside it.
//!
//! Under `cargo check`, clippy, rustdoc and an editor nothing is linked: the constant is empty there.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use proc_macro::TokenStream;

const LIBRARY: &str = "librushmem_host.so";

/// A `&'static [u8]`: `librushmem_host.so` without what only debuggers read; empty where nothing is linked.
#[proc_macro]
pub fn runtime(_: TokenStream) -> TokenStream {
    let text = match embed() {
        Ok(Some(file)) => format!("include_bytes!({file:?})"),
        Ok(None) => "&[]".to_owned(),
        Err(why) => format!("compile_error!({why:?})"),
    };
    text.parse().expect("an expression, with a path or a text in Debug's quotes")
}

fn embed() -> Result<Option<PathBuf>, String> {
    // What rustc itself was started with; an editor's server for macros was not.
    let Some(library) = beside_the_crate(std::env::args()) else { return Ok(None) };
    let failed = |e: std::io::Error| format!("{}: {e}", library.display());
    let bytes = std::fs::read(&library).map_err(failed)?;
    let changed = std::fs::metadata(&library).and_then(|about| about.modified()).map_err(failed)?;
    let loadable = loadable(&bytes).ok_or_else(|| format!("{} is no ELF library", library.display()))?;
    // Cargo's own folder for this crate: it has a build script for no other reason.
    let folder = std::env::var_os("OUT_DIR").ok_or("cargo has set no OUT_DIR for this crate")?;
    let file = Path::new(&folder).join(LIBRARY);
    leave(&file, &loadable, changed).map_err(|e| format!("{}: {e}", file.display()))?;
    Ok(Some(file))
}

/// Leaves a file with these bytes and this time of change. The crate, its unit tests and rustdoc expand the
/// macro in one folder, at one time: each finds a whole file, and one that is right already stays. The time
/// is the library's own: cargo compiles a crate anew when a file that it includes is younger than its build.
fn leave(file: &Path, bytes: &[u8], changed: SystemTime) -> std::io::Result<()> {
    let of = |at: &Path| std::fs::metadata(at).and_then(|about| about.modified()).ok();
    if of(file) == Some(changed) && std::fs::read(file).is_ok_and(|there| there == bytes) {
        return Ok(());
    }
    let own = file.with_extension(format!("so.{}", std::process::id()));
    let mut written = std::fs::File::create(&own)?;
    written.write_all(bytes)?;
    written.set_modified(changed)?;
    std::fs::rename(&own, file)
}

/// The runtime's shared library, beside its Rust library, if the compiler was given that one whole.
fn beside_the_crate(args: impl Iterator<Item = String>) -> Option<PathBuf> {
    args.filter_map(|arg| {
        let (name, path) = arg.strip_prefix("--extern=").unwrap_or(&arg).split_once('=')?;
        // `priv:rushmem_host`: options of the dependency come before its name.
        let ours = name.rsplit(':').next() == Some("rushmem_host") && path.ends_with(".rlib");
        ours.then(|| Path::new(path).with_file_name(LIBRARY))
    })
    .next()
}

/// The part of a 64-bit ELF file that is loaded, which is all that the loader reads. The sections behind it
/// are symbols and debug information, most of the file; the header is made to say that there are none.
fn loadable(file: &[u8]) -> Option<Vec<u8>> {
    const PT_LOAD: u32 = 1;
    let half = |at: usize| Some(u16::from_le_bytes(file.get(at..at + 2)?.try_into().ok()?));
    let word = |at: usize| Some(u32::from_le_bytes(file.get(at..at + 4)?.try_into().ok()?));
    let long = |at: usize| usize::try_from(u64::from_le_bytes(file.get(at..at + 8)?.try_into().ok()?)).ok();
    // Class 64, little endian: what rushmem runs on. Offsets as in the System V ABI, "ELF-64 Object File
    // Format".
    if file.get(..6)? != b"\x7fELF\x02\x01" {
        return None;
    }
    let (headers, size, count) = (long(32)?, half(54)?, half(56)?);
    let mut end = headers.checked_add(usize::from(size) * usize::from(count))?;
    for i in 0..usize::from(count) {
        let header = headers + i * usize::from(size);
        if word(header)? == PT_LOAD {
            end = end.max(long(header + 8)?.checked_add(long(header + 32)?)?);
        }
    }
    let mut loaded = file.get(..end)?.to_vec();
    loaded[40..48].fill(0); // e_shoff
    loaded[60..64].fill(0); // e_shnum, e_shstrndx
    Some(loaded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_lies_beside_the_rust_library_and_only_there() {
        let found = |args: &[&str]| beside_the_crate(args.iter().map(|arg| arg.to_string()));
        let library = Some(PathBuf::from("/t/deps/librushmem_host.so"));
        assert_eq!(found(&["rustc", "--extern", "rushmem_host=/t/deps/librushmem_host-1.rlib"]), library);
        assert_eq!(found(&["--extern=priv:rushmem_host=/t/deps/librushmem_host-1.rlib"]), library);
        assert_eq!(found(&["--extern", "rushmem_host=/t/deps/librushmem_host-1.rmeta"]), None);
        assert_eq!(found(&["--extern", "my_rushmem_host=/t/deps/libmy_rushmem_host-1.rlib"]), None);
        assert_eq!(found(&["--extern", "other=/t/deps/libother.rlib"]), None);
    }

    #[test]
    fn what_is_cut_off_is_not_loaded() {
        let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let cut = loadable(&own).unwrap();
        assert!(cut.len() < own.len() * 3 / 4, "{} of {} bytes", cut.len(), own.len());
        assert_eq!(cut[64..], own[64..cut.len()]);
        // Cut again, nothing more goes.
        assert_eq!(loadable(&cut).unwrap(), cut);
        assert!(loadable(&own[..200]).is_none() && loadable(b"#!/bin/sh").is_none());
    }
    #[test]
    fn a_file_is_left_whole_with_the_librarys_time_and_one_that_is_right_stays() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join(LIBRARY);
        let changed = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
        let (first, second) = (vec![1_u8; 3 << 20], vec![2_u8; 5 << 20]);
        leave(&file, &first, changed).unwrap();
        assert_eq!(std::fs::metadata(&file).unwrap().modified().unwrap(), changed);
        let inode = |file: &Path| std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(file).unwrap());
        let before = inode(&file);
        leave(&file, &first, changed).unwrap();
        assert_eq!(inode(&file), before, "a file that was right was written again");

        // Others write while one reads.
        let done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 0..20 {
                    leave(&file, if round % 2 == 0 { &second } else { &first }, changed).unwrap();
                }
                done.store(true, std::sync::atomic::Ordering::Relaxed);
            });
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                let read = std::fs::read(&file).unwrap();
                assert!(read == first || read == second, "{} bytes", read.len());
            }
        });
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "something was left beside it");
    }
}
