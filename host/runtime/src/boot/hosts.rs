//! A job that MPI has started on several hosts: MPI is how its PEs meet, sockets are how they stay in touch.
//!
//! MPI reports no death. Its launcher ends a job of which a process dies, but takes minutes to notice
//! that a host no longer answers. So the ranks of such a job connect as those of a unique ID do, and make
//! their collective calls over these connections, which end with an error once a rank is gone. On one host
//! the node's own sockets show it.

use rushmem_bootstrap_abi::{BootError, BootErrorKind, Bootstrap, Death, Result};
use rushmem_bootstrap_uid::{home, join_uid, Uid, UidBootstrap, IFNAME_VARIABLE};

use super::sockets;
use crate::config::Config;
use crate::error::Error;

const UID_BYTES: usize = 128;

/// See the top of the file.
struct InTouch {
    mpi: Box<dyn Bootstrap>,
    sockets: UidBootstrap,
}

/// Collective: `mpi` with sockets between the hosts, where there are several; where they cannot be connected,
/// `mpi` as it is, and a warning.
pub(super) fn in_touch(mpi: Box<dyn Bootstrap>, config: &Config) -> crate::error::Result<Box<dyn Bootstrap>> {
    let n = mpi.n_ranks() as usize;
    let mut homes = vec![0; n * 8];
    let home = home().map_err(|e| Error::io("what tells this host from others", &e))?;
    mpi.allgather(&home.to_ne_bytes(), &mut homes)?;
    if homes.chunks(8).all(|home| *home == homes[..8]) {
        return Ok(mpi);
    }
    let connected = connect(&*mpi, config);
    // All or none, so that all make their calls in the same way.
    let mut all = vec![0; n];
    mpi.allgather(&[u8::from(connected.is_ok())], &mut all)?;
    match connected {
        Ok(sockets) if all.iter().all(|ok| *ok == 1) => Ok(Box::new(InTouch { mpi, sockets })),
        Ok(_) => Ok(mpi), // a rank that failed warns
        Err(e) => {
            log::warn!(
                "rank {}: no sockets between the hosts of this job, so nobody will notice when one of them is cut off ({e}); \
                 choose an interface by which they reach each other with {IFNAME_VARIABLE}",
                mpi.rank()
            );
            Ok(mpi)
        }
    }
}

fn connect(mpi: &dyn Bootstrap, config: &Config) -> Result<UidBootstrap> {
    let made = (mpi.rank() == 0).then(|| Uid::create(config.uid_ifname.as_deref()));
    // All zero is no unique ID.
    let mut bytes = [0; UID_BYTES];
    if let Some(Ok((uid, _))) = &made {
        bytes = uid.to_bytes();
    }
    mpi.broadcast(&mut bytes, 0)?;
    let _rendezvous = made.transpose()?;
    if bytes == [0; UID_BYTES] {
        return Err(BootError::new(BootErrorKind::Io, "rank 0 has no place to meet").with_rank(0));
    }
    join_uid(&Uid::from_bytes(&bytes)?, sockets(config, mpi.rank(), mpi.n_ranks()))
}

impl Bootstrap for InTouch {
    fn name(&self) -> &str {
        "mpi"
    }

    fn rank(&self) -> u32 {
        self.mpi.rank()
    }

    fn n_ranks(&self) -> u32 {
        self.mpi.n_ranks()
    }

    fn allgather(&self, input: &[u8], out: &mut [u8]) -> Result<()> {
        self.sockets.allgather(input, out)
    }

    fn alltoall(&self, input: &[u8], out: &mut [u8]) -> Result<()> {
        self.sockets.alltoall(input, out)
    }

    fn barrier(&self) -> Result<()> {
        self.sockets.barrier()
    }

    fn broadcast(&self, buf: &mut [u8], root: u32) -> Result<()> {
        self.sockets.broadcast(buf, root)
    }

    fn interfaces(&self) -> Vec<String> {
        self.sockets.interfaces()
    }

    fn death(&self) -> Option<Death> {
        self.sockets.death()
    }

    fn report_death(&self, rank: u32, what: &str) {
        self.sockets.report_death(rank, what);
    }

    fn abort(&self, why: &str) {
        self.sockets.abort(why);
        self.mpi.abort(why);
    }

    fn finalize(&self) -> Result<()> {
        self.sockets.finalize()?;
        self.mpi.finalize()
    }
}
