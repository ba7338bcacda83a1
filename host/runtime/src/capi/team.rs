//! Teams (OpenSHMEM 1.5, section 9.4).

mod handles;

use std::ptr::null_mut;

use super::{called, check_out, guard, world, write_out};
use crate::error::{err, Result};
use crate::team::{self, Comparison, Team};
use crate::topology::members::Members;
use crate::world::{TeamSplit, World};
pub(super) use handles::forget;
use rushmem_abi::c::*;
use rushmem_abi::device::RawTeam;

/// The team behind a handle, and its world.
///
/// # Safety
/// Nobody frees the team or finalises its world during the call.
#[inline]
pub(super) unsafe fn team<'a>(t: *mut rushmem_team_t) -> Result<(&'a World, &'a Team)> {
    // SAFETY: nobody frees it during the call (this function's contract).
    let held = unsafe { handles::find(t) }.ok_or_else(|| {
        let why = if t.is_null() {
            "the handle is null: a PE that is no member gets a null handle"
        } else {
            "the handle was freed, or its world finalised, or it was never made by a rushmem_team_* function"
        };
        err!(BAD_HANDLE, "not a team: {why}")
    })?;
    // SAFETY: per contract.
    let world = unsafe { called!(held.world, "call of a team") };
    Ok((world, held.team.as_ref().unwrap_or(world.team())))
}

/// The handle of a team's world.
///
/// # Safety
/// As for [`team`].
unsafe fn world_of(t: *mut rushmem_team_t) -> *mut rushmem_world_t {
    // SAFETY: nobody frees it during the call (this function's contract).
    unsafe { handles::find(t) }.map_or(null_mut(), |held| held.world)
}

/// What a new team is to have.
///
/// # Safety
/// `config` is null or points at a struct of its `size`.
unsafe fn slot_sets(config: *const rushmem_team_config_t) -> Result<u32> {
    // SAFETY: per contract.
    let Some(config) = (unsafe { config.as_ref() }) else { return Ok(1) };
    let expected = size_of::<rushmem_team_config_t>();
    if config.size as usize != expected {
        return Err(err!(
            INVALID_ARGUMENT,
            "rushmem_team_config_t: size is {}, expected {expected} (zero the struct and set size)",
            config.size
        ));
    }
    Ok(config.slot_sets.max(1))
}

/// Splits `t`, and hands out the part that this PE is a member of.
///
/// # Safety
/// As for [`rushmem_team_split_strided`].
unsafe fn split(
    t: *mut rushmem_team_t,
    how: TeamSplit<'_>,
    config: *const rushmem_team_config_t,
    out: *mut *mut rushmem_team_t,
) -> Result<()> {
    // SAFETY: per contract.
    unsafe {
        let (world, parent) = team(t)?;
        let (sets, out) = (slot_sets(config)?, check_out(out, "out")?);
        out.write(null_mut());
        if let Some(made) = world.split(parent, how, sets)? {
            out.write(handles::make(world_of(t), made)?);
        }
    }
    Ok(())
}

/// Splits the team of `world`, whose handle is `w`.
///
/// # Safety
/// As for [`rushmem_team_node`].
unsafe fn split_world(
    w: *mut rushmem_world_t,
    world: &World,
    how: TeamSplit<'_>,
    config: *const rushmem_team_config_t,
    out: *mut *mut rushmem_team_t,
) -> Result<()> {
    // SAFETY: per contract.
    unsafe {
        let (sets, out) = (slot_sets(config)?, check_out(out, "out")?);
        out.write(null_mut());
        if let Some(made) = world.split(world.team(), how, sets)? {
            out.write(handles::make(w, made)?);
        }
    }
    Ok(())
}

/// The team of all PEs. Local: every call gives the same handle, which ends with the world.
///
/// # Safety
/// `w` is a world that is not finalised; `out` is null or valid.
#[no_mangle]
pub unsafe extern "C" fn rushmem_team_world(w: *mut rushmem_world_t, out: *mut *mut rushmem_team_t) -> i32 {
    guard(|| {
        // SAFETY: per contract.
        unsafe { world(w)? };
        let out = check_out(out, "out")?;
        let handle = handles::of_all(w)?;
        // SAFETY: checked and per contract.
        unsafe { out.write(handle) };
        Ok(())
    })
}

/// A team of the PEs of this PE's node, where all of them map each other's memory; else of this PE alone.
/// Collective over the world. Errors as `rushmem_team_split_strided`.
///
/// # Safety
/// `w` is a world that is not finalised; `config` and `out` are null or valid.
#[no_mangle]
pub unsafe extern "C" fn rushmem_team_node(
    w: *mut rushmem_world_t,
    config: *const rushmem_team_config_t,
    out: *mut *mut rushmem_team_t,
) -> i32 {
    guard(|| {
        // SAFETY: per contract.
        unsafe {
            let world = called!(w, "team_node");
            split_world(w, world, TeamSplit::Node, config, out)
        }
    })
}

/// A team of the PEs of this PE's host, whether they map each other's memory or not: PEs that share its GPUs
/// have numbers of their own in it. `RUSHMEM_PES_PER_NODE` and `RUSHMEM_NODES` make hosts of parts of a host.
/// Collective over the world. Errors as `rushmem_team_split_strided`.
///
/// # Safety
/// `w` is a world that is not finalised; `config` and `out` are null or valid.
#[no_mangle]
pub unsafe extern "C" fn rushmem_team_host(
    w: *mut rushmem_world_t,
    config: *const rushmem_team_config_t,
    out: *mut *mut rushmem_team_t,
) -> i32 {
    guard(|| {
        // SAFETY: per contract.
        unsafe {
            let world = called!(w, "team_host");
            split_world(w, world, TeamSplit::Host, config, out)
        }
    })
}

/// A new team of members `start`, `start + stride` ... of `parent`, `size` of them; `stride` may be negative
/// (OpenSHMEM 1.5, section 9.4.6). Collective over the parent: all of its members call it with the same
/// arguments. `*out` is the team, to be freed by `rushmem_team_free`, or null where this PE is no member of
/// it. Other teams may be made, used and freed by other threads meanwhile.
///
/// Errors, on all of the parent's members alike, with nothing made: `RUSHMEM_ERR_MISMATCH` for different
/// arguments or calls, `RUSHMEM_ERR_INVALID_ARGUMENT` for members that the parent does not have,
/// `RUSHMEM_ERR_HEAP_EXHAUSTED` where the memory of teams (`RUSHMEM_TEAM_MEMORY`) is used up,
/// `RUSHMEM_ERR_TIMEOUT`, `RUSHMEM_ERR_PEER_DEAD`. On one PE: `RUSHMEM_ERR_BUSY` while another thread is in a
/// collective call of the parent, `RUSHMEM_ERR_BAD_HANDLE` for what is no team.
///
/// # Safety
/// `parent` is a team that nobody frees meanwhile; `config` and `out` are null or valid.
#[no_mangle]
pub unsafe extern "C" fn rushmem_team_split_strided(
    parent: *mut rushmem_team_t,
    start: i32,
    stride: i32,
    size: i32,
    config: *const rushmem_team_config_t,
    out: *mut *mut rushmem_team_t,
) -> i32 {
    // SAFETY: the handle, the config and `out` are valid for the call (this function's contract).
    guard(|| unsafe { split(parent, TeamSplit::Strided { start, stride, size }, config, out) })
}

/// Lays the parent's members out in rows of `x_range`, in the order of their numbers: `*x` is a team of this
/// PE's row, `*y` of its column (OpenSHMEM 1.5, section 9.4.7). The last row may be shorter; an `x_range`
/// past the parent's size counts as that. Collective, and errors, as `rushmem_team_split_strided`.
///
/// # Safety
/// `parent` is a team that nobody frees meanwhile; `config`, `x` and `y` are null or valid.
#[no_mangle]
pub unsafe extern "C" fn rushmem_team_split_2d(
    parent: *mut rushmem_team_t,
    x_range: i32,
    config: *const rushmem_team_config_t,
    x: *mut *mut rushmem_team_t,
    y: *mut *mut rushmem_team_t,
) -> i32 {
    guard(|| {
        // SAFETY: per contract.
        unsafe {
            let (world, of) = team(parent)?;
            let (sets, x, y) = (slot_sets(config)?, check_out(x, "x")?, check_out(y, "y")?);
            x.write(null_mut());
            y.write(null_mut());
            let (row, column) = world.split_2d(of, x_range, sets)?;
            let w = world_of(parent);
            x.write(handles::make(w, row)?);
            y.write(handles::make(w, column)?);
        }
        Ok(())
    })
}

/// A new team for each colour that members of `parent` give, 0 or more: its members by `key`, those of the
/// same key by their numbers in the parent. `RUSHMEM_TEAM_NO_COLOUR` (any negative one) gets no team: `*out`
/// is null. Collective, and errors, as `rushmem_team_split_strided`.
///
/// # Safety
/// `parent` is a team that nobody frees meanwhile; `config` and `out` are null or valid.
#[no_mangle]
pub unsafe extern "C" fn rushmem_team_split(
    parent: *mut rushmem_team_t,
    colour: i64,
    key: i32,
    config: *const rushmem_team_config_t,
    out: *mut *mut rushmem_team_t,
) -> i32 {
    let how = TeamSplit::Coloured { colour: u64::try_from(colour).ok(), key: key.into() };
    // SAFETY: the handle, the config and `out` are valid for the call (this function's contract).
    guard(|| unsafe { split(parent, how, config, out) })
}

/// A new team of the parent's members `pes`, `n` numbers in the parent, each once, in that order. Collective
/// over the parent, every member of which gives the same list; `*out` is null where this PE is not in it.
/// Errors as `rushmem_team_split_strided`.
///
/// # Safety
/// `parent` is a team that nobody frees meanwhile; `pes` is valid for `n` numbers, and may be null for none;
/// `config` and `out` are null or valid.
#[no_mangle]
pub unsafe extern "C" fn rushmem_team_split_list(
    parent: *mut rushmem_team_t,
    pes: *const i32,
    n: usize,
    config: *const rushmem_team_config_t,
    out: *mut *mut rushmem_team_t,
) -> i32 {
    guard(|| {
        if pes.is_null() && n > 0 {
            return Err(err!(INVALID_ARGUMENT, "pes, a list of {n} numbers, is null"));
        }
        // SAFETY: a team that nobody frees meanwhile.
        let (_, members) = unsafe { team(parent)? };
        // Of more numbers than there are members, one is there twice or is none: the first of them show it.
        let n = n.min(members.members().n() + 1);
        // SAFETY: checked, and valid for `n` numbers per contract.
        unsafe {
            let list = if n == 0 { &[][..] } else { std::slice::from_raw_parts(pes, n) };
            split(parent, TeamSplit::Listed(list), config, out)
        }
    })
}

/// A new team of the PEs `pes` of the world, `n` of them, each once, in that order, without a parent: these
/// PEs call it, with the same list, and no others. `ticket` is the same on all of them, not 0, and larger
/// than in any earlier such call of a member: a counter that all PEs share gives such numbers, if a PE takes
/// one when all members are known to have come. A PE is in one such call at a time.
///
/// Errors as `rushmem_team_split_strided`; `RUSHMEM_ERR_INVALID_ARGUMENT` on one PE where it is not in the
/// list or the ticket is no such number, `RUSHMEM_ERR_BUSY` while another thread is in such a call.
///
/// # Safety
/// `w` is a world that is not finalised; `pes` is valid for `n` numbers; `config` and `out` are null or
/// valid.
#[no_mangle]
pub unsafe extern "C" fn rushmem_team_meet(
    w: *mut rushmem_world_t,
    pes: *const i32,
    n: usize,
    ticket: u64,
    config: *const rushmem_team_config_t,
    out: *mut *mut rushmem_team_t,
) -> i32 {
    guard(|| {
        // SAFETY: per contract.
        let (of, sets, out) = unsafe { (world(w)?, slot_sets(config)?, check_out(out, "out")?) };
        // SAFETY: valid, per contract.
        unsafe { out.write(null_mut()) };
        if pes.is_null() || n == 0 || n > of.n_pes() as usize {
            return Err(err!(
                INVALID_ARGUMENT,
                "a list of {n} PEs: expected 1 to {}, and no null",
                of.n_pes()
            ));
        }
        // SAFETY: valid for `n` numbers, per contract.
        let made = of.meet(unsafe { std::slice::from_raw_parts(pes, n) }, ticket, sets)?;
        // SAFETY: valid, per contract.
        unsafe { out.write(handles::make(w, made)?) };
        Ok(())
    })
}

/// The team in numbers.
///
/// # Safety
/// `t` is a team that nobody frees meanwhile; `out` is null or valid.
#[no_mangle]
pub unsafe extern "C" fn rushmem_team_info(t: *mut rushmem_team_t, out: *mut rushmem_team_info_t) -> i32 {
    guard(|| {
        // SAFETY: per contract.
        let (world, team) = unsafe { team(t)? };
        let raw = team.raw();
        let members = match team.members() {
            Members::Steps { .. } => std::ptr::null(),
            Members::List(pes) => pes.as_ptr(),
        };
        let info = rushmem_team_info_t {
            my_pe: raw.my_pe,
            n_pes: raw.n_pes,
            number: raw.id as i32,
            slot_sets: raw.slot_sets as i32,
            start: raw.start,
            stride: raw.stride,
            members,
            bytes: world.team_bytes(team) as u64,
        };
        // SAFETY: per contract.
        unsafe { write_out(out, info, "out") }
    })
}

/// The team as kernels take it: a `rushmem_team` of `rushmem/abi.h`, which is `rushmem::team` in a kernel.
/// Good for kernels of the team's world on this PE, as long as the team lives.
///
/// # Safety
/// `t` is a team that nobody frees meanwhile; `out` is null or valid for a `rushmem_team`.
#[no_mangle]
pub unsafe extern "C" fn rushmem_team_device(t: *mut rushmem_team_t, out: *mut rushmem_team) -> i32 {
    // SAFETY: per contract.
    guard(|| unsafe { write_out(out.cast::<RawTeam>(), *team(t)?.1.raw(), "out") })
}

/// Kernels of this PE find team `t` by `number` from now on, 0 to 63 (`rushmem::numbered_team`), or no team
/// where `t` is null: for interfaces whose kernels name teams by integers, such as nvshmem.h. No kernel uses
/// the number meanwhile. The number is taken back before the team is freed. Local.
///
/// # Safety
/// `w` is a world that is not finalised; `t` is null or a team of it that nobody frees meanwhile.
#[no_mangle]
pub unsafe extern "C" fn rushmem_team_number(
    w: *mut rushmem_world_t,
    number: i32,
    t: *mut rushmem_team_t,
) -> i32 {
    guard(|| {
        // SAFETY: per contract.
        let (w, of) = unsafe { (world(w)?, if t.is_null() { None } else { Some(team(t)?) }) };
        if of.is_some_and(|(other, _)| !std::ptr::eq(other, w)) {
            return Err(err!(INVALID_ARGUMENT, "the team is one of another world"));
        }
        w.number_team(number, of.map(|(_, team)| team))
    })
}

/// This PE's number in the team, or a negative code.
///
/// # Safety
/// `t` is a team that nobody frees meanwhile.
#[no_mangle]
pub unsafe extern "C" fn rushmem_team_my_pe(t: *mut rushmem_team_t) -> i32 {
    let mut pe = 0;
    // SAFETY: per contract.
    match guard(|| unsafe { team(t).map(|(_, team)| pe = team.raw().my_pe) }) {
        RUSHMEM_OK => pe,
        code => code,
    }
}

/// The number of members, or a negative code.
///
/// # Safety
/// `t` is a team that nobody frees meanwhile.
#[no_mangle]
pub unsafe extern "C" fn rushmem_team_n_pes(t: *mut rushmem_team_t) -> i32 {
    let mut n = 0;
    // SAFETY: per contract.
    match guard(|| unsafe { team(t).map(|(_, team)| n = team.raw().n_pes) }) {
        RUSHMEM_OK => n,
        code => code,
    }
}

/// Compares the members of two teams of one world: `*out` is one of `RUSHMEM_TEAM_*`. Local.
///
/// # Safety
/// `a` and `b` are teams that nobody frees meanwhile; `out` is null or valid.
#[no_mangle]
pub unsafe extern "C" fn rushmem_team_compare(
    a: *mut rushmem_team_t,
    b: *mut rushmem_team_t,
    out: *mut i32,
) -> i32 {
    guard(|| {
        // SAFETY: per contract.
        let (a, b) = unsafe { of_one_world(a, b)? };
        let result = match team::compare(a.members(), b.members()) {
            Comparison::Identical => RUSHMEM_TEAM_IDENTICAL,
            Comparison::Reordered => RUSHMEM_TEAM_REORDERED,
            Comparison::Different => RUSHMEM_TEAM_DIFFERENT,
        };
        // SAFETY: per contract.
        unsafe { write_out(out, result, "out") }
    })
}

/// The number in `to` of member `pe` of `from`, a team of the same world: -1 where it is no member there
/// (OpenSHMEM 1.5, section 9.4.5). Local.
///
/// Errors: `RUSHMEM_ERR_BAD_PE` where `from` has no such member, `RUSHMEM_ERR_INVALID_ARGUMENT` for teams of
/// two worlds.
///
/// # Safety
/// `from` and `to` are teams that nobody frees meanwhile; `out` is null or valid.
#[no_mangle]
pub unsafe extern "C" fn rushmem_team_translate_pe(
    from: *mut rushmem_team_t,
    pe: i32,
    to: *mut rushmem_team_t,
    out: *mut i32,
) -> i32 {
    guard(|| {
        // SAFETY: per contract.
        let (from, to) = unsafe { of_one_world(from, to)? };
        let n = from.members().n();
        let Some(member) = usize::try_from(pe).ok().filter(|member| *member < n) else {
            let name = from.rounds().name();
            return Err(err!(BAD_PE, "{name} has no member {pe}: its members are 0 to {}", n - 1));
        };
        let found = to.members().find(from.members().pe(member) as i32);
        // SAFETY: per contract.
        unsafe { write_out(out, found.map_or(-1, |found| found as i32), "out") }
    })
}

/// Two teams, of one world.
///
/// # Safety
/// As for [`team`].
unsafe fn of_one_world<'a>(a: *mut rushmem_team_t, b: *mut rushmem_team_t) -> Result<(&'a Team, &'a Team)> {
    // SAFETY: nobody frees either during the call (this function's contract).
    let ((_, first), (_, second)) = unsafe { (team(a)?, team(b)?) };
    // SAFETY: both were found just now, and live as long as the call.
    if unsafe { world_of(a) != world_of(b) } {
        return Err(err!(
            INVALID_ARGUMENT,
            "{} and {} are teams of different worlds: PEs of one have no number in the other",
            first.rounds().name(),
            second.rounds().name()
        ));
    }
    Ok((first, second))
}

/// Collective over the team's members: it ends, and its handle is stale. Kernels and work on streams that use
/// it have ended before. On an error it is as before.
///
/// Errors as `rushmem_team_sync`; `RUSHMEM_ERR_INVALID_ARGUMENT` for the team of all PEs, which ends with its
/// world.
///
/// # Safety
/// `t` is a team that no other thread uses now.
#[no_mangle]
pub unsafe extern "C" fn rushmem_team_free(t: *mut rushmem_team_t) -> i32 {
    guard(|| {
        // SAFETY: per contract.
        let w = unsafe {
            let (world, team) = team(t)?;
            world.free_team(team)?;
            world_of(t)
        };
        handles::free(w, t);
        Ok(())
    })
}
