//! Where the PEs meet: the unique ID of the job, and the thread in this process that introduces them to each other.
//!
//! All PEs are on this host, so they meet over sockets that no other user can reach, unless `RUSHMEM_UID_IFNAME` names an
//! interface of the network.

use rushmem_bootstrap_uid::{interface_from_env, RendezvousHandle, Uid};

use crate::Failure;

/// The ID, as `RUSHMEM_UID` has it, and what keeps the rendezvous open.
pub(crate) fn open() -> Result<(String, RendezvousHandle), Failure> {
    let made = match interface_from_env() {
        Some(interface) => Uid::create_standing(Some(&interface)),
        None => Uid::create_standing_local(),
    };
    let (uid, handle) = made.map_err(|e| Failure::own(e.to_string()))?;
    Ok((uid.to_hex(), handle))
}
