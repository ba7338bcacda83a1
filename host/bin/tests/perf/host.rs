//! `rushmem-perf host`, `startup` and what all measures share, as a user sees it.

use std::process::Command;

use crate::common::{self, perf, run, text};
use serde_json::Value;

#[test]
fn every_measure_runs_and_is_reported() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (json, csv) = (folder.path().join("new/host.json"), folder.path().join("host.csv"));
    let peer = folder.path().join("openshmem.csv");
    let line = "peer,operation,bytes,us_median_of_runs,us_min,us_max,runs\nOther,put,1048576,42.5,40,46,12\n";
    std::fs::write(&peer, line).expect("a file of ours");
    let mut command = perf("host all --samples 15 --batch 30 --starts 2 --sizes 1,8,4097,1048576");
    command.args(["--collective-sizes", "8,65536"]);
    command.arg("--compare").arg(&peer);
    let output = run(command.arg("--json").arg(&json).arg("--csv").arg(&csv), folder.path());
    let table = text(&output.stdout);
    assert!(output.status.success(), "{}\n{table}", text(&output.stderr));

    let report = std::fs::read_to_string(&json).expect("the file that was asked for");
    assert!(!report.contains("\"/"), "a path of this machine is in the report: {report}");
    let report: Value = serde_json::from_str(&report).expect("JSON");
    assert_eq!(report["schema"], 1);
    let rows = report["rows"].as_array().expect("rows");
    let row = |measure: &str, bytes: Option<u64>, pes: u64| {
        let same = |row: &&Value| {
            row["measure"] == measure && row["bytes"].as_u64() == bytes && row["pes"].as_u64() == Some(pes)
        };
        rows.iter().find(same).unwrap_or_else(|| panic!("no row {measure} {bytes:?} {pes}: {report}"))
    };
    let expected = [
        ("put", Some(1), 2),
        ("put", Some(8), 2),
        ("p", Some(8), 2),
        ("put + quiet", Some(8), 2),
        ("put", Some(4097), 2),
        ("put", Some(1 << 20), 2),
        ("get", Some(1), 2),
        ("get", Some(8), 2),
        ("g", Some(8), 2),
        ("get", Some(4097), 2),
        ("p ping-pong", Some(8), 2),
        ("put_signal ping-pong", Some(8), 2),
        ("fetch_add", Some(8), 2),
        ("barrier_all", None, 2),
        ("sync_all", None, 2),
        ("rushmem_put", Some(8), 2),
        ("rushmem_barrier_all", None, 2),
        ("start-up", None, 4),
        ("start-up", None, 64),
        ("barrier", None, 2),
        ("barrier", None, 4),
        ("allreduce", Some(8), 2),
        ("allreduce", Some(65536), 4),
        ("broadcast", Some(8), 4),
        ("alltoall", Some(65536), 2),
        ("allgather", Some(8), 2),
    ];
    // Beside an MPI, where there is one.
    let collectives = ["barrier", "allreduce", "broadcast", "alltoall", "allgather"];
    for (measure, bytes, pes) in expected {
        let row = row(measure, bytes, pes);
        let ours = |name: &str| row["ours"][name].as_f64().expect("a figure");
        assert!(0.0 < ours("min") && ours("min") <= ours("median") && ours("median") <= ours("p99"), "{row}");
        assert!(table.contains(measure), "{measure} is not in the table:\n{table}");
        if measure != "start-up" && !(collectives.contains(&measure) && row["ratio"].is_null()) {
            assert!(row["ratio"].as_f64().is_some_and(|ratio| ratio.is_finite() && ratio > 0.0), "{row}");
        }
    }
    assert_eq!(row("put", Some(1 << 20), 2)["peer"]["value"], 42.5, "{report}");
    assert!(row("put", Some(1 << 20), 2)["kept"].is_boolean(), "{report}");
    // Not absurd, even here: the copy is the same copy, and starting is not waiting for something.
    assert!(row("put", Some(1 << 20), 2)["ratio"].as_f64().expect("checked") < 3.0, "{report}");
    assert!(row("start-up", None, 4)["ours"]["min"].as_f64().expect("checked") < 5000.0, "{report}");

    let csv = std::fs::read_to_string(&csv).expect("the file that was asked for");
    assert_eq!(common::csv_lines(&csv), rows.len() + 1, "{csv}");
}

/// A byte is made wrong where it has arrived, before it is looked at: there is no figure.
#[test]
fn wrong_data_is_an_error_and_no_figure() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for measure in ["put", "get", "pingpong", "atomic", "barrier", "c-abi", "collective"] {
        let json = folder.path().join("host.json");
        let mut command = perf("host --samples 2 --batch 5 --sizes 8,4096 --collective-sizes 64 --corrupt");
        let output = run(command.arg(measure).arg("--json").arg(&json), folder.path());
        let (table, errors) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), Some(1), "{measure}: {errors}\n{table}");
        assert!(
            errors.contains("mean nothing") && table.is_empty() && !json.exists(),
            "{measure}: {errors}\n{table}"
        );
    }
}

#[test]
fn starting_is_measured_step_by_step() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (json, csv) = (folder.path().join("startup.json"), folder.path().join("startup.csv"));
    let mut command = perf("startup --pes 1,3 --samples 3");
    command.env("RUSHMEM_DEVICE", "cpu").arg("--json").arg(&json).arg("--csv").arg(&csv);
    let output = run(&mut command, folder.path());
    let table = text(&output.stdout);
    assert!(output.status.success(), "{}\n{table}", text(&output.stderr));

    let report = std::fs::read_to_string(&json).expect("the file that was asked for");
    assert!(!report.contains("\"/"), "a path of this machine is in the report: {report}");
    let report: Value = serde_json::from_str(&report).expect("JSON");
    assert_eq!(report["parameters"]["devices"], serde_json::json!({ "1": ["the CPU"], "3": ["the CPU"] }));
    let rows = report["rows"].as_array().expect("rows");
    for pes in [1, 3] {
        let median = |measure: &str| {
            let row = rows.iter().find(|row| row["measure"] == measure && row["pes"] == pes);
            let row = row.unwrap_or_else(|| panic!("no row {measure} of {pes} PEs: {report}"));
            assert_eq!(row["ours"]["samples"], 3, "{row}");
            assert!(table.contains(measure), "{measure} is not in the table:\n{table}");
            row["ours"]["median"].as_f64().expect("a figure")
        };
        for measure in
            ["first barrier_all", "first alloc", "first kernel (cached)", "finalize", "heap per PE"]
        {
            assert!(median(measure) > 0.0, "{measure}: {report}");
        }
        let (main, init, ready) = (median("exec to main"), median("World::init"), median("exec to ready"));
        assert!(0.0 < main && main < ready && 0.0 < init && init < ready && ready < 5000.0, "{report}");
        // A heap that is filled in advance, or a runtime that is copied, would be in the hundreds.
        assert!(median("host memory per PE") < 64.0, "{report}");
        assert!(median("host memory per PE with a kernel") >= median("host memory per PE"), "{report}");
    }
    assert!(!table.contains("CUDA") && !table.contains("GPU"), "there is none in this job:\n{table}");
    // One line for each PE, in order.
    let numbers = |line: &&str| line.contains("the CPU");
    assert_eq!(table.lines().filter(numbers).count(), 1 + 3, "{table}");
    let csv = std::fs::read_to_string(&csv).expect("the file that was asked for");
    assert_eq!(common::csv_lines(&csv), rows.len() + 1, "{csv}");
}

#[test]
fn a_gpu_that_is_not_there_is_no_figure() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for arguments in ["startup --samples 1", "startup --samples 1 --pes 2"] {
        let mut command = perf(arguments);
        // On a machine with GPUs, too, this job sees none.
        command.envs([("RUSHMEM_DEVICE", "cuda"), ("CUDA_VISIBLE_DEVICES", "")]);
        let output = run(&mut command, folder.path());
        assert_eq!(output.status.code(), Some(1), "{arguments}: {}", text(&output.stdout));
        assert!(text(&output.stderr).contains("RUSHMEM_DEVICE=cpu"), "{arguments}: {}", text(&output.stderr));
    }
}

#[test]
fn runs_under_a_launcher_and_only_there_with_two_pes() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let job = |pes: &str, measure: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rushmem-run"));
        command.args(["-n", pes, "--timeout", "60", "--", env!("CARGO_BIN_EXE_rushmem-perf")]);
        let few: &[&str] = if measure[0] == "host" { &["--batch", "5", "--sizes", "8"] } else { &[] };
        run(command.args(measure).args(["--samples", "3"]).args(few), folder.path())
    };
    let two = job("2", &["host", "put"]);
    assert!(two.status.success(), "{}", text(&two.stderr));
    assert_eq!(text(&two.stdout).matches("put 8 B").count(), 1, "PE 0 alone reports: {}", text(&two.stdout));

    let refusals: [(&str, &[&str], &str); 4] = [
        ("3", &["host", "put"], "with 2 PEs"),
        ("2", &["host", "startup"], "without a launcher"),
        ("2", &["host", "collective"], "without a launcher"),
        ("2", &["startup"], "without a launcher"),
    ];
    for (pes, measure, why) in refusals {
        let refused = job(pes, measure);
        assert!(!refused.status.success(), "{}", text(&refused.stdout));
        assert!(text(&refused.stderr).contains(why), "{}", text(&refused.stderr));
    }
}

#[test]
fn a_report_that_cannot_be_written_is_an_error() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut command = perf("host atomic --samples 1 --batch 1 --json");
    let output = run(command.arg(folder.path()), folder.path());
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stdout));
    assert!(text(&output.stderr).contains("cannot write"), "{}", text(&output.stderr));
}

#[test]
fn arguments_that_make_no_sense_are_refused() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for arguments in [
        "",
        "host everything",
        "host put --samples 0",
        "host put --sizes 0",
        "host --sizes eight",
        "startup --pes 0",
        "startup --pes 2,many",
        "startup --samples 0",
    ] {
        let output = run(&mut perf(arguments), folder.path());
        assert_eq!(output.status.code(), Some(2), "{arguments}: {}", text(&output.stderr));
    }
}

/// On a terminal, which `script` (util-linux) makes, a bar counts the measures; elsewhere there is none.
#[test]
fn a_bar_shows_on_a_terminal_alone() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let arguments = "host put barrier --samples 2 --batch 20 --sizes 8";
    let plain = run(&mut perf(arguments), folder.path());
    assert!(plain.status.success() && !text(&plain.stderr).contains("/2"), "{}", text(&plain.stderr));
    if Command::new("script").arg("--version").output().is_err() {
        eprintln!("SKIP a_bar_shows_on_a_terminal_alone: no script (util-linux)");
        return;
    }
    let shell = format!("{} {arguments}", perf("").get_program().to_string_lossy());
    let mut script = Command::new("script");
    script.args(["-qec", &shell, "/dev/null"]).env("TERM", "xterm");
    let shown = run(&mut script, folder.path());
    let out = text(&shown.stdout);
    assert!(shown.status.success() && out.contains("0/2"), "{out}");
    assert!(["put", "barrier"].iter().any(|measure| out.contains(&format!("s {measure}"))), "{out}");
}
