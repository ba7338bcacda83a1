//! Collectives of a team in a stream's turn (NVSHMEM 3, `nvshmemx_*_on_stream`): a function for each row of
//! the table ([`rushmem_abi::collectives!`]), which has their documentation, too.

use std::ffi::{c_char, c_void, CStr};

use super::guard;
use super::team::team;
use crate::error::{err, Result};
use crate::exec::{collective_on_stream, prepare_collective, SlotSet};
use crate::op::team_call::TeamCall;
use rushmem_abi::c::*;

/// Has the call made in the stream's turn.
///
/// # Safety
/// As for [`rushmem_team_sync_on_stream`]; the call's memory is valid until it is done.
unsafe fn call(t: *mut rushmem_team_t, call: TeamCall, set: u32, stream: *mut c_void) -> i32 {
    guard(|| {
        // SAFETY: the caller keeps the team alive.
        let (world, team) = unsafe { team(t)? };
        let slots = SlotSet { team: team.raw(), name: team.rounds().name().to_string(), set };
        // SAFETY: the caller vouches for the memory, the team and the stream.
        unsafe { collective_on_stream(world, &slots, &call, stream) }
    })
}

macro_rules! stream_calls {
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
            $(#[$stream_doc])*
            #[no_mangle]
            pub unsafe extern "C" fn $stream_symbol(
                t: *mut rushmem_team_t,
                $($stream_arg: $stream_type,)*
                set: u32,
                stream: *mut c_void,
            ) -> i32 {
                // SAFETY: the caller vouches for memory, team and stream.
                unsafe { call(t, TeamCall::$name($($stream_arg),*), set, stream) }
            }
        )*
    };
}
rushmem_abi::collectives!(stream_calls);

/// Loads the kernels that calls of `collective` on streams need: `"reduce"`, `"fcollect"`, as in the
/// functions' names. Local. For reductions and scans `what` is the element type and `op` the operator; for
/// collect, alltoalls and alltoallv `what` is the size of an element in bytes; else both are 0.
///
/// On a GPU a call that loads its kernel may have to wait until the kernels that run on that GPU have ended,
/// because that is when the driver loads code. If one of them waits for that very call, or for another PE
/// whose call waits so, nobody goes on: prepare before such kernels start. A stream that is being captured
/// takes only calls that are prepared, or have been made before. Kernels stay loaded until the world ends.
///
/// # Safety
/// `t` is a team that nobody frees meanwhile; `collective` is null or a C string.
#[no_mangle]
pub unsafe extern "C" fn rushmem_team_prepare(
    t: *mut rushmem_team_t,
    collective: *const c_char,
    what: usize,
    op: i32,
) -> i32 {
    guard(|| {
        // SAFETY: the caller keeps the team alive.
        let (world, _) = unsafe { team(t)? };
        // SAFETY: null, or a C string.
        prepare_collective(world, unsafe { name(collective) }?, op, what)
    })
}

/// # Safety
/// `text` is null or a C string.
unsafe fn name<'a>(text: *const c_char) -> Result<&'a str> {
    if text.is_null() {
        return Err(err!(INVALID_ARGUMENT, "the collective's name is null"));
    }
    // SAFETY: per contract.
    unsafe { CStr::from_ptr(text) }
        .to_str()
        .map_err(|_| err!(INVALID_ARGUMENT, "the collective's name is not UTF-8"))
}
