//! Which bootstrap serves this PE, chosen once at start: what the caller gave, else what the environment says. The
//! choice and its reason are one line of the log.

use std::os::raw::c_void;

use rushmem_bootstrap_abi::plugin::Limits;
use rushmem_bootstrap_abi::Bootstrap;
use rushmem_bootstrap_uid::environment::{detect_here, Launcher, SECRET_VARIABLE};
use rushmem_bootstrap_uid::{join_address, join_uid, Single, Uid, UidConfig};

use crate::config::Config;
use crate::error::Result;
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
    let (boot, why): (Box<dyn Bootstrap>, String) = match how {
        How::Uid { uid, rank, n } => (
            Box::new(join_uid(&Uid::from_bytes(&uid)?, sockets(config, rank, n))?),
            "the caller gave a unique ID".into(),
        ),
        How::Address { address, rank, n } => {
            let secret = std::env::var(SECRET_VARIABLE).unwrap_or_default();
            let boot = join_address(&address, secret.as_bytes(), sockets(config, rank, n))?;
            (Box::new(boot), format!("the caller gave the address {address}"))
        }
        How::MpiComm(comm) => (mpi(None, comm, config)?, "the caller gave an MPI communicator".into()),
        How::Environment => from_environment(config)?,
    };
    log::info!("bootstrap {} for rank {} of {}: {why}", boot.name(), boot.rank(), boot.n_ranks());
    Ok(boot)
}

fn from_environment(config: &Config) -> Result<(Box<dyn Bootstrap>, String)> {
    let asked = |name: &str| format!("RUSHMEM_BOOTSTRAP={name}");
    match config.bootstrap.as_deref() {
        Some("single") => return Ok((Box::new(Single), asked("single"))),
        Some("mpi") => return Ok((mpi(None, std::ptr::null(), config)?, asked("mpi"))),
        _ => {}
    }
    let launch = detect_here()?;
    let over_sockets = || launch.join(sockets(config, 0, 1));
    if config.bootstrap.as_deref() == Some("uid") {
        return Ok((Box::new(over_sockets()?), format!("{}, {}", asked("uid"), launch.why)));
    }
    let boot: Box<dyn Bootstrap> = match &launch.launcher {
        Launcher::OpenMpi { .. } => mpi(Some("openmpi"), std::ptr::null(), config)?,
        Launcher::Mpich { .. } => mpi(Some("mpich"), std::ptr::null(), config)?,
        Launcher::None => Box::new(Single),
        _ => Box::new(over_sockets()?),
    };
    Ok((boot, launch.why))
}

fn sockets(config: &Config, rank: u32, n: u32) -> UidConfig {
    UidConfig {
        init_timeout: config.init_timeout,
        timeout: config.timeout,
        ifname: config.uid_ifname.clone(),
        ..UidConfig::new(rank, n)
    }
}

fn mpi(flavour: Option<&str>, comm: *const c_void, config: &Config) -> Result<Box<dyn Bootstrap>> {
    let limits = Limits { call: Some(config.timeout), init: Some(config.init_timeout) };
    // SAFETY: the caller of `rushmem_init` vouches for its communicator; null means MPI_COMM_WORLD.
    Ok(unsafe { load_mpi(flavour, comm, limits)? })
}
