//! Which launcher started this process, and which rank it is, by the variables that launchers set.
//!
//! Several may be set at once (torchrun inside a Slurm step, mpirun inside an allocation): the one that was
//! started last, right around this program, wins. In order: rushmem-run, torchrun, Open MPI, MPICH (PMI),
//! Slurm. A set of variables that is incomplete or contradicts itself is an error that names the variable,
//! not a guess.

mod secret;
mod slurm;
mod torchrun;
mod vars;

use rushmem_bootstrap_abi::{BootError, BootErrorKind, Result};

use crate::address::{join_meeting, MeetingPoint};
use crate::bootstrap::{join_uid, UidBootstrap};
use crate::config::UidConfig;
use crate::uid::Uid;
use vars::Vars;

pub use slurm::first_host;

pub use crate::config::SECRET_VARIABLE;

/// A process' place among those of its job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ranks {
    /// This one, `0..n_ranks`.
    pub rank: u32,
    /// All of them.
    pub n_ranks: u32,
    /// This one among those of its host, where the launcher says.
    pub local_rank: Option<u32>,
    /// Those of its host, where the launcher says.
    pub local_ranks: Option<u32>,
}

/// The launcher.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Launcher {
    /// `rushmem-run`, which made a unique ID.
    RushmemRun {
        /// This process.
        ranks: Ranks,
        /// The job's ID.
        uid: Box<Uid>,
    },
    /// `torchrun`, or anything else that sets RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT.
    Torchrun {
        /// This process.
        ranks: Ranks,
        /// Where the ranks meet.
        meeting: MeetingPoint,
    },
    /// A step of Slurm's (`srun`).
    Slurm {
        /// This process.
        ranks: Ranks,
        /// Where the ranks meet.
        meeting: MeetingPoint,
    },
    /// Open MPI's `mpirun`.
    OpenMpi {
        /// This process.
        ranks: Ranks,
    },
    /// MPICH's `mpiexec` (Hydra), or another that speaks PMI.
    Mpich {
        /// This process.
        ranks: Ranks,
    },
    /// None: a process by itself.
    None,
}

/// The launcher, and a line for the log that says what it was recognised by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Launch {
    /// The launcher.
    pub launcher: Launcher,
    /// `torchrun: RANK=3 WORLD_SIZE=8 …`.
    pub why: String,
}

impl Launch {
    /// This process' place; `None` for a process by itself.
    pub fn ranks(&self) -> Option<Ranks> {
        match &self.launcher {
            Launcher::RushmemRun { ranks, .. }
            | Launcher::Torchrun { ranks, .. }
            | Launcher::Slurm { ranks, .. }
            | Launcher::OpenMpi { ranks }
            | Launcher::Mpich { ranks } => Some(*ranks),
            Launcher::None => None,
        }
    }

    /// Joins over sockets, with the rank and number of ranks that the launcher gave (those in `cfg` do not
    /// count).
    ///
    /// # Errors
    /// `Environment` under MPI's launchers and under none, which give no place to meet: take the MPI plug-in
    /// or [`crate::Single`]. Else as [`join_uid`] and [`crate::join_address`].
    pub fn join(&self, cfg: UidConfig) -> Result<UidBootstrap> {
        let with = |r: &Ranks| UidConfig { rank: r.rank, n_ranks: r.n_ranks, ..cfg.clone() };
        match &self.launcher {
            Launcher::RushmemRun { ranks, uid } => join_uid(uid, with(ranks)),
            Launcher::Torchrun { ranks, meeting } | Launcher::Slurm { ranks, meeting } => {
                join_meeting(meeting, with(ranks))
            }
            Launcher::OpenMpi { .. } | Launcher::Mpich { .. } | Launcher::None => Err(BootError::new(
                BootErrorKind::Environment,
                format!(
                    "no place to meet over sockets is known ({}): use the MPI bootstrap, or start with rushmem-run, torchrun or srun",
                    self.why
                ),
            )),
        }
    }
}

/// Reads the environment through `lookup` (empty values count as unset).
///
/// # Errors
/// `Environment`, naming the variable that is missing or contradicts another, its value, and what to set.
pub fn detect(lookup: &dyn Fn(&str) -> Option<String>) -> Result<Launch> {
    let vars = Vars(lookup);
    if let Some(launch) = rushmem_run(&vars)? {
        return Ok(launch);
    }
    let (torch, torch_error) = match torchrun::detect(&vars) {
        Ok(found) => (found, None),
        // Half a set, perhaps the user's own RANK: only an error if nothing better is found.
        Err(e) if !vars.has("TORCHELASTIC_RUN_ID") => (None, Some(e)),
        Err(e) => return Err(e),
    };
    if let Some(launch) = torch {
        return Ok(launch);
    }
    if let Some(launch) = open_mpi(&vars)? {
        return Ok(launch);
    }
    let step = slurm::detect(&vars)?;
    let pmi = mpich(&vars)?;
    match (step, pmi, torch_error) {
        // Slurm's own PMI plug-in sets the same PMI numbers as the step's; mpiexec inside a step sets others.
        (Some(step), Some(pmi), _) => {
            let same = step.ranks().map(|r| (r.rank, r.n_ranks)) == pmi.ranks().map(|r| (r.rank, r.n_ranks));
            Ok(if same { step } else { pmi })
        }
        (Some(one), None, _) | (None, Some(one), _) => Ok(one),
        (None, None, Some(e)) => Err(e),
        (None, None, None) => Ok(Launch { launcher: Launcher::None, why: slurm::why_none(&vars) }),
    }
}

/// [`detect`] on this process' environment.
///
/// # Errors
/// As [`detect`].
pub fn detect_here() -> Result<Launch> {
    detect(&|name| std::env::var(name).ok())
}

fn rushmem_run(vars: &Vars<'_>) -> Result<Option<Launch>> {
    const NAMES: [&str; 3] = ["RUSHMEM_PE", "RUSHMEM_NPES", "RUSHMEM_UID"];
    if !vars.any(&NAMES) {
        return Ok(None);
    }
    let remedy =
        "start the program with rushmem-run, or set all three of RUSHMEM_PE, RUSHMEM_NPES and RUSHMEM_UID";
    let ranks =
        vars.ranks("RUSHMEM_PE", "RUSHMEM_NPES", ["RUSHMEM_LOCAL_PE", "RUSHMEM_LOCAL_NPES"], remedy)?;
    let hex = vars.need("RUSHMEM_UID", &NAMES, remedy)?;
    let uid = Uid::from_hex(&hex).map_err(|e| {
        let kind = if e.kind == BootErrorKind::Mismatch { e.kind } else { BootErrorKind::Environment };
        let start: String = hex.chars().take(24).collect();
        BootError::new(
            kind,
            format!("RUSHMEM_UID={start}… ({} characters): {}; {remedy}", hex.len(), e.message),
        )
    })?;
    let why = format!("rushmem-run: {}, job {} meets at {}", vars.show(&NAMES[..2]), uid.job(), uid.addr());
    Ok(Some(Launch { launcher: Launcher::RushmemRun { ranks, uid: Box::new(uid) }, why }))
}

fn open_mpi(vars: &Vars<'_>) -> Result<Option<Launch>> {
    const NAMES: [&str; 2] = ["OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"];
    if !vars.any(&NAMES) {
        return Ok(None);
    }
    let local = ["OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"];
    let ranks =
        vars.ranks(NAMES[0], NAMES[1], local, "start the program with Open MPI's mpirun, or unset both")?;
    Ok(Some(Launch {
        launcher: Launcher::OpenMpi { ranks },
        why: format!("Open MPI: {}", vars.show(&NAMES)),
    }))
}

fn mpich(vars: &Vars<'_>) -> Result<Option<Launch>> {
    const NAMES: [&str; 2] = ["PMI_RANK", "PMI_SIZE"];
    if !vars.any(&NAMES) {
        return Ok(None);
    }
    let local = ["MPI_LOCALRANKID", "MPI_LOCALNRANKS"];
    let ranks =
        vars.ranks(NAMES[0], NAMES[1], local, "start the program with MPICH's mpiexec, or unset both")?;
    Ok(Some(Launch { launcher: Launcher::Mpich { ranks }, why: format!("MPICH: {}", vars.show(&NAMES)) }))
}

#[cfg(test)]
mod tests;
