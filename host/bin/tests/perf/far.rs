//! `rushmem-perf far` as a user sees it: figures beside those of `ucx_perftest`, or a word on what is
//! missing.

use crate::common::{self, perf, run, text};
use serde_json::Value;

#[test]
fn far_pes_are_measured_beside_ucx() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let json = folder.path().join("far.json");
    let mut command = perf("far bandwidth latency fetch-add rate --samples 1");
    let output = run(command.arg("--json").arg(&json), folder.path());
    let (table, errors) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{errors}\n{table}");
    if errors.contains("SKIP far") {
        eprint!("{errors}");
        return;
    }
    let report = std::fs::read_to_string(&json).expect("the file that was asked for");
    assert!(!report.contains("\"/"), "a path of this machine is in the report: {report}");
    let report: Value = serde_json::from_str(&report).expect("JSON");
    let rows = report["rows"].as_array().expect("rows");
    // The rates beside the reference with 1, 8 and 32 operations on their way, of which its best sets the
    // limit.
    for (measure, references) in
        [("put bandwidth", 3), ("put latency", 1), ("fetch_add latency", 1), ("put rate, kernel on CPU", 3)]
    {
        let rows: Vec<_> = rows.iter().filter(|row| row["measure"] == measure).collect();
        assert_eq!(rows.len(), references, "{measure}: {report}");
        let ratio = |row: &Value| row["ratio"].as_f64().filter(|ratio| ratio.is_finite() && *ratio > 0.0);
        let ratios: Vec<f64> = rows.iter().map(|row| ratio(row).unwrap_or_else(|| panic!("{row}"))).collect();
        let limits: Vec<_> = rows.iter().filter(|row| row["limit"]["ratio"].as_f64().is_some()).collect();
        assert_eq!(limits.len(), 1, "{measure}: {report}");
        if references > 1 {
            assert_eq!(ratio(limits[0]), ratios.iter().copied().reduce(f64::min), "{measure}: {report}");
        }
        for row in rows {
            let name = row["reference"]["name"].as_str().unwrap_or_default();
            assert!(name.starts_with("ucx_perftest"), "{row}");
        }
    }
}

#[test]
fn what_posts_cost_is_measured_by_both_back_ends() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let json = folder.path().join("far.json");
    let mut command = perf("far --posts --samples 1");
    let output = run(command.env("RUSHMEM_DEVICE", "cpu").arg("--json").arg(&json), folder.path());
    let (table, errors) = (text(&output.stdout), text(&output.stderr));
    if errors.contains("apt-get install libucx0") {
        return eprintln!("SKIP what_posts_cost_is_measured_by_both_back_ends: no UCX");
    }
    assert!(output.status.success(), "{errors}\n{table}");
    let report: Value = serde_json::from_slice(&std::fs::read(&json).expect("the file")).expect("JSON");
    let rows = report["rows"].as_array().expect("rows");
    let rate = |measure: &str| {
        let row = rows
            .iter()
            .find(|row| row["measure"] == measure)
            .unwrap_or_else(|| panic!("{measure}: {report}"));
        assert_eq!((row["unit"].as_str(), row["bytes"].as_u64()), (Some("M/s"), Some(8)), "{row}");
        row["ours"]["median"].as_f64().expect("a median")
    };
    assert_eq!(rows.len(), 4, "{report}");
    for way in ["any", "queue, software card"] {
        let [posted, arrived] =
            ["posted", "arrived"].map(|what| rate(&format!("kernel's p, {what} ({way})")));
        assert!(0.0 < arrived && arrived < posted && posted < 1000.0, "{table}");
    }
}

#[test]
fn near_pes_are_measured_with_far_ones_in_the_job_and_without() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let json = folder.path().join("mixed.json");
    let output = run(perf("mixed --samples 2").arg("--json").arg(&json), folder.path());
    let (table, errors) = (text(&output.stdout), text(&output.stderr));
    if errors.contains("libucp") {
        eprint!("SKIP mixed: no UCX: {errors}");
        return;
    }
    assert!(output.status.success(), "{errors}\n{table}");
    let report = common::report(&json);
    assert!(report.value["parameters"]["far"].as_str().is_some_and(|far| far.starts_with("ucx")), "{table}");
    assert_eq!(report.rows.len(), 7, "{table}");
    for row in &report.rows {
        assert_eq!((row.value["reference"]["name"].as_str(), row.pes), (Some("2 PEs alone"), 4), "{row:?}");
        assert!(row.value["ratio"].as_f64().is_some_and(|ratio| 0.0 < ratio && ratio < 1000.0), "{row:?}");
        let promised = row.value["limit"]["ratio"].as_f64();
        assert_eq!(promised, if row.measure.ends_with("put + quiet") { None } else { Some(1.1) }, "{row:?}");
    }
    let wrong = run(&mut perf("mixed --samples 1 --corrupt"), folder.path());
    assert!(
        !wrong.status.success() && text(&wrong.stderr).contains("mean nothing"),
        "{}",
        text(&wrong.stderr)
    );
}

/// A byte is made wrong where it has arrived: there is no figure.
#[test]
fn wrong_data_of_far_pes_is_an_error_and_no_figure() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for figure in ["bandwidth", "latency", "fetch-add", "rate"] {
        let mut command = perf("far --samples 1 --corrupt");
        let output = run(command.arg(figure), folder.path());
        let (table, errors) = (text(&output.stdout), text(&output.stderr));
        if errors.contains("SKIP far") {
            eprint!("{errors}");
            return;
        }
        assert_eq!(output.status.code(), Some(1), "{figure}: {errors}\n{table}");
        assert!(
            errors.contains("something else") && !table.contains("ucx_perftest"),
            "{figure}: {errors}\n{table}"
        );
    }
    let mut command = perf("far --device --samples 1 --corrupt");
    let output = run(command.env("RUSHMEM_DEVICE", "cpu"), folder.path());
    let (table, errors) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(1), "{errors}\n{table}");
    assert!(errors.contains("mean nothing") && !table.contains("fetch_add"), "{errors}\n{table}");
}
