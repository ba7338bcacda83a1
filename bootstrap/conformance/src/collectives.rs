//! The collectives, one by one and mixed. Every function is collective and takes the run's seed.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rushmem_bootstrap_abi::{BootErrorKind, Bootstrap};

use crate::content::{fill, next, verify, Key};
use crate::Limits;

fn one_allgather(b: &dyn Bootstrap, seed: u64, round: u32, size: usize) -> Result<(), String> {
    let key = |from| Key { seed, round, from, to: u32::MAX };
    let mut input = vec![0; size];
    fill(key(b.rank()), &mut input);
    let mut out = vec![0x5a; size * b.n_ranks() as usize];
    b.allgather(&input, &mut out).map_err(|e| format!("allgather of {size} bytes: {e}"))?;
    verify(key(b.rank()), &input, "input of allgather")?;
    (0..b.n_ranks()).try_for_each(|r| verify(key(r), &out[r as usize * size..][..size], "allgather"))
}

fn one_alltoall(b: &dyn Bootstrap, seed: u64, round: u32, size: usize) -> Result<(), String> {
    let (me, n) = (b.rank(), b.n_ranks());
    let mut input = vec![0; size * n as usize];
    for to in 0..n {
        fill(Key { seed, round, from: me, to }, &mut input[to as usize * size..][..size]);
    }
    let mut out = vec![0x5a; input.len()];
    b.alltoall(&input, &mut out).map_err(|e| format!("alltoall of {size} bytes: {e}"))?;
    for other in 0..n {
        let block = |buf: &[u8]| buf[other as usize * size..][..size].to_vec();
        verify(Key { seed, round, from: me, to: other }, &block(&input), "input of alltoall")?;
        verify(Key { seed, round, from: other, to: me }, &block(&out), "alltoall")?;
    }
    Ok(())
}

fn one_broadcast(b: &dyn Bootstrap, seed: u64, round: u32, size: usize, root: u32) -> Result<(), String> {
    let key = Key { seed, round, from: root, to: u32::MAX - 1 };
    let mut buf = vec![0x5a; size];
    if b.rank() == root {
        fill(key, &mut buf);
    }
    b.broadcast(&mut buf, root).map_err(|e| format!("broadcast of {size} bytes from {root}: {e}"))?;
    verify(key, &buf, "broadcast")
}

fn now_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos() as u64)
}

/// Ranks enter after `delay`; nobody may come out before the last has gone in.
fn one_barrier(b: &dyn Bootstrap, limits: &Limits, delay: Duration) -> Result<(), String> {
    std::thread::sleep(delay);
    let entered = now_ns();
    b.barrier().map_err(|e| format!("barrier: {e}"))?;
    let left = now_ns();
    if !limits.same_clock {
        return Ok(());
    }
    let mut all = vec![0; 8 * b.n_ranks() as usize];
    b.allgather(&entered.to_le_bytes(), &mut all).map_err(|e| format!("allgather of times: {e}"))?;
    for (rank, at) in all.chunks(8).enumerate() {
        let at = u64::from_le_bytes(at.try_into().expect("chunks of 8"));
        if at > left {
            return Err(format!("left a barrier {} ns before rank {rank} entered it", at - left));
        }
    }
    Ok(())
}

/// Allgathers of every size.
///
/// # Errors
/// The first wrong byte or failed call.
pub fn allgather(b: &dyn Bootstrap, limits: &Limits, seed: u64) -> Result<(), String> {
    for (round, size) in (0..).zip(limits.sizes(b.n_ranks())) {
        one_allgather(b, seed ^ 1, round, size)?;
    }
    // What the caller alone gets wrong is refused before anybody else is involved.
    match b.allgather(&[0; 3], &mut vec![0; 3 * b.n_ranks() as usize + 1]) {
        Err(e) if e.kind == BootErrorKind::InvalidArgument => Ok(()),
        other => Err(format!("an output of the wrong size gave {other:?}")),
    }
}

/// Alltoalls of every size.
///
/// # Errors
/// The first wrong byte or failed call.
pub fn alltoall(b: &dyn Bootstrap, limits: &Limits, seed: u64) -> Result<(), String> {
    for (round, size) in (0..).zip(limits.sizes(2 * b.n_ranks())) {
        one_alltoall(b, seed ^ 2, round, size)?;
    }
    Ok(())
}

/// Barriers, with ranks that come at random times.
///
/// # Errors
/// A rank that came out before another went in, or a failed call.
pub fn barrier(b: &dyn Bootstrap, limits: &Limits, seed: u64) -> Result<(), String> {
    let mut mine = seed ^ 3 ^ (u64::from(b.rank()) << 32);
    for round in 0..30 {
        let delay = if round % 3 == 0 { next(&mut mine) % 5000 } else { 0 };
        one_barrier(b, limits, Duration::from_micros(delay))?;
    }
    Ok(())
}

/// Broadcasts of every size, and from every rank (up to 40 of them).
///
/// # Errors
/// The first wrong byte or failed call.
pub fn broadcast(b: &dyn Bootstrap, limits: &Limits, seed: u64) -> Result<(), String> {
    let n = b.n_ranks();
    for (round, size) in (0..).zip(limits.sizes(1)) {
        one_broadcast(b, seed ^ 4, round, size, (seed as u32).wrapping_add(round) % n)?;
    }
    for root in 0..n.min(40) {
        one_broadcast(b, seed ^ 5, root, 1000 + root as usize, n - 1 - root)?;
    }
    match b.broadcast(&mut [0; 4], n) {
        Err(e) if e.kind == BootErrorKind::InvalidArgument => Ok(()),
        other => Err(format!("a broadcast from rank {n} of {n} gave {other:?}")),
    }
}

/// Many rounds of whatever comes, back to back.
///
/// # Errors
/// The first wrong byte or failed call.
pub fn mixed(b: &dyn Bootstrap, limits: &Limits, seed: u64) -> Result<(), String> {
    let mut shared = seed ^ 6;
    let most = (limits.max_total as u64 / u64::from(4 * b.n_ranks())).clamp(2, 20_000);
    for round in 0..limits.rounds {
        let (op, size) = (next(&mut shared) % 5, (next(&mut shared) % most) as usize);
        let root = (next(&mut shared) % u64::from(b.n_ranks())) as u32;
        match op {
            0 => one_allgather(b, seed ^ 7, round, size)?,
            1 => one_alltoall(b, seed ^ 7, round, size)?,
            2 => one_barrier(b, limits, Duration::ZERO)?,
            3 => b.barrier().map_err(|e| format!("barrier: {e}"))?,
            _ => one_broadcast(b, seed ^ 7, round, size, root)?,
        }
    }
    Ok(())
}

/// One rank comes late to each kind of call.
///
/// # Errors
/// The first wrong byte or failed call.
pub fn late_rank(b: &dyn Bootstrap, limits: &Limits, seed: u64) -> Result<(), String> {
    let mut shared = seed ^ 8;
    let size = (limits.max_total / (2 * b.n_ranks() as usize)).min(100_000);
    for round in 0..4 {
        let late = (next(&mut shared) % u64::from(b.n_ranks())) as u32;
        let delay = if b.rank() == late { limits.late } else { Duration::ZERO };
        if round == 0 {
            one_barrier(b, limits, delay)?;
            continue;
        }
        std::thread::sleep(delay);
        match round {
            1 => one_allgather(b, seed ^ 9, round, size)?,
            2 => one_alltoall(b, seed ^ 9, round, size)?,
            _ => one_broadcast(b, seed ^ 9, round, size, late)?,
        }
    }
    Ok(())
}
