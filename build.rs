//! Tells the build scripts of crates that depend on this one where headers and device library are, so that
//! they can compile kernels while they are built (docs/guide/kernels.md). Cargo hands each value on as an
//! environment variable:
//!
//! | variable | what |
//! |---|---|
//! | `DEP_RUSHMEM_INCLUDE` | the folder with `rushmem/rushmem.cuh`: what a kernel includes |
//! | `DEP_RUSHMEM_CPU_INCLUDE` | the folder with `rushmem_cpu/cuda.h`: CUDA's words for a C++ compiler, or for clangd |
//! | `DEP_RUSHMEM_HOST_INCLUDE` | the folder with `rushmem.h`: the C ABI |
//! | `DEP_RUSHMEM_VERSION` | of this crate |
//! | `DEP_RUSHMEM_NVCC` | the nvcc that this build found; not there where it found none |
//! | `DEP_RUSHMEM_DEVICE_LIBRARY` | the folder with `librushmem_device.a`; with the feature `device-library` and an nvcc |
//!
//! A build script also gives the crate a folder of its own (`OUT_DIR`), in which the macro
//! `rushmem_embed::runtime!` leaves what it embeds.

use std::path::Path;
use std::process::Command;
use std::{env, fs};

/// What another crate's build script has told this one.
fn told(name: &str) -> Option<String> {
    println!("cargo::rerun-if-env-changed={name}");
    env::var(name).ok().filter(|value| !value.is_empty())
}

fn metadata(name: &str, value: impl std::fmt::Display) {
    println!("cargo::metadata={name}={value}");
}

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    metadata("version", env::var("CARGO_PKG_VERSION").expect("cargo sets it"));
    metadata("include", rushmem_device::INCLUDE);
    // The runtime's crate knows the rest: only a crate's direct dependents see it.
    for (ours, theirs) in
        [("host_include", "DEP_RUSHMEM_HOST_INCLUDE"), ("cpu_include", "DEP_RUSHMEM_HOST_CPU_INCLUDE")]
    {
        metadata(ours, told(theirs).expect("rushmem-host's build script says it"));
    }
    let nvcc = told("DEP_RUSHMEM_HOST_NVCC");
    if let Some(nvcc) = &nvcc {
        metadata("nvcc", nvcc);
    }
    if env::var_os("CARGO_FEATURE_DEVICE_LIBRARY").is_none() {
        return;
    }
    match nvcc
        .ok_or_else(|| "no nvcc 12.8 or newer (RUSHMEM_NVCC, PATH, CUDA_HOME)".to_owned())
        .and_then(library)
    {
        Ok(folder) => metadata("device_library", folder),
        // As docs.rs, or a machine for the CPU device alone: a build script that needs it misses
        // DEP_RUSHMEM_DEVICE_LIBRARY.
        Err(why) => println!("cargo::warning=no librushmem_device.a: {why}"),
    }
}

/// Builds `librushmem_device.a`; its folder.
fn library(nvcc: String) -> Result<String, String> {
    let device = Path::new(rushmem_device::ROOT);
    for path in ["src", "include", "library"] {
        println!("cargo::rerun-if-changed={}", device.join(path).display());
    }
    let folder = Path::new(&env::var_os("OUT_DIR").expect("cargo sets it")).join("device");
    fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut script = Command::new("bash");
    script.arg(device.join("library")).arg(&folder).env("NVCC", nvcc);
    let done = script.output().map_err(|error| format!("bash device/library: {error}"))?;
    if !done.status.success() {
        let text = String::from_utf8_lossy(&[done.stdout, done.stderr].concat()).trim().replace('\n', "; ");
        return Err(format!("device/library ended with {}: {text}", done.status));
    }
    Ok(folder.display().to_string())
}
