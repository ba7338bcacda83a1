//! The C ABI of collectives that the host calls: members meet, data moves, numbers are combined (OpenSHMEM
//! 1.5, section 9.9). A function for each row of the table ([`rushmem_abi::collectives!`]), which has their
//! documentation, too.
//!
//! All of them are collective over the team, whose members call them in one order, one thread of a PE at a
//! time.

use std::os::raw::c_void;

use super::{check_out, guard, team::team};
use crate::op::team_call::Argument;
use rushmem_abi::c::*;

macro_rules! host_calls {
    ([] $(
        $kind:ident $name:ident $variant:ident ($dst:ident <- $src:ident) {
            device $header:literal $device:literal;
            $(#[$host_doc:meta])*
            host $host:ident = $host_symbol:ident($($host_arg:ident: $host_type:ty),*);
            $(#[$stream_doc:meta])*
            stream $stream:ident = $stream_symbol:ident($($stream_arg:ident: $stream_type:ty),*);
        }
    )*) => {
        $(
            $(#[$host_doc])*
            #[no_mangle]
            pub unsafe extern "C" fn $host_symbol(t: *mut rushmem_team_t $(, $host_arg: $host_type)*) -> i32 {
                guard(|| {
                    // SAFETY: per contract.
                    unsafe {
                        let (world, team) = team(t)?;
                        world.$host(team $(, $host_arg.value())*)
                    }
                })
            }
        )*
    };
}
rushmem_abi::collectives!(host_calls);

/// The least of the members' `value`s, on all of them, in one round and without symmetric memory: what they
/// agree upon where each has a number of its own, or 0 for no and 1 for yes.
///
/// Errors as `rushmem_team_sync`.
///
/// # Safety
/// `t` is a team that nobody frees meanwhile; `out` is null or valid.
#[no_mangle]
pub unsafe extern "C" fn rushmem_team_least(t: *mut rushmem_team_t, value: i64, out: *mut i64) -> i32 {
    guard(|| {
        // SAFETY: per contract.
        let ((world, team), out) = unsafe { (team(t)?, check_out(out, "out")?) };
        let least = world.team_least(team, value)?;
        // SAFETY: checked and per contract.
        unsafe { out.write(least) };
        Ok(())
    })
}
