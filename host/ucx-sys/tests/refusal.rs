//! What is said where there is no UCX to be had, or one that is not good enough. Nothing here loads a real
//! one.

use std::path::{Path, PathBuf};
use std::process::Command;
use ucx_sys::{Search, Ucp};

/// A search for this file or folder alone.
fn named(path: impl Into<PathBuf>) -> Search {
    Search { explicit: Some(path.into()), loader: true, ..Search::default() }
}

fn refusal(search: &Search) -> String {
    match Ucp::load_from(search) {
        Ok(ucp) => panic!("{search:?} gave UCX {} of {}", ucp.version(), ucp.path().display()),
        Err(error) => error.to_string(),
    }
}

/// A library that says to be UCX `major.minor` and has none of its other functions; `None` without a C
/// compiler.
fn fake(folder: &Path, major: u32, minor: u32) -> Option<PathBuf> {
    let (source, library) = (folder.join("fake.c"), folder.join("libucp.so.0"));
    let text = format!("void ucp_get_version(unsigned *a, unsigned *b, unsigned *c) {{ *a = {major}; *b = {minor}; *c = 1; }}");
    std::fs::write(&source, text).expect("a source file");
    let compiler = ["cc", "gcc", "clang"]
        .into_iter()
        .find(|name| Command::new(name).arg("--version").output().is_ok())?;
    let status = Command::new(compiler).args(["-shared", "-fPIC", "-o"]).args([&library, &source]).status();
    assert!(status.expect("the compiler").success());
    Some(library)
}

#[test]
fn a_path_that_is_not_there() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("nowhere");
    let text = refusal(&named(&path));
    assert!(text.contains(&format!("RUSHMEM_UCX_LIB={}: no such file or folder", path.display())), "{text}");
    for how in
        ["UCX 1.13 or newer", "apt-get install libucx0", "pip install libucx-cu13", "set RUSHMEM_UCX_LIB"]
    {
        assert!(text.contains(how), "{how:?} is not in: {text}");
    }
    // What was named is what was meant: no other place is tried behind the user's back.
    assert_eq!(text.lines().count(), 3, "{text}");
}

#[test]
fn a_folder_without_it() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let text = refusal(&named(folder.path()));
    assert!(text.contains("no libucp.so.0 in it"), "{text}");
}

#[test]
fn a_file_that_is_no_library() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("libucp.so.0");
    std::fs::write(&file, "not an ELF file, but long enough to have been one: ".repeat(10)).expect("a file");
    let text = refusal(&named(&file));
    assert!(text.contains(&format!("{}: ", file.display())) && text.contains("invalid ELF header"), "{text}");
}

#[test]
fn a_library_that_is_too_old_or_not_whole() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    if fake(folder.path(), 1, 12).is_none() {
        eprintln!("SKIP a_library_that_is_too_old_or_not_whole: no C compiler (cc, gcc, clang)");
        return;
    }
    let text = refusal(&named(folder.path()));
    assert!(text.contains("UCX 1.12.1 is too old; needed: 1.13.0 or newer"), "{text}");

    let folder = tempfile::tempdir().expect("a temporary folder");
    fake(folder.path(), 1, 20);
    let text = refusal(&named(folder.path()));
    assert!(text.contains("UCX 1.20.1 lacks ") && text.contains("ucp_put_nbx"), "{text}");
    assert!(!text.contains("ucp_get_version,"), "{text}");
}

#[test]
fn every_place_is_told_in_its_order() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let package = folder.path().join("libucp.so.0");
    std::fs::write(&package, "").expect("a file");
    let text = refusal(&Search { packages: vec![package.clone()], ..Search::default() });
    assert!(text.contains(&package.display().to_string()), "{text}");

    let sites = vec![PathBuf::from("one/site-packages"), PathBuf::from("two/site-packages")];
    let text = refusal(&Search { sites, ..Search::default() });
    assert!(text.contains("libucx-cu12: none in one/site-packages, two/site-packages"), "{text}");
}
