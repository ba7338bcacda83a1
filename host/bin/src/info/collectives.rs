//! `rushmem-info --collectives`: the table by which collectives on streams are launched.

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::ExitCode;

use rushmem::doctor::{collective_launches, CollectiveLaunch};
use serde::Serialize;

/// A row of the table.
#[derive(Debug, Serialize)]
struct LaunchRow {
    device: &'static str,
    collective: String,
    from_bytes: u64,
    blocks: u32,
    threads: u32,
    origin: String,
    algorithm: String,
}

/// Shows the table.
pub(crate) fn show(json: bool) -> ExitCode {
    let rows = [("cuda", true), ("cpu", false)].map(|(device, gpu)| {
        collective_launches(gpu).map(|rows| rows.into_iter().map(move |row| LaunchRow::of(device, row)))
    });
    let [gpu, cpu] = match rows {
        [Ok(gpu), Ok(cpu)] => [gpu, cpu],
        [Err(e), _] | [_, Err(e)] => {
            eprintln!("rushmem-info: {e}");
            return ExitCode::FAILURE;
        }
    };
    let rows: Vec<LaunchRow> = gpu.chain(cpu).collect();
    let shown = match json {
        true => serde_json::to_string_pretty(&rows).map(|text| text + "\n").unwrap_or_else(|e| e.to_string()),
        false => text(&rows),
    };
    // Where stdout is closed, nobody reads it.
    let _ = std::io::stdout().write_all(shown.as_bytes());
    ExitCode::SUCCESS
}

impl LaunchRow {
    fn of(device: &'static str, row: CollectiveLaunch) -> LaunchRow {
        let CollectiveLaunch { collective, from_bytes, blocks, threads, origin, algorithm, .. } = row;
        LaunchRow { device, collective, from_bytes, blocks, threads, origin, algorithm }
    }
}

fn text(rows: &[LaunchRow]) -> String {
    let mut text = String::from(
        "Collectives on streams: blocks x threads of a launch, from a size on (bytes of a PE's larger array). On a\n\
         GPU no more blocks than half of what surely fits on every PE's GPU at once. RUSHMEM_COLLECTIVES changes\n\
         it: reduce=1x256,64K:8x512;alltoall=1x64\n\n\
         device  collective     from      launch     origin     data\n",
    );
    for row in rows {
        let LaunchRow { device, collective, from_bytes, blocks, threads, origin, algorithm } = row;
        let launch = format!("{blocks} x {threads}");
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "{device:<7} {collective:<14} {:<9} {launch:<10} {origin:<10} {algorithm}",
            size(*from_bytes)
        );
    }
    text
}

/// `64 KiB`.
fn size(bytes: u64) -> String {
    match bytes {
        0 => "0".to_owned(),
        n if n % (1 << 20) == 0 => format!("{} MiB", n >> 20),
        n if n % (1 << 10) == 0 => format!("{} KiB", n >> 10),
        n => format!("{n} B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_a_line() {
        let row = LaunchRow {
            device: "cuda",
            collective: "reduce".into(),
            from_bytes: 64 << 10,
            blocks: 64,
            threads: 512,
            origin: "estimated".into(),
            algorithm: "packets".into(),
        };
        let shown = text(&[row]);
        let line = shown.lines().last().expect("a line");
        assert_eq!(line, "cuda    reduce         64 KiB    64 x 512   estimated  packets");
        assert_eq!([0, 512, 1 << 20, 1500].map(size), ["0", "512 B", "1 MiB", "1500 B"]);
    }
}
