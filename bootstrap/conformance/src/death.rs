//! A rank dies while the others wait for it.

use std::time::{Duration, Instant};

use rushmem_bootstrap_abi::{BootErrorKind, Bootstrap};

/// Rank `victim` calls `kill` (which ends the rank: a signal to its process, a drop of its bootstrap) while
/// the others are in a barrier; each of them must get an error that names it within `within`, and every later
/// call must fail as well. Collective; afterwards the bootstrap may only be dropped.
///
/// # Errors
/// What a survivor saw instead.
pub fn dies(b: &dyn Bootstrap, victim: u32, kill: &dyn Fn(), within: Duration) -> Result<(), String> {
    const DELAY: Duration = Duration::from_millis(150);
    b.barrier().map_err(|e| format!("barrier before the death: {e}"))?;
    let start = Instant::now();
    if b.rank() == victim {
        std::thread::sleep(DELAY); // the others are waiting by then
        kill();
        return Ok(());
    }
    let error = match b.barrier() {
        Ok(()) => return Err(format!("a barrier went through without rank {victim}")),
        Err(e) => e,
    };
    let took = start.elapsed();
    if error.kind != BootErrorKind::PeerDead || error.rank != Some(victim) {
        return Err(format!("rank {victim} died, but the barrier says {error:?}"));
    }
    if !error.message.contains(&format!("rank {victim} ")) {
        return Err(format!("the text does not name rank {victim}: {error}"));
    }
    if took > DELAY + within {
        return Err(format!("noticed the death after {took:?}"));
    }
    match b.death() {
        Some(death) if death.rank == victim => {}
        other => return Err(format!("rank {victim} died, but death() says {other:?}")),
    }
    let mut out = vec![0; b.n_ranks() as usize];
    match b.allgather(&[1], &mut out) {
        Err(e) if e.kind == BootErrorKind::PeerDead && e.rank == Some(victim) => Ok(()),
        other => Err(format!("a call after the death gave {other:?}")),
    }
}
