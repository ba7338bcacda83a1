//! A record drawn again, or a part of it: a run of `device curves` has more lines than one plot can show.

use std::process::ExitCode;

use crate::args::PlotArgs;
use crate::job::{Failure, Result};
use crate::plot;
use crate::report::{write, Report, Row};

/// Writes the plot.
pub(crate) fn run(args: &PlotArgs) -> Result<ExitCode> {
    let said = |what: &dyn std::fmt::Display| Failure::new(format!("{}: {what}", args.record.display()));
    let text = std::fs::read_to_string(&args.record).map_err(|error| said(&error))?;
    let mut report: Report = serde_json::from_str(&text).map_err(|error| said(&error))?;
    report.rows = chosen(report.rows, &args.only, &args.scope).map_err(|failure| said(&failure))?;
    write(&args.plot, &plot::svg(&report)?)?;
    Ok(ExitCode::SUCCESS)
}

/// The rows of these operations and scopes; of all, where none is named.
fn chosen(mut rows: Vec<Row>, only: &[String], scopes: &[String]) -> Result<Vec<Row>> {
    let scope = |row: &Row| row.shape.as_ref().map_or(String::new(), |shape| shape.scope.clone());
    for (what, wanted, there) in [
        ("operation", only, names(rows.iter().map(|row| row.measure.clone()))),
        ("scope", scopes, names(rows.iter().map(scope))),
    ] {
        if let Some(name) = wanted.iter().find(|name| !there.contains(name)) {
            return Err(Failure::new(format!("it has no {what} `{name}`; it has: {}", there.join(", "))));
        }
    }
    rows.retain(|row| only.is_empty() || only.contains(&row.measure));
    rows.retain(|row| scopes.is_empty() || scopes.contains(&scope(row)));
    Ok(rows)
}

/// Each name once, in the order in which they come.
fn names(all: impl Iterator<Item = String>) -> Vec<String> {
    let mut names = Vec::new();
    for name in all.filter(|name| !name.is_empty()) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Shape;
    use crate::stats::Summary;

    fn rows() -> Vec<Row> {
        let row = |measure: &str, scope: &str, bytes| {
            let mut row = Row::new(measure, Some(bytes), 2, "us", Summary::single(1.0));
            row.shape = Some(Shape { scope: scope.into(), ..Shape::default() });
            row
        };
        let of = |bytes| [row("put", "warp", bytes), row("put", "block", bytes), row("get", "block", bytes)];
        [8, 16].into_iter().flat_map(of).collect()
    }

    fn texts<const N: usize>(names: [&str; N]) -> [String; N] {
        names.map(str::to_owned)
    }

    #[test]
    fn rows_are_chosen_by_operation_and_scope() {
        let count = |only: &[String], scopes: &[String]| chosen(rows(), only, scopes).unwrap().len();
        assert_eq!(count(&[], &[]), 6);
        assert_eq!(count(&texts(["put"]), &[]), 4);
        assert_eq!(count(&texts(["put", "get"]), &texts(["block"])), 4);
        assert_eq!(count(&texts(["get"]), &texts(["warp"])), 0);
    }

    #[test]
    fn what_is_not_there_is_named_with_what_is() {
        let said = |only: &[String], scopes: &[String]| chosen(rows(), only, scopes).unwrap_err().to_string();
        assert_eq!(said(&texts(["putt"]), &[]), "it has no operation `putt`; it has: put, get");
        assert_eq!(said(&[], &texts(["grid"])), "it has no scope `grid`; it has: warp, block");
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let environment = crate::environment::Environment::here();
        let (tool, parameters) = ("a tool".to_owned(), serde_json::Value::Null);
        let report = Report { schema: 1, tool, environment, parameters, rows: rows() };
        let again: Report = serde_json::from_str(&serde_json::to_string(&report).unwrap()).unwrap();
        assert_eq!(plot::svg(&again).unwrap(), plot::svg(&report).unwrap());
    }
}
