//! How numbers and columns are written, whatever they are of.

use std::fmt::Write as _;

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

/// Names may hold commas; the table of a spreadsheet is no place for them.
pub(crate) fn quoted(value: Option<&String>) -> String {
    value.map_or(String::new(), |value| match value.contains([',', '"']) {
        true => format!("\"{}\"", value.replace('"', "\"\"")),
        false => value.clone(),
    })
}

/// Bytes as people say them.
pub(crate) fn size(bytes: u64) -> String {
    match bytes {
        b if b >= 1 << 20 && b % (1 << 20) == 0 => format!("{} MiB", b >> 20),
        b if b >= 1 << 10 && b % (1 << 10) == 0 => format!("{} KiB", b >> 10),
        b => format!("{b} B"),
    }
}
