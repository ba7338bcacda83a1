//! Kernels that nvcc has compiled, loaded as machine code: a cubin, a fatbin and PTX of a whole program, and
//! code linked with the device library, without and with link-time optimisation.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::*;

const KERNEL: &str = r#"
#include <rushmem/rushmem.cuh>
/* Everybody tells its right-hand PE who it is, and waits for the left-hand one's word. */
extern "C" __global__ void meet(uint64_t *words) {
  const int me = rushmem::my_pe(), n = rushmem::n_pes();
  rushmem::p(words, static_cast<uint64_t>(me) + 100, (me + 1) % n);
  rushmem::wait_until(words, rushmem::cmp::ne, 0);
  rushmem::barrier_all();
  words[1] = static_cast<uint64_t>(n);
}
"#;

/// The source tree, or what of it came along with an archive of the tests.
fn sources() -> PathBuf {
    std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into()).into()
}

/// The folder of librushmem_device.a: a bundle's, or where `make device` leaves it.
fn library() -> Option<PathBuf> {
    let built = std::env::current_exe().expect("a test knows its file");
    let places = [sources().join("../../lib"), sources().join("target/device")];
    let places = places.into_iter().chain(built.ancestors().nth(3).map(|target| target.join("device")));
    places.into_iter().find(|place| place.join("librushmem_device.a").exists())
}

/// Runs nvcc there. What it says is shown where it fails.
#[track_caller]
fn nvcc(folder: &Path, args: &[&str]) {
    let include = format!("-I{}", sources().join("device/include").display());
    let done =
        Command::new("nvcc").current_dir(folder).args(["-std=c++17", &include]).args(args).output().unwrap();
    assert!(done.status.success(), "nvcc {args:?}:\n{}", String::from_utf8_lossy(&done.stderr));
}

/// Names, and files made in `folder`.
fn compile(folder: &Path, arch: &str) -> Vec<(&'static str, PathBuf)> {
    std::fs::write(folder.join("meet.cu"), KERNEL).unwrap();
    let (arch, number) = (format!("-arch=sm_{arch}"), arch);
    let compute = format!("-arch=compute_{number}");
    let mut made = Vec::new();
    for (name, form, arch) in
        [("a cubin", "-cubin", &arch), ("a fatbin", "-fatbin", &arch), ("PTX", "-ptx", &compute)]
    {
        let out = format!("meet{form}");
        nvcc(folder, &[arch, form, "meet.cu", "-o", &out]);
        made.push((name, folder.join(out)));
    }
    let Some(library) = library() else {
        skip("kernels_that_nvcc_compiled_are_loaded, linked", "no librushmem_device.a here (make device)");
        return made;
    };
    let library = format!("-L{}", library.display());
    for (name, options) in [("linked", &[][..]), ("linked with -dlto", &["-dlto"])] {
        let object = [&[arch.as_str(), "-rdc=true", "-dc", "meet.cu", "-o", "meet.o"], options].concat();
        nvcc(folder, &object);
        let out = format!("linked{}", made.len());
        let link = [
            &[arch.as_str(), "-dlink", "-cubin", "meet.o", &library, "-lrushmem_device", "-o", &out],
            options,
        ];
        nvcc(folder, &link.concat());
        made.push((name, folder.join(out)));
    }
    made
}

#[test]
fn kernels_that_nvcc_compiled_are_loaded() {
    let test = "kernels_that_nvcc_compiled_are_loaded";
    if !on_gpus() {
        // The CPU device runs sources.
        let world = World::init().unwrap();
        let error = world.load_module("meet.cubin", b"\x7fELF").map(drop).unwrap_err();
        assert_eq!(error.code(), ErrorCode::Unsupported, "{error}");
        assert!(error.message().contains("meet.cubin"), "{error}");
        return world.finalize().unwrap();
    }
    if Command::new("nvcc").arg("--version").output().is_err() {
        return skip(test, "no nvcc in PATH");
    }
    let folder = tempfile::tempdir().unwrap();
    // In the test's process alone: its PEs are given the files' names.
    let files = std::env::var("FILES").unwrap_or_else(|_| {
        let (major, minor) = rushmem::gpus().unwrap()[0].capability;
        let made = compile(folder.path(), &format!("{major}{minor}"));
        made.iter().map(|(name, path)| format!("{name}={}", path.display())).collect::<Vec<_>>().join(";")
    });
    testing::pes(2).env("FILES", &files).threads(|world| {
        for (name, path) in files.split(';').filter_map(|entry| entry.split_once('=')) {
            let module = world.load_module(name, &std::fs::read(path).unwrap()).unwrap();
            assert!(
                module.kernel_names().iter().any(|kernel| kernel == "meet"),
                "{:?}",
                module.kernel_names()
            );
            let words = world.alloc::<u64>(2).unwrap();
            // SAFETY: two words, of which each PE writes the first of the other and the second of its own.
            unsafe { module.kernel("meet").unwrap().launch(Launch::new(1, 1), (&words,)) }.unwrap();
            world.synchronize().unwrap();
            assert_eq!(words.to_vec().unwrap(), [u64::from(world.left().number()) + 100, 2], "{name}");
            world.barrier_all().unwrap();
            module.unload().unwrap();
        }
    });
}
