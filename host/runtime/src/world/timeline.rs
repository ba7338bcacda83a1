//! The timeline of a world that is traced (`RUSHMEM_TRACE`): how far its PEs' clocks are apart.

use std::sync::atomic::Ordering;

use rushmem_abi::c::rushmem_counters_t;

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
    /// What this PE has asked `pe` for so far.
    pub(crate) fn counters(&self, pe: i32) -> Result<rushmem_counters_t> {
        self.peer(pe)?;
        let timeline = self.trace.as_ref().and_then(|trace| trace.timeline());
        let (host, kernels) = timeline.map(|timeline| timeline.counted(pe)).unwrap_or_default();
        Ok(rushmem_counters_t {
            operations: host.operations,
            bytes: host.bytes,
            ns: host.ns,
            stalls: host.stalls,
            retries: self.far.as_ref().map_or(0, |far| far.retries()[pe as usize].load(Ordering::Relaxed)),
            kernel_operations: kernels.operations,
            kernel_bytes: kernels.bytes,
            kernel_ns: kernels.ns,
            kernel_stalls: kernels.stalls,
        })
    }

    /// Says which PEs' network was full for this one, where no timeline's lines do.
    pub(super) fn tell_retries(&self) {
        let Some(far) = self.far.as_ref().filter(|_| log::log_enabled!(log::Level::Info)) else { return };
        if self.trace.as_ref().is_some_and(|trace| trace.timeline().is_some()) {
            return;
        }
        for (pe, retries) in far.retries().iter().enumerate() {
            match retries.load(Ordering::Relaxed) {
                0 => {}
                n => log::info!(
                    "{}: {n} operations on PE {pe} found the network full: retries",
                    self.health.who()
                ),
            }
        }
    }

    /// What has happened so far goes to the file: the process may be about to end.
    pub(super) fn flush_trace(&self) {
        if let Some(timeline) = self.trace.as_ref().and_then(|trace| trace.timeline()) {
            timeline.flush();
        }
    }
}
