//! `rushmem-perf far` as a user sees it: figures beside those of `ucx_perftest`, or a word on what is missing.

mod perf_common;

use perf_common::{perf, run, text};
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
    assert_eq!(rows.len(), 4, "{report}");
    for row in rows {
        assert!(row["ratio"].as_f64().is_some_and(|ratio| ratio.is_finite() && ratio > 0.0), "{row}");
        assert!(row["limit"]["ratio"].as_f64().is_some(), "{row}");
        assert_eq!(row["reference"]["name"], "ucx_perftest", "{row}");
    }
}
