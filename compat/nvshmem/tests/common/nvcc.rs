//! The nvcc of tests, and its options.

use std::path::{Path, PathBuf};
use std::process::Command;

/// An nvcc that is there: nothing is fetched here.
pub(crate) fn nvcc(test: &str) -> Option<PathBuf> {
    let wheels = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.build/cuda/nvidia/cu13/bin/nvcc");
    let asked = std::env::var_os("RUSHMEM_NVCC").map(PathBuf::from);
    let found = asked
        .into_iter()
        .chain([wheels, "nvcc".into()])
        .find(|nvcc| Command::new(nvcc).arg("--version").output().is_ok_and(|out| out.status.success()));
    if found.is_none() {
        eprintln!("SKIP {test}: no nvcc (scripts/cuda-toolchain fetches one)");
    }
    found
}

/// Whether everything is asked for, as `make test-all` does.
pub(crate) fn whole() -> bool {
    std::env::var_os("RUSHMEM_TEST_ROUNDS").is_some()
}

/// Compiles as quickly as the compiler can, where it is only to take the source. Compilers before CUDA 12.9
/// do not know how.
pub(crate) fn quickly(nvcc: &Path) -> Option<&'static str> {
    const QUICK: &str = "--Ofast-compile=max";
    let help = Command::new(nvcc).arg("--help").output().expect("it has run before");
    (!whole() && String::from_utf8_lossy(&help.stdout).contains("--Ofast-compile")).then_some(QUICK)
}
