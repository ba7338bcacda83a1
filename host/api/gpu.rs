//! The GPUs of this process, as they can be known before there is a world.

use std::fmt;
use std::mem::MaybeUninit;

use rushmem_abi::c::*;

use crate::runtime::{copy_text, Runtime};
use crate::Result;

/// A GPU that this process sees.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Gpu {
    /// Its number in this process; another process may count otherwise.
    pub index: u32,
    /// Its model, such as `NVIDIA H200`.
    pub name: String,
    /// The same for the same GPU in every process of the host.
    pub uuid: [u8; 16],
    /// Its place on the bus, such as `0000:1b:00.0`.
    pub pci_bus_id: String,
    /// Compute capability: `(9, 0)` for 9.0.
    pub capability: (u32, u32),
    /// Streaming multiprocessors.
    pub sms: u32,
    /// Bytes of memory.
    pub memory: u64,
    /// Virtual memory management: its memory can be a symmetric heap.
    pub vmm: bool,
    /// Its memory can be handed to another process as a file descriptor.
    pub posix_fd: bool,
    /// A launch can insist that all of its blocks are resident.
    pub cooperative: bool,
    /// A launch can have thread block clusters.
    pub clusters: bool,
    /// Streams can wait for and write 64-bit words.
    pub stream_words: bool,
    /// Network cards may reach its symmetric memory (GPUDirect RDMA).
    pub rdma: bool,
}

/// The GPUs that this process sees, in their order; none on a machine without NVIDIA's driver. Starts no CUDA
/// context.
///
/// ```
/// for gpu in rushmem::gpus()? {
///     println!("{gpu}: {} GiB", gpu.memory >> 30);
/// }
/// # Ok::<(), rushmem::Error>(())
/// ```
///
/// # Errors
/// [`ErrorCode::Version`](crate::ErrorCode::Version) where the driver is too old for rushmem.
pub fn gpus() -> Result<Vec<Gpu>> {
    let runtime = Runtime::get()?;
    let mut count = 0;
    // SAFETY: a place for the answer.
    runtime.check(unsafe { (runtime.gpu_count)(&mut count) })?;
    (0..count).map(|index| Gpu::look(runtime, index)).collect()
}

impl Gpu {
    fn look(runtime: &Runtime, index: i32) -> Result<Gpu> {
        let mut raw = MaybeUninit::<rushmem_gpu_t>::zeroed();
        // SAFETY: zeroed memory of that type, whose first field is written.
        unsafe { (*raw.as_mut_ptr()).size = size_of::<rushmem_gpu_t>() as u32 };
        // SAFETY: a place for the answer, with its size.
        runtime.check(unsafe { (runtime.gpu_info)(index, raw.as_mut_ptr()) })?;
        // SAFETY: filled by the successful call.
        let raw = unsafe { raw.assume_init() };
        let can = |bit| raw.flags & bit != 0;
        Ok(Gpu {
            index: raw.index as u32,
            // SAFETY: the runtime's strings live for ever.
            name: unsafe { copy_text(raw.name) },
            uuid: raw.uuid,
            // SAFETY: the runtime's strings live for ever.
            pci_bus_id: unsafe { copy_text(raw.pci_bus_id) },
            capability: (raw.capability_major as u32, raw.capability_minor as u32),
            sms: raw.sms as u32,
            memory: raw.memory,
            vmm: can(RUSHMEM_GPU_VMM),
            posix_fd: can(RUSHMEM_GPU_POSIX_FD),
            cooperative: can(RUSHMEM_GPU_COOPERATIVE),
            clusters: can(RUSHMEM_GPU_CLUSTERS),
            stream_words: can(RUSHMEM_GPU_STREAM_WORDS),
            rdma: can(RUSHMEM_GPU_RDMA),
        })
    }

    /// Whether this GPU reaches the memory of `other` by loads, stores and copies, over NVLink or PCIe.
    ///
    /// # Errors
    /// What the driver says, where it refuses to tell.
    pub fn can_access(&self, other: &Gpu) -> Result<bool> {
        let runtime = Runtime::get()?;
        let (from, to, mut can) = (self.index as i32, other.index as i32, 0);
        // SAFETY: a place for the answer; numbers that do not exist are refused.
        runtime.check(unsafe { (runtime.gpu_can_access)(from, to, &mut can) })?;
        Ok(can != 0)
    }
}

/// `GPU 0 (NVIDIA H200, 0000:1b:00.0)`.
impl fmt::Display for Gpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GPU {} ({}, {})", self.index, self.name, self.pci_bus_id)
    }
}
