//! Starting, looking around and leaving.

use std::ffi::CStr;
use std::os::raw::c_char;
use std::time::Duration;

use super::info::rushmem_library_path;
use super::{at_exit, guard, handle, take, world, write_out};
use crate::boot::{self, How};
use crate::config::{Config, DeviceWish};
use crate::error::{err, Result};
use crate::fork::Member;
use crate::interrupt;
use crate::trace::nvtx;
use crate::world::World;
use rushmem_abi::c::*;

/// Makes a unique ID and starts its rendezvous in this process: `*out` is to be carried to every PE (a file,
/// an MPI broadcast, a key-value store), each of which passes it to `rushmem_init` with its rank. Local.
///
/// The rendezvous ends by itself once every PE has come, and refuses connections that do not know the ID.
///
/// # Safety
/// `out` is null or points at a `rushmem_uid_t`.
#[no_mangle]
pub unsafe extern "C" fn rushmem_uid_create(out: *mut rushmem_uid_t) -> i32 {
    guard(|| {
        crate::logging::start();
        if out.is_null() {
            return Err(err!(INVALID_ARGUMENT, "out is null"));
        }
        let uid = boot::create_uid(&Config::from_env()?)?;
        // SAFETY: checked and per contract.
        unsafe { write_out(out, rushmem_uid_t { bytes: uid }, "out") }
    })
}

/// Joins a job as one of its PEs. Collective over all of them; ends within the start-up limit with an error
/// that names the PEs that never came. With a null or zeroed `attr` the environment says how (rushmem-run,
/// torchrun, Open MPI, MPICH, Slurm; none of them: a job of one PE).
///
/// # Safety
/// `attr` is null or points at a `rushmem_init_attr_t` of `attr->size` bytes whose pointers are null or
/// valid; `out` is null or valid.
#[no_mangle]
pub unsafe extern "C" fn rushmem_init(
    attr: *const rushmem_init_attr_t,
    out: *mut *mut rushmem_world_t,
) -> i32 {
    guard(|| {
        crate::logging::start();
        if out.is_null() {
            return Err(err!(INVALID_ARGUMENT, "out is null"));
        }
        let _beginning = Member::new()?;
        let _range = nvtx::tool().and_then(|tool| tool.range("init", None, None));
        // SAFETY: it takes nothing, and returns a C string that lives for ever.
        crate::settings::look(&|| unsafe { CStr::from_ptr(rushmem_library_path()) }.to_string_lossy().into());
        let mut config = Config::from_env()?;
        // SAFETY: per contract.
        let how = match unsafe { attr.as_ref() } {
            None => How::Environment,
            // SAFETY: `attr` points at a struct of the size that it says, with the pointers that its fields
            // promise.
            Some(attr) => unsafe { read_attr(attr, &mut config)? },
        };
        config.meeting = how.meeting();
        let boot = boot::join(how, &config)?;
        let w = handle(World::start(boot, config)?)?;
        // SAFETY: checked and per contract.
        unsafe { write_out(out, w, "out") }
    })
}

/// # Safety
/// The pointers in `attr` are null or valid.
unsafe fn read_attr(attr: &rushmem_init_attr_t, config: &mut Config) -> Result<How> {
    let expected = std::mem::size_of::<rushmem_init_attr_t>();
    if attr.size as usize != expected || attr.flags != 0 {
        return Err(err!(
            INVALID_ARGUMENT,
            "rushmem_init_attr_t: size is {} and flags {}, expected {expected} and 0 (zero the struct and set size)",
            attr.size,
            attr.flags
        ));
    }
    if attr.heap_max != 0 {
        (config.heap_max, config.heap_max_given) = (attr.heap_max, true);
        if !(65536..=1 << 46).contains(&attr.heap_max) {
            return Err(err!(
                INVALID_ARGUMENT,
                "heap_max is {} bytes; it must lie between 64 KiB and 64 TiB",
                attr.heap_max
            ));
        }
    }
    if attr.init_timeout_ms != 0 {
        config.init_timeout = Duration::from_millis(attr.init_timeout_ms);
    }
    config.device = match (attr.device, attr.gpu) {
        (0, 0) => config.device,
        (RUSHMEM_DEVICE_AUTO, 0) => DeviceWish::Auto,
        (RUSHMEM_DEVICE_CPU, 0) => DeviceWish::Cpu,
        (RUSHMEM_DEVICE_CUDA, 0) => DeviceWish::Cuda(None),
        (RUSHMEM_DEVICE_CUDA, gpu) if gpu > 0 => DeviceWish::Cuda(Some(gpu as usize - 1)),
        (device, gpu) => {
            return Err(err!(
                INVALID_ARGUMENT,
                "rushmem_init_attr_t: device {device} with gpu {gpu} (gpu goes with RUSHMEM_DEVICE_CUDA alone, and is 1 + its number)"
            ))
        }
    };
    let given = [!attr.uid.is_null(), !attr.address.is_null(), !attr.mpi_comm.is_null()];
    if given.iter().filter(|g| **g).count() > 1 {
        return Err(err!(
            INVALID_ARGUMENT,
            "rushmem_init_attr_t: give one of uid, address and mpi_comm, not several"
        ));
    }
    let ranks = || {
        if attr.n_pes < 1 || attr.rank < 0 || attr.rank >= attr.n_pes {
            return Err(err!(
                INVALID_ARGUMENT,
                "rank {} of {} PEs: expected 0 <= rank < n_pes",
                attr.rank,
                attr.n_pes
            ));
        }
        Ok((attr.rank as u32, attr.n_pes as u32))
    };
    // SAFETY: per contract.
    unsafe {
        if let Some(uid) = attr.uid.as_ref() {
            let (rank, n) = ranks()?;
            return Ok(How::Uid { uid: uid.bytes, rank, n });
        }
        if !attr.address.is_null() {
            let (rank, n) = ranks()?;
            let address = CStr::from_ptr(attr.address).to_str();
            let address = address.map_err(|_| err!(INVALID_ARGUMENT, "address is not UTF-8"))?.to_string();
            return Ok(How::Address { address, rank, n });
        }
    }
    if !attr.mpi_comm.is_null() {
        return Ok(How::MpiComm(attr.mpi_comm));
    }
    Ok(How::Environment)
}

/// Leaves the job in good order; collective. The handle is stale afterwards and all symmetric memory is gone.
/// On an error (`RUSHMEM_ERR_BUSY` while launched kernels run, `RUSHMEM_ERR_MISMATCH` where other PEs are in
/// another call) the world is as before.
///
/// # Safety
/// `w` is a world's handle that no other thread uses now.
#[no_mangle]
pub unsafe extern "C" fn rushmem_finalize(w: *mut rushmem_world_t) -> i32 {
    guard(|| {
        let _range = nvtx::tool().and_then(|tool| tool.range("finalize", None, None));
        // SAFETY: per contract.
        unsafe {
            world(w)?.finalize()?;
            take(w)?.end();
        }
        Ok(())
    })
}

/// Leaves the job at once because of `why` (may be null): the other PEs' waits end with an error that names
/// this PE and the reason. Local; the handle is stale afterwards.
///
/// # Safety
/// `w` is a world's handle that no other thread uses now; `why` is null or a C string.
#[no_mangle]
pub unsafe extern "C" fn rushmem_abort(w: *mut rushmem_world_t, why: *const c_char) -> i32 {
    guard(|| {
        // SAFETY: per contract.
        let (w, why) = unsafe { (take(w)?, reason(why)) };
        w.abort(&why.to_string_lossy());
        w.end();
        Ok(())
    })
}

/// Breaks the job because of `why` (may be null), as `rushmem_abort` does, and keeps the world: its memory
/// stays where it is, and calls of other threads, begun and new ones, end with `RUSHMEM_ERR_PEER_DEAD`. For a
/// process that is about to exit and whose threads may be in calls. Local.
///
/// # Safety
/// `w` is a world's handle; `why` is null or a C string.
#[no_mangle]
pub unsafe extern "C" fn rushmem_break(w: *mut rushmem_world_t, why: *const c_char) -> i32 {
    guard(|| {
        // SAFETY: per contract.
        let (w, why) = unsafe { (world(w)?, reason(why)) };
        w.abort(&why.to_string_lossy());
        Ok(())
    })
}

/// Leaves the job without the others: for the end of a program that does not finalise. What still runs here
/// is ended. PEs that leave likewise within a moment are not disturbed; the waits, kernels and calls of those
/// that stay end with an error that names this PE and `why` (may be null). Local; the handle is stale
/// afterwards. A process that exits with a live world does this by itself.
///
/// # Safety
/// `w` is a world's handle that no other thread uses now; `why` is null or a C string.
#[no_mangle]
pub unsafe extern "C" fn rushmem_leave(w: *mut rushmem_world_t, why: *const c_char) -> i32 {
    guard(|| {
        // SAFETY: per contract.
        let (w, why) = unsafe { (take(w)?, reason(why)) };
        w.leave(&why.to_string_lossy());
        w.end();
        Ok(())
    })
}

/// `RUSHMEM_OK` as long as all PEs of the job are there; else `RUSHMEM_ERR_PEER_DEAD`, and
/// `rushmem_last_error` names the PE that died or left first, and its reason. Local.
///
/// # Safety
/// `w` is a world's handle.
#[no_mangle]
pub unsafe extern "C" fn rushmem_check(w: *mut rushmem_world_t) -> i32 {
    // SAFETY: per contract.
    guard(|| unsafe { world(w)?.health().check_all_here() })
}

/// Host waits that last ask `ask` now and then (some 50 times a second), on the thread that waits: where the
/// answer is not 0, the call ends with `RUSHMEM_ERR_INTERRUPTED`. For languages that must look at signals
/// while a call of theirs waits. One function for the process; null for none. Threads of rushmem's own wait,
/// too, and ask. Joining a job does not. Local.
///
/// # Safety
/// `ask` is null or a function that may be called from any thread until the process ends, and that does not
/// unwind.
#[no_mangle]
pub unsafe extern "C" fn rushmem_on_wait(ask: Option<unsafe extern "C" fn() -> i32>) -> i32 {
    guard(|| {
        interrupt::set(ask);
        Ok(())
    })
}

/// What a caller gave as its reason.
///
/// # Safety
/// `why` is null or a C string that lives through the caller's use.
unsafe fn reason<'a>(why: *const c_char) -> &'a CStr {
    if why.is_null() {
        return c"no reason given";
    }
    // SAFETY: per contract.
    unsafe { CStr::from_ptr(why) }
}

/// What the fast path of a client needs: constant for the world's life.
///
/// # Safety
/// `w` is a world's handle; `out` is null or valid.
#[no_mangle]
pub unsafe extern "C" fn rushmem_view(w: *mut rushmem_world_t, out: *mut rushmem_view_t) -> i32 {
    // SAFETY: per contract.
    guard(|| unsafe { write_out(out, world(w)?.view(), "out") })
}

/// The world that this process joined last and has not left; null where there is none. For a library that
/// takes part in the job of its program instead of starting one of its own. Local.
///
/// # Safety
/// `out` is null or valid.
#[no_mangle]
pub unsafe extern "C" fn rushmem_current(out: *mut *mut rushmem_world_t) -> i32 {
    // SAFETY: per contract.
    guard(|| unsafe { write_out(out, at_exit::last(), "out") })
}

/// The near PEs, however they are numbered: constant for the world's life.
///
/// # Safety
/// `w` is a world's handle; `out` is null or valid.
#[no_mangle]
pub unsafe extern "C" fn rushmem_near(w: *mut rushmem_world_t, out: *mut rushmem_near_t) -> i32 {
    // SAFETY: per contract.
    guard(|| unsafe { write_out(out, world(w)?.near_pes(), "out") })
}

/// This PE's number, or a negative code.
///
/// # Safety
/// `w` is a world's handle.
#[no_mangle]
pub unsafe extern "C" fn rushmem_my_pe(w: *mut rushmem_world_t) -> i32 {
    let mut pe = 0;
    // SAFETY: per contract.
    match guard(|| unsafe { world(w).map(|w| pe = w.my_pe()) }) {
        RUSHMEM_OK => pe,
        code => code,
    }
}

/// The number of PEs, or a negative code.
///
/// # Safety
/// `w` is a world's handle.
#[no_mangle]
pub unsafe extern "C" fn rushmem_n_pes(w: *mut rushmem_world_t) -> i32 {
    let mut n = 0;
    // SAFETY: per contract.
    match guard(|| unsafe { world(w).map(|w| n = w.n_pes()) }) {
        RUSHMEM_OK => n,
        code => code,
    }
}

/// This PE's device for people, such as `the CPU` or `GPU 0 (NVIDIA H200, 0000:1b:00.0)`, in `*out`; it lives
/// as long as the world.
///
/// # Safety
/// `w` is a world's handle; `out` is null or valid.
#[no_mangle]
pub unsafe extern "C" fn rushmem_device_name(w: *mut rushmem_world_t, out: *mut *const c_char) -> i32 {
    // SAFETY: per contract.
    guard(|| unsafe { write_out(out, world(w)?.device_name().as_ptr(), "out") })
}

/// What this PE has asked PE `pe` for so far. Local.
///
/// # Safety
/// `w` is a world's handle; `out` is null or valid.
#[no_mangle]
pub unsafe extern "C" fn rushmem_counters(
    w: *mut rushmem_world_t,
    pe: i32,
    out: *mut rushmem_counters_t,
) -> i32 {
    // SAFETY: per contract.
    guard(|| unsafe { write_out(out, world(w)?.counters(pe)?, "out") })
}

/// Where PE `pe` runs and how it is reached. The strings live as long as the world.
///
/// # Safety
/// `w` is a world's handle; `out` is null or valid.
#[no_mangle]
pub unsafe extern "C" fn rushmem_peer(w: *mut rushmem_world_t, pe: i32, out: *mut rushmem_peer_t) -> i32 {
    guard(|| {
        // SAFETY: per contract.
        let p = unsafe { world(w)? }.peer(pe)?;
        let peer = rushmem_peer_t {
            pe,
            pid: p.pid as i32,
            host: p.host.as_ptr(),
            transport: p.transport.as_ptr(),
            reason: p.reason.as_ptr(),
        };
        // SAFETY: per contract.
        unsafe { write_out(out, peer, "out") }
    })
}
