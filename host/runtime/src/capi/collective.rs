//! The C ABI of collectives: data and reductions of a team's members, called by the host (OpenSHMEM 1.5,
//! section 9.11).
//!
//! All of them are collective over the team, whose members call them in one order, one thread of a PE at a
//! time.

use std::os::raw::c_void;

use super::{guard, team::team};
use crate::error::{err, Result};
use crate::world::{Blocks, StridedBlocks};
use rushmem_abi::c::*;

/// `bytes` bytes at `src` of the team's member `root` are at `dst` of every member, also of the root
/// (OpenSHMEM 1.5, section 9.11.5). Collective over the team, whose members give the same size and root.
///
/// This and the other collectives: `dst` and `src` are any memory of the PE's; large arrays go faster where
/// they are symmetric. They are the same array or do not overlap. On return the destination is complete and
/// the source may be changed. Heaps are in host memory.
///
/// Errors, on all members alike, with nothing written: `RUSHMEM_ERR_MISMATCH` for different arguments or
/// calls; the error of a member whose arguments are wrong (`RUSHMEM_ERR_BAD_PE` for the root,
/// `RUSHMEM_ERR_BAD_ADDRESS`, `RUSHMEM_ERR_OUT_OF_BOUNDS` and `RUSHMEM_ERR_INVALID_ARGUMENT` for arrays);
/// `RUSHMEM_ERR_UNSUPPORTED` where heaps are in GPU memory. `RUSHMEM_ERR_TIMEOUT` and `RUSHMEM_ERR_PEER_DEAD`
/// leave the destination in any state. On one PE: `RUSHMEM_ERR_BUSY` while another thread is in a collective
/// call of the team, `RUSHMEM_ERR_BAD_HANDLE` for what is no team.
///
/// # Safety
/// `t` is a team that nobody frees meanwhile; `dst` is valid for `bytes` bytes, and on the root `src`.
#[no_mangle]
pub unsafe extern "C" fn rushmem_team_broadcast(
    t: *mut rushmem_team_t,
    dst: *mut c_void,
    src: *const c_void,
    bytes: usize,
    root: i32,
) -> i32 {
    guard(|| {
        // SAFETY: per contract.
        unsafe {
            let (world, team) = team(t)?;
            world.team_broadcast(team, dst as usize, src as usize, bytes, root)
        }
    })
}

/// `bytes` bytes at `src` of each member are at `dst` of every member, one behind the other in the order of
/// the members (OpenSHMEM 1.5, section 9.11.6). `src` may be this member's part of `dst`. Collective, and
/// errors, as `rushmem_team_broadcast`.
///
/// # Safety
/// `t` is a team that nobody frees meanwhile; `src` is valid for `bytes` bytes, `dst` for those of all
/// members.
#[no_mangle]
pub unsafe extern "C" fn rushmem_team_fcollect(
    t: *mut rushmem_team_t,
    dst: *mut c_void,
    src: *const c_void,
    bytes: usize,
) -> i32 {
    guard(|| {
        // SAFETY: per contract.
        unsafe {
            let (world, team) = team(t)?;
            world.team_fcollect(team, dst as usize, src as usize, bytes)
        }
    })
}

/// `rushmem_team_fcollect` of as many bytes as each member likes. `room` is how many `dst` has, `SIZE_MAX`
/// where the caller knows that it is enough; `*received`, unless `received` is null, is how many have come.
/// `src` may be this member's part of `dst`. Collective, and errors, as `rushmem_team_broadcast`;
/// `RUSHMEM_ERR_OUT_OF_BOUNDS`, on all members, where one has too little room.
///
/// # Safety
/// `t` is a team that nobody frees meanwhile; `src` is valid for `bytes` bytes, `dst` for those of all
/// members or for `room`; `received` is null or valid.
#[no_mangle]
pub unsafe extern "C" fn rushmem_team_collect(
    t: *mut rushmem_team_t,
    dst: *mut c_void,
    room: usize,
    src: *const c_void,
    bytes: usize,
    received: *mut usize,
) -> i32 {
    guard(|| {
        // SAFETY: per contract.
        unsafe {
            let (world, team) = team(t)?;
            let came = world.team_collect(team, dst as usize, room, src as usize, bytes)?;
            if let Some(received) = received.as_mut() {
                *received = came;
            }
        }
        Ok(())
    })
}

/// Block `j`, of `bytes` bytes, of each member's `src` is block `my_pe` of member `j`'s `dst` (OpenSHMEM 1.5,
/// section 9.11.7). Collective, and errors, as `rushmem_team_broadcast`.
///
/// # Safety
/// `t` is a team that nobody frees meanwhile; `dst` and `src` are valid for a block for each member.
#[no_mangle]
pub unsafe extern "C" fn rushmem_team_alltoall(
    t: *mut rushmem_team_t,
    dst: *mut c_void,
    src: *const c_void,
    bytes: usize,
) -> i32 {
    guard(|| {
        // SAFETY: per contract.
        unsafe {
            let (world, team) = team(t)?;
            world.team_alltoall(team, dst as usize, src as usize, bytes)
        }
    })
}

/// `rushmem_team_alltoall` of blocks of `n` elements of `elem_bytes` bytes: element `k` of block `j` is at
/// `(j * n + k) * src_stride` of `src`, in elements, and so in `dst` (OpenSHMEM 1.5, section 9.11.8).
/// Strides are at least 1, and like sizes the same on all members. What lies between is not touched, and
/// the arrays do not overlap. Collective, and errors, as `rushmem_team_broadcast`.
///
/// # Safety
/// `t` is a team that nobody frees meanwhile; `dst` and `src` are valid for the elements of all blocks.
#[no_mangle]
pub unsafe extern "C" fn rushmem_team_alltoalls(
    t: *mut rushmem_team_t,
    dst: *mut c_void,
    src: *const c_void,
    dst_stride: isize,
    src_stride: isize,
    elem_bytes: usize,
    n: usize,
) -> i32 {
    guard(|| {
        let elements = StridedBlocks { dst_stride, src_stride, elem: elem_bytes, n };
        // SAFETY: per contract.
        unsafe {
            let (world, team) = team(t)?;
            world.team_alltoalls(team, dst as usize, src as usize, elements)
        }
    })
}

/// `bytes[j]` bytes at `src_at[j]` of `src` go to member `j`, and what comes from member `i` lies at
/// `dst_at[i]` of `dst`: `received[i]` bytes, unless `received` is null. Only senders need to know sizes.
/// All places are in bytes, in lists with an entry for each member. `room` is how many bytes `dst` has,
/// `SIZE_MAX` where the caller knows that it is enough. Parts of `dst` do not overlap one another or `src`.
/// Collective, and errors, as `rushmem_team_broadcast`; `RUSHMEM_ERR_OUT_OF_BOUNDS`, on all members, where
/// one has too little room.
///
/// # Safety
/// `t` is a team that nobody frees meanwhile; the lists are valid for an entry for each member; `src` is
/// valid for what is sent, `dst` for what comes or for `room`; `received` is null or valid for an entry for
/// each member.
#[no_mangle]
pub unsafe extern "C" fn rushmem_team_alltoallv(
    t: *mut rushmem_team_t,
    dst: *mut c_void,
    dst_at: *const usize,
    room: usize,
    received: *mut usize,
    src: *const c_void,
    src_at: *const usize,
    bytes: *const usize,
) -> i32 {
    guard(|| {
        // SAFETY: per contract.
        let (world, team) = unsafe { team(t)? };
        let n = team.members().n();
        let list = |list: *const usize, name| {
            // SAFETY: checked, and valid for an entry for each member per contract.
            check_list(list, name).map(|()| unsafe { std::slice::from_raw_parts(list, n) })
        };
        let lists = || {
            Ok(Blocks {
                dst_at: list(dst_at, "dst_at")?,
                src_at: list(src_at, "src_at")?,
                bytes: list(bytes, "bytes")?,
                room,
            })
        };
        // SAFETY: per contract.
        let came = unsafe { world.team_alltoallv(team, dst as usize, src as usize, lists())? };
        if !received.is_null() {
            // SAFETY: valid for an entry for each member per contract.
            unsafe { std::ptr::copy_nonoverlapping(came.as_ptr(), received, came.len()) };
        }
        Ok(())
    })
}

/// Element `i` of every member's `dst` is that of all members' `src` combined: by `op`, one of
/// `RUSHMEM_SUM` and its like, as numbers of `type`, one of `RUSHMEM_INT32` and its like (OpenSHMEM 1.5,
/// section 9.11.9).
///
/// Members are combined in the order of their numbers, one after the other, so that the result is the same
/// bits on every member, in every run, and in kernels. 16-bit floats are combined in 32 bits and rounded
/// once. Collective, and errors, as `rushmem_team_broadcast`; `RUSHMEM_ERR_INVALID_ARGUMENT` for a type or
/// an operator that does not exist or that do not go together.
///
/// # Safety
/// `t` is a team that nobody frees meanwhile; `dst` and `src` are valid for `n` elements.
#[no_mangle]
pub unsafe extern "C" fn rushmem_team_reduce(
    t: *mut rushmem_team_t,
    dst: *mut c_void,
    src: *const c_void,
    n: usize,
    r#type: i32,
    op: i32,
) -> i32 {
    guard(|| {
        // SAFETY: per contract.
        unsafe {
            let (world, team) = team(t)?;
            world.team_reduce(team, dst as usize, src as usize, n, (r#type, op))
        }
    })
}

/// Member `j` gets block `j`, of `n` elements, of what `rushmem_team_reduce` would make of all members'
/// `src`, which have such a block for each member. `dst` may be the first block of `src`, or this member's.
/// Collective, and errors, as `rushmem_team_reduce`.
///
/// # Safety
/// `t` is a team that nobody frees meanwhile; `dst` is valid for `n` elements, `src` for as many for each
/// member.
#[no_mangle]
pub unsafe extern "C" fn rushmem_team_reducescatter(
    t: *mut rushmem_team_t,
    dst: *mut c_void,
    src: *const c_void,
    n: usize,
    r#type: i32,
    op: i32,
) -> i32 {
    guard(|| {
        // SAFETY: per contract.
        unsafe {
            let (world, team) = team(t)?;
            world.team_reducescatter(team, dst as usize, src as usize, n, (r#type, op))
        }
    })
}

/// `rushmem_team_reduce` of the members up to each one, itself included (OpenSHMEM 1.6, inscan).
/// Collective, and errors, as that.
///
/// # Safety
/// `t` is a team that nobody frees meanwhile; `dst` and `src` are valid for `n` elements.
#[no_mangle]
pub unsafe extern "C" fn rushmem_team_inscan(
    t: *mut rushmem_team_t,
    dst: *mut c_void,
    src: *const c_void,
    n: usize,
    r#type: i32,
    op: i32,
) -> i32 {
    guard(|| {
        // SAFETY: per contract.
        unsafe {
            let (world, team) = team(t)?;
            world.team_scan(team, true, dst as usize, src as usize, n, (r#type, op))
        }
    })
}

/// `rushmem_team_reduce` of the members before each one; the first one gets zeroes (OpenSHMEM 1.6, exscan).
/// Collective, and errors, as that.
///
/// # Safety
/// `t` is a team that nobody frees meanwhile; `dst` and `src` are valid for `n` elements.
#[no_mangle]
pub unsafe extern "C" fn rushmem_team_exscan(
    t: *mut rushmem_team_t,
    dst: *mut c_void,
    src: *const c_void,
    n: usize,
    r#type: i32,
    op: i32,
) -> i32 {
    guard(|| {
        // SAFETY: per contract.
        unsafe {
            let (world, team) = team(t)?;
            world.team_scan(team, false, dst as usize, src as usize, n, (r#type, op))
        }
    })
}

/// Refuses a list that is null.
fn check_list(list: *const usize, name: &str) -> Result<()> {
    if list.is_null() {
        return Err(err!(INVALID_ARGUMENT, "{name}, a list with an entry for each member, is null"));
    }
    Ok(())
}
