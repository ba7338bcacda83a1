//! Kernels compiled for GPUs that the machine lacks (`RUSHMEM_COMPILE_FOR`).

use std::path::{Path, PathBuf};
use std::time::Duration;

use rushmem::testing::{self, Exit};
use rushmem::{Pe, Prepared, Source, Sum, World};

const RING: &str = r#"
#include <rushmem/rushmem.cuh>
extern "C" __global__ void ring(uint64_t *sig, uint64_t *data, uint64_t value) {
  int right = (rushmem::my_pe() + 1) % rushmem::n_pes();
  rushmem::put_signal<rushmem::block>(data + 1, data, 1, sig, value, rushmem::signal::set, right);
}
"#;
/// The CPU device's compiler has this header, NVRTC has not.
const OF_THE_HOST: &str = "#include <vector>\nextern \"C\" __global__ void nothing() {}";

/// Where an NVRTC is: the one asked for, or that of scripts/cuda-toolchain.
fn nvrtc(test: &str) -> Option<PathBuf> {
    let fetched = Path::new(env!("CARGO_MANIFEST_DIR")).join(".build/cuda/nvidia/cu13/lib");
    let found = std::env::var_os("RUSHMEM_NVRTC").map(PathBuf::from).or(fetched.is_dir().then_some(fetched));
    if found.is_none() {
        eprintln!("SKIP {test}: no NVRTC (RUSHMEM_NVRTC, or scripts/cuda-toolchain)");
    }
    found
}

/// The code in the cache, of all kinds of GPUs.
fn cubins(cache: &Path) -> Vec<Vec<u8>> {
    let files = files(cache);
    files
        .iter()
        .filter(|path| path.ends_with("kernel.cubin"))
        .map(|path| std::fs::read(path).unwrap())
        .collect()
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

/// A job of one PE on the CPU device that loads `source`, and how it ended and what it said; `None`
/// in the process of another call's PE.
fn load(source: &'static str, settings: &[(&str, &str)]) -> Option<(Exit, String)> {
    let mut pes = testing::pes(1).env("RUSHMEM_DEVICE", "cpu");
    for (name, value) in settings {
        pes = pes.env(name, value);
    }
    let mut ended = None;
    pes.supervise(
        move |_| {
            let world = World::init().unwrap();
            if let Err(e) =
                world.load(Source::text(source).name("ahead.cu").gpu_option("-lineinfo").cpu_option("-g"))
            {
                panic!("{e}");
            }
            world.finalize().unwrap();
        },
        |job| {
            let outcome = job.outcome(Pe::new(0));
            ended = Some((outcome.exit, outcome.stderr.clone()));
        },
    );
    ended
}

#[test]
fn code_for_each_kind_of_gpu_is_left_in_the_cache() {
    let Some(nvrtc) = nvrtc("code_for_each_kind_of_gpu_is_left_in_the_cache") else { return };
    let folder = tempfile::tempdir().unwrap();
    let cache = folder.path().to_str().unwrap();
    let settings = [("RUSHMEM_CACHE_DIR", cache), ("RUSHMEM_NVRTC", nvrtc.to_str().unwrap())];
    for _ in 0..2 {
        let settings = [&settings[..], &[("RUSHMEM_COMPILE_FOR", "sm_90, sm_100")]].concat();
        let Some((exit, said)) = load(RING, &settings) else { continue };
        assert_eq!(exit, Exit::Done, "{said}");
        let mut kinds: Vec<u8> = cubins(folder.path()).iter().map(|code| architecture(code)).collect();
        kinds.sort_unstable();
        assert_eq!(kinds, [90, 100]);
    }
}

/// Of an ELF file for a GPU: in the second byte of `e_flags`, as `cuobjdump -elf` shows.
fn architecture(code: &[u8]) -> u8 {
    assert!(code.starts_with(b"\x7fELF"));
    code[0x31]
}

/// A stream's collectives are kernels of the library's.
#[test]
fn code_of_collectives_on_streams_is_left_in_the_cache() {
    let Some(nvrtc) = nvrtc("code_of_collectives_on_streams_is_left_in_the_cache") else { return };
    let folder = tempfile::tempdir().unwrap();
    testing::pes(1)
        .timeout(Duration::from_secs(240))
        .env("RUSHMEM_DEVICE", "cpu")
        .env("RUSHMEM_CACHE_DIR", folder.path())
        .env("RUSHMEM_NVRTC", nvrtc)
        .env("RUSHMEM_COMPILE_FOR", "sm_90")
        .run(|world| {
            let (team, stream, x) = (world.team(), world.stream().unwrap(), world.alloc::<u32>(1).unwrap());
            stream.barrier(&team).unwrap();
            stream.fcollect(&team, &x, &x).unwrap();
            stream.synchronize().unwrap();
            team.prepare(&[Prepared::reduce::<u32, _>(Sum), Prepared::barrier()]).unwrap();
        });
    // A GPU launches one block of a barrier, and one or several of the others, though the CPU device has one.
    let code = cubins(folder.path());
    assert_eq!(code.iter().map(|code| architecture(code)).collect::<Vec<_>>(), [90; 1 + 2 + 2]);
}

#[test]
fn what_a_gpu_could_not_run_is_told_without_one() {
    let Some(nvrtc) = nvrtc("what_a_gpu_could_not_run_is_told_without_one") else { return };
    let folder = tempfile::tempdir().unwrap();
    let settings =
        [("RUSHMEM_CACHE_DIR", folder.path().to_str().unwrap()), ("RUSHMEM_NVRTC", nvrtc.to_str().unwrap())];
    if let Some((exit, said)) = load(OF_THE_HOST, &settings) {
        assert_eq!(exit, Exit::Done, "{said}");
    }
    let settings = [&settings[..], &[("RUSHMEM_COMPILE_FOR", "sm_90")]].concat();
    let Some((exit, said)) = load(OF_THE_HOST, &settings) else { return };
    assert_ne!(exit, Exit::Done, "{said}");
    for words in ["compiling for sm_90 (RUSHMEM_COMPILE_FOR)", "ahead.cu", "vector"] {
        assert!(said.contains(words), "{said}");
    }
}

#[test]
fn kinds_that_are_none_are_named() {
    for kinds in ["90", "sm_", "sm_9", "sm_90;sm_100", "sm_90,", "hopper"] {
        let Some((_, said)) = load(RING, &[("RUSHMEM_COMPILE_FOR", kinds)]) else { continue };
        assert!(said.contains(&format!("RUSHMEM_COMPILE_FOR={kinds}: expected")), "{said}");
    }
}
