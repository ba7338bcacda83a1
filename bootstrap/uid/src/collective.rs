//! The collectives over the mesh: Bruck's allgather and alltoall, a dissemination barrier, a binomial
//! broadcast. Each takes ⌈log2 n⌉ rounds for any n, and talks to neighbours `± 2^k` only.
//!
//! Bruck, Ho, Kipnis, Upfal, Weathersby: "Efficient algorithms for all-to-all communications in multiport
//! message-passing systems" (1997); Hensgen, Finkel, Manber: "Two algorithms for barrier synchronization"
//! (1988).

use std::ops::Range;
use std::time::Duration;

use rushmem_bootstrap_abi::{BootError, BootErrorKind, Result};

use crate::mesh::exchange::{Active, Spans};
use crate::mesh::frame::Op;
use crate::mesh::Mesh;

/// Bytes that an alltoall moves at a time: larger blobs go in slices, so that the work space stays this small
/// (one byte a rank at least).
const ALLTOALL_WORK: usize = 4 << 20;
/// Bytes of a broadcast that go down the tree at a time, so that its levels work at the same time.
const BROADCAST_SLICE: usize = 256 << 10;

/// A rank's place in the job.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Position {
    pub(crate) rank: u32,
    pub(crate) n: u32,
}

impl Position {
    /// The rank `distance` further on.
    fn up(self, distance: u32) -> u32 {
        ((u64::from(self.rank) + u64::from(distance)) % u64::from(self.n)) as u32
    }

    fn down(self, distance: u32) -> u32 {
        self.up(self.n - distance % self.n)
    }

    /// 1, 2, 4, … below n, numbered.
    fn distances(self) -> impl Iterator<Item = (u32, u32)> {
        (0..32).map(|k| (k, 1u32 << k)).take_while(move |(_, d)| *d < self.n)
    }

    /// `count` blocks of `len` bytes from block `first` on, cyclically.
    fn blocks(self, first: u32, count: u32, len: usize) -> Spans {
        let (first, count, n) = (first as usize, count as usize, self.n as usize);
        let straight = count.min(n - first);
        Spans::new(vec![first * len..(first + straight) * len, 0..(count - straight) * len])
    }
}

fn wrong(text: String) -> BootError {
    BootError::new(BootErrorKind::InvalidArgument, text)
}

pub(crate) fn allgather(
    mesh: &Mesh,
    at: Position,
    limit: Duration,
    input: &[u8],
    out: &mut [u8],
) -> Result<()> {
    let len = input.len();
    if len.checked_mul(at.n as usize) != Some(out.len()) {
        return Err(wrong(format!("allgather of {len} bytes over {} ranks into {} bytes", at.n, out.len())));
    }
    let active = mesh.begin(Op::Allgather, 0, len, limit)?;
    out[at.rank as usize * len..][..len].copy_from_slice(input);
    for (k, distance) in at.distances() {
        let count = distance.min(at.n - distance);
        let send = (at.down(distance), at.blocks(at.rank, count, len));
        let recv = (at.up(distance), at.blocks(at.up(distance), count, len));
        mesh.exchange(&active, k, out, Some(send), Some(recv))?;
    }
    mesh.end(&active);
    Ok(())
}

pub(crate) fn alltoall(
    mesh: &Mesh,
    at: Position,
    limit: Duration,
    input: &[u8],
    out: &mut [u8],
) -> Result<()> {
    let n = at.n as usize;
    if input.len() != out.len() || input.len() % n != 0 {
        return Err(wrong(format!(
            "alltoall over {n} ranks from {} bytes into {} bytes: both must hold one block a rank",
            input.len(),
            out.len()
        )));
    }
    let len = input.len() / n;
    let active = mesh.begin(Op::Alltoall, 0, len, limit)?;
    let most = (ALLTOALL_WORK / n).clamp(1, len.max(1)).min(len);
    // Blocks under way, then the copy of those that are being sent.
    let mut work = vec![0; (n + n / 2) * most];
    let mut start = 0;
    for slice in 0u32.. {
        let part = most.min(len - start);
        let piece = |block: usize| block * len + start..block * len + start + part;
        for i in 0..n {
            work[i * part..][..part].copy_from_slice(&input[piece(at.up(i as u32) as usize)]);
        }
        for (k, distance) in at.distances() {
            bruck_round(mesh, &active, at, (slice * 32 + k, distance), part, &mut work)?;
        }
        for i in 0..n {
            out[piece(at.down(i as u32) as usize)].copy_from_slice(&work[i * part..][..part]);
        }
        start += part;
        if start == len {
            break;
        }
    }
    mesh.end(&active);
    Ok(())
}

/// Blocks whose remaining way has bit `distance` set move on by it.
fn bruck_round(
    mesh: &Mesh,
    active: &Active,
    at: Position,
    (step, distance): (u32, u32),
    part: usize,
    work: &mut [u8],
) -> Result<()> {
    let n = at.n as usize;
    let moving: Vec<Range<usize>> =
        (0..n).filter(|i| i & distance as usize != 0).map(|i| i * part..(i + 1) * part).collect();
    let stage = n * part;
    for (at, block) in moving.iter().enumerate() {
        work.copy_within(block.clone(), stage + at * part);
    }
    let send = Spans::one(stage..stage + moving.len() * part);
    let (to, from) = (at.up(distance), at.down(distance));
    mesh.exchange(active, step, work, Some((to, send)), Some((from, Spans::new(moving))))
}

/// A dissemination barrier; `op` tells a plain barrier from the one in finalize.
pub(crate) fn barrier(mesh: &Mesh, at: Position, limit: Duration, op: Op) -> Result<()> {
    let active = mesh.begin(op, 0, 0, limit)?;
    for (k, distance) in at.distances() {
        let (send, recv) = ((at.up(distance), Spans::default()), (at.down(distance), Spans::default()));
        mesh.exchange(&active, k, &mut [], Some(send), Some(recv))?;
    }
    mesh.end(&active);
    Ok(())
}

pub(crate) fn broadcast(mesh: &Mesh, at: Position, limit: Duration, buf: &mut [u8], root: u32) -> Result<()> {
    if root >= at.n {
        return Err(wrong(format!("broadcast from rank {root} of {} ranks", at.n)));
    }
    let active = mesh.begin(Op::Broadcast, root, buf.len(), limit)?;
    let from_root = Position { rank: at.rank, n: at.n }.down(root);
    let parent = from_root.checked_ilog2().map(|k| at.down(1 << k));
    let children: Vec<u32> = at
        .distances()
        .filter(|(_, d)| *d > from_root && u64::from(from_root) + u64::from(*d) < u64::from(at.n))
        .map(|(_, d)| at.up(d))
        .collect();
    let mut start = 0;
    for step in 0u32.. {
        let end = buf.len().min(start + BROADCAST_SLICE);
        let slice = || Spans::one(start..end);
        if let Some(parent) = parent {
            mesh.exchange(&active, step, buf, None, Some((parent, slice())))?;
        }
        for child in &children {
            mesh.exchange(&active, step, buf, Some((*child, slice())), None)?;
        }
        start = end;
        if start == buf.len() {
            break;
        }
    }
    mesh.end(&active);
    Ok(())
}
