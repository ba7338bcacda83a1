//! Which bootstrap serves this PE, chosen once at start: what the caller gave, else what the environment
//! says. The choice and its reason are one line of the log.

pub(crate) mod between;
mod hosts;

use std::os::raw::c_void;

use rushmem_bootstrap_abi::plugin::Limits;
use rushmem_bootstrap_abi::{BootError, Bootstrap};
use rushmem_bootstrap_uid::environment::{detect_here, Launch, Launcher, SECRET_VARIABLE};
use rushmem_bootstrap_uid::{join_address, join_uid, Single, Uid, UidConfig};

use crate::config::Config;
use crate::error::{err, Error, Result};
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

impl How {
    /// What tells the job's meeting from others, where the same processes may meet there again.
    pub(crate) fn meeting(&self) -> Option<String> {
        match self {
            How::Environment => Some("environment".into()),
            How::Address { address, rank, n } => Some(format!("{address} {rank} {n}")),
            How::Uid { .. } | How::MpiComm(_) => None,
        }
    }
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

/// What this process would do by itself.
#[derive(Debug)]
pub(crate) struct Plan {
    /// What the launcher left in the environment.
    pub(crate) launch: Launch,
    pub(crate) choice: Choice,
    pub(crate) why: String,
}

/// A bootstrap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Choice {
    /// A job of one.
    Single,
    /// MPI's plug-in, of this flavour where the launcher says which.
    Mpi(Option<&'static str>),
    /// Sockets.
    Uid,
}

/// The choice between what was `asked` for (`RUSHMEM_BOOTSTRAP`) and what the launcher left.
pub(crate) fn plan(asked: Option<&str>, launch: std::result::Result<Launch, BootError>) -> Result<Plan> {
    let launch = match (launch, asked) {
        (Ok(launch), _) => launch,
        // These two do not ask the launcher, so what it says may be as wrong as it likes.
        (Err(e), Some("single" | "mpi")) => Launch { launcher: Launcher::None, why: e.message },
        (Err(e), _) => return Err(Error::from(e)),
    };
    let by_launcher = match &launch.launcher {
        Launcher::OpenMpi { .. } => Choice::Mpi(Some("openmpi")),
        Launcher::Mpich { .. } => Choice::Mpi(Some("mpich")),
        Launcher::None => Choice::Single,
        _ => Choice::Uid,
    };
    let (choice, why) = match asked {
        Some("single") => (Choice::Single, "RUSHMEM_BOOTSTRAP=single".to_owned()),
        Some("mpi") => (Choice::Mpi(None), "RUSHMEM_BOOTSTRAP=mpi".to_owned()),
        Some("uid") if by_launcher != Choice::Uid => {
            return Err(err!(
                ENVIRONMENT,
                "RUSHMEM_BOOTSTRAP=uid, but no place to meet over sockets is known ({}): unset it, or start with rushmem-run, \
                 torchrun or srun",
                launch.why
            ))
        }
        Some("uid") => (Choice::Uid, format!("RUSHMEM_BOOTSTRAP=uid, {}", launch.why)),
        _ => (by_launcher, launch.why.clone()),
    };
    Ok(Plan { launch, choice, why })
}

fn from_environment(config: &Config) -> Result<(Box<dyn Bootstrap>, String)> {
    let Plan { launch, choice, why } = plan(config.bootstrap.as_deref(), detect_here())?;
    let boot: Box<dyn Bootstrap> = match choice {
        Choice::Single => Box::new(Single),
        Choice::Mpi(flavour) => {
            let boot = mpi(flavour, std::ptr::null(), config)?;
            check_together(boot.n_ranks(), &launch)?;
            boot
        }
        Choice::Uid => Box::new(launch.join(sockets(config, 0, 1))?),
    };
    Ok((boot, why))
}

/// An error where MPI makes a job of its own of each process that the launcher has started.
fn check_together(n: u32, launch: &Launch) -> Result<()> {
    let Some(ranks) = launch.ranks().filter(|ranks| n == 1 && ranks.n_ranks != 1) else { return Ok(()) };
    let advice = match launch.launcher {
        Launcher::OpenMpi { .. } | Launcher::Mpich { .. } => {
            "the MPI library was built for another kind of launcher, as Ubuntu 24.04's MPICH was; start \
             the job with another MPI's mpirun, rushmem-run or srun"
        }
        _ => "that launcher is not MPI's; unset RUSHMEM_BOOTSTRAP, or start the job with mpirun",
    };
    Err(err!(
        ENVIRONMENT,
        "{} ranks were started ({}), but MPI says that rank {} is alone: {advice}",
        ranks.n_ranks,
        launch.why,
        ranks.rank
    ))
}

fn sockets(config: &Config, rank: u32, n: u32) -> UidConfig {
    UidConfig {
        init_timeout: config.init_timeout,
        timeout: config.timeout,
        host_silence: config.peer_timeout,
        ifname: config.uid_ifname.clone(),
        watch: between::watch(config),
        ..UidConfig::new(rank, n)
    }
}

fn mpi(flavour: Option<&str>, comm: *const c_void, config: &Config) -> Result<Box<dyn Bootstrap>> {
    let limits = Limits { call: Some(config.timeout), init: Some(config.init_timeout) };
    // SAFETY: the caller of `rushmem_init` vouches for its communicator; null means MPI_COMM_WORLD.
    let mpi = unsafe { load_mpi(flavour, comm, limits)? };
    hosts::in_touch(mpi, config)
}
