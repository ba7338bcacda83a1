//! Compiles this crate's kernel while the crate is built: with a C++ compiler, as the CPU device will, so
//! that a mistake ends the build; with nvcc, where there is one, to machine code, linked with the device
//! library.

use std::env;
use std::path::PathBuf;
use std::process::Command;

const KERNEL: &str = "src/double.cu";

fn main() {
    println!("cargo::rerun-if-changed={KERNEL}");
    println!("cargo::rustc-check-cfg=cfg(machine_code)");
    // rushmem's build script says all of these: https://docs.rs/crate/rushmem, build.rs.
    let told = |name: &str| env::var(format!("DEP_RUSHMEM_{name}")).ok();
    let include = told("INCLUDE").expect("this crate depends on rushmem itself");
    let cpu = told("CPU_INCLUDE").expect("this crate depends on rushmem itself");
    let out = PathBuf::from(env::var("OUT_DIR").expect("cargo sets it"));

    let compiler = env::var("CXX").unwrap_or_else(|_| "c++".to_owned());
    let words = ["-std=c++17", "-fsyntax-only", "-Wall", "-Werror", "-DRUSHMEM_CPU", "-x", "c++", "-include", "rushmem_cpu/cuda.h"];
    run(Command::new(compiler).args(words).args(["-I", &include, "-I", &cpu, "-I", &format!("{cpu}/cuda_names")]).arg(KERNEL));

    if let (Some(nvcc), Some(library)) = (told("NVCC"), told("DEVICE_LIBRARY")) {
        let (object, code) = (out.join("double.o"), out.join("double.cubin"));
        let common = ["-std=c++17", "-arch=sm_90", "-rdc=true"];
        run(Command::new(&nvcc).args(common).args(["-I", &include, "-dc", KERNEL, "-o"]).arg(&object));
        let link = ["-arch=sm_90", "-dlink", "-cubin", "-L", &library];
        run(Command::new(&nvcc).args(link).arg(&object).args(["-lrushmem_device", "-o"]).arg(&code));
        println!("cargo::rustc-cfg=machine_code");
    }
    println!("cargo::rustc-env=RUSHMEM_BUILT_AGAINST={}", told("VERSION").expect("this crate depends on rushmem itself"));
    let c = PathBuf::from(told("HOST_INCLUDE").expect("this crate depends on rushmem itself"));
    assert!(c.join("rushmem.h").is_file(), "{}: no rushmem.h", c.display());
}

fn run(command: &mut Command) {
    let done = command.status().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(done.success(), "{command:?} ended with {done}");
}
