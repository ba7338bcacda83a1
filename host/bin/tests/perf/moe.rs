//! `rushmem-perf moe`: every layout and payload, verified; beside other libraries' figures; and an error
//! where a result is wrong.

use crate::common::{self, perf, run, text};

const SMALL: &str = "--hidden 272 --experts 8 --top-k 3";

#[test]
fn exchanges_are_measured_in_every_layout() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (json, peers) = (folder.path().join("moe.json"), folder.path().join("moe-peers.csv"));
    let head = "peer,ranks,tokens,experts,topk,hidden,dispatch_type,combine_type,phase,launch,us";
    std::fs::write(&peers, format!("{head}\n\"A, B\",2,40,8,3,272,fp8,bf16,pair,graph,7.5\n"))
        .expect("a file");
    for (layout, payload) in [("expert-major", "fp8"), ("rank-major", "bf16"), ("flat", "fp8 --rounded")] {
        let options = format!("moe --tokens 1,40 {SMALL} --layout {layout} --payload {payload}");
        let mut command = perf(&options);
        let output = run(command.arg("--json").arg(&json).arg("--compare").arg(&peers), folder.path());
        let (table, errors) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success(), "{errors}\n{table}");
        let report = common::report(&json);
        // Dispatch, combine and both, of each number of tokens.
        assert_eq!(report.rows.len(), 6, "{table}");
        for row in &report.rows {
            assert!(row.measure.contains(layout) && row.measure.contains(&payload[..3]), "{row:?}");
            assert_eq!(row.pes, 2, "{row:?}");
            let theirs = row.value["peer"]["value"].as_f64();
            let alike = row.measure.starts_with("moe pair, 40 tokens, fp8, ");
            assert_eq!(theirs, alike.then_some(7.5), "{row:?}");
        }
    }
}

#[test]
fn a_wrong_result_is_no_figure() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let wrong = run(&mut perf(&format!("moe --tokens 2 {SMALL} --corrupt")), folder.path());
    let errors = text(&wrong.stderr);
    assert!(!wrong.status.success() && errors.contains("mean nothing"), "{errors}");
}
