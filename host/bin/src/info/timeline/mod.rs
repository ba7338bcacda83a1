//! `rushmem-info --trace`: timelines of a run (`RUSHMEM_TRACE`), read again: who waited for whom, how long
//! and where; and merged into one file, by PE 0's clock.
//!
//! - [`read`]: files, and what is wrong with one;
//! - [`waits`]: whom each wait was for;
//! - [`merge`]: one file of all.

mod merge;
mod read;
mod waits;

use std::cmp::Reverse;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::timeline::read::{Counters, Timeline};
use crate::timeline::waits::Wait;

/// Waits that are shown.
const SHOWN: usize = 20;

/// Shows the waits of these files; writes all to `merged`, where that is asked for.
pub(crate) fn show(files: &[PathBuf], merged: Option<&Path>) -> ExitCode {
    let done = read::all(files).and_then(|timelines| {
        if let Some(merged) = merged {
            merge::write(&timelines, merged)?;
        }
        Ok(render(&timelines))
    });
    match done {
        Ok(text) => {
            // Where stdout is closed, nobody reads the report.
            let _ = std::io::stdout().write_all(text.as_bytes());
            ExitCode::SUCCESS
        }
        Err(text) => {
            eprintln!("rushmem-info: {text}");
            ExitCode::FAILURE
        }
    }
}

fn render(timelines: &[Timeline]) -> String {
    let mut lines = Vec::new();
    let spans: usize = timelines.iter().map(|timeline| timeline.spans.len()).sum();
    lines.push(format!("timelines   {} PEs, {spans} spans; {}", timelines.len(), agreement(timelines)));
    for timeline in timelines {
        lines.extend(timeline.notes.iter().map(|note| format!("  {}: {note}", timeline.who)));
    }
    let mut waits = waits::of(timelines);
    waits.sort_by_key(|wait| Reverse(wait.ns));
    lines.push(format!("top waits   {} of {}", waits.len().min(SHOWN), waits.len()));
    lines.extend(waits.iter().take(SHOWN).map(|wait| format!("  {:>12}  {wait}", time(wait.ns))));
    lines.push("totals".to_owned());
    lines.extend(totals(&waits));
    lines.extend(counters(timelines));
    lines.join("\n") + "\n"
}

/// How far times of several PEs can be compared.
fn agreement(timelines: &[Timeline]) -> String {
    let unknown: Vec<String> =
        timelines.iter().filter(|t| t.clock.is_none()).map(|t| t.pe.to_string()).collect();
    if !unknown.is_empty() {
        return format!("the clocks of PEs {} are not compared with PE 0's", unknown.join(", "));
    }
    match timelines.iter().filter_map(|t| t.clock).map(|clock| clock.error_ns).max() {
        None | Some(0) => "all by one clock".to_owned(),
        Some(error) => format!("their clocks are aligned within {}", time(error)),
    }
}

/// Who waited for whom, in all.
fn totals(waits: &[Wait<'_>]) -> Vec<String> {
    let mut totals: Vec<(i64, Option<i64>, usize, u64)> = Vec::new();
    for wait in waits {
        match totals.iter_mut().find(|(pe, whom, ..)| *pe == wait.pe && *whom == wait.whom) {
            Some((.., count, ns)) => (*count, *ns) = (*count + 1, *ns + wait.ns),
            None => totals.push((wait.pe, wait.whom, 1, wait.ns)),
        }
    }
    totals.sort_by_key(|(.., ns)| Reverse(*ns));
    let line = |(pe, whom, count, ns): &(i64, Option<i64>, usize, u64)| {
        let whom = whom.map_or("nobody known".to_owned(), |pe| format!("PE {pe}"));
        let waits = if *count == 1 { "wait" } else { "waits" };
        format!("  {:>12}  PE {pe} for {whom}: {count} {waits}", time(*ns))
    };
    totals.iter().map(line).collect()
}

/// What PEs have asked each other for: what took the most operations first.
fn counters(timelines: &[Timeline]) -> Vec<String> {
    let mut rows: Vec<(i64, &Counters)> =
        timelines.iter().flat_map(|t| t.counters.iter().map(|row| (t.pe, row))).collect();
    rows.sort_by_key(|(pe, row)| (row.peer.is_none(), Reverse(row.operations), *pe, row.peer));
    if rows.is_empty() {
        return Vec::new();
    }
    let line = |(pe, row): &(i64, &Counters)| {
        let Counters { peer, by, operations, bytes, ns, stalls, retries } = row;
        let some = |n: u64, what: &str| if n == 0 { String::new() } else { format!(", {n} {what}") };
        let (what, stalls) = (time(*ns), some(*stalls, "stalls") + &some(*retries, "retries"));
        match peer {
            Some(peer) => {
                let asked = format!("{operations} operations, {bytes} bytes, {what}{stalls}");
                format!("  PE {pe}'s {by} asked PE {peer}: {asked}")
            }
            None => format!("  PE {pe}'s {by} waited: {operations} times, {what}{stalls}"),
        }
    };
    let head = format!("counters    {} of {}", rows.len().min(SHOWN), rows.len());
    std::iter::once(head).chain(rows.iter().take(SHOWN).map(line)).collect()
}

/// A duration, for people.
fn time(ns: u64) -> String {
    match ns as f64 {
        ns if ns < 1e3 => format!("{ns} ns"),
        ns if ns < 1e6 => format!("{:.2} us", ns / 1e3),
        ns if ns < 1e9 => format!("{:.2} ms", ns / 1e6),
        ns => format!("{:.3} s", ns / 1e9),
    }
}
