//! Which bootstrap serves this PE, chosen once at start: what the caller gave, else what the environment says. The
//! choice and its reason are one line of the log.

use std::os::raw::c_void;

use rushmem_bootstrap_abi::plugin::Limits;
use rushmem_bootstrap_abi::Bootstrap;
use rushmem_bootstrap_uid::{join_uid, Single, Uid, UidConfig};

use crate::config::Config;
use crate::error::{err, Result};
use crate::plugin::load_mpi;

/// How the caller wants to join.
pub(crate) enum How {
    /// Look at the environment.
    Environment,
    /// With a unique ID.
    Uid { uid: [u8; 128], rank: u32, n: u32 },
    /// Rank 0 listens at a known address.
    Address { address: String, rank: u32, n: u32 },
    /// Over an `MPI_Comm` of an MPI that is up.
    MpiComm(*const c_void),
}

/// A unique ID whose rendezvous lives in this process until all PEs have come.
pub(crate) fn create_uid(config: &Config) -> Result<[u8; 128]> {
    let (uid, rendezvous) = Uid::create(config.uid_ifname.as_deref())?;
    rendezvous.detach();
    Ok(uid.to_bytes())
}

/// Joins; collective over the job's ranks.
pub(crate) fn join(how: How, config: &Config) -> Result<Box<dyn Bootstrap>> {
    let uid_config = |rank, n| UidConfig {
        init_timeout: config.init_timeout,
        timeout: config.timeout,
        ifname: config.uid_ifname.clone(),
        ..UidConfig::new(rank, n)
    };
    match how {
        How::Uid { uid, rank, n } => Ok(Box::new(join_uid(&Uid::from_bytes(&uid)?, uid_config(rank, n))?)),
        How::Address { .. } => Err(err!(UNSUPPORTED, "soon")),
        How::MpiComm(comm) => mpi(None, comm, config),
        How::Environment => {
            match (std::env::var("RUSHMEM_PE"), std::env::var("RUSHMEM_NPES"), std::env::var("RUSHMEM_UID")) {
                (Ok(r), Ok(n), Ok(u)) => Ok(Box::new(join_uid(
                    &Uid::from_hex(&u)?,
                    uid_config(r.parse().unwrap(), n.parse().unwrap()),
                )?)),
                _ => Ok(Box::new(Single)),
            }
        }
    }
}

fn mpi(flavour: Option<&str>, comm: *const c_void, config: &Config) -> Result<Box<dyn Bootstrap>> {
    let limits = Limits { call: Some(config.timeout), init: Some(config.init_timeout) };
    // SAFETY: the caller of `rushmem_init` vouches for its communicator; null means MPI_COMM_WORLD.
    Ok(unsafe { load_mpi(flavour, comm, limits)? })
}
