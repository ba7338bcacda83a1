//! Which bootstrap serves this PE, chosen once at start: what the caller gave, else what the environment says. The
//! choice and its reason are one line of the log.

use std::os::raw::c_void;
use std::time::Duration;

use rushmem_bootstrap_abi::Bootstrap;

use crate::config::Config;
use crate::error::{err, Error, Result};

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
pub(crate) fn create_uid(_c: &Config) -> Result<[u8; 128]> {
    Err(err!(UNSUPPORTED, "soon"))
}
pub(crate) fn join(_h: How, _c: &Config) -> Result<Box<dyn Bootstrap>> {
    Err(err!(UNSUPPORTED, "soon"))
}
