//! Where the PEs meet: the unique ID of the job, and the thread in this process that introduces them to each other.
//!
//! PEs that are all on this host meet on the loopback interface, which needs no network and shows nothing to one; those of
//! several hosts on the first interface that leads to others. `RUSHMEM_UID_IFNAME` says otherwise.

use rushmem_bootstrap_uid::{interface_from_env, RendezvousHandle, Uid};

use crate::Failure;

/// The interface of a job on one host.
const LOOPBACK: &str = "lo";

/// The ID, as `RUSHMEM_UID` has it, and what keeps the rendezvous open; `here`: no PE is on another host.
pub(crate) fn open(here: bool) -> Result<(String, RendezvousHandle), Failure> {
    let interface = interface_from_env().or_else(|| here.then(|| LOOPBACK.to_owned()));
    let (uid, handle) =
        Uid::create_standing(interface.as_deref()).map_err(|e| Failure::own(e.to_string()))?;
    Ok((uid.to_hex(), handle))
}
