//! A job of PEs that makes the figures of a plan, seen from the process that started it.

use std::process::Stdio;
use std::time::Duration;

use super::pe::{about_file, plan_file, rows_file, About};
use super::plan::Plan;
use crate::job::{Failure, Result};
use crate::progress::{new_lines, Progress};
use crate::report::Row;
use crate::spread::Spread;

/// Seconds that a job may take besides the time that its figures are given: starting, compiling, verifying.
const START_S: u32 = 180;
/// Seconds for each figure besides its batches.
const FIGURE_S: f64 = 1.5;

/// What came of the jobs.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// The figures, in the plans' order.
    pub(super) rows: Vec<Row>,
    /// For each job its PEs and what it was made of.
    pub(super) abouts: Vec<(u32, About)>,
    /// Jobs that ended early.
    pub(super) failures: Vec<String>,
}

/// Runs the plan on a job's PEs and adds what they found, which on failure is what they had found before.
pub(super) fn run(spread: Spread, plan: &Plan, progress: &Progress, outcome: &mut Outcome) -> Result<()> {
    let folder = tempfile::tempdir()?;
    std::fs::write(plan_file(folder.path()), serde_json::to_vec(plan)?)?;
    let figures = plan.specs.len() as f64;
    // Each has a probe and two short runs besides.
    let limit = f64::from(START_S) + figures * (FIGURE_S + 4.0 * f64::from(plan.budget_ms) / 1e3);
    let mut command = spread.command("plan-pe", folder.path(), limit as u32)?;
    let mut child = command
        .stdout(Stdio::null())
        .spawn()
        .map_err(|e| Failure::new(format!("cannot start the PEs: {e}")))?;
    let mut read = 0;
    let status = loop {
        let ended = child.try_wait()?;
        for line in new_lines(&rows_file(folder.path()), &mut read)? {
            let row: Row = serde_json::from_str(&line)?;
            progress.step(row.operation());
            outcome.rows.push(row);
        }
        if let Some(status) = ended {
            break status;
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    if !status.success() {
        return Err(Failure::new(format!("ended with {status}")));
    }
    let about = std::fs::read(about_file(folder.path()));
    let about = about.map_err(|e| Failure::new(format!("PE 0 left nothing: {e}")))?;
    outcome.abouts.push((spread.pes(), serde_json::from_slice(&about)?));
    Ok(())
}
