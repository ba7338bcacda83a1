//! The examples, without a GPU: nvcc compiles them, and a stand-in for CUDA's runtime
//! (tests/c/cuda_runtime.c) has the CPU device run their kernels. Their start, all that the host calls and
//! what they compare is as on GPUs, where the bundle's group `nvshmem_examples` runs them.
//!
//! RUSHMEM_TEST_ROUNDS=all takes each of them; else it is one.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rushmem_nvshmem::PREFIX;

use crate::common::nvcc::{nvcc, quickly, whole};
use crate::common::{each_is_well, here, mpirun, ready, said, Program};

/// All but that of MPI.
const EXAMPLES: [&str; 7] =
    ["signal_ring", "shift", "groups", "on_stream", "collective", "teams", "own_memory"];

fn some() -> &'static [&'static str] {
    &EXAMPLES[..if whole() { EXAMPLES.len() } else { 1 }]
}

fn done(command: &mut Command) {
    let out = command.output().expect("it runs");
    assert!(out.status.success(), "{command:?}\n{}", said(&out));
}

fn source(name: &str) -> PathBuf {
    here().join("examples").join(format!("{name}.cu"))
}

/// A program for the CPU device, linked by `linker`, with `options` for the compilation. nvcc stops at PTX,
/// which nobody runs here.
pub(crate) fn compiled(nvcc: &Path, source: &Path, linker: &str, options: &[String]) -> Program {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let at = |name: &str| dir.path().join(name);
    let include = format!("-I{PREFIX}/include");
    let mut cuda = Command::new(nvcc);
    cuda.args(["-std=c++17", "-Werror", "all-warnings", "-gencode", "arch=compute_90,code=compute_90", "-c"]);
    cuda.args(quickly(nvcc)).args(options).arg(&include).arg("-I").arg(here().join("../../device/include"));
    done(cuda.arg(source).arg("-o").arg(at("program.o")));
    let mut cc = Command::new("cc");
    cc.args(["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-c", &include, "-I"]);
    cc.arg(here().join("../../host/runtime/include")).arg(here().join("tests/c/cuda_runtime.c"));
    done(cc.arg("-o").arg(at("cuda_runtime.o")));
    let lib = format!("{PREFIX}/lib");
    let mut link = Command::new(linker);
    link.arg("-o").arg(at("program")).arg(at("program.o")).arg(at("cuda_runtime.o"));
    link.args(["-L", &lib, "-lnvshmem_host", "-lrushmem_host", "-lstdc++", &format!("-Wl,-rpath,{lib}")]);
    done(&mut link);
    let path = at("program");
    Program::at(dir, path)
}

/// How the stand-in finds an example's kernels, and where they run.
fn settings(name: &str) -> [(&'static str, String); 3] {
    let include = format!("{PREFIX}/include");
    [
        ("KERNELS", source(name).display().to_string()),
        ("KERNELS_INCLUDE", include),
        ("RUSHMEM_DEVICE", "cpu".into()),
    ]
}

#[test]
fn examples_run_by_each_start() {
    let test = "examples_run_by_each_start";
    let Some(nvcc) = nvcc(test) else { return };
    if !ready(test) {
        return;
    }
    for name in some() {
        let program = compiled(&nvcc, &source(name), "cc", &[]);
        let with = settings(name);
        let with: Vec<(&str, &str)> = with.iter().map(|(name, value)| (*name, value.as_str())).collect();
        for pes in if whole() { 1..=4 } else { 3..=3 } {
            program.all_well(pes, &with, &[]);
        }
        by_unique_id(&program, &with);
        if whole() {
            program.all_well(2, &[&with[..], &[("RUSHMEM_PES_PER_NODE", "1")]].concat(), &[]);
        }
        if let Some(mut run) = mpirun(test, 2) {
            let out = run.envs(with.iter().copied()).arg(program.path()).output();
            each_is_well(&out.expect("coreutils are here"), 2, &with);
        }
    }
}

/// Processes that nothing but a file connects.
fn by_unique_id(program: &Program, settings: &[(&str, &str)]) {
    let file = program.dir().join("id");
    let file = file.to_str().expect("a path of ours is UTF-8");
    let start = |rank: &str| {
        let mut run = program.alone(&["--id", rank, "2", file]);
        run.envs(settings.iter().copied()).stdout(Stdio::piped()).stderr(Stdio::piped());
        run.spawn().expect("timeout runs")
    };
    for process in ["0", "1"].map(start) {
        let out = process.wait_with_output().expect("it ends");
        assert!(out.status.success() && said(&out).contains("all well"), "{}: {}", out.status, said(&out));
    }
}

/// By a communicator, and by a unique ID that MPI carries.
#[test]
fn the_example_of_mpi_runs() {
    let test = "the_example_of_mpi_runs";
    if !whole() {
        return eprintln!("SKIP {test}: RUSHMEM_TEST_ROUNDS=all runs it");
    }
    let (Some(nvcc), Some(_)) = (nvcc(test), mpirun(test, 2)) else { return };
    if !ready(test) {
        return;
    }
    let asked = Command::new("mpicc.openmpi").arg("--showme:incdirs").output().expect("it is there");
    let folders = String::from_utf8_lossy(&asked.stdout).into_owned();
    let options: Vec<String> = folders.split_whitespace().map(|folder| format!("-I{folder}")).collect();
    let program = compiled(&nvcc, &source("by_mpi"), "mpicc.openmpi", &options);
    for arguments in [&[] as &[&str], &["--id"]] {
        let mut run = mpirun(test, 3).expect("it was there before");
        let out = run.envs(settings("by_mpi")).arg(program.path()).args(arguments).output();
        each_is_well(&out.expect("coreutils are here"), 3, &[]);
    }
}
