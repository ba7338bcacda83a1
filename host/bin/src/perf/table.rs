//! A report as a table for people and as CSV for a spreadsheet. Columns that no row has anything for are left
//! out of the table; CSV has all of them.

use std::fmt::Write as _;

use crate::report::{Limit, Report, Row};
use crate::text::{align, quoted};

/// A column: its head, whether its cells begin on one line (figures end on one), and what a row has in it.
type Column = (&'static str, bool, fn(&Row) -> String);

const COLUMNS: [Column; 17] = [
    ("operation", true, |row| row.operation()),
    ("PEs", false, |row| row.pes.to_string()),
    ("scope", true, |row| row.shape.as_ref().map_or(String::new(), |shape| shape.scope.clone())),
    ("launch", false, |row| {
        let shape = row.shape.as_ref().filter(|shape| shape.blocks > 0);
        shape.map_or(String::new(), |shape| format!("{} x {}", shape.blocks, shape.threads))
    }),
    ("median", false, |row| figure(row, row.ours.median)),
    ("min", false, |row| figure(row, row.ours.min)),
    ("p99", false, |row| figure(row, row.ours.p99)),
    ("spread", false, |row| match row.ours.samples {
        0 | 1 => String::new(),
        _ => format!("{:.0}%", row.ours.spread() * 100.0),
    }),
    ("reference", true, |row| row.reference.as_ref().map_or(String::new(), |r| r.name.clone())),
    ("median", false, |row| row.reference.as_ref().map_or(String::new(), |r| figure(row, r.summary.median))),
    ("ratio", false, |row| row.ratio.map_or(String::new(), |ratio| format!("{ratio:.2}x"))),
    ("peer", false, |row| row.peer.as_ref().map_or(String::new(), |peer| figure(row, peer.value))),
    ("ratio", false, |row| row.peer_ratio().map_or(String::new(), |ratio| format!("{ratio:.2}x"))),
    ("machine", false, |row| {
        row.machine.as_ref().map_or(String::new(), |machine| figure(row, machine.value))
    }),
    ("limit", false, |row| match row.limit {
        Some(Limit::Ratio(most) | Limit::Beside(most)) => format!("{most:.2}x"),
        Some(Limit::Median(wanted) | Limit::AtLeast(wanted) | Limit::Reach(wanted)) => figure(row, wanted),
        None => String::new(),
    }),
    ("", true, |row| row.verdict().to_owned()),
    ("note", true, |row| row.shape.as_ref().and_then(|shape| shape.note.clone()).unwrap_or_default()),
];

impl Report {
    /// For people.
    pub(crate) fn table(&self) -> String {
        let mut lines = vec![Vec::new(); self.rows.len() + 1];
        let mut left = Vec::new();
        for (head, begins, cell) in COLUMNS {
            let cells: Vec<String> = self.rows.iter().map(cell).collect();
            if cells.iter().all(String::is_empty) {
                continue;
            }
            if begins {
                left.push(lines[0].len());
            }
            for (line, cell) in lines.iter_mut().zip(std::iter::once(head.to_owned()).chain(cells)) {
                line.push(cell);
            }
        }
        format!("{}\n{}", self.environment, align(&lines, &left))
    }

    /// For a spreadsheet: one line for each row, behind comments that say where and how they were made.
    pub(crate) fn csv(&self) -> String {
        let mut out = format!("# tool: {}\n{}", self.tool, self.environment.comments());
        out.push_str(
            "operation,bytes,pes,unit,median,min,p99,samples,reference,reference_median,ratio,limit,kept,scope,blocks,\
             threads,iterations,spread,peer,peer_value,peer_ratio,machine,machine_value\n",
        );
        for row in &self.rows {
            let limit = row.limit.map(Limit::value);
            let (reference, shape) = (row.reference.as_ref(), row.shape.as_ref());
            let cells = [
                quoted(Some(&row.measure)),
                text(row.bytes),
                row.pes.to_string(),
                row.unit.clone(),
                row.ours.median.to_string(),
                row.ours.min.to_string(),
                row.ours.p99.to_string(),
                row.ours.samples.to_string(),
                quoted(reference.map(|r| &r.name)),
                text(reference.map(|r| r.summary.median)),
                text(row.ratio),
                text(limit),
                text(row.kept()),
                text(shape.map(|shape| &shape.scope)),
                text(shape.map(|shape| shape.blocks)),
                text(shape.map(|shape| shape.threads)),
                text(shape.map(|shape| shape.iterations)),
                text(Some(row.ours.spread())),
                quoted(row.peer.as_ref().map(|peer| &peer.name)),
                text(row.peer.as_ref().map(|peer| peer.value)),
                text(row.peer_ratio()),
                quoted(row.machine.as_ref().map(|machine| &machine.name)),
                text(row.machine.as_ref().map(|machine| machine.value)),
            ];
            let _ = writeln!(out, "{}", cells.join(","));
        }
        out
    }
}

fn text(value: Option<impl ToString>) -> String {
    value.map_or(String::new(), |value| value.to_string())
}

fn figure(row: &Row, value: f64) -> String {
    format!("{} {}", short(value), row.unit)
}

/// Three significant digits or so.
fn short(value: f64) -> String {
    match value {
        v if v >= 100.0 => format!("{v:.0}"),
        v if v >= 10.0 => format!("{v:.1}"),
        v => format!("{v:.2}"),
    }
}
