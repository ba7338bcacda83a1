//! What joining a job would do and need here, without joining: what `rushmem-info` shows, for programs
//! that want to say early what is missing.

use std::ffi::{CStr, OsStr};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use rushmem_abi::c::*;

use crate::runtime::{copy_text, Runtime};
use crate::{ErrorCode, Result};

/// Version of the C ABI that this crate and the loaded runtime speak; see [`runtime`](crate::runtime).
pub const ABI_VERSION: u32 = RUSHMEM_ABI_VERSION;

/// A program or library that rushmem found on the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tool {
    /// Its file.
    pub path: PathBuf,
    /// Its version, for a person.
    pub version: String,
}

/// The parts of CUDA that rushmem uses. An error of a tool says what is missing and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Cuda {
    /// The CUDA version that the driver supports, `(13, 0)` for 13.0; `Ok(None)` without a driver, or where
    /// it has no GPU.
    pub driver: Result<Option<(u32, u32)>, String>,
    /// NVRTC, which compiles kernels for GPUs.
    pub nvrtc: Result<Tool, String>,
    /// nvJitLink, which links them with the device library. Without it kernels are compiled whole.
    pub nvjitlink: Result<Tool, String>,
    /// CUDA version of the device library that the runtime carries, such as `13.0`; `None` where it was built
    /// without nvcc.
    pub device_library: Option<String>,
}

/// How a collective on a stream is launched, from one size on.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct CollectiveLaunch {
    /// As in the functions' names: `reduce`.
    pub collective: String,
    /// From so many bytes on: those of a PE's larger array.
    pub from_bytes: u64,
    /// Blocks.
    pub blocks: u32,
    /// Threads of a block.
    pub threads: u32,
    /// Where the numbers come from: `measured`, `estimated`, or `RUSHMEM_COLLECTIVES`.
    pub origin: String,
    /// Which way the data takes.
    pub algorithm: String,
}

/// The table by which collectives on streams are launched, on GPUs or on the CPU device, with what
/// `RUSHMEM_COLLECTIVES` says in place of its own.
///
/// # Errors
/// [`Environment`](ErrorCode::Environment) where that makes no sense.
pub fn collective_launches(gpu: bool) -> Result<Vec<CollectiveLaunch>> {
    let runtime = Runtime::get()?;
    let mut rows = Vec::new();
    loop {
        let mut row = MaybeUninit::<rushmem_collective_launch_t>::uninit();
        // SAFETY: a place for the answer, filled by the successful call; its strings live for ever.
        let (row, collective) = unsafe {
            runtime.check((runtime.collective_launch)(rows.len(), i32::from(gpu), row.as_mut_ptr()))?;
            let row = row.assume_init();
            (row, copy_text(row.collective))
        };
        if collective.is_empty() {
            return Ok(rows);
        }
        // SAFETY: strings that live for ever.
        let (origin, algorithm) = unsafe { (copy_text(row.origin), copy_text(row.algorithm)) };
        let rushmem_collective_launch_t { from_bytes, blocks, threads, .. } = row;
        rows.push(CollectiveLaunch { collective, from_bytes, blocks, threads, origin, algorithm });
    }
}

/// What [`World::init`](crate::World::init) would do here.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct JobPlan {
    /// This PE, where the environment says.
    pub rank: Option<u32>,
    /// Number of PEs, where the environment says.
    pub n_pes: Option<u32>,
    /// This PE among those of its host, where the launcher says.
    pub local_rank: Option<u32>,
    /// PEs of this host, where the launcher says.
    pub local_pes: Option<u32>,
    /// `rushmem-run`, `torchrun`, `slurm`, `openmpi`, `mpich` or `none`.
    pub launcher: String,
    /// What the launcher was recognised by.
    pub launcher_why: String,
    /// How the PEs would meet, `uid`, `mpi` or `single`, and why; or which `RUSHMEM_*` setting makes no
    /// sense.
    pub bootstrap: Result<(String, String), String>,
    /// The kind of device, `cpu` or `cuda`, and why; or what is missing and what to do about it.
    pub device: Result<(String, String), String>,
}

/// The CUDA driver, and the libraries that kernels for GPUs are compiled with. Starts no CUDA context.
///
/// # Errors
/// [`ErrorCode::LibraryNotFound`] where the runtime cannot be loaded. What is missing of CUDA is in the
/// result.
pub fn cuda() -> Result<Cuda> {
    let runtime = Runtime::get()?;
    let mut raw = MaybeUninit::<rushmem_cuda_t>::zeroed();
    // SAFETY: zeroed memory of that type, whose first field is written.
    unsafe { (*raw.as_mut_ptr()).size = size_of::<rushmem_cuda_t>() as u32 };
    // SAFETY: a place for the answer, with its size.
    runtime.check(unsafe { (runtime.cuda_versions)(raw.as_mut_ptr()) })?;
    // SAFETY: filled by the successful call; its strings live for ever.
    unsafe {
        let raw = raw.assume_init();
        let error = copy_text(raw.driver_error);
        let version = u32::try_from(raw.driver).ok().filter(|version| *version > 0);
        let driver = version.map(|version| (version / 1000, version % 1000 / 10));
        Ok(Cuda {
            driver: if error.is_empty() { Ok(driver) } else { Err(error) },
            nvrtc: tool(&raw.nvrtc),
            nvjitlink: tool(&raw.nvjitlink),
            device_library: Some(copy_text(raw.device_library)).filter(|version| !version.is_empty()),
        })
    }
}

/// Which launcher this process sees, how it would meet the other PEs, and what device it would have. Joins
/// nothing.
///
/// # Errors
/// [`ErrorCode::Environment`] names the launcher's variable that is missing or contradicts another.
pub fn job() -> Result<JobPlan> {
    let runtime = Runtime::get()?;
    let mut raw = MaybeUninit::<rushmem_job_t>::zeroed();
    // SAFETY: zeroed memory of that type, whose first field is written.
    unsafe { (*raw.as_mut_ptr()).size = size_of::<rushmem_job_t>() as u32 };
    // SAFETY: a place for the answer, with its size.
    runtime.check(unsafe { (runtime.job_describe)(raw.as_mut_ptr()) })?;
    let number = |number| u32::try_from(number).ok();
    // SAFETY: filled by the successful call; its strings live for ever.
    unsafe {
        let raw = raw.assume_init();
        let chosen = |what, why| match (copy_text(what), copy_text(why)) {
            (what, why) if what.is_empty() => Err(why),
            both => Ok(both),
        };
        Ok(JobPlan {
            rank: number(raw.rank),
            n_pes: number(raw.n_pes),
            local_rank: number(raw.local_rank),
            local_pes: number(raw.local_pes),
            launcher: copy_text(raw.launcher),
            launcher_why: copy_text(raw.launcher_why),
            bootstrap: chosen(raw.bootstrap, raw.bootstrap_why),
            device: chosen(raw.device, raw.device_why),
        })
    }
}

/// The C++ compiler that compiles kernels for the CPU device; the inner error says what is missing and what
/// to do about it.
///
/// # Errors
/// [`ErrorCode::LibraryNotFound`] where the runtime cannot be loaded.
pub fn cpu_compiler() -> Result<Result<Tool, String>> {
    let runtime = Runtime::get()?;
    let mut raw = MaybeUninit::<rushmem_tool_t>::uninit();
    // SAFETY: a place for the answer.
    runtime.check(unsafe { (runtime.cpu_compiler)(raw.as_mut_ptr()) })?;
    // SAFETY: filled by the successful call; its strings live for ever.
    Ok(unsafe { tool(&raw.assume_init()) })
}

/// The UCX that would reach PEs whose memory is not mapped, those on other hosts among them; the inner error
/// says where it was looked for and how to get it. Loads it.
///
/// # Errors
/// [`ErrorCode::LibraryNotFound`] where the runtime cannot be loaded.
pub fn network() -> Result<Result<Tool, String>> {
    let runtime = Runtime::get()?;
    let mut raw = MaybeUninit::<rushmem_tool_t>::uninit();
    // SAFETY: a place for the answer.
    runtime.check(unsafe { (runtime.network)(raw.as_mut_ptr()) })?;
    // SAFETY: filled by the successful call; its strings live for ever.
    Ok(unsafe { tool(&raw.assume_init()) })
}

/// The network cards with verbs that this machine has, in words: name, ports, addresses, and which GPUs are
/// close. The inner error says why there are none. Loads libibverbs.
///
/// # Errors
/// [`ErrorCode::LibraryNotFound`] where the runtime cannot be loaded.
pub fn network_cards() -> Result<Result<Vec<String>, String>> {
    let runtime = Runtime::get()?;
    let mut found = Vec::new();
    loop {
        let mut text = std::ptr::null();
        // SAFETY: a place for the answer.
        match runtime.check(unsafe { (runtime.network_card)(found.len(), &mut text) }) {
            // SAFETY: a string that lives for ever.
            Ok(()) => found.push(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()),
            Err(e) if e.code() != ErrorCode::InvalidArgument => return Err(e),
            Err(e) if found.is_empty() => return Ok(Err(e.message().to_owned())),
            Err(_) => return Ok(Ok(found)),
        }
    }
}

/// The MPI bootstrap plug-ins around the runtime. Loads none.
///
/// # Errors
/// [`ErrorCode::LibraryNotFound`] where the runtime cannot be loaded.
pub fn mpi_plugins() -> Result<Vec<PathBuf>> {
    let runtime = Runtime::get()?;
    let mut found = Vec::new();
    loop {
        let mut path = std::ptr::null();
        // SAFETY: a place for the answer.
        match runtime.check(unsafe { (runtime.mpi_plugin)(found.len(), &mut path) }) {
            // SAFETY: a string that lives for ever.
            Ok(()) => found.push(unsafe { file(path) }),
            Err(e) if e.code() == ErrorCode::InvalidArgument => return Ok(found),
            Err(e) => return Err(e),
        }
    }
}

/// # Safety
/// The strings are the runtime's.
unsafe fn tool(raw: &rushmem_tool_t) -> Result<Tool, String> {
    // SAFETY: per contract.
    unsafe {
        let error = copy_text(raw.error);
        match error.is_empty() {
            true => Ok(Tool { path: file(raw.path), version: copy_text(raw.version) }),
            false => Err(error),
        }
    }
}

/// # Safety
/// A C string of the runtime's.
unsafe fn file(path: *const std::os::raw::c_char) -> PathBuf {
    // SAFETY: per contract.
    PathBuf::from(OsStr::from_bytes(unsafe { std::ffi::CStr::from_ptr(path) }.to_bytes()))
}
