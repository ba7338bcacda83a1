//! A rank that has joined: the collectives, what it knows of deaths, and the ways to leave.

use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use rushmem_bootstrap_abi::{BootError, BootErrorKind, Bootstrap, Death, Result};

use crate::auth::Key;
use crate::collective::{self, Position};
use crate::config::UidConfig;
use crate::join;
use crate::meeting_address::MeetingAddress;
use crate::mesh::frame::Op;
use crate::mesh::Mesh;
use crate::messages::who;
use crate::net;
use crate::uid::Uid;

/// More ranks than any machine has; a larger number is a mistake and must not size a table.
const MAX_RANKS: u32 = 1 << 24;
/// How long last words may take to reach the kernel.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// One rank of a job that runs. Dropping it without [`Bootstrap::finalize`] counts as its death, and
/// the others learn of it.
///
/// Once a collective has failed (a death, a mismatch, a limit passed) the job is broken: later collectives
/// fail with the same error on every rank.
pub struct UidBootstrap {
    mesh: Mesh,
    at: Position,
    /// The network's address by which the neighbours have reached this rank.
    listened: Option<IpAddr>,
    timeout: Duration,
    /// Collectives of one rank are made one at a time.
    turn: Mutex<()>,
    left: Mutex<bool>,
}

impl std::fmt::Debug for UidBootstrap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "UidBootstrap(rank {} of {})", self.at.rank, self.at.n)
    }
}

/// Joins the job of `uid` as a rank. The maker of the ID need not have more than made it, and the ranks may
/// come in any order; all must come within the shortest `init_timeout`.
///
/// # Errors
/// `Timeout` naming the ranks that never came, `Mismatch` for a rank that came twice or another number of
/// ranks, `PeerDead` for a rank that died while joining; every rank gets it.
pub fn join_uid(uid: &Uid, cfg: UidConfig) -> Result<UidBootstrap> {
    join_place(&MeetingAddress::at(uid.addr()), &uid.key(), cfg)
}

/// The number of ranks and this rank must make sense before anything is sent.
pub(crate) fn check(cfg: &UidConfig) -> Result<()> {
    if cfg.n_ranks > MAX_RANKS {
        let text = format!("{} ranks: at most {MAX_RANKS} can be; is it a negative number?", cfg.n_ranks);
        return Err(BootError::new(BootErrorKind::InvalidArgument, text));
    }
    if cfg.n_ranks == 0 || cfg.rank >= cfg.n_ranks {
        let text =
            format!("rank {} of {} ranks: ranks go from 0 to the number less one", cfg.rank, cfg.n_ranks);
        return Err(BootError::new(BootErrorKind::InvalidArgument, text));
    }
    Ok(())
}

pub(crate) fn join_place(place: &MeetingAddress, key: &Key, cfg: UidConfig) -> Result<UidBootstrap> {
    check(&cfg)?;
    let joined = join::join(place, key, &cfg)?;
    Ok(UidBootstrap {
        mesh: Mesh::start(cfg.rank, cfg.n_ranks, joined.links, cfg.host_silence)?,
        at: Position { rank: cfg.rank, n: cfg.n_ranks },
        listened: joined.listening.net().map(|a| a.ip()),
        timeout: cfg.timeout,
        turn: Mutex::new(()),
        left: Mutex::new(false),
    })
}

impl UidBootstrap {
    fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Whether this is the first call that leaves.
    fn leaves_now(&self) -> bool {
        !std::mem::replace(&mut *self.left.lock().unwrap_or_else(|e| e.into_inner()), true)
    }

    fn go(&self, why: &str) {
        let me = who(self.at.rank, &net::host_name(), std::process::id());
        let error = BootError::new(BootErrorKind::PeerDead, format!("{me} {why}")).with_rank(self.at.rank);
        self.mesh.announce(error);
        self.mesh.leave(LAST_WORDS);
    }
}

impl Bootstrap for UidBootstrap {
    fn name(&self) -> &str {
        "uid"
    }

    fn rank(&self) -> u32 {
        self.at.rank
    }

    fn n_ranks(&self) -> u32 {
        self.at.n
    }

    fn allgather(&self, input: &[u8], out: &mut [u8]) -> Result<()> {
        let _turn = self.turn();
        collective::allgather(&self.mesh, self.at, self.timeout, input, out)
    }

    fn alltoall(&self, input: &[u8], out: &mut [u8]) -> Result<()> {
        let _turn = self.turn();
        collective::alltoall(&self.mesh, self.at, self.timeout, input, out)
    }

    fn barrier(&self) -> Result<()> {
        let _turn = self.turn();
        collective::barrier(&self.mesh, self.at, self.timeout, Op::Barrier)
    }

    fn broadcast(&self, buf: &mut [u8], root: u32) -> Result<()> {
        let _turn = self.turn();
        collective::broadcast(&self.mesh, self.at, self.timeout, buf, root)
    }

    fn interfaces(&self) -> Vec<String> {
        self.listened.map_or_else(Vec::new, net::interfaces_with)
    }

    fn death(&self) -> Option<Death> {
        let error = self.mesh.death()?;
        Some(Death { rank: error.rank.unwrap_or(u32::MAX), what: error.message })
    }

    fn report_death(&self, rank: u32, what: &str) {
        self.mesh.report(BootError::new(BootErrorKind::PeerDead, what).with_rank(rank));
    }

    fn abort(&self, why: &str) {
        if self.leaves_now() {
            self.go(&format!("aborted: {why}"));
        }
    }

    fn finalize(&self) -> Result<()> {
        let _turn = self.turn();
        if !self.leaves_now() {
            let text = format!("rank {} has left the job already (finalize or abort)", self.at.rank);
            return Err(BootError::new(BootErrorKind::InvalidArgument, text));
        }
        let result = collective::barrier(&self.mesh, self.at, self.timeout, Op::Finalize);
        self.mesh.leave(LAST_WORDS);
        self.mesh.join();
        result
    }
}

impl Drop for UidBootstrap {
    fn drop(&mut self) {
        if self.leaves_now() {
            self.go("left without finalize (an error, a panic or a forgotten call)");
        }
        self.mesh.join();
    }
}
