//! The two PEs of a measure of `far`, on either side of a network: who the other one is, data that both know,
//! and where PE 0 leaves what it found.

use std::path::{Path, PathBuf};

use rushmem::{Pe, World};
use serde::Serialize;

use crate::args::PeArgs;
use crate::job::{Failure, Result};

/// One of them.
pub(super) struct Pair<'a> {
    pub(super) world: &'a World,
    pub(super) other: Pe,
    /// It is PE 0.
    pub(super) first: bool,
    /// How the other one is reached.
    pub(super) way: String,
    /// More about that, for people.
    pub(super) reason: String,
    /// Of the data, the same on both PEs.
    pub(super) salt: u64,
    /// Data is made wrong before it is looked at.
    corrupt: bool,
}

impl<'a> Pair<'a> {
    /// An error unless there are two PEs, which reach each other by UCX.
    pub(super) fn of(world: &'a World, args: &PeArgs) -> Result<Pair<'a>> {
        Pair::by(world, args, &["ucx"])
    }

    /// An error unless there are two PEs, which reach each other by one of these.
    pub(super) fn by(world: &'a World, args: &PeArgs, ways: &[&str]) -> Result<Pair<'a>> {
        let me = world.my_pe().number();
        let other = Pe::new(1 - me.min(1));
        let peer = world.peer(other)?;
        if world.n_pes() != 2 || !ways.contains(&peer.transport.as_str()) {
            return Err(Failure::new(format!(
                "{other} is reached by {} ({}), not by {}",
                peer.transport,
                peer.reason,
                ways.join(" or ")
            )));
        }
        let &PeArgs { salt, corrupt, .. } = args;
        let (way, reason) = (peer.transport, peer.reason);
        Ok(Pair { world, other, first: me == 0, way, reason, salt, corrupt })
    }

    /// Is what came out of this PE's memory what should be there?
    pub(super) fn holds(&self, what: &str, mut there: Vec<u64>, right: &[u64]) -> Result<()> {
        if self.corrupt {
            let middle = there.len() / 2;
            there[middle] ^= 1 << 40;
        }
        match there.iter().zip(right).position(|(a, b)| a != b) {
            None if there.len() == right.len() => Ok(()),
            at => {
                let at = at.unwrap_or(0);
                let (got, want) = (there.get(at).unwrap_or(&0), right.get(at).unwrap_or(&0));
                Err(Failure::new(format!(
                    "{what} brought something else: word {at} of {} is {got:#x}, not {want:#x}; the figures \
                     mean nothing",
                    self.world.my_pe()
                )))
            }
        }
    }

    /// PE 0 leaves what it has found.
    pub(super) fn leave(&self, args: &PeArgs, own: &impl Serialize) -> Result<()> {
        if self.first {
            std::fs::write(found(&args.folder), serde_json::to_vec(own)?)?;
        }
        Ok(())
    }
}

/// Where it is.
pub(super) fn found(folder: &Path) -> PathBuf {
    folder.join("found.json")
}

/// Data of a phase: differs from word to word, and from phase to phase in each of them.
pub(super) fn words(salt: u64, n: usize) -> Vec<u64> {
    (0..n as u64).map(|i| (i + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ salt).collect()
}
