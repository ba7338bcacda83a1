//! The OpenSHMEM libraries of this machine: ours, which lies beside this program, and every other one whose
//! `oshcc` and `oshrun` are on the path.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::TURN_LIMIT_S;
use crate::args::ShmemArgs;
use crate::job::{Failure, Result};

const PROGRAM: &str = include_str!("program.c");

/// A library, and the program that was built with it.
pub(super) struct Library {
    pub(super) name: String,
    launcher: PathBuf,
    options: &'static [&'static str],
    program: PathBuf,
}

/// Ours: in an installation its tools lie beside this program, in cargo's folder in one of their own.
pub(super) fn ours(folder: &Path) -> Result<Library> {
    let own = std::env::current_exe()?;
    let places = [own.with_file_name("oshcc"), own.with_file_name("openshmem").join("bin/oshcc")];
    let Some(compiler) = places.into_iter().find(|place| place.exists()) else {
        return Err(Failure::new(
            "there is no oshcc beside rushmem-perf: cargo build -p rushmem-openshmem makes it",
        ));
    };
    build(folder, "rushmem", &compiler, &[])
}

pub(super) fn others(folder: &Path) -> Vec<Library> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut found: Vec<Library> = Vec::new();
    for compiler in std::env::split_paths(&path).map(|folder| folder.join("oshcc")) {
        // What a compiler links with tells whose it is.
        let Ok(output) = Command::new(&compiler).arg("--showme").stdin(Stdio::null()).output() else {
            continue;
        };
        if !String::from_utf8_lossy(&output.stdout).contains("-loshmem") {
            continue;
        }
        const AS_ROOT: &[&str] = &["--oversubscribe", "--allow-run-as-root"];
        match build(folder, "Open MPI", &compiler, AS_ROOT) {
            Ok(library) if found.iter().all(|other| other.name != library.name) => found.push(library),
            Ok(_) => {}
            Err(why) => eprintln!("rushmem-perf: Open MPI is left out: {why}"),
        }
    }
    if found.is_empty() {
        eprintln!("rushmem-perf: no other OpenSHMEM on this machine (apt install libopenmpi-dev)");
    }
    found
}

fn build(folder: &Path, name: &str, compiler: &Path, options: &'static [&'static str]) -> Result<Library> {
    let source = folder.join("program.c");
    std::fs::write(&source, PROGRAM)?;
    let program = folder.join(name.replace(' ', "-"));
    let mut command = Command::new(compiler);
    // Open MPI's header marks as deprecated what 1.5 has other names for; both have it.
    command.args(["-O2", "-std=gnu11", "-Wno-deprecated-declarations", "-o"]).arg(&program).arg(&source);
    let output = command.output().map_err(|error| Failure::new(format!("oshcc: {error}")))?;
    if !output.status.success() {
        return Err(Failure::new(format!("oshcc: {}", String::from_utf8_lossy(&output.stderr).trim())));
    }
    Ok(Library { name: name.to_owned(), launcher: compiler.with_file_name("oshrun"), options, program })
}

impl Library {
    /// A run of the program with `pes` PEs.
    pub(super) fn job(&self, args: &ShmemArgs, pes: u32, samples: u32) -> Command {
        let join = |sizes: &[u64]| sizes.iter().map(u64::to_string).collect::<Vec<_>>().join(",");
        // A launcher that hangs is ended; coreutils are where a compiler is.
        let mut command = Command::new("timeout");
        command.arg(TURN_LIMIT_S.to_string()).arg(&self.launcher).args(self.options);
        command.args(["-np", &pes.to_string()]).arg(&self.program);
        command.args([pes.to_string(), samples.to_string(), join(&args.sizes), join(&args.collective_sizes)]);
        command.args(args.corrupt.then_some("corrupt")).env("RUSHMEM_DEVICE", "cpu").stdin(Stdio::null());
        command
    }
}
