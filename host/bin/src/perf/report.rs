//! What a run found and how it is shown: a table for people, CSV for a spreadsheet, JSON for the record in
//! `docs/benchmarks`. A row sets our figure beside that of a reference measured in the same run on the same
//! memory, because a bare figure says more of the machine than of rushmem.

use std::path::Path;
use std::process::ExitCode;

use serde::{Deserialize, Serialize, Serializer};

use crate::args::Output;
use crate::environment::Environment;
use crate::job::{Failure, Result};
use crate::stats::Summary;
use crate::text::size;

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
    /// `ns`, `us`, `ms`, `MiB`; `GB/s` and `M/s` (millions in a second), of which more is better.
    pub(crate) unit: String,
    /// Our samples.
    pub(crate) ours: Summary,
    /// The reference's, measured turn by turn with ours.
    pub(crate) reference: Option<Reference>,
    /// Median of ours over median of the reference.
    pub(crate) ratio: Option<f64>,
    /// What `--check` accepts.
    pub(crate) limit: Option<Limit>,
    /// How operations inside kernels were launched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) shape: Option<Shape>,
    /// The same of another library, out of a file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) peer: Option<Beside>,
    /// What the machine can do, out of a file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) machine: Option<Beside>,
}

/// The launch of a kernel.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Shape {
    /// `thread`, `warp` or `block`: who takes part in one operation.
    pub(crate) scope: String,
    /// Of the grid.
    pub(crate) blocks: u32,
    /// Of a block.
    pub(crate) threads: u32,
    /// Operations in a batch.
    pub(crate) iterations: u32,
    /// Where it is not what was asked for; the bare form that was the best of several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) note: Option<String>,
}

/// A figure that was measured elsewhere.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Beside {
    /// Whose it is.
    pub(crate) name: String,
    /// In the unit of the row.
    pub(crate) value: f64,
}

/// The most, or the least, that a row may show.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Limit {
    /// Of the ratio to the reference: the most, or the least where the unit is of a kind of which there
    /// cannot be too much.
    Ratio(f64),
    /// Of our median, in the unit of the row.
    Median(f64),
    /// Of our median, in the unit of the row, and the least that will do.
    AtLeast(f64),
    /// As [`Limit::Median`] or [`Limit::AtLeast`], whichever the unit calls for, or `REACH` of what the bare
    /// instructions do beside it: where the hardware forbids the figure.
    Reach(f64),
    /// Not behind the peer by more than `LEVEL`, and at most so many times as long (or as slow) as the
    /// reference; of the two what was measured.
    Beside(f64),
}

impl Limit {
    /// Its number.
    pub(crate) fn value(self) -> f64 {
        match self {
            Limit::Ratio(value)
            | Limit::Median(value)
            | Limit::AtLeast(value)
            | Limit::Reach(value)
            | Limit::Beside(value) => value,
        }
    }
}

/// How many times as long, or as slow, as a peer is level with it: medians of one program in two runs of one
/// lease are further apart than that now and then.
const LEVEL: f64 = 1.01;

/// The share of what the bare instructions do that counts as the machine's limit.
const REACH: f64 = 0.95;

impl Row {
    /// A row without reference or limit.
    pub(crate) fn new(measure: &str, bytes: Option<u64>, pes: u32, unit: &str, ours: Summary) -> Row {
        let (measure, unit) = (measure.to_owned(), unit.to_owned());
        Row {
            measure,
            bytes,
            pes,
            unit,
            ours,
            reference: None,
            ratio: None,
            limit: None,
            shape: None,
            peer: None,
            machine: None,
        }
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
            Limit::Ratio(least) if self.more_is_better() => self.ratio.is_some_and(|ratio| ratio >= least),
            Limit::Ratio(most) => self.ratio.is_some_and(|ratio| ratio <= most),
            Limit::Median(most) => self.ours.median <= most,
            Limit::AtLeast(least) => self.ours.median >= least,
            Limit::Reach(wanted) => self.reaches(wanted, 1.0) || self.at_the_machines_limit(),
            Limit::Beside(_) => self.excess().is_some_and(|excess| excess <= 1.0),
        })
    }

    /// Of a row that has [`Limit::Beside`]: how far it is from what it may be, 1 at the limit and more
    /// beyond; of peer and reference the one that asks for more. None where neither was measured.
    pub(crate) fn excess(&self) -> Option<f64> {
        let Some(Limit::Beside(apart)) = self.limit else { return None };
        let slower = |ratio: f64| if self.more_is_better() { 1.0 / ratio } else { ratio };
        let beyond = [
            self.ratio.map(|ratio| slower(ratio) / apart),
            self.peer_ratio().map(|ratio| slower(ratio) / LEVEL),
        ];
        beyond.into_iter().flatten().max_by(f64::total_cmp)
    }

    /// Whether ours is as good as this share of `wanted`, in the unit's sense.
    fn reaches(&self, wanted: f64, share: f64) -> bool {
        if self.more_is_better() {
            self.ours.median >= wanted * share
        } else {
            self.ours.median * share <= wanted
        }
    }

    fn at_the_machines_limit(&self) -> bool {
        self.reference.as_ref().is_some_and(|probe| self.reaches(probe.summary.median, REACH))
    }

    /// What became of the limit, in a word.
    pub(crate) fn verdict(&self) -> &'static str {
        match (self.kept(), self.limit) {
            (None, _) => "",
            (Some(true), Some(Limit::Reach(wanted))) if !self.reaches(wanted, 1.0) => "ok (machine)",
            (Some(true), _) => "ok",
            (Some(false), _) if self.more_is_better() => "UNDER",
            (Some(false), _) => "OVER",
        }
    }

    /// Whether the unit is of a kind of which there cannot be too much.
    pub(crate) fn more_is_better(&self) -> bool {
        self.unit.ends_with("/s")
    }

    /// Ours over the peer's.
    pub(crate) fn peer_ratio(&self) -> Option<f64> {
        self.peer.as_ref().map(|peer| self.ours.median / peer.value)
    }

    /// The operation and its size.
    pub(crate) fn operation(&self) -> String {
        match self.bytes {
            Some(bytes) => format!("{} {}", self.measure, size(bytes)),
            None => self.measure.clone(),
        }
    }
}

/// All rows of a run, and where and how it was made.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Report {
    /// Of this layout.
    pub(crate) schema: u32,
    /// The program and its version.
    pub(crate) tool: String,
    /// Machine, time, commit.
    pub(crate) environment: Environment,
    /// The options that shaped the figures.
    pub(crate) parameters: serde_json::Value,
    /// The figures; in JSON each with what follows from it.
    #[serde(serialize_with = "with_verdicts")]
    pub(crate) rows: Vec<Row>,
}

/// A row, and what a reader would have to work out.
#[derive(Serialize)]
struct Judged<'r> {
    #[serde(flatten)]
    row: &'r Row,
    /// Of our samples: see [`Summary::spread`].
    spread: f64,
    /// Ours over the peer's.
    #[serde(skip_serializing_if = "Option::is_none")]
    peer_ratio: Option<f64>,
    /// Whether the limit is kept; none where there is none.
    kept: Option<bool>,
    /// The same as the table says it.
    #[serde(skip_serializing_if = "str::is_empty")]
    verdict: &'static str,
}

fn with_verdicts<S: Serializer>(rows: &[Row], serializer: S) -> std::result::Result<S::Ok, S::Error> {
    serializer.collect_seq(rows.iter().map(|row| Judged {
        row,
        spread: row.ours.spread(),
        peer_ratio: row.peer_ratio(),
        kept: row.kept(),
        verdict: row.verdict(),
    }))
}

impl Report {
    /// Rows whose limit is broken.
    pub(crate) fn broken(&self) -> Vec<&Row> {
        self.rows.iter().filter(|row| row.kept() == Some(false)).collect()
    }

    /// Prints the table, writes the files that were asked for, and, to `check`, makes a broken limit an exit
    /// code of 1.
    pub(crate) fn show(&self, output: &Output) -> Result<ExitCode> {
        print!("{}", self.table());
        if let Some(file) = &output.json {
            let mut text = serde_json::to_string_pretty(self)?;
            text.push('\n');
            write(file, &text)?;
        }
        if let Some(file) = &output.csv {
            write(file, &self.csv())?;
        }
        let check = output.check;
        let over = self.broken();
        if !check {
            return Ok(ExitCode::SUCCESS);
        }
        if self.rows.iter().all(|row| row.limit.is_none()) {
            println!("nothing is promised of these figures on this machine");
            return Ok(ExitCode::SUCCESS);
        }
        if over.is_empty() {
            println!("every limit kept");
            return Ok(ExitCode::SUCCESS);
        }
        println!("{} missed the limit", over.len());
        Ok(ExitCode::FAILURE)
    }
}

/// Writes a file, making its folder.
pub(crate) fn write(path: &Path, text: &str) -> Result<()> {
    let folder = path.parent().map_or(Ok(()), std::fs::create_dir_all);
    let written = folder.and_then(|()| std::fs::write(path, text));
    written.map_err(|error| Failure::new(format!("cannot write {}: {error}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn summary(median: f64) -> Summary {
        Summary::single(median)
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
        let rate = |ours| {
            Row::new("put rate", Some(8), 2, "M/s", summary(ours))
                .against("x", summary(2.0))
                .limit(Limit::Ratio(0.5))
        };
        assert_eq!([1.0, 0.99].map(|ours| rate(ours).kept()), [Some(true), Some(false)]);
    }

    #[test]
    fn of_bandwidth_more_is_better_and_the_machine_may_forbid_a_figure() {
        let row = |ours, limit| Row::new("put bandwidth", None, 2, "GB/s", summary(ours)).limit(limit);
        assert_eq!(row(46.0, Limit::AtLeast(45.5)).verdict(), "ok");
        assert_eq!(row(45.0, Limit::AtLeast(45.5)).verdict(), "UNDER");
        let probed = |ours| row(ours, Limit::Reach(45.5)).against("bare instructions", summary(44.0));
        assert_eq!([45.6, 42.0, 41.0].map(|ours| probed(ours).verdict()), ["ok", "ok (machine)", "UNDER"]);
        let latency = |ours| {
            Row::new("put", None, 2, "us", summary(ours))
                .limit(Limit::Reach(1.5))
                .against("bare", summary(2.0))
        };
        assert_eq!([1.5, 2.1, 2.2].map(|ours| latency(ours).verdict()), ["ok", "ok (machine)", "OVER"]);
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
        let (about, lines): (Vec<&str>, Vec<&str>) = csv.lines().partition(|line| line.starts_with('#'));
        assert_eq!(lines.len(), 3);
        assert!(lines.iter().all(|line| line.matches(',').count() == 22), "{csv}");
        for key in
            ["# tool: test", "# date: 20", "# commit: ", "# cpu: ", "# load: ", "# build: ", "# command: "]
        {
            assert!(about.iter().any(|line| line.starts_with(key)), "{key}: {csv}");
        }
        let json = serde_json::to_value(&report).expect("plain data");
        assert_eq!((&json["rows"][0]["kept"], &json["rows"][0]["verdict"]), (&false.into(), &"OVER".into()));
        assert_eq!((&json["rows"][1]["kept"], &json["rows"][1]["verdict"]), (&Value::Null, &Value::Null));
        assert_eq!((&json["rows"][1]["spread"], &json["schema"]), (&0.0.into(), &1.into()));
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
