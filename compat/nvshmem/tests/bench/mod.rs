//! bench/, without a GPU, as the examples are run: each measure by nvshmem.h, alone and beside rushmem-perf's
//! own kernels. On GPUs the bundle's group `nvshmem_speed` runs it.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use rushmem_nvshmem::PREFIX;

use crate::common::nvcc::{nvcc, whole};
use crate::common::{here, ready, said, Program};
use crate::examples::compiled;

/// Rows with two sizes and one number of blocks: 8 measures of three scopes with sizes, 4 without; 3 and 14
/// atomic operations of one thread; 4 bandwidths of blocks and those of 14 atomic operations.
const ROWS: usize = 8 * 3 * 2 + 4 * 3 + 3 + 14 + (4 + 14) * 2;
const COLUMNS: usize = 14;

fn folder() -> PathBuf {
    here().join("bench")
}

/// Runs it with the kernels in that folder, which the CPU device compiles first.
fn run(program: &Program, kernels: &Path, arguments: &[&str]) -> Output {
    let mut run = Command::new("timeout");
    run.arg("250").arg(program.path()).args(arguments).args(["--limit", "240", "--threads", "40"]);
    run.args(["--budget", "2", "--samples", "2", "--blocks", "2"]);
    run.env("KERNELS", kernels.join("bench.cu"));
    run.env("KERNELS_INCLUDE", format!("{PREFIX}/include:{}", kernels.display()));
    run.env("RUSHMEM_DEVICE", "cpu").stdin(Stdio::null()).output().expect("coreutils are here")
}

/// The rows of a file: what it says of each, by column.
fn rows(file: &Path) -> Vec<Vec<String>> {
    let text = std::fs::read_to_string(file).expect("bench has written it");
    let lines = text.lines().filter(|line| !line.starts_with('#')).skip(1);
    lines.map(|line| line.split(',').map(str::to_owned).collect()).collect()
}

#[test]
fn the_bench_runs_alone_and_beside_rushmem_perfs_kernels() {
    let test = "the_bench_runs_alone_and_beside_rushmem_perfs_kernels";
    let Some(nvcc) = nvcc(test) else { return };
    if !ready(test) {
        return;
    }
    let program = compiled(&nvcc, &folder().join("bench.cu"), "cc", &[]);
    let sizes = format!("8,{}", 16 + std::process::id() % 500 * 8);
    let file = program.dir().join("figures.csv");
    let csv = file.to_str().expect("a path of ours is UTF-8");
    for beside in [false, true] {
        let mode: &[&str] = if beside { &["--beside-own", "1", "--again", "1"] } else { &["--pes", "3"] };
        let out = run(&program, &folder(), &[&["--csv", csv, "--sizes", &sizes], mode].concat());
        assert!(out.status.success(), "{mode:?}, {sizes}: {}\n{}", out.status, said(&out));
        let rows = rows(&file);
        assert_eq!(rows.len(), ROWS, "{}", said(&out));
        for row in rows {
            assert_eq!(row.len(), COLUMNS, "{row:?}");
            assert!(row[7].parse::<f64>().is_ok_and(|value| value > 0.0), "{row:?}");
            let own = row[9].parse::<f64>().is_ok_and(|value| value > 0.0);
            assert_eq!((row[8] == "rushmem-perf's kernel", own), (beside, beside), "{row:?}");
        }
    }
    compared(csv);
    if whole() {
        wrong_words_are_found(&program);
    }
}

/// `compare` fails with the rows that are over, and says all of them.
fn compared(csv: &str) {
    for (most, fails) in [("1e6", false), ("1e-6", true)] {
        let mut compare = Command::new(folder().join("compare"));
        let out = compare.args(["--beside-own", csv, "--most", most]).output();
        let Ok(out) = out else { return eprintln!("SKIP compare: no python3") };
        let text = said(&out);
        assert_eq!(out.status.code(), Some(i32::from(fails)), "{text}");
        assert!(text.contains(&format!("{ROWS} rows")), "{text}");
        assert_eq!(text.lines().count() - 2, if fails { ROWS } else { 10 }, "{text}");
    }
}

/// Kernels that put something else than they should, one of bench's and one of rushmem-perf's.
fn wrong_words_are_found(program: &Program) {
    let root = here().join("../..");
    let dir = tempfile::tempdir().expect("a temporary folder");
    for folder in ["compat/nvshmem/bench", "host/bin/src/perf/device/kernels"] {
        let to = dir.path().join(folder);
        std::fs::create_dir_all(&to).expect("the folder is there");
        for entry in std::fs::read_dir(root.join(folder)).expect("it is in this tree").flatten() {
            std::fs::copy(entry.path(), to.join(entry.file_name())).expect("a file");
        }
    }
    let (bench, perf) = ("compat/nvshmem/bench/kernels.cuh", "host/bin/src/perf/device/kernels/latency.cu");
    for (file, right, wrong) in [
        (bench, "nvshmem_uint64_p(to + i, j.salt + i,", "nvshmem_uint64_p(to + i, j.salt - i,"),
        (perf, "to[i] = rushmem::g(from + i,", "to[i] = 1 + rushmem::g(from + i,"),
    ] {
        let path = dir.path().join(file);
        let text = std::fs::read_to_string(&path).expect("it was copied");
        assert!(text.contains(right), "{file} has no {right}");
        std::fs::write(&path, text.replace(right, wrong)).expect("the folder is there");
    }
    let folder = dir.path().join("compat/nvshmem/bench");
    let run = |arguments: &[&str]| {
        let out = run(program, &folder, &[&["--beside-own", "1", "--sizes", "1000"], arguments].concat());
        (out.status.code(), said(&out))
    };
    for (measure, label) in [("p-latency", "p + quiet"), ("g-latency", "g")] {
        let (code, text) = run(&[measure]);
        let named = text.contains(&format!("bench: {label}: ")) && text.contains("wrong words");
        assert!(code == Some(1) && named, "{measure}: {code:?}\n{text}");
    }
    let (code, text) = run(&["put-latency"]);
    assert_eq!(code, Some(0), "{text}");
}
