//! What a run found and how it is shown: a table for people, CSV for a spreadsheet, JSON for the record in
//! `docs/benchmarks`. A row sets our figure beside that of a reference measured in the same run on the same memory,
//! because a bare figure says more of the machine than of rushmem.

use std::fmt::Write as _;
use std::io;
use std::path::Path;
use std::process::ExitCode;

use serde::{Deserialize, Serialize};

use crate::environment::Environment;
use crate::job::{Failure, Result};
use crate::stats::Summary;

/// What ours was compared with, and how it fared.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Reference {
    /// What it is, in a few words.
    pub(crate) name: String,
    /// Its samples, in the unit of the row.
    pub(crate) summary: Summary,
}

/// One measured figure.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Row {
    /// The operation, such as `put`.
    pub(crate) measure: String,
    /// Bytes that one operation moves; none where that has no meaning.
    pub(crate) bytes: Option<u64>,
    /// PEs that took part.
    pub(crate) pes: u32,
    /// `ns`, `us`, `ms` or `MiB`.
    pub(crate) unit: String,
    /// Our samples.
    pub(crate) ours: Summary,
    /// The reference's, measured turn by turn with ours.
    pub(crate) reference: Option<Reference>,
    /// Median of ours over median of the reference.
    pub(crate) ratio: Option<f64>,
    /// What `--check` accepts.
    pub(crate) limit: Option<Limit>,
}

/// The most that a row may show.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Limit {
    /// Of the ratio to the reference.
    Ratio(f64),
    /// Of our median, in the unit of the row.
    Median(f64),
}

impl Row {
    /// A row without reference or limit.
    pub(crate) fn new(measure: &str, bytes: Option<u64>, pes: u32, unit: &str, ours: Summary) -> Row {
        let (measure, unit) = (measure.to_owned(), unit.to_owned());
        Row { measure, bytes, pes, unit, ours, reference: None, ratio: None, limit: None }
    }

    /// Sets a reference beside it.
    pub(crate) fn against(mut self, name: &str, summary: Summary) -> Row {
        self.ratio = Some(self.ours.median / summary.median);
        self.reference = Some(Reference { name: name.to_owned(), summary });
        self
    }

    /// States what it must reach.
    pub(crate) fn limit(mut self, limit: Limit) -> Row {
        self.limit = Some(limit);
        self
    }

    /// Whether the limit is kept; none where there is no limit.
    pub(crate) fn kept(&self) -> Option<bool> {
        Some(match self.limit? {
            // A limit on a ratio that was not measured counts as broken: silence must not look like success.
            Limit::Ratio(most) => self.ratio.is_some_and(|ratio| ratio <= most),
            Limit::Median(most) => self.ours.median <= most,
        })
    }

    fn operation(&self) -> String {
        match self.bytes {
            Some(bytes) => format!("{} {}", self.measure, size(bytes)),
            None => self.measure.clone(),
        }
    }
}

/// All rows of a run, and where and how it was made.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Report {
    /// Of this layout.
    pub(crate) schema: u32,
    /// The program and its version.
    pub(crate) tool: String,
    /// Machine, time, commit.
    pub(crate) environment: Environment,
    /// The options that shaped the figures.
    pub(crate) parameters: serde_json::Value,
    /// The figures.
    pub(crate) rows: Vec<Row>,
}

impl Report {
    /// Rows whose limit is broken.
    pub(crate) fn broken(&self) -> Vec<&Row> {
        self.rows.iter().filter(|row| row.kept() == Some(false)).collect()
    }

    /// For people.
    pub(crate) fn table(&self) -> String {
        let head = ["operation", "PEs", "median", "min", "p99", "reference", "median", "ratio", "limit", ""];
        let mut lines = vec![head.map(str::to_owned)];
        for row in &self.rows {
            let figure = |value: f64| format!("{} {}", short(value), row.unit);
            let reference = row.reference.as_ref();
            lines.push([
                row.operation(),
                row.pes.to_string(),
                figure(row.ours.median),
                figure(row.ours.min),
                figure(row.ours.p99),
                reference.map_or(String::new(), |r| r.name.clone()),
                reference.map_or(String::new(), |r| figure(r.summary.median)),
                row.ratio.map_or(String::new(), |ratio| format!("{ratio:.2}x")),
                match row.limit {
                    Some(Limit::Ratio(most)) => format!("{most:.2}x"),
                    Some(Limit::Median(most)) => figure(most),
                    None => String::new(),
                },
                row.kept().map_or("", |kept| if kept { "ok" } else { "OVER" }).to_owned(),
            ]);
        }
        let lines: Vec<Vec<String>> = lines.into_iter().map(Vec::from).collect();
        // Names to the left, figures to the right.
        format!("{}\n{}", self.environment, align(&lines, &[0, 5, 9]))
    }

    /// For a spreadsheet: one line for each row.
    pub(crate) fn csv(&self) -> String {
        let mut out = String::from(
            "operation,bytes,pes,unit,median,min,p99,samples,reference,reference_median,ratio,limit,kept\n",
        );
        let or_empty = |value: Option<String>| value.unwrap_or_default();
        for row in &self.rows {
            let limit = row.limit.map(|limit| match limit {
                Limit::Ratio(most) | Limit::Median(most) => most.to_string(),
            });
            let reference = row.reference.as_ref();
            let _ = writeln!(
                out,
                "{},{},{},{},{},{},{},{},\"{}\",{},{},{},{}",
                row.measure,
                or_empty(row.bytes.map(|b| b.to_string())),
                row.pes,
                row.unit,
                row.ours.median,
                row.ours.min,
                row.ours.p99,
                row.ours.samples,
                or_empty(reference.map(|r| r.name.clone())),
                or_empty(reference.map(|r| r.summary.median.to_string())),
                or_empty(row.ratio.map(|r| r.to_string())),
                or_empty(limit),
                or_empty(row.kept().map(|k| k.to_string())),
            );
        }
        out
    }

    /// Prints the table, writes the files that were asked for, and, to `check`, makes a broken limit an exit code of 1.
    pub(crate) fn show(&self, json: Option<&Path>, csv: Option<&Path>, check: bool) -> Result<ExitCode> {
        print!("{}", self.table());
        let cannot = |file: &Path, error| Failure::new(format!("cannot write {}: {error}", file.display()));
        if let Some(file) = json {
            self.write_json(file).map_err(|error| cannot(file, error))?;
        }
        if let Some(file) = csv {
            self.write_csv(file).map_err(|error| cannot(file, error))?;
        }
        let over = self.broken();
        if !check {
            return Ok(ExitCode::SUCCESS);
        }
        if over.is_empty() {
            println!("every limit kept");
            return Ok(ExitCode::SUCCESS);
        }
        println!("{} over the limit", over.len());
        Ok(ExitCode::FAILURE)
    }

    /// Writes JSON to `path`, making its folder.
    fn write_json(&self, path: &Path) -> io::Result<()> {
        let mut text = serde_json::to_string_pretty(self)?;
        text.push('\n');
        write(path, &text)
    }

    /// Writes CSV to `path`, making its folder.
    fn write_csv(&self, path: &Path) -> io::Result<()> {
        write(path, &self.csv())
    }
}

/// Columns of their widest cell's width; those of `left` begin on one line, the others end there.
pub(crate) fn align(lines: &[Vec<String>], left: &[usize]) -> String {
    let columns = lines.iter().map(Vec::len).max().unwrap_or(0);
    let width =
        |column| lines.iter().filter_map(|line: &Vec<String>| line.get(column)).map(String::len).max();
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    let mut out = String::new();
    for line in lines {
        let mut text = String::new();
        for (column, (cell, width)) in line.iter().zip(&widths).enumerate() {
            let _ = match left.contains(&column) {
                true => write!(text, "{cell:<width$}  "),
                false => write!(text, "{cell:>width$}  "),
            };
        }
        let _ = writeln!(out, "{}", text.trim_end());
    }
    out
}

fn write(path: &Path, text: &str) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    std::fs::write(path, text)
}

/// Three significant digits or so.
fn short(value: f64) -> String {
    match value {
        v if v >= 100.0 => format!("{v:.0}"),
        v if v >= 10.0 => format!("{v:.1}"),
        v => format!("{v:.2}"),
    }
}

/// Bytes as people say them.
fn size(bytes: u64) -> String {
    match bytes {
        b if b >= 1 << 20 && b % (1 << 20) == 0 => format!("{} MiB", b >> 20),
        b if b >= 1 << 10 && b % (1 << 10) == 0 => format!("{} KiB", b >> 10),
        b => format!("{b} B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(median: f64) -> Summary {
        Summary { median, min: median, p99: median, samples: 1 }
    }

    fn report(rows: Vec<Row>) -> Report {
        let environment = Environment::here();
        Report { schema: 1, tool: "test".into(), environment, parameters: serde_json::Value::Null, rows }
    }

    #[test]
    fn a_limit_is_kept_up_to_and_including_itself() {
        let row = |ratio| {
            Row::new("put", Some(8), 2, "ns", summary(ratio))
                .against("x", summary(1.0))
                .limit(Limit::Ratio(2.0))
        };
        assert_eq!(row(2.0).kept(), Some(true));
        assert_eq!(row(2.01).kept(), Some(false));
        let start = Row::new("start-up", None, 4, "ms", summary(151.0)).limit(Limit::Median(150.0));
        assert_eq!(start.kept(), Some(false));
        let unmeasured = Row::new("put", Some(8), 2, "ns", summary(1.0)).limit(Limit::Ratio(2.0));
        assert_eq!(unmeasured.kept(), Some(false));
        assert_eq!(Row::new("get", None, 2, "ns", summary(1.0)).kept(), None);
    }

    #[test]
    fn table_and_csv_show_every_row_and_what_is_over() {
        let over = Row::new("put", Some(1 << 20), 2, "us", summary(50.0))
            .against("memcpy", summary(40.0))
            .limit(Limit::Ratio(1.1));
        let report = report(vec![over, Row::new("get", Some(8), 2, "ns", summary(1.25))]);
        assert_eq!(report.broken().len(), 1);
        let table = report.table();
        assert!(table.contains("put 1 MiB") && table.contains("1.25x") && table.contains("OVER"), "{table}");
        let csv = report.csv();
        assert_eq!(csv.lines().count(), 3);
        assert!(csv.lines().all(|line| line.matches(',').count() == 12), "{csv}");
    }

    #[test]
    fn rows_survive_json() {
        let row = Row::new("put", Some(8), 2, "ns", summary(3.0))
            .against("x", summary(2.0))
            .limit(Limit::Ratio(2.0));
        let text = serde_json::to_string(&row).expect("plain data");
        let back: Row = serde_json::from_str(&text).expect("what was just written");
        assert_eq!(back.kept(), Some(true));
        assert_eq!(back.ours, row.ours);
    }
}
