//! Programs that were copied to a folder of their own, as `cargo install` and people do: they carry their
//! runtime, find it whatever lies around them, and a C library in them shares it (that one is in
//! `c_abi/one_runtime.rs`).

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rushmem_test_support::programs::{command, copied, example, run, rushmem_run, Ended};

const LIMIT: Duration = Duration::from_secs(60);

/// A folder with an example and the launcher in it, and nothing else.
fn folder() -> (tempfile::TempDir, PathBuf, PathBuf) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let copy = |from: &Path, name: &str| {
        let to = folder.path().join("bin").join(name);
        copied(from, &to);
        to
    };
    std::fs::create_dir(folder.path().join("bin")).expect("a folder");
    let hello = copy(&example("hello"), "hello");
    let launcher = copy(Path::new(rushmem_run(2, "").get_program()), "rushmem-run");
    (folder, hello, launcher)
}

fn two_pes(launcher: &Path, hello: &Path) -> Command {
    let mut command = command(launcher);
    command.args(["-n", "2", "--"]).arg(hello);
    command
}

fn two_came(job: &Ended) {
    assert_eq!(job.stdout.matches("hello from PE ").count(), 2, "{job}");
}

#[test]
fn a_copied_program_and_launcher_run_with_nothing_beside_them() {
    let (_folder, hello, launcher) = folder();
    let mut job = two_pes(&launcher, &hello);
    // Nothing is written to a home either.
    job.env("HOME", "/nonexistent").env_remove("XDG_CACHE_HOME").env_remove("LD_LIBRARY_PATH");
    two_came(&run(&mut job, LIMIT).ok());
}

#[test]
fn a_library_of_another_release_that_lies_around_is_passed_over_but_not_one_that_the_user_names() {
    let (folder, hello, launcher) = folder();
    // An installation into which the program was copied: its library speaks another version of the ABI.
    let lib = folder.path().join("lib");
    std::fs::create_dir(&lib).expect("a folder");
    let (source, other) = (folder.path().join("other.c"), lib.join("librushmem_host.so"));
    std::fs::write(&source, "unsigned rushmem_abi_version(void) { return 1000000; }\n")
        .expect("it can be written");
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-Wl,-soname,librushmem_host.so", "-o"]).arg(&other).arg(&source);
    match cc.output() {
        Ok(made) => assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr)),
        Err(e) => return eprintln!("SKIP a library of another release: no cc: {e}"),
    }
    two_came(&run(&mut two_pes(&launcher, &hello), LIMIT).ok());

    let named = run(two_pes(&launcher, &hello).env("RUSHMEM_HOST_LIB", &other), LIMIT);
    assert!(!named.status.success() && named.stderr.contains("1000000"), "{named}");
}
