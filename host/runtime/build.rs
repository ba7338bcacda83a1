//! Gives librushmem_host.so its name inside (the soname), by which the loader knows that it is already there,
//! and the device library that it carries for GPUs, where there is an nvcc to build it.
//!
//! One process must have one runtime, whichever part of it loads it: the Rust API by a path, a C program by
//! `-lrushmem_host`, a C library of a Rust program by its own dependency. With a soname, a library that needs
//! `librushmem_host.so` is bound to the copy that the process has loaded, whatever path that came from;
//! without one, the link line's path would be recorded and a second copy loaded. The name carries no version:
//! the file that Cargo builds has none, and what a version in the name would say is said better by the
//! handshake (`RUSHMEM_ABI_VERSION`), which prints both paths.
//!
//! The device library is `device/library`'s work, a second or two. It is an improvement, not a need: built
//! without nvcc (or with RUSHMEM_NVCC=none) the runtime carries nothing and compiles kernels, its own too,
//! from the headers alone (`gpu/compile.rs`). So nothing is fetched here, and nothing that goes wrong with
//! nvcc ends the build.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// What `device/library --embedded` makes.
const CARRIED: [&str; 2] = ["rushmem_device.ltoir.fatbin", "service.fatbin"];

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,librushmem_host.so");

    // For the root crate's build script, which tells the build scripts of programs.
    println!("cargo::metadata=include={}", Path::new(env!("CARGO_MANIFEST_DIR")).join("include").display());
    let cpu = env::var("DEP_RUSHMEM_DEVICE_CPU_INCLUDE").expect("rushmem-device-cpu's build script says it");
    println!("cargo::metadata=cpu_include={cpu}");

    let device = Path::new(rushmem_device::ROOT);
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    for name in ["RUSHMEM_NVCC", "CUDA_HOME", "RUSHMEM_CUDA_DIR"] {
        println!("cargo:rerun-if-env-changed={name}");
    }
    // Missing files would have cargo run this on each build, and so build the runtime anew: all of these
    // exist.
    for path in ["src", "include", "library"] {
        println!("cargo:rerun-if-changed={}", device.join(path).display());
    }
    let version = match nvcc(device) {
        Some((nvcc, version)) => {
            println!("cargo:rerun-if-changed={}", nvcc.display());
            println!("cargo::metadata=nvcc={}", nvcc.display());
            build(device, &nvcc, &out).map(|()| version).unwrap_or_else(|why| {
                println!("cargo:warning=no device library in the runtime: {why}");
                String::new()
            })
        }
        None => String::new(),
    };
    if version.is_empty() {
        for name in CARRIED {
            fs::write(out.join(name), []).expect("cargo made OUT_DIR for us to write to");
        }
    }
    println!("cargo:rustc-env=RUSHMEM_CARRIED_CUDA={version}");
}

/// The first nvcc that is new enough, and its version: what RUSHMEM_NVCC says and nothing else, or else one
/// on PATH, in the toolkit, or among the wheels that `scripts/cuda-toolchain` has fetched before.
fn nvcc(device: &Path) -> Option<(PathBuf, String)> {
    let set = |name: &str| env::var_os(name).filter(|value| !value.is_empty());
    if let Some(asked) = set("RUSHMEM_NVCC") {
        let found = usable(PathBuf::from(&asked));
        if found.is_none() && asked != "none" {
            println!("cargo:warning=RUSHMEM_NVCC={} is no nvcc 12.8 or newer", asked.to_string_lossy());
        }
        return found;
    }
    let on_path = env::split_paths(&set("PATH").unwrap_or_default()).collect::<Vec<_>>();
    let toolkit = set("CUDA_HOME").map_or_else(|| PathBuf::from("/usr/local/cuda"), PathBuf::from);
    let fetched = set("RUSHMEM_CUDA_DIR").map_or_else(|| device.join("../.build/cuda"), PathBuf::from);
    let rest = [toolkit.join("bin"), fetched.join("nvidia/cu13/bin")];
    on_path.into_iter().chain(rest).map(|dir| dir.join("nvcc")).filter(|nvcc| nvcc.is_file()).find_map(usable)
}

/// The nvcc and its version, `13.0`, if that is 12.8 or newer: the first one that knows sm_100.
fn usable(nvcc: PathBuf) -> Option<(PathBuf, String)> {
    let said = Command::new(&nvcc).arg("--version").output().ok()?;
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    let version = said.split_once("release ")?.1.split(',').next()?.to_owned();
    let (major, minor) = version.split_once('.')?;
    let number = (major.parse::<u32>().ok()?, minor.parse::<u32>().ok()?);
    (number >= (12, 8)).then_some((nvcc, version))
}

fn build(device: &Path, nvcc: &Path, out: &Path) -> Result<(), String> {
    let mut script = Command::new("bash");
    script.arg(device.join("library")).arg("--embedded").arg(out).env("NVCC", nvcc);
    let done = script.output().map_err(|e| format!("bash device/library: {e}"))?;
    if done.status.success() {
        return Ok(());
    }
    let text = [done.stdout, done.stderr].concat();
    let text = String::from_utf8_lossy(&text).trim().replace('\n', "; ");
    Err(format!("{} failed ({}): {text}", nvcc.display(), done.status))
}
