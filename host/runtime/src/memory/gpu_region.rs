//! User memory of a GPU that is to become symmetric: what it is, and how others can get at it.
//!
//! There are two kinds. *VMM memory* (`cuMemCreate`) is shared by descriptor and mapped a second time in the
//! PEs' parts of the window, as registered host memory is: its alias is an ordinary symmetric address, for
//! kernels too. It goes by whole allocations, because that is how CUDA maps it. *Plain memory* (`cuMemAlloc`,
//! `cudaMalloc`) has no descriptor and cannot be mapped where we want it: others open CUDA's IPC handle and
//! find it somewhere. Its alias is an address where nothing is mapped, so that a kernel that uses it faults,
//! instead of touching what happens to lie there.

use std::sync::Arc;

use crate::error::{err, Error, Result};
use crate::gpu::ipc::{IpcHandle, HANDLE_WORDS};
use crate::gpu::pointer::MemoryType;
use crate::gpu::vmm::Allocation;
use crate::gpu::Cuda;
use crate::memory::backing::BackingChunk;

/// Addresses and sizes of plain memory: as the widest access of a kernel's.
const PLAIN_ALIGN: usize = 16;
const HOW: &str = "register memory of cuMemAlloc or cudaMalloc, or of cuMemCreate with \
                   CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR";

/// User memory that can be registered.
#[derive(Debug)]
pub(crate) enum GpuMemory {
    /// Whole VMM allocations, one after the other.
    Vmm(Vec<VmmPiece>),
    /// A part of a plain allocation.
    Plain(PlainRegion),
}

/// One VMM allocation of a region.
#[derive(Debug)]
pub(crate) struct VmmPiece {
    /// Bytes from the region's start.
    pub(crate) offset: usize,
    pub(crate) bytes: usize,
    pub(crate) chunk: BackingChunk,
}

/// What others need to reach plain memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PlainRegion {
    /// For other processes; zeroes where all PEs are threads of this one.
    pub(crate) handle: IpcHandle,
    /// From the start of the allocation, of which the handle is, to the region.
    pub(crate) offset: usize,
    /// Tells whether it was freed meanwhile.
    pub(crate) id: Option<u64>,
}

/// Whether `[addr, addr + bytes)` can be registered with a heap in memory of `cuda`, and as what. Nothing is
/// changed. Pieces are multiples of `granularity`; `alone`: no PE is in another process.
pub(crate) fn inspect(
    cuda: &Arc<Cuda>,
    addr: usize,
    bytes: usize,
    granularity: usize,
    alone: bool,
) -> Result<GpuMemory> {
    let refuse = |e: Error| e.context(format_args!("cannot register {bytes} bytes at {addr:#x}"));
    check_place(cuda, addr, bytes).map_err(refuse)?;
    match Allocation::at_address(cuda, addr, bytes).map_err(refuse)? {
        Some(_) => pieces(cuda, addr, bytes, granularity).map(GpuMemory::Vmm),
        None => plain(cuda, addr, bytes, alone).map(GpuMemory::Plain),
    }
    .map_err(refuse)
}

fn check_place(cuda: &Cuda, addr: usize, bytes: usize) -> Result<()> {
    if addr == 0 || bytes == 0 || addr.checked_add(bytes).is_none() {
        return Err(err!(INVALID_ARGUMENT, "no range of addresses"));
    }
    match cuda.place_of(addr)? {
        Some(MemoryType::Gpu(ordinal)) if ordinal == cuda.facts().ordinal => {
            if cuda.is_pooled(addr)? {
                return Err(err!(
                    UNSUPPORTED,
                    "it comes from a memory pool (cudaMallocAsync), which hands out parts of allocations; {HOW}"
                ));
            }
            Ok(())
        }
        Some(MemoryType::Gpu(ordinal)) => Err(err!(
            INVALID_ARGUMENT,
            "it is memory of GPU {ordinal}, and this PE's device, in whose memory its heap is, is {cuda}"
        )),
        Some(MemoryType::Managed) => Err(err!(
            UNSUPPORTED,
            "it is managed memory (cudaMallocManaged), which other PEs cannot map; {HOW}"
        )),
        Some(MemoryType::Host) => Err(err!(
            UNSUPPORTED,
            "it is pinned host memory, and this PE's heap is in memory of {cuda}; {HOW}"
        )),
        None => Err(err!(
            UNSUPPORTED,
            "it is no GPU's memory: host memory, or freed already; this PE's heap is in memory of {cuda}; {HOW} \
             (RUSHMEM_DEVICE=cpu puts the heap in host memory)"
        )),
    }
}

/// The VMM allocations that make up exactly this range.
fn pieces(cuda: &Arc<Cuda>, addr: usize, bytes: usize, granularity: usize) -> Result<Vec<VmmPiece>> {
    let end = addr + bytes;
    let mut pieces = Vec::new();
    let mut at = addr;
    while at < end {
        let around = cuda.allocation_around(at);
        let (start, length) =
            around.map_err(|e| err!(INVALID_ARGUMENT, "nothing is mapped from {at:#x} on: {e}"))?;
        let stop = start + length;
        if start != at || stop > end {
            return Err(err!(
                INVALID_ARGUMENT,
                "VMM memory is registered by whole allocations, and there is one from {start:#x} to {stop:#x} ({length} bytes): \
                 register from {:#x} to {:#x}, with as many bytes on every PE",
                start.min(addr),
                stop.max(end)
            ));
        }
        let Some(allocation) = Allocation::at_address(cuda, at, length)? else {
            return Err(err!(INVALID_ARGUMENT, "at {at:#x} there is memory of another kind; {HOW}"));
        };
        if !allocation.is_shareable()? {
            return Err(err!(
                UNSUPPORTED,
                "the allocation at {at:#x} was made without CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, so no other process can \
                 map it; {HOW}"
            ));
        }
        if length % granularity != 0 {
            return Err(err!(
                UNSUPPORTED,
                "the allocation at {at:#x} has {length} bytes, no multiple of the {granularity} in which memory comes here"
            ));
        }
        let chunk = BackingChunk::gpu(Arc::new(allocation)).map_err(|e| {
            e.context(format_args!(
                "the allocation at {at:#x} (memory that was imported from elsewhere is its owner's to register)"
            ))
        })?;
        pieces.push(VmmPiece { offset: at - addr, bytes: length, chunk });
        at = stop;
    }
    Ok(pieces)
}

/// The part of a `cuMemAlloc` allocation that is this range.
fn plain(cuda: &Arc<Cuda>, addr: usize, bytes: usize, alone: bool) -> Result<PlainRegion> {
    if addr % PLAIN_ALIGN != 0 {
        return Err(err!(INVALID_ARGUMENT, "the address must be a multiple of {PLAIN_ALIGN}"));
    }
    let (start, length) = cuda.allocation_around(addr)?;
    if bytes > length - (addr - start) {
        return Err(err!(
            INVALID_ARGUMENT,
            "they reach {} bytes past the end of their allocation, {length} bytes from {start:#x}",
            bytes - (length - (addr - start))
        ));
    }
    let handle = if alone { Ok(IpcHandle([0; HANDLE_WORDS])) } else { IpcHandle::of(cuda, start) };
    let handle = handle.map_err(|e| e.context(format_args!("no other process can open it ({HOW})")))?;
    Ok(PlainRegion { handle, offset: addr - start, id: cuda.allocation_id(addr)? })
}
