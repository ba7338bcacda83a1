//! Collectives of a team in a stream's turn (OpenSHMEM 1.5, section 9.9; NVSHMEM 3, `nvshmemx_*_on_stream`).

use std::ffi::{c_char, c_void, CStr};

use super::guard;
use super::team::team;
use crate::error::{err, Result};
use crate::exec::{collective_on_stream, prepare_collective, SlotSet};
use crate::op::team_call::{TeamBlocks, TeamCall, TeamReduction};
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

/// Nothing behind it on the stream begins before every member has come to it, on a stream or in a kernel
/// (`rushmem::sync`), in the same slot set. What a member's stream did before is seen after it on all.
///
/// This and the other collectives on streams: the call is made in slot set `set` of the team, 0 where it has
/// but one. All members make the same calls in one slot set in the same order, on streams or in kernels; on
/// different sets, calls of one team run at once. A call returns at once. Arguments are checked now, and an
/// error means that nothing was put on the stream: `RUSHMEM_ERR_BAD_HANDLE` for what is no team or stream,
/// `RUSHMEM_ERR_INVALID_ARGUMENT` for a slot set that the team does not have, arrays that overlap or are not
/// aligned, `RUSHMEM_ERR_BAD_ADDRESS` for memory that the PE's device does not reach, `RUSHMEM_ERR_BAD_PE`
/// for a root that is no member. What goes wrong later `rushmem_stream_synchronize` reports: members whose
/// calls differ (`RUSHMEM_ERR_MISMATCH`), a slot set in use by another call of this PE (`RUSHMEM_ERR_BUSY`),
/// a death.
///
/// On a GPU each call is one launch, which may be captured into a CUDA graph and replayed. The first call of
/// a kind has its kernel compiled, or taken from the cache, and loaded; while a stream is being captured that
/// is refused (`RUSHMEM_ERR_UNSUPPORTED`): see `rushmem_team_prepare`.
///
/// # Safety
/// `t` is a team that lives until the work is done; the stream lives through the call.
#[no_mangle]
pub unsafe extern "C" fn rushmem_team_sync_on_stream(
    t: *mut rushmem_team_t,
    set: u32,
    stream: *mut c_void,
) -> i32 {
    // SAFETY: the caller vouches for team and stream.
    unsafe { call(t, TeamCall::Sync, set, stream) }
}

/// `rushmem_team_sync_on_stream` behind a quiet: all that the stream put before is complete on every member.
///
/// # Safety
/// As for `rushmem_team_sync_on_stream`.
#[no_mangle]
pub unsafe extern "C" fn rushmem_team_barrier_on_stream(
    t: *mut rushmem_team_t,
    set: u32,
    stream: *mut c_void,
) -> i32 {
    // SAFETY: the caller vouches for team and stream.
    unsafe { call(t, TeamCall::Barrier, set, stream) }
}

/// `bytes` bytes from `src` of member `root` to `dst` of all members, the root's own too, in the stream's
/// turn. `dst` and `src` may be one array. Symmetric memory, or any other that the PE's device reaches; `dst`
/// is symmetric for all members or for none. Errors as `rushmem_team_sync_on_stream`.
///
/// # Safety
/// `dst` and `src` are valid for `bytes` bytes until the work is done; the rest as for
/// `rushmem_team_sync_on_stream`.
#[no_mangle]
pub unsafe extern "C" fn rushmem_team_broadcast_on_stream(
    t: *mut rushmem_team_t,
    dst: *mut c_void,
    src: *const c_void,
    bytes: usize,
    root: i32,
    set: u32,
    stream: *mut c_void,
) -> i32 {
    let broadcast = TeamCall::Broadcast { dst: dst as usize, src: src as usize, bytes, root };
    // SAFETY: the caller vouches for memory, team and stream.
    unsafe { call(t, broadcast, set, stream) }
}

/// `bytes` bytes from `src` of each member to `dst` of all, in the stream's turn: those of member i at
/// `dst + i * bytes`. `src` may be this member's part of `dst`. Memory and errors as
/// `rushmem_team_broadcast_on_stream`.
///
/// # Safety
/// `src` is valid for `bytes` bytes and `dst` for as many of each member until the work is done; the rest as
/// for `rushmem_team_sync_on_stream`.
#[no_mangle]
pub unsafe extern "C" fn rushmem_team_fcollect_on_stream(
    t: *mut rushmem_team_t,
    dst: *mut c_void,
    src: *const c_void,
    bytes: usize,
    set: u32,
    stream: *mut c_void,
) -> i32 {
    let fcollect = TeamCall::Fcollect { dst: dst as usize, src: src as usize, bytes };
    // SAFETY: the caller vouches for memory, team and stream.
    unsafe { call(t, fcollect, set, stream) }
}

/// `n` elements of `elem_bytes` bytes from `src` of each member to `dst` of all, in the stream's turn, one
/// after the other in the order of the members. `n` may differ from member to member, and be zero; element
/// sizes are equal. `src` may be this member's part of `dst`. Memory and errors as
/// `rushmem_team_broadcast_on_stream`.
///
/// # Safety
/// `src` is valid for its elements and `dst` for those of all members until the work is done; the rest as for
/// `rushmem_team_sync_on_stream`.
#[no_mangle]
pub unsafe extern "C" fn rushmem_team_collect_on_stream(
    t: *mut rushmem_team_t,
    dst: *mut c_void,
    src: *const c_void,
    elem_bytes: usize,
    n: usize,
    set: u32,
    stream: *mut c_void,
) -> i32 {
    let collect = TeamCall::Collect { dst: dst as usize, src: src as usize, elem: elem_bytes, n };
    // SAFETY: the caller vouches for memory, team and stream.
    unsafe { call(t, collect, set, stream) }
}

/// The `bytes` bytes at `src + j * bytes` go to member j, in the stream's turn, where they lie at
/// `dst + my_pe * bytes`. `dst` and `src` may be one array. Memory and errors as
/// `rushmem_team_broadcast_on_stream`.
///
/// # Safety
/// `dst` and `src` are valid for `bytes` bytes for each member until the work is done; the rest as for
/// `rushmem_team_sync_on_stream`.
#[no_mangle]
pub unsafe extern "C" fn rushmem_team_alltoall_on_stream(
    t: *mut rushmem_team_t,
    dst: *mut c_void,
    src: *const c_void,
    bytes: usize,
    set: u32,
    stream: *mut c_void,
) -> i32 {
    let alltoall = TeamCall::Alltoall { dst: dst as usize, src: src as usize, bytes };
    // SAFETY: the caller vouches for memory, team and stream.
    unsafe { call(t, alltoall, set, stream) }
}

/// `rushmem_team_alltoall_on_stream` of `n` elements of `elem_bytes` bytes that are apart: element k for
/// member j is element `(j * n + k) * src_stride` of `src`, and so in `dst`. Strides are 1 or more, and the
/// same on all members. What lies between is not touched.
///
/// # Safety
/// `dst` and `src` are valid for their elements until the work is done; the rest as for
/// `rushmem_team_sync_on_stream`.
#[no_mangle]
pub unsafe extern "C" fn rushmem_team_alltoalls_on_stream(
    t: *mut rushmem_team_t,
    dst: *mut c_void,
    src: *const c_void,
    dst_stride: isize,
    src_stride: isize,
    elem_bytes: usize,
    n: usize,
    set: u32,
    stream: *mut c_void,
) -> i32 {
    let (dst, src) = (dst as usize, src as usize);
    // A negative one is refused as none is.
    let [dst_stride, src_stride] =
        [dst_stride, src_stride].map(|stride| usize::try_from(stride).unwrap_or(0));
    let alltoalls = TeamCall::Alltoalls { dst, src, dst_stride, src_stride, elem: elem_bytes, n };
    // SAFETY: the caller vouches for memory, team and stream.
    unsafe { call(t, alltoalls, set, stream) }
}

/// Blocks of different sizes from every member to every member, in the stream's turn: `n[j]` elements of
/// `elem_bytes` bytes at element `src_at[j]` of `src` go to member j, and what comes from member i lies at
/// element `dst_at[i]` of `dst`: `received[i]` elements, where `received` is not null. The four lists have an
/// entry for each member. They are read and written in the stream's turn, too, so they lie in memory that the
/// PE's device reaches; a kernel before it on the stream may fill them. Memory and errors as
/// `rushmem_team_broadcast_on_stream`.
///
/// # Safety
/// All arrays are valid for what the lists then say, until the work is done; the rest as for
/// `rushmem_team_sync_on_stream`.
#[no_mangle]
pub unsafe extern "C" fn rushmem_team_alltoallv_on_stream(
    t: *mut rushmem_team_t,
    dst: *mut c_void,
    dst_at: *const usize,
    received: *mut usize,
    src: *const c_void,
    src_at: *const usize,
    n: *const usize,
    elem_bytes: usize,
    set: u32,
    stream: *mut c_void,
) -> i32 {
    let blocks = TeamBlocks {
        dst: dst as usize,
        dst_at: dst_at as usize,
        received: received as usize,
        src: src as usize,
        src_at: src_at as usize,
        n: n as usize,
        elem: elem_bytes,
    };
    // SAFETY: the caller vouches for memory, team and stream.
    unsafe { call(t, TeamCall::Alltoallv(blocks), set, stream) }
}

/// Element i of `dst`, on every member, is that of all members' `src` combined by `op` (`RUSHMEM_SUM` and its
/// like), in the stream's turn: `n` elements of type `type` (`RUSHMEM_FLOAT` and its like). The same bits on
/// every member, and in every run: members are combined in the order of their numbers. `dst` and `src` may be
/// one array; each is symmetric for all members or for none. Errors as `rushmem_team_broadcast_on_stream`;
/// `RUSHMEM_ERR_INVALID_ARGUMENT` where the operator makes no sense for the type, `RUSHMEM_ERR_UNSUPPORTED`
/// for 16-bit floats on the CPU, which are for GPUs, and for products of `RUSHMEM_COMPLEX_DOUBLE`.
///
/// # Safety
/// `dst` and `src` are valid for `n` elements until the work is done; the rest as for
/// `rushmem_team_sync_on_stream`.
#[no_mangle]
pub unsafe extern "C" fn rushmem_team_reduce_on_stream(
    t: *mut rushmem_team_t,
    dst: *mut c_void,
    src: *const c_void,
    n: usize,
    r#type: i32,
    op: i32,
    set: u32,
    stream: *mut c_void,
) -> i32 {
    let reduction = TeamReduction { of: r#type, op, dst: dst as usize, src: src as usize, n };
    // SAFETY: the caller vouches for memory, team and stream.
    unsafe { call(t, TeamCall::Reduce(reduction), set, stream) }
}

/// Member j gets block j, of `n` elements, of the reduction of all members' `src`, which has a block for each
/// member. `dst` may be the first block of `src`. The rest as `rushmem_team_reduce_on_stream`.
///
/// # Safety
/// `dst` is valid for `n` elements and `src` for as many for each member until the work is done; the rest as
/// for `rushmem_team_sync_on_stream`.
#[no_mangle]
pub unsafe extern "C" fn rushmem_team_reducescatter_on_stream(
    t: *mut rushmem_team_t,
    dst: *mut c_void,
    src: *const c_void,
    n: usize,
    r#type: i32,
    op: i32,
    set: u32,
    stream: *mut c_void,
) -> i32 {
    let reduction = TeamReduction { of: r#type, op, dst: dst as usize, src: src as usize, n };
    // SAFETY: the caller vouches for memory, team and stream.
    unsafe { call(t, TeamCall::Reducescatter(reduction), set, stream) }
}

/// Element i of `dst` is that of the members' `src` up to this one, combined by `op`. The rest as
/// `rushmem_team_reduce_on_stream`.
///
/// # Safety
/// As for `rushmem_team_reduce_on_stream`.
#[no_mangle]
pub unsafe extern "C" fn rushmem_team_inscan_on_stream(
    t: *mut rushmem_team_t,
    dst: *mut c_void,
    src: *const c_void,
    n: usize,
    r#type: i32,
    op: i32,
    set: u32,
    stream: *mut c_void,
) -> i32 {
    let reduction = TeamReduction { of: r#type, op, dst: dst as usize, src: src as usize, n };
    // SAFETY: the caller vouches for memory, team and stream.
    unsafe { call(t, TeamCall::Inscan(reduction), set, stream) }
}

/// `rushmem_team_inscan_on_stream` of the members before this one; zero on the first.
///
/// # Safety
/// As for `rushmem_team_reduce_on_stream`.
#[no_mangle]
pub unsafe extern "C" fn rushmem_team_exscan_on_stream(
    t: *mut rushmem_team_t,
    dst: *mut c_void,
    src: *const c_void,
    n: usize,
    r#type: i32,
    op: i32,
    set: u32,
    stream: *mut c_void,
) -> i32 {
    let reduction = TeamReduction { of: r#type, op, dst: dst as usize, src: src as usize, n };
    // SAFETY: the caller vouches for memory, team and stream.
    unsafe { call(t, TeamCall::Exscan(reduction), set, stream) }
}

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
