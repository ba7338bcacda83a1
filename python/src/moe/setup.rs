//! What an exchange is made of: its configuration by names, whether ranks are far, its kernels.

use std::ffi::CString;

use pyo3::prelude::*;
use rushmem_abi::c::*;
use rushmem_moe::plan::{Call, Plan, SOURCE};
use rushmem_moe::{Float, Fp8, Layout, Payload, Scales};

use super::said;
use crate::core::Core;
use crate::error::{self, Failure};

pub(super) fn float(py: Python<'_>, name: &str) -> PyResult<Float> {
    match name {
        "bfloat16" => Ok(Float::Bf16),
        "float16" => Ok(Float::F16),
        "float32" => Ok(Float::F32),
        _ => Err(error::invalid(
            py,
            &format!("an exchange has no numbers of {name}: bfloat16, float16 and float32"),
        )),
    }
}

pub(super) fn payload(
    py: Python<'_>,
    dtype: &str,
    scales: &str,
    bytes: Option<(u32, u32)>,
) -> PyResult<Payload> {
    if let Some((row, side)) = bytes {
        return Ok(Payload::Bytes { row, side });
    }
    let scales = match scales {
        "float32" => Scales::F32,
        "ue8m0" => Scales::Ue8m0,
        _ => return Err(error::invalid(py, &format!("scales are \"float32\" or \"ue8m0\", not {scales:?}"))),
    };
    match dtype {
        "float8_e4m3fn" => Ok(Payload::Cast(Fp8::E4m3, scales)),
        "float8_e5m2" => Ok(Payload::Cast(Fp8::E5m2, scales)),
        _ => float(py, dtype).map(Payload::Floats),
    }
}

pub(super) fn layout(py: Python<'_>, name: &str, align: u32) -> PyResult<Layout> {
    match name {
        "expert_major" => Ok(Layout::ExpertMajor),
        "rank_major" => Ok(Layout::RankMajor),
        "flat" => Ok(Layout::Flat { align }),
        _ => Err(error::invalid(py, &format!("a layout is expert_major, rank_major or flat, not {name}"))),
    }
}

/// Whether some member's memory is not mapped for some member's device. Collective over the team.
pub(super) fn is_far(core: &Core, team: usize, members: &[i32]) -> Result<bool, Failure> {
    let (table, mut near) = (core.table, std::mem::MaybeUninit::<rushmem_near_t>::uninit());
    // SAFETY: a live handle, and a place for the answer.
    Failure::check(table, unsafe { (table.near)(core.raw(), near.as_mut_ptr()) })?;
    // SAFETY: filled by the successful call.
    let near = unsafe { near.assume_init() };
    let is_near = |pe: i32| {
        if near.shape == RUSHMEM_NEAR_TABLE {
            // SAFETY: a number for each PE of the job, which lives as long as the world.
            return unsafe { *near.distances.add(pe as usize) } != RUSHMEM_NEAR_NOT;
        }
        let i = (pe.wrapping_sub(near.first) as u32).wrapping_mul(near.inverse).rotate_right(near.shift);
        i < near.count as u32
    };
    let mut far = u32::from(!members.iter().all(|pe| is_near(*pe)));
    let word = std::ptr::from_mut(&mut far).cast();
    // SAFETY: a live team; the word is both source and destination.
    Failure::check(table, unsafe {
        (table.team_reduce)(team as *mut _, word, word.cast_const(), 1, RUSHMEM_UINT32, RUSHMEM_MAX)
    })?;
    Ok(far != 0)
}

/// Loads the kernels: the module, its kernels in the order of `Call::ALL`, and the blocks of a launch.
pub(super) fn load(core: &Core, plan: &mut Plan) -> Result<(usize, [usize; 6], u32), Failure> {
    let (mut module, mut kernels, mut room) = compile(core, plan)?;
    while room == 0 && plan.less_shared() {
        // SAFETY: a live module of which no kernel runs.
        Failure::check(core.table, unsafe { (core.table.module_unload)(module as *mut _) })?;
        (module, kernels, room) = compile(core, plan)?;
    }
    Ok((module, kernels, plan.blocks(room).map_err(said)?))
}

/// The module and its kernels, and of how many blocks the device has room for all of them.
fn compile(core: &Core, plan: &Plan) -> Result<(usize, [usize; 6], u64), Failure> {
    let (t, options) = (core.table, plan.options());
    let options: Vec<_> = options.into_iter().map(|one| CString::new(one).expect("no NUL")).collect();
    let list: Vec<_> = options.iter().map(|one| one.as_ptr()).collect();
    let (text, name, mut module) = (SOURCE.as_ptr().cast(), c"moe.cu".as_ptr(), std::ptr::null_mut());
    // SAFETY: a live handle; the texts outlive the call, and the lengths are theirs; a place for the answer.
    Failure::check(t, unsafe {
        (t.module_load)(core.raw(), text, SOURCE.len(), name, list.as_ptr(), list.len(), &mut module)
    })?;
    let (mut kernels, mut room, block) = ([0; 6], u64::MAX, [plan.threads(), 1, 1]);
    for (i, call) in Call::ALL.into_iter().enumerate() {
        let name = CString::new(call.name()).expect("no NUL");
        let (mut kernel, mut most) = (std::ptr::null_mut(), 0);
        // SAFETY: a live module, a C string, and a place for the answer.
        Failure::check(t, unsafe { (t.module_kernel)(module, name.as_ptr(), &mut kernel) })?;
        // SAFETY: a live kernel, three extents, and a place for the answer.
        Failure::check(t, unsafe {
            (t.kernel_max_blocks)(kernel, block.as_ptr(), plan.most_shared_bytes(), &mut most)
        })?;
        (kernels[i], room) = (kernel as usize, room.min(most));
    }
    Ok((module as usize, kernels, room))
}
