//! Symmetric memory: allocation, registration, translation.

use std::os::raw::c_void;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::Arc;

use super::{called, guard, world, write_out};
use crate::error::{err, Result};
use crate::handles::Cell;
use crate::memory::window::Window;
use crate::op::Reached;
use rushmem_abi::c::{rushmem_heap_info_t, rushmem_memory_t, rushmem_world_t};

fn to_ptr(at: Option<usize>) -> *mut c_void {
    at.map_or(std::ptr::null_mut(), |a| a as *mut c_void)
}

fn from_ptr(p: *mut c_void) -> Option<usize> {
    (!p.is_null()).then_some(p as usize)
}

fn not_null<T>(p: *mut T, name: &str) -> Result<()> {
    if p.is_null() {
        return Err(err!(INVALID_ARGUMENT, "{name} is null"));
    }
    Ok(())
}

/// Allocates `bytes` of zeroed symmetric memory at a multiple of `align` (a power of two; 0 means 64), at the
/// same offset on every PE (OpenSHMEM 1.5, section 9.3). Collective; it does what `rushmem_barrier_all` does,
/// so that what was put before it has arrived. All PEs pass the same values (`RUSHMEM_ERR_MISMATCH` on all of
/// them otherwise, and nothing is allocated). Zero bytes give a null pointer.
///
/// # Safety
/// `w` is a world's handle; `out` is null or valid.
#[no_mangle]
pub unsafe extern "C" fn rushmem_alloc(
    w: *mut rushmem_world_t,
    bytes: usize,
    align: usize,
    out: *mut *mut c_void,
) -> i32 {
    guard(|| {
        not_null(out, "out")?;
        // SAFETY: per contract.
        unsafe { write_out(out, to_ptr(called!(w, "alloc").alloc(bytes, align)?), "out") }
    })
}

/// Gives an allocation back. Collective; it does what `rushmem_barrier_all` does, so that nothing which was
/// put before can meet the memory's next owner. Null is fine where it is null on every PE.
///
/// # Safety
/// `w` is a world's handle. Nobody uses the memory any more.
#[no_mangle]
pub unsafe extern "C" fn rushmem_free(w: *mut rushmem_world_t, ptr: *mut c_void) -> i32 {
    // SAFETY: per contract.
    guard(|| unsafe { world(w)? }.free(from_ptr(ptr)))
}

/// Makes private user memory symmetric: `[addr, addr + bytes)`. It keeps its address and contents; `*alias`
/// is the symmetric address of the same bytes, at the same offset on every PE. Operations of the host and on
/// streams take both addresses. Collective; `bytes` and the kind of memory are the same on all PEs, `addr`
/// need not be. What can be registered:
///
/// - *where the heap is in host memory*: ordinary anonymous memory (mmap, aligned_alloc), and data and bss
///   of the program itself, in whole pages. Kernels use the alias.
/// - *where it is in GPU memory, memory of the same GPU made by cuMemCreate* with
///   `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`: one or more whole allocations that are mapped one after the
///   other (they may be cut differently on each PE). Kernels use the alias.
/// - *memory of the same GPU made by cuMemAlloc or cudaMalloc*: any part of one allocation, at a multiple of
///   16. The PEs' copies lie at arbitrary addresses (CUDA's IPC), which kernels cannot compute: in kernels
///   the alias must not be used, and a kernel that does use it faults. A kernel uses `addr` for its own copy
///   (loads, stores, waits), and for a peer's the address that `rushmem_ptr` gives, passed as an argument:
///   for loads and stores, and for the device library's operations with this PE itself as the target, such as
///   `rushmem::put(p, src, n, rushmem::my_pe())`.
///
/// Not: managed or pinned memory, memory of pools (cudaMallocAsync), memory of other GPUs, memory that
/// another process made. `RUSHMEM_ERR_INVALID_ARGUMENT` and `RUSHMEM_ERR_UNSUPPORTED` say what is wrong with
/// it, `RUSHMEM_ERR_MISMATCH` where PEs differ; nothing is registered then, on any PE.
///
/// # Safety
/// `w` is a world's handle; `alias` is null or valid; nobody else touches the memory during the call, and it
/// is not unmapped or freed before `rushmem_unregister` or `rushmem_finalize` has returned.
#[no_mangle]
pub unsafe extern "C" fn rushmem_register(
    w: *mut rushmem_world_t,
    addr: *mut c_void,
    bytes: usize,
    alias: *mut *mut c_void,
) -> i32 {
    guard(|| {
        not_null(alias, "alias")?;
        // SAFETY: per contract.
        unsafe {
            let at = called!(w, "register").register(addr as usize, bytes)?;
            write_out(alias, at as *mut c_void, "alias")
        }
    })
}

/// Makes registered memory (by its address or its alias) private again; it keeps its contents. Collective:
/// when it returns, no PE has the memory mapped any more. This PE's operations of the host are waited for;
/// the caller has waited for kernels and streams. `RUSHMEM_ERR_BAD_ADDRESS` also where GPU memory was freed
/// while it was registered; it is unregistered then.
///
/// # Safety
/// `w` is a world's handle; nobody else touches the memory during the call.
#[no_mangle]
pub unsafe extern "C" fn rushmem_unregister(w: *mut rushmem_world_t, addr: *mut c_void) -> i32 {
    // SAFETY: per contract.
    guard(|| unsafe { world(w)? }.unregister(addr as usize))
}

/// The address at which PE `pe`'s copy of `sym` can be loaded and stored directly, by the host where the heap
/// is in host memory, by this PE's GPU where it is in GPU memory; null where it is not mapped (OpenSHMEM 1.5,
/// `shmem_ptr`). Of registered memory, with `pe` this PE itself, it tells whether kernels may use the alias:
/// they may where the answer is the alias. Local.
///
/// # Safety
/// `w` is a world's handle; `out` is null or valid.
#[no_mangle]
pub unsafe extern "C" fn rushmem_ptr(
    w: *mut rushmem_world_t,
    sym: *const c_void,
    pe: i32,
    out: *mut *mut c_void,
) -> i32 {
    guard(|| {
        // SAFETY: per contract.
        let w = unsafe { world(w)? };
        w.check_pe(pe)?;
        let mapped = match w.route(sym as usize, 1, pe)? {
            (at, Reached::Host | Reached::Gpu | Reached::Noted) => at,
            (_, Reached::Net) => 0,
        };
        // SAFETY: per contract.
        unsafe { write_out(out, mapped as *mut c_void, "out") }
    })
}

const MEMORY: u64 = u64::from_le_bytes(*b"rushmemM");

/// What a `rushmem_memory_t *` points at; empty once it is given back.
type MemoryHandle = Cell<AtomicPtr<Window>>;

/// Claims the memory of a world: what is mapped at this PE, its own heap and those of near PEs, stays mapped
/// until the claim is given back (`rushmem_memory_drop`), also where the world ends before. For languages in
/// which something may look at an array whose world has ended. Loads and stores are all that is left then:
/// the PEs of a world that has ended still share the memory, and nothing else. Regions of
/// `rushmem_register` are not held: they are private again at the world's end. Local.
///
/// # Safety
/// `w` is a world's handle; `out` is null or valid.
#[no_mangle]
pub unsafe extern "C" fn rushmem_memory_keep(
    w: *mut rushmem_world_t,
    out: *mut *mut rushmem_memory_t,
) -> i32 {
    guard(|| {
        not_null(out, "out")?;
        // SAFETY: per contract.
        let window = unsafe { world(w)? }.keep_memory();
        let cell = MemoryHandle::make(MEMORY, AtomicPtr::new(Arc::into_raw(window).cast_mut()))?;
        // SAFETY: per contract.
        unsafe { write_out(out, cell.as_raw(), "out") }
    })
}

/// Gives a claim on memory back: without its world, the memory is unmapped. Null is fine. Local.
///
/// # Safety
/// `memory` is null or a claim's handle. Nobody uses the memory any more, unless its world lives.
#[no_mangle]
pub unsafe extern "C" fn rushmem_memory_drop(memory: *mut rushmem_memory_t) -> i32 {
    guard(|| {
        if memory.is_null() {
            return Ok(());
        }
        // SAFETY: only `rushmem_memory_keep` makes cells of this mark.
        let cell = unsafe { MemoryHandle::find(memory.cast(), MEMORY) };
        let window = cell.map_or(null_mut(), |cell| cell.content.swap(null_mut(), Ordering::AcqRel));
        if window.is_null() {
            return Err(err!(BAD_HANDLE, "not a claim on memory, or one that was given back"));
        }
        // SAFETY: the pointer of `into_raw` above, taken once.
        drop(unsafe { Arc::from_raw(window) });
        Ok(())
    })
}

/// The symmetric heap in numbers. Local.
///
/// # Safety
/// `w` is a world's handle; `out` is null or valid.
#[no_mangle]
pub unsafe extern "C" fn rushmem_heap_info(w: *mut rushmem_world_t, out: *mut rushmem_heap_info_t) -> i32 {
    // SAFETY: per contract.
    guard(|| unsafe { write_out(out, world(w)?.heap_info(), "out") })
}
