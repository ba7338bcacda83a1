//! `rushmem-perf device` as a user sees it, on the CPU device: the same kernels and the same way from them to figures as on
//! GPUs. Whether the figures are good, a busy CI machine cannot say.

mod perf_common;

use perf_common::{perf, run, text, Row};

#[test]
fn every_measure_makes_figures_that_were_verified() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (json, csv) = (folder.path().join("new/device.json"), folder.path().join("device.csv"));
    let mut command =
        perf("device all --samples 3 --iterations 5 --budget 10 --sizes 4,8,4104 --threads 32 --pes 2,3");
    command.env("RUSHMEM_DEVICE", "cpu").arg("--json").arg(&json).arg("--csv").arg(&csv);
    let output = run(&mut command, folder.path());
    let table = text(&output.stdout);
    assert!(output.status.success(), "{}\n{table}", text(&output.stderr));

    let report = perf_common::report(&json);
    assert_eq!(report.value["parameters"]["jobs"][1]["pes"], 3, "{table}");
    let find = |measure: &str, bytes: Option<u64>, scope: &str, pes: u64| -> &Row {
        let row = report.rows.iter().find(|row| {
            (row.measure.as_str(), row.bytes, row.scope.as_str(), row.pes) == (measure, bytes, scope, pes)
        });
        row.unwrap_or_else(|| panic!("no row {measure} {bytes:?} {scope} of {pes} PEs:\n{table}"))
    };
    for scope in ["thread", "warp", "block"] {
        for measure in ["put + quiet", "get", "put_signal ping-pong", "put + quiet ping-pong"] {
            for bytes in [4, 8, 4104] {
                find(measure, Some(bytes), scope, 2);
            }
        }
        for (measure, pes) in [("sync_all", 2), ("sync_all", 3), ("barrier_all", 2), ("barrier_all", 3)] {
            find(measure, None, scope, pes);
        }
    }
    for (measure, bytes, scope) in [
        ("p + quiet", Some(8), "thread"),
        ("p + quiet ping-pong", Some(4104), "block"),
        ("g", Some(4104), "block"),
        ("signal ping-pong", None, "thread"),
        ("atomic inc ping-pong", None, "thread"),
        ("put bandwidth", Some(4), "block"),
        ("get bandwidth", Some(4104), "block"),
        ("p bandwidth", Some(4104), "block"),
        ("g bandwidth", Some(8), "block"),
        ("fetch_xor bandwidth", Some(4104), "block"),
        ("compare_swap bandwidth", Some(8), "block"),
        ("put rate", Some(2 * 32 * 8), "thread"),
        ("signal_fetch", None, "thread"),
    ] {
        find(measure, bytes, scope, 2);
    }
    for row in &report.rows {
        assert!(0.0 < row.min && row.min <= row.median && row.median <= row.p99, "{row:?}");
        assert_eq!(row.samples, 3, "{row:?}");
    }
    let lines = std::fs::read_to_string(&csv).expect("the file that was asked for").lines().count();
    assert_eq!(lines, report.rows.len() + 1);
}

#[test]
fn launches_are_as_the_options_say() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let json = folder.path().join("device.json");
    let mut command =
        perf("device put-bw get-bw --scope warp,thread --blocks 1,2 --threads 64 --sizes 4096 --samples 2");
    command
        .args(["--both", "--shift", "1", "--budget", "5"])
        .env("RUSHMEM_DEVICE", "cpu")
        .arg("--json")
        .arg(&json);
    let output = run(&mut command, folder.path());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let rows = perf_common::report(&json).rows;
    assert_eq!(rows.len(), 8);
    for row in rows {
        assert!(row.measure.ends_with("bandwidth, both ways, 1 B off"), "{row:?}");
        assert!(row.blocks <= 2 && row.threads == 64 && row.unit == "GB/s", "{row:?}");
    }
}

#[test]
fn a_job_of_a_launcher_measures_with_its_own_pes() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let job = |pes: &str| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_rushmem-run"));
        command.args([
            "-n",
            pes,
            "--timeout",
            "60",
            "--",
            env!("CARGO_BIN_EXE_rushmem-perf"),
            "device",
            "sync",
        ]);
        run(command.args(["--samples", "2", "--budget", "5"]).env("RUSHMEM_DEVICE", "cpu"), folder.path())
    };
    let three = job("3");
    let table = text(&three.stdout);
    assert!(three.status.success(), "{}", text(&three.stderr));
    assert_eq!(table.matches("sync_all").count(), 3, "PE 0 alone reports: {table}");
    let one = job("1");
    assert!(!one.status.success() && text(&one.stderr).contains("this job has one"), "{}", text(&one.stderr));
}

#[test]
fn arguments_that_make_no_sense_are_refused() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for arguments in
        ["device everything", "device put-bw --threads 2048", "device --pes 1", "device --shift 16"]
    {
        let output = run(&mut perf(arguments), folder.path());
        assert_eq!(output.status.code(), Some(2), "{arguments}: {}", text(&output.stderr));
    }
}
