//! Where the PEs meet: the unique ID of the job, and the thread in this process that introduces them to each other.
//!
//! All PEs are on this host, so they meet on the loopback interface, which needs no network and shows nothing
//! to one, unless `RUSHMEM_UID_IFNAME` says otherwise.

use rushmem_bootstrap_uid::{interface_from_env, RendezvousHandle, Uid};

use crate::Failure;

/// The interface of a job on one host.
const LOOPBACK: &str = "lo";

/// The ID, as `RUSHMEM_UID` has it, and what keeps the rendezvous open.
pub(crate) fn open() -> Result<(String, RendezvousHandle), Failure> {
    let interface = interface_from_env().unwrap_or_else(|| LOOPBACK.to_owned());
    let (uid, handle) = Uid::create_standing(Some(&interface)).map_err(|e| Failure::own(e.to_string()))?;
    Ok((uid.to_hex(), handle))
}
