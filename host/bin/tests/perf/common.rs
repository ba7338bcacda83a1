//! What the tests of `rushmem-perf` share: a run of it within a time limit, and its report read back.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// Measures poll: on a loaded machine PEs take turns at it, and it took 120 s.
const LIMIT: Duration = Duration::from_secs(240);

/// Runs to the end, within the limit. The output goes to files, so that a full pipe cannot stop it.
#[track_caller]
pub(crate) fn run(command: &mut Command, folder: &Path) -> Output {
    let file = |name: &str| std::fs::File::create(folder.join(name)).expect("a file in a folder of ours");
    let mut child = command
        .stdin(Stdio::null())
        .stdout(file("out"))
        .stderr(file("err"))
        .spawn()
        .expect("the program is built with this test");
    let begin = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().expect("a child of ours") {
            break status;
        }
        if begin.elapsed() > LIMIT {
            // Its PEs die with it: rushmem-run sees to that.
            child.kill().expect("a child of ours");
            child.wait().expect("a child of ours");
            panic!("still running after {LIMIT:?}: {command:?}");
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let read = |name: &str| std::fs::read(folder.join(name)).expect("a file of ours");
    Output { status, stdout: read("out"), stderr: read("err") }
}

pub(crate) fn perf(arguments: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rushmem-perf"));
    command.args(arguments.split_whitespace());
    command
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Lines of a CSV file besides those that say where it was made, which name no path of this machine.
#[track_caller]
pub(crate) fn csv_lines(csv: &str) -> usize {
    let (about, lines): (Vec<&str>, Vec<&str>) = csv.lines().partition(|line| line.starts_with("# "));
    for key in ["tool", "commit", "cpu", "load", "command"] {
        assert!(about.iter().any(|line| line.starts_with(&format!("# {key}: "))), "{key}: {csv}");
    }
    assert!(!csv.contains(" /"), "a path of this machine is in the report: {csv}");
    lines.len()
}

/// A report, and its rows in short.
pub(crate) struct Report {
    pub(crate) value: Value,
    pub(crate) rows: Vec<Row>,
}

#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) measure: String,
    pub(crate) bytes: Option<u64>,
    pub(crate) pes: u64,
    pub(crate) unit: String,
    pub(crate) scope: String,
    pub(crate) blocks: u64,
    pub(crate) threads: u64,
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) p99: f64,
    pub(crate) samples: u64,
    pub(crate) value: Value,
}

/// Reads a report, which names no path of this machine.
#[track_caller]
pub(crate) fn report(json: &Path) -> Report {
    let text = std::fs::read_to_string(json).expect("the file that was asked for");
    assert!(!text.contains("\"/"), "a path of this machine is in the report: {text}");
    let value: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(value["schema"], 1);
    let rows = value["rows"].as_array().expect("rows").iter().map(|row| {
        let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let ours = |name: &str| row["ours"][name].as_f64().expect("a figure");
        Row {
            measure: word(&row["measure"]),
            bytes: row["bytes"].as_u64(),
            pes: row["pes"].as_u64().expect("a number"),
            unit: word(&row["unit"]),
            scope: word(&row["shape"]["scope"]),
            blocks: row["shape"]["blocks"].as_u64().unwrap_or(0),
            threads: row["shape"]["threads"].as_u64().unwrap_or(0),
            median: ours("median"),
            min: ours("min"),
            p99: ours("p99"),
            samples: row["ours"]["samples"].as_u64().expect("a number"),
            value: row.clone(),
        }
    });
    Report { rows: rows.collect(), value }
}
