//! Start-up: from the exec of rushmem-run until the last PE has a world and has passed its first barrier.
//! That is what a person waits for, so the launcher's time and the loading of the runtime are in it;
//! finalising is not.

use std::process::Stdio;

use rushmem::World;

use crate::args::HostArgs;
use crate::job::{self, monotonic_ns, Failure, Result};
use crate::report::{Limit, Row};
use crate::stats::Summary;

/// PEs, and the most milliseconds that the median may take where the project promises one.
const JOBS: [(u32, Option<f64>); 2] = [(4, Some(150.0)), (64, None)];

/// One PE of such a job: prints when it was ready, in nanoseconds of the monotonic clock, which all processes
/// share.
pub(crate) fn ready() -> Result<()> {
    let world = World::init()?;
    world.barrier_all()?;
    println!("{READY}{}", monotonic_ns());
    world.finalize()?;
    Ok(())
}

const READY: &str = "rushmem-perf ready at ";

pub(super) fn measure(args: &HostArgs) -> Result<Vec<Row>> {
    JOBS.into_iter()
        .map(|(pes, limit)| {
            // The first start pays for reading programs and libraries from the disk; it is not counted.
            start(pes)?;
            let samples: Vec<f64> = (0..args.starts).map(|_| start(pes)).collect::<Result<_>>()?;
            let summary = Summary::of(samples).ok_or_else(|| Failure::new("no start was measured"))?;
            let row = Row::new("start-up", None, pes, "ms", summary);
            Ok(match limit {
                Some(most) => row.limit(Limit::Median(most)),
                None => row,
            })
        })
        .collect()
}

/// Milliseconds of one start of `pes` PEs.
fn start(pes: u32) -> Result<f64> {
    let mut command = job::command(pes, 120)?;
    command.arg("ready").stdout(Stdio::piped());
    let exec = monotonic_ns();
    let output = command.spawn()?.wait_with_output()?;
    if !output.status.success() {
        return Err(Failure::new(format!("{pes} PEs that only start and stop ended with {}", output.status)));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let ready: Vec<u64> =
        text.split(READY).skip(1).filter_map(|rest| rest.lines().next()?.parse().ok()).collect();
    match ready.iter().max() {
        Some(last) if ready.len() == pes as usize => Ok(last.saturating_sub(exec) as f64 / 1e6),
        _ => Err(Failure::new(format!("{} of {pes} PEs said that they were ready: {text:?}", ready.len()))),
    }
}
