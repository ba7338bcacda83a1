//! `rushmem-perf shmem` as a user sees it.

use std::path::Path;

use crate::common::{perf, report, run, text};

/// Said aloud where cargo has not built the library, or there is no C compiler.
fn ready(test: &str) -> bool {
    let oshcc = Path::new(env!("CARGO_BIN_EXE_rushmem-perf")).with_file_name("openshmem").join("bin/oshcc");
    let compiles = oshcc.exists() && std::process::Command::new("cc").arg("--version").output().is_ok();
    if !compiles {
        eprintln!("SKIP {test}: no oshcc (cargo build -p rushmem-openshmem), or no cc");
    }
    compiles
}

#[test]
fn c_programs_are_measured_beside_another_library() {
    if !ready("c_programs_are_measured_beside_another_library") {
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let json = folder.path().join("shmem.json");
    let mut command = perf("shmem --samples 3 --sizes 8,4096 --collective-sizes 64 --pes 2,3");
    let output = run(command.arg("--json").arg(&json), folder.path());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report = report(&json);
    for (measure, bytes, pes) in [
        ("put", Some(8), 2),
        ("p", Some(8), 2),
        ("put_nbi rate", Some(8), 2),
        ("put + quiet", Some(4096), 2),
        ("put bandwidth", Some(4096), 2),
        ("get", Some(8), 2),
        ("get bandwidth", Some(4096), 2),
        ("fetch_add", Some(8), 2),
        ("compare_swap", Some(8), 2),
        ("barrier", None, 2),
        ("broadcast", Some(64), 2),
        ("reduce", Some(64), 3),
        ("fcollect", Some(64), 3),
        ("alltoall", Some(64), 3),
    ] {
        let same = |row: &&crate::common::Row| row.measure == measure && row.bytes == bytes && row.pes == pes;
        let row = report.rows.iter().find(same);
        let row = row.unwrap_or_else(|| panic!("no row {measure} {bytes:?} {pes}: {}", report.value));
        assert!(0.0 < row.min && row.min <= row.median && row.median <= row.p99, "{row:?}");
    }
    let rust = |row: &&crate::common::Row| row.value["reference"]["name"] == "the Rust API";
    assert_eq!(report.rows.iter().filter(rust).count(), 2, "put and p: {}", report.value);
}

#[test]
fn wrong_data_of_a_c_program_is_an_error_and_no_figure() {
    if !ready("wrong_data_of_a_c_program_is_an_error_and_no_figure") {
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    for sizes in ["--sizes 8 --collective-sizes 64 --pes 2", "--collective-sizes 96 --pes 3"] {
        let output = run(&mut perf(&format!("shmem --corrupt --samples 2 {sizes}")), folder.path());
        let (table, errors) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), Some(1), "{errors}\n{table}");
        assert!(errors.contains("mean nothing") && table.is_empty(), "{errors}\n{table}");
    }
}
