//! What of CUDA kernels may use: a probe for each row of the guide's table (tests/kernels/cuda), which
//! says in its first comment what it uses, checks itself, and runs on either device. On the CPU device
//! the table must show what the probes find; `UPDATE_GUIDE=1 cargo test --test device features` writes
//! it. That they compile for GPUs is scripts/check-device's to see.

use std::path::Path;

use crate::*;
use rushmem::{ErrorCode, Source};

/// The page of the guide, and the lines between which the table stands.
const PAGE: &str = "docs/guide/cpu-device.md";
const BEGIN: &str = "<!-- features: UPDATE_GUIDE=1 cargo test --test device features -->\n";
const END: &str = "<!-- end of the features -->\n";

macro_rules! probes {
    ($($name:literal)*) => { [$(($name, include_str!(concat!("../kernels/cuda/", $name, ".cu")))),*] };
}
/// In the table's order.
const PROBES: &[(&str, &str)] = &probes! {
    "float16" "float8" "groups" "atomic" "barrier" "pipeline" "standard" "cub_blocks" "cub_warps" "warps" "vectors"
    "bits" "simd" "functions" "rounding" "clocks"
};

/// Threads of the probes' one block; each gets four random words, and leaves whether it is content.
const THREADS: usize = 64;

/// Whether the probe loads, and all of its threads are content.
fn works(world: &World, random: &mut Rng, name: &str, source: &str, headers: &[String]) -> bool {
    let source = headers.iter().fold(Source::text(source).name(format!("{name}.cu")), |source, folder| {
        source.option(format!("-I{folder}"))
    });
    let module = match world.load(source) {
        Ok(module) => module,
        Err(error) if error.code() == ErrorCode::Compile => {
            eprintln!("{name}: {error}");
            return false;
        }
        Err(error) => panic!("{name}: {error}"),
    };
    let words: Vec<u32> = (0..4 * THREADS).map(|_| random.below(u32::MAX as usize) as u32).collect();
    let (input, good) = (world.alloc::<u32>(words.len()).unwrap(), world.alloc::<u32>(4 * THREADS).unwrap());
    input.write(&words).unwrap();
    let probe = module.kernel("probe").unwrap();
    // SAFETY: a probe reads four words a thread, and writes as many at most.
    unsafe { probe.launch(Launch::new(1, THREADS as u32), (&input, &good)) }.unwrap();
    world.synchronize().unwrap_or_else(|error| panic!("{name}: {error}"));
    let good = good.to_vec().unwrap();
    assert_eq!(good[..THREADS], [1; THREADS], "{name}: the threads that are not content have no 1");
    true
}

#[test]
fn the_guide_says_what_of_cuda_kernels_may_use() {
    at_counts(&[1], |world, random| {
        let headers = if on_gpus() {
            let folder = Path::new("/usr/local/cuda/include");
            if !folder.join("cuda_fp8.h").exists() {
                return skip("features", "no CUDA headers for NVRTC in /usr/local/cuda");
            }
            [folder.to_owned(), folder.join("cccl")].map(|folder| folder.display().to_string()).to_vec()
        } else {
            Vec::new()
        };
        let mut table = String::from("| | CPU device | GPU (compiled for sm_90) |\n|---|---|---|\n");
        for (name, source) in PROBES {
            let comment: Vec<&str> = source.lines().map_while(|line| line.strip_prefix("// ")).collect();
            assert!(!comment.is_empty(), "{name}.cu does not begin with what it uses");
            let what = comment.join(" ");
            let works = works(world, random, name, source, &headers);
            assert!(works || !on_gpus(), "{name}.cu does not compile here");
            let cpu = if works { "yes" } else { "no: does not compile" };
            table += &format!("| {what} | {cpu} | yes |\n");
        }
        if !on_gpus() {
            compare(&table);
        }
    });
}

/// A probe in the folder that the list lacks would never run.
#[test]
fn every_probe_is_listed() {
    let Ok(folder) = std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kernels/cuda"))
    else {
        return skip("every_probe_is_listed", "no sources here, which a bundle lacks");
    };
    let files = folder.map(|entry| entry.expect("an entry of the folder").file_name());
    let mut files: Vec<String> = files.map(|name| name.to_string_lossy().into_owned()).collect();
    let mut listed: Vec<String> = PROBES.iter().map(|(name, _)| format!("{name}.cu")).collect();
    files.sort_unstable();
    listed.sort_unstable();
    assert_eq!(files, listed, "tests/kernels/cuda, and PROBES in tests/device/features.rs");
}

fn compare(table: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(PAGE);
    let Ok(page) = std::fs::read_to_string(&path) else {
        return skip("the table of features", "no guide here, which a bundle lacks");
    };
    let (before, rest) = page.split_once(BEGIN).expect("the page says where the table begins");
    let (shown, after) = rest.split_once(END).expect("the page says where the table ends");
    if std::env::var_os("UPDATE_GUIDE").is_some() {
        std::fs::write(&path, format!("{before}{BEGIN}\n{table}\n{END}{after}")).expect("writing");
    } else {
        assert_eq!(
            shown.trim(),
            table.trim(),
            "{PAGE} is not what the probes find: UPDATE_GUIDE=1 writes it"
        );
    }
}
