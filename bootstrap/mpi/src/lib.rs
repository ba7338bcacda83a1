//! rushmem's MPI bootstrap, a plug-in: the only part of rushmem that links MPI.
//!
//! The runtime loads this library at run time and knows nothing but the entry point below, so one runtime
//! serves machines without MPI, with Open MPI and with MPICH; `scripts/build-mpi-plugin` builds one copy for
//! each.
//!
//! - [`session`]: who initialised MPI, from which thread it may be called, and how it ends.
//! - [`comm`]: a duplicated communicator and requests that are waited for with a limit.
//! - [`boot`]: the collectives of the `Bootstrap` trait on top.
//! - [`presence`]: which ranks came, so that a timeout can name those that did not.
//! - [`slow`]: whether MPI's own start is slow, so that no rank is blamed for it.

mod boot;
mod comm;
mod presence;
mod session;
mod slow;

use rushmem_bootstrap_abi::ffi::{BootstrapVtable, PluginArgs};
use rushmem_bootstrap_abi::plugin::plugin_main;
use rushmem_bootstrap_abi::Bootstrap;

/// The plug-in's entry point. `args->comm` is null (all of `MPI_COMM_WORLD`; MPI is initialised if nobody has
/// done so) or points to the `MPI_Comm` whose ranks become the PEs (MPI must be up). Collective over that
/// communicator.
///
/// # Safety
/// As [`rushmem_bootstrap_abi::ffi::PluginEntry`] says; the `MPI_Comm` is one of the MPI that this library
/// links.
#[no_mangle]
pub unsafe extern "C" fn rushmem_bootstrap_plugin_v1(
    args: *const PluginArgs,
    vtable: *mut BootstrapVtable,
) -> i32 {
    // SAFETY: our caller's promise, handed on.
    unsafe {
        plugin_main(args, vtable, |comm, limits| {
            let boot: Box<dyn Bootstrap> = Box::new(boot::MpiBootstrap::start(comm, limits)?);
            Ok(boot)
        })
    }
}
