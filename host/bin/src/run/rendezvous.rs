//! Where the PEs meet: the unique ID of the job, and the thread in this process that introduces them to each
//! other.
//!
//! PEs that are all on this host meet over sockets that no other user can reach; those of several hosts on
//! the first interface that leads to others. `RUSHMEM_UID_IFNAME` names an interface for either.

use rushmem_bootstrap_uid::{interface_from_env, RendezvousHandle, Uid};

use crate::Failure;

/// PE `pe` of `n`, called `who`, has ended with code 0. No launcher can tell whether that is well: a program
/// that never uses rushmem is. The others' start is not, where they wait for it.
pub(crate) fn ended(rendezvous: &RendezvousHandle, pe: u32, n: u32, who: &str) {
    rendezvous.will_not_come(
        pe,
        n,
        format!("{who} ended with code 0 before it joined: the others cannot begin without it"),
    );
}

/// The ID, as `RUSHMEM_UID` has it, and what keeps the rendezvous open; `here`: no PE is on another host.
pub(crate) fn open(here: bool) -> Result<(String, RendezvousHandle), Failure> {
    let made = match interface_from_env() {
        None if here => Uid::create_standing_local(),
        interface => Uid::create_standing(interface.as_deref()),
    };
    let (uid, handle) = made.map_err(|e| Failure::own(e.to_string()))?;
    Ok((uid.to_hex(), handle))
}
