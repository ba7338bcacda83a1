//! A record in short, for git: figures without their samples, of a curve its two ends, three sizes and what
//! misses its limit.
//! `--compare` reads it as it reads the record. All that was measured stays in the JSON, which belongs
//! elsewhere.

use std::process::ExitCode;

use serde::Deserialize;

use crate::args::SummaryArgs;
use crate::job::{Failure, Result};
use crate::report::{Row, Shape};
use crate::stats::Summary;
use crate::text::quoted;

/// How a summary begins.
pub(crate) const HEAD: &str = "# rushmem-perf";
const COLUMNS: &str =
    "operation,bytes,pes,scope,blocks,threads,unit,median,reference,reference_median,limit,verdict,peer,peer_value";
/// What is shown of a curve beside its ends.
const BETWEEN: [u64; 3] = [64 << 10, 1 << 20, 16 << 20];

#[derive(Deserialize)]
struct Record {
    tool: String,
    environment: Made,
    rows: Vec<Row>,
}

/// What a reader must know of the environment.
#[derive(Deserialize)]
struct Made {
    date: String,
    commit: Option<String>,
    cpu: String,
    cores: usize,
    load: f64,
    #[serde(default)]
    gpus: Vec<String>,
    driver: Option<String>,
    #[serde(default)] // the first records had none
    command: String,
}

/// Prints the summary of all files.
pub(crate) fn run(args: &SummaryArgs) -> Result<ExitCode> {
    for file in &args.records {
        let said = |what: &dyn std::fmt::Display| Failure::new(format!("{}: {what}", file.display()));
        let text = std::fs::read_to_string(file).map_err(|error| said(&error))?;
        let record: Record = serde_json::from_str(&text).map_err(|error| said(&error))?;
        print!("{}", short(&record, args.all));
    }
    Ok(ExitCode::SUCCESS)
}

fn short(record: &Record, all: bool) -> String {
    let made = &record.environment;
    let commit: String = made.commit.as_deref().unwrap_or("unknown").chars().take(12).collect();
    let mut out = format!("# {}, commit {commit}, {}: {}\n", record.tool, made.date, made.command);
    if let Some(gpu) = made.gpus.first() {
        let driver = made.driver.as_deref().unwrap_or("unknown");
        out += &format!("# {} x {gpu}, driver {driver}\n", made.gpus.len());
    }
    out += &format!("# {}, {} cores, load {:.2}\n{COLUMNS}\n", made.cpu, made.cores, made.load);
    for row in record.rows.iter().filter(|row| all || shown(row, &record.rows)) {
        out += &line(row);
    }
    out
}

/// Whether a row misses its limit, is an end of its curve, or one of those between. A curve is rows that
/// differ in nothing but their size.
fn shown(row: &Row, all: &[Row]) -> bool {
    let key = |row: &Row| {
        let shape = row.shape.as_ref();
        (
            row.measure.clone(),
            row.pes,
            row.unit.clone(),
            shape.map(|s| (s.scope.clone(), s.blocks, s.threads)),
        )
    };
    let curve = || all.iter().filter(|other| key(other) == key(row)).map(|other| other.bytes);
    let between = row.bytes.is_some_and(|bytes| BETWEEN.contains(&bytes));
    row.kept() == Some(false)
        || between
        || row.bytes == curve().min().flatten()
        || row.bytes == curve().max().flatten()
}

fn line(row: &Row) -> String {
    let number = |value: Option<f64>| value.map_or(String::new(), digits);
    let (shape, reference) = (row.shape.as_ref(), row.reference.as_ref());
    let cells = [
        quoted(Some(&row.measure)),
        row.bytes.map_or(String::new(), |bytes| bytes.to_string()),
        row.pes.to_string(),
        shape.map_or(String::new(), |shape| shape.scope.clone()),
        shape.map_or(String::new(), |shape| shape.blocks.to_string()),
        shape.map_or(String::new(), |shape| shape.threads.to_string()),
        row.unit.clone(),
        digits(row.ours.median),
        quoted(reference.map(|reference| &reference.name)),
        number(reference.map(|reference| reference.summary.median)),
        number(row.limit.map(crate::report::Limit::value)),
        row.verdict().to_owned(),
        quoted(row.peer.as_ref().map(|peer| &peer.name)),
        number(row.peer.as_ref().map(|peer| peer.value)),
    ];
    cells.join(",") + "\n"
}

/// Four significant digits, which is more than any figure is good for.
fn digits(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return value.to_string();
    }
    let scale = 10_f64.powi(3 - value.abs().log10().floor() as i32);
    ((value * scale).round() / scale).to_string()
}

/// The rows of a summary, each with what `--compare` needs.
pub(crate) fn rows(text: &str) -> Result<Vec<Row>> {
    let lines = text.lines().filter(|line| !line.starts_with('#') && *line != COLUMNS && !line.is_empty());
    lines
        .map(|line| {
            let cells: [String; 14] = cells(line).try_into().map_err(|cells: Vec<String>| {
                Failure::new(format!("a line of {} cells, 14 are to be there: {line}", cells.len()))
            })?;
            let [measure, bytes, pes, scope, blocks, threads, unit, median, ..] = &cells;
            let bytes = if bytes.is_empty() { None } else { Some(bytes.parse()?) };
            let mut row = Row::new(measure, bytes, pes.parse()?, unit, Summary::single(median.parse()?));
            if !scope.is_empty() {
                let (blocks, threads) = (blocks.parse()?, threads.parse()?);
                row.shape = Some(Shape { scope: scope.clone(), blocks, threads, ..Shape::default() });
            }
            Ok(row)
        })
        .collect()
}

/// A line's cells: names with commas stand in quotes, quotes in them twice.
fn cells(line: &str) -> Vec<String> {
    let (mut cells, mut inside) = (vec![String::new()], false);
    let mut rest = line.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '"' if inside && rest.peek() == Some(&'"') => {
                rest.next();
                cells.last_mut().expect("there is one").push('"');
            }
            '"' => inside = !inside,
            ',' if !inside => cells.push(String::new()),
            c => cells.last_mut().expect("there is one").push(c),
        }
    }
    cells
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Limit;

    fn record(rows: Vec<Row>) -> Record {
        let environment = Made {
            date: "2026-11-21T14:16:26Z".into(),
            commit: Some("c01549833082792b".into()),
            cpu: "x".into(),
            cores: 2,
            load: 0.5,
            gpus: vec!["a GPU".into(); 2],
            driver: Some("580".into()),
            command: "device".into(),
        };
        Record { tool: "rushmem-perf 0.1.0 device".into(), environment, rows }
    }

    #[test]
    fn a_summary_has_the_ends_of_curves_and_is_read_back() {
        let of = |bytes| {
            let mut row =
                Row::new("put bandwidth, both ways", Some(bytes), 2, "GB/s", Summary::single(181.2345))
                    .limit(Limit::AtLeast(if bytes == 64 { 182.0 } else { 181.0 }));
            row.shape = Some(Shape { scope: "block".into(), blocks: 4, threads: 1024, ..Shape::default() });
            row
        };
        let alone = Row::new("a \"b\"", None, 8, "us", Summary::single(0.012_345));
        let whole = record([8, 64, 1 << 16, 1 << 18, 1 << 20].map(of).into_iter().chain([alone]).collect());
        assert_eq!(rows(&short(&whole, true)).map(|all| all.len()).ok(), Some(6));
        let text = short(&whole, false);
        assert!(text.starts_with(HEAD) && text.contains("commit c01549833082, 2026"), "{text}");
        let back = rows(&text).expect("what was just written");
        let sizes: Vec<_> = back.iter().map(|row| row.bytes).collect();
        // 64 B miss their limit.
        assert_eq!(sizes, [Some(8), Some(64), Some(1 << 16), Some(1 << 20), None]);
        assert_eq!((back[0].measure.as_str(), back[0].ours.median), ("put bandwidth, both ways", 181.2));
        assert_eq!(back[0].shape, whole.rows[0].shape);
        assert_eq!((back[4].measure.as_str(), back[4].ours.median), ("a \"b\"", 0.01235));
        assert!(text.contains(",182,UNDER,"), "{text}");
        assert!(rows("put,8,2\n").is_err());
    }
}
