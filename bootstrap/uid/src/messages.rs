//! What a rank and the rendezvous say to each other once both have proved to belong to the job.

use std::time::Duration;

use rushmem_bootstrap_abi::{BootError, BootErrorKind};

use crate::conn::{Broken, Conn, Frame};
use crate::endpoint::Address;
use crate::wire::{Parsed, Reader, Writer};

/// What a rank says first once both sides have proved: let me in as this rank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Join {
    pub(crate) rank: u32,
    pub(crate) n_ranks: u32,
    /// How long this rank will wait for the others from now on.
    pub(crate) limit: Duration,
    /// Where it listens for its neighbours.
    pub(crate) addr: Address,
    pub(crate) host: String,
    /// [`crate::net::home`].
    pub(crate) home: u64,
    pub(crate) pid: u32,
}

impl Join {
    fn write(&self, w: Writer) -> Writer {
        let w = w.u32(self.rank).u32(self.n_ranks).u64(self.limit.as_millis() as u64);
        w.addr(self.addr).text(&self.host).u64(self.home).u32(self.pid)
    }

    fn read(r: &mut Reader<'_>) -> Parsed<Join> {
        let (rank, n_ranks, limit) = (r.u32()?, r.u32()?, Duration::from_millis(r.u64()?));
        let (addr, host, home, pid) = (r.addr()?, r.text()?, r.u64()?, r.u32()?);
        Ok(Join { rank, n_ranks, limit, addr, host, home, pid })
    }
}

/// A rank that another will be connected with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Neighbour {
    pub(crate) rank: u32,
    pub(crate) addr: Address,
    pub(crate) host: String,
    /// [`crate::net::home`].
    pub(crate) home: u64,
    /// All ranks of that home, as `ranks 2, 4-7`.
    pub(crate) mates: String,
    pub(crate) pid: u32,
}

/// `rank 3 (host h, pid 12)`.
pub(crate) fn who(rank: u32, host: &str, pid: u32) -> String {
    format!("rank {rank} (host {host}, pid {pid})")
}

/// From the rendezvous to a rank that has joined.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ToRank {
    /// You are in. The process that hosts the rendezvous, and its rank where that is known.
    Welcome { host: String, pid: u32, rank: Option<u32> },
    /// The process that hosts the rendezvous is this rank.
    Hosted(u32),
    /// All are here; connect with these.
    Table { session: [u8; 32], neighbours: Vec<Neighbour> },
    /// All are connected.
    Go,
    /// The job does not come up.
    Failed(BootError),
}

/// From a rank to the rendezvous.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ToRoot {
    /// Let me in.
    Join(Join),
    /// Connected with all neighbours.
    Meshed,
    /// This rank gives up, and why.
    Leave(BootError),
}

const WELCOME: u8 = 16;
const HOSTED: u8 = 17;
const TABLE: u8 = 18;
const GO: u8 = 19;
const FAILED: u8 = 20;
const MESHED: u8 = 32;
const LEAVE: u8 = 33;
const JOIN: u8 = 34;

pub(crate) fn write_error(w: Writer, e: &BootError) -> Writer {
    w.u32(e.kind as i32 as u32).rank(e.rank).text(&e.message)
}

pub(crate) fn read_error(r: &mut Reader<'_>) -> Parsed<BootError> {
    let kind = BootErrorKind::from_code(r.u32()? as i32);
    Ok(BootError { kind, rank: r.rank()?, message: r.text()? })
}

impl ToRank {
    pub(crate) fn send(&self, conn: &mut Conn) -> Result<(), Broken> {
        let w = Writer::default();
        let (kind, w) = match self {
            ToRank::Welcome { host, pid, rank } => (WELCOME, w.text(host).u32(*pid).rank(*rank)),
            ToRank::Hosted(rank) => (HOSTED, w.u32(*rank)),
            ToRank::Table { session, neighbours } => {
                let mut w = w.bytes(session).u32(neighbours.len() as u32);
                for n in neighbours {
                    w = w.u32(n.rank).addr(n.addr).text(&n.host).u64(n.home).text(&n.mates).u32(n.pid);
                }
                (TABLE, w)
            }
            ToRank::Go => (GO, w),
            ToRank::Failed(e) => (FAILED, write_error(w, e)),
        };
        conn.send(kind, &w.0)
    }

    pub(crate) fn decode((kind, body): &Frame) -> Result<ToRank, Broken> {
        #[cfg(any(test, feature = "fuzzing"))]
        crate::seeds::record(0, *kind, &[&[*kind], &body[..]].concat());
        let mut r = Reader(body);
        let message = match *kind {
            WELCOME => ToRank::Welcome { host: r.text()?, pid: r.u32()?, rank: r.rank()? },
            HOSTED => ToRank::Hosted(r.u32()?),
            TABLE => {
                let session = r.array()?;
                let mut neighbours = Vec::new();
                for _ in 0..r.u32()? {
                    let (rank, addr, host) = (r.u32()?, r.addr()?, r.text()?);
                    let (home, mates, pid) = (r.u64()?, r.text()?, r.u32()?);
                    neighbours.push(Neighbour { rank, addr, host, home, mates, pid });
                }
                ToRank::Table { session, neighbours }
            }
            GO => ToRank::Go,
            FAILED => ToRank::Failed(read_error(&mut r)?),
            other => return Err(Broken::Malformed(format!("a message of unknown kind {other}"))),
        };
        r.end()?;
        Ok(message)
    }
}

impl ToRoot {
    pub(crate) fn send(&self, conn: &mut Conn) -> Result<(), Broken> {
        match self {
            ToRoot::Join(join) => conn.send(JOIN, &join.write(Writer::default()).0),
            ToRoot::Meshed => conn.send(MESHED, &[]),
            ToRoot::Leave(e) => conn.send(LEAVE, &write_error(Writer::default(), e).0),
        }
    }

    pub(crate) fn decode((kind, body): &Frame) -> Result<ToRoot, Broken> {
        #[cfg(any(test, feature = "fuzzing"))]
        crate::seeds::record(1, *kind, &[&[*kind], &body[..]].concat());
        let mut r = Reader(body);
        let message = match *kind {
            JOIN => ToRoot::Join(Join::read(&mut r)?),
            MESHED => ToRoot::Meshed,
            LEAVE => ToRoot::Leave(read_error(&mut r)?),
            other => return Err(Broken::Malformed(format!("a message of unknown kind {other}"))),
        };
        r.end()?;
        Ok(message)
    }
}
