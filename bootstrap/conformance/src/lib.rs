//! What every rushmem bootstrap must do, as functions that any of them can be put through.
//!
//! [`run_all`] runs inside each rank, whatever started it (threads, `mpirun`, a launcher), and is collective:
//! all ranks call it with the same [`Limits`]. [`on_threads`] starts ranks as threads with a time limit.
//! [`dies`] is for bootstraps that notice deaths.
//!
//! Contents are fresh random on each run: a seed from rank 0, sent to all through the bootstrap, and printed
//! with each failure. What a rank must find is computed from (seed, round, source, destination), never taken
//! from what another rank says.

mod collectives;
mod content;
mod death;
mod threads;

use std::time::Duration;

use rushmem_bootstrap_abi::Bootstrap;

pub use collectives::{allgather, alltoall, barrier, broadcast, late_rank, mixed};
pub use death::dies;
pub use threads::on_threads;

/// How much to try.
#[derive(Debug, Clone)]
pub struct Limits {
    /// The largest blob in bytes.
    pub max_blob: usize,
    /// The most bytes that one rank holds for one collective; blobs shrink with the number of ranks to fit.
    pub max_total: usize,
    /// Rounds of the mixed test.
    pub rounds: u32,
    /// How late the late rank comes.
    pub late: Duration,
    /// Whether all ranks read the same clock (one host), so that a barrier can be checked by time stamps.
    pub same_clock: bool,
}

impl Default for Limits {
    /// Blobs up to 16 MiB, 64 MiB at a time, 60 mixed rounds, 300 ms late, one host.
    fn default() -> Self {
        Limits {
            max_blob: 16 << 20,
            max_total: 64 << 20,
            rounds: 60,
            late: Duration::from_millis(300),
            same_clock: true,
        }
    }
}

impl Limits {
    /// For `n` ranks that share one process: 256 MiB together (blobs of 16 MiB up to 4 ranks), 96 MiB for
    /// more than 4.
    pub fn for_threads(n: u32) -> Limits {
        let together = if n > 4 { 96 << 20 } else { 256 << 20 };
        Limits { max_total: together / n as usize, ..Limits::default() }
    }

    /// The blob sizes to try for `n` ranks: around the usual boundaries, up to what fits.
    pub(crate) fn sizes(&self, blobs: u32) -> Vec<usize> {
        let most = self.max_blob.min(self.max_total / blobs as usize);
        let mut sizes = vec![0, 1, 3, 8, 1021, 4095, 4096, 4097, 65535, 65536, 65537, 262145, 1 << 20, most];
        sizes.retain(|s| *s <= most);
        sizes.sort_unstable();
        sizes.dedup();
        sizes
    }
}

/// Runs everything but deaths. Collective; the bootstrap is still usable afterwards.
///
/// # Errors
/// The first thing that was wrong on this rank, with the seed.
pub fn run_all(b: &dyn Bootstrap, limits: &Limits) -> Result<(), String> {
    let seed = content::shared_seed(b)?;
    let context = |e| format!("rank {} of {} ({}), seed {seed:#x}: {e}", b.rank(), b.n_ranks(), b.name());
    identity(b).map_err(context)?;
    barrier(b, limits, seed).map_err(context)?;
    allgather(b, limits, seed).map_err(context)?;
    alltoall(b, limits, seed).map_err(context)?;
    broadcast(b, limits, seed).map_err(context)?;
    mixed(b, limits, seed).map_err(context)?;
    late_rank(b, limits, seed).map_err(context)?;
    match b.death() {
        None => Ok(()),
        Some(death) => Err(context(format!("nobody died, but death() says {death:?}"))),
    }
}

/// Ranks are 0..n, each once, and all ranks say the same n.
fn identity(b: &dyn Bootstrap) -> Result<(), String> {
    if b.name().is_empty() || b.rank() >= b.n_ranks() {
        return Err(format!("name {:?}, rank {} of {}", b.name(), b.rank(), b.n_ranks()));
    }
    let mine = [b.rank().to_le_bytes(), b.n_ranks().to_le_bytes()].concat();
    let mut all = vec![0; mine.len() * b.n_ranks() as usize];
    b.allgather(&mine, &mut all).map_err(|e| e.to_string())?;
    for (rank, said) in (0..b.n_ranks()).zip(all.chunks(8)) {
        if said != [rank.to_le_bytes(), b.n_ranks().to_le_bytes()].concat() {
            return Err(format!("the block of rank {rank} says (rank, n) = {said:?}"));
        }
    }
    Ok(())
}
