//! The timeline of a world that is traced (`RUSHMEM_TRACE`): how far its PEs' clocks are apart.

use super::World;
use crate::collective::Entered;
use crate::error::Result;
use crate::node::control::Call;
use crate::trace::clock::{now, Distance, Times, ROUNDS};

/// Collective: how far this PE's clock is ahead of PE 0's. `clocks` says whose are whose, 0 of a PE that is
/// not traced. Rounds only where PEs that are traced have several.
pub(super) fn align(mut call: Entered<'_>, clocks: &[u64], me: usize) -> Result<Option<Distance>> {
    let mut traced = clocks.iter().copied().filter(|clock| *clock != 0);
    let first = traced.next();
    if traced.all(|clock| Some(clock) == first) {
        return Ok((clocks[0] == clocks[me]).then_some(Distance::NONE));
    }
    let mut rounds: Vec<Vec<Times>> = Vec::with_capacity(ROUNDS);
    let (mut entered, mut left) = (vec![0; clocks.len()], 0);
    // The last round only tells when the PEs left the one before.
    for round in 0..=ROUNDS {
        let now_entered = now();
        call.round(Call::Step, [now_entered, left, 0, 0])?;
        left = now();
        let told = |i| call.words(i);
        if round > 0 {
            rounds.push((0..clocks.len()).map(|i| Times { entered: entered[i], left: told(i)[1] }).collect());
        }
        entered = (0..clocks.len()).map(|i| told(i)[0]).collect();
    }
    Ok(if clocks[0] == 0 { None } else { Distance::between(&rounds, clocks, me) })
}

impl World {
    /// What has happened so far goes to the file: the process may be about to end.
    pub(super) fn flush_trace(&self) {
        if let Some(timeline) = self.trace.as_ref().and_then(|trace| trace.timeline()) {
            timeline.flush();
        }
    }
}
