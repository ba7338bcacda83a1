//! What a window is made of: memfds mapped into reserved address space, or a GPU's memory at addresses of
//! CUDA's.
//!
//! Both give the same: pieces of zeroed memory that this PE owns, a descriptor for each by which its peers
//! map it, and mappings at places that the window chooses.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::error::{Error, Result};
use crate::gpu::stream::{Priority, Stream};
use crate::gpu::vmm::{AddressRange, Allocation, Mapping};
use crate::gpu::Cuda;
use crate::os::{page_size, Memfd, Reservation};

/// What a window is made of.
#[derive(Debug)]
pub(crate) enum Backing {
    /// Host memory.
    Host(Reservation),
    /// A GPU's memory.
    Gpu(GpuBacking),
}

/// A piece of memory that this PE owns.
#[derive(Debug)]
pub(crate) struct BackingChunk {
    fd: OwnedFd,
    /// The driver maps an owner's memory by its handle, not by its descriptor.
    gpu: Option<Arc<Allocation>>,
}

impl BackingChunk {
    /// The descriptor by which others map it.
    pub(crate) fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    /// Host memory behind a descriptor.
    pub(crate) fn host(fd: OwnedFd) -> BackingChunk {
        BackingChunk { fd, gpu: None }
    }

    /// A GPU's memory, which this process must have made.
    pub(crate) fn gpu(allocation: Arc<Allocation>) -> Result<BackingChunk> {
        Ok(BackingChunk { fd: allocation.export()?, gpu: Some(allocation) })
    }
}

/// Addresses of CUDA's, and what is mapped where.
#[derive(Debug)]
pub(crate) struct GpuBacking {
    cuda: Arc<Cuda>,
    range: Arc<AddressRange>,
    granularity: usize,
    mapped: Mutex<BTreeMap<usize, Mapping>>,
    /// For zeroing.
    stream: Stream,
}

impl GpuBacking {
    /// Reserves `bytes` of addresses for memory of `cuda` and its peers.
    pub(crate) fn reserve(cuda: &Arc<Cuda>, bytes: usize) -> Result<GpuBacking> {
        Ok(GpuBacking {
            cuda: Arc::clone(cuda),
            granularity: Allocation::granularity(cuda)?,
            range: AddressRange::reserve(cuda, bytes, crate::os::RESERVE_ALIGN)?,
            mapped: Mutex::default(),
            stream: Stream::new(cuda, Priority::High)?,
        })
    }

    fn mapped(&self) -> MutexGuard<'_, BTreeMap<usize, Mapping>> {
        // Whole between any two statements.
        self.mapped.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn map(&self, at: usize, allocation: &Arc<Allocation>) -> Result<()> {
        let mapping = self.range.map(at, allocation, &[&self.cuda])?;
        self.mapped().insert(at, mapping);
        Ok(())
    }
}

impl Backing {
    /// First address.
    pub(crate) fn base(&self) -> usize {
        match self {
            Backing::Host(reservation) => reservation.base(),
            Backing::Gpu(gpu) => gpu.range.base(),
        }
    }

    /// Sizes of chunks and places of mappings are multiples of this, a power of two.
    pub(crate) fn granularity(&self) -> usize {
        match self {
            Backing::Host(_) => page_size(),
            Backing::Gpu(gpu) => gpu.granularity,
        }
    }

    /// True where the host may load and store at the window's addresses.
    pub(crate) fn is_host(&self) -> bool {
        matches!(self, Backing::Host(_))
    }

    /// The GPU, if it is one's memory.
    pub(crate) fn gpu(&self) -> Option<&Arc<Cuda>> {
        match self {
            Backing::Host(_) => None,
            Backing::Gpu(gpu) => Some(&gpu.cuda),
        }
    }

    /// True where a peer's memory may turn out to be out of reach although all is well.
    pub(crate) fn may_refuse_peers(&self) -> bool {
        !self.is_host()
    }

    /// `bytes` of memory that is not yet mapped. A GPU's is zeroed only by [`Backing::zero`].
    pub(crate) fn create(&self, bytes: usize) -> Result<BackingChunk> {
        match self {
            Backing::Host(_) => Ok(BackingChunk::host(Memfd::create("rushmem-heap", bytes)?.into())),
            Backing::Gpu(gpu) => BackingChunk::gpu(Arc::new(Allocation::create(&gpu.cuda, bytes)?)),
        }
    }

    /// Maps this PE's own chunk.
    pub(crate) fn map_own(&self, at: usize, bytes: usize, chunk: &BackingChunk) -> Result<()> {
        match (self, &chunk.gpu) {
            (Backing::Gpu(gpu), Some(allocation)) => gpu.map(at, allocation),
            _ => self.map_peer(at, bytes, &chunk.fd),
        }
    }

    /// Maps the chunk of another PE by its descriptor.
    pub(crate) fn map_peer(&self, at: usize, bytes: usize, fd: &OwnedFd) -> Result<()> {
        match self {
            Backing::Host(reservation) => reservation.map(at, bytes, fd.as_fd()),
            Backing::Gpu(gpu) => {
                let fd = fd.try_clone().map_err(|e| Error::io("keeping a peer's memory descriptor", &e))?;
                gpu.map(at, &Arc::new(Allocation::import(&gpu.cuda, fd, bytes)?))
            }
        }
    }

    /// Takes out what is mapped in the `bytes` from `at` on, which cut no mapping in two.
    pub(crate) fn unmap(&self, at: usize, bytes: usize) {
        match self {
            Backing::Host(reservation) => reservation.unmap(at, bytes),
            Backing::Gpu(gpu) => {
                let mut mapped = gpu.mapped();
                let inside: Vec<usize> = mapped.range(at..at + bytes).map(|(place, _)| *place).collect();
                inside.iter().for_each(|place| drop(mapped.remove(place)));
            }
        }
    }

    /// Copies `bytes` to this PE's own mapped memory at address `at`.
    ///
    /// # Safety
    /// As for [`Backing::zero`].
    pub(crate) unsafe fn write(&self, at: usize, bytes: &[u8]) -> Result<()> {
        match self {
            Backing::Host(_) => {
                // SAFETY: per contract; the source is a slice of so many bytes.
                unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), at as *mut u8, bytes.len()) };
                Ok(())
            }
            Backing::Gpu(gpu) => {
                // SAFETY: per contract, and waited for.
                unsafe { gpu.stream.copy(at, bytes.as_ptr() as usize, bytes.len()) }?;
                gpu.stream.finish()
            }
        }
    }

    /// Zeroes `bytes` of this PE's own mapped memory at address `at`.
    ///
    /// # Safety
    /// The memory is mapped and belongs to nobody during the call.
    pub(crate) unsafe fn zero(&self, at: usize, bytes: usize) -> Result<()> {
        match self {
            Backing::Host(_) => {
                // SAFETY: per contract.
                unsafe { std::ptr::write_bytes(at as *mut u8, 0, bytes) };
                Ok(())
            }
            Backing::Gpu(gpu) => {
                // SAFETY: per contract, and waited for.
                unsafe { gpu.stream.fill(at, 0, bytes) }?;
                gpu.stream.finish()
            }
        }
    }
}
