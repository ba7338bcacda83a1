//! GPU memory that other PEs can map, and the addresses to map it at: CUDA's virtual memory management,
//! owned.
//!
//! An [`Allocation`] is memory without an address, an [`AddressRange`] addresses without memory, and a
//! [`Mapping`] is the one at the other. A mapping holds what it joins, so the order of drops takes care of
//! itself: unmapped first, then the range given back, and the memory once its last mapping, here and in every
//! process that imported it, is gone. This module cannot know whether work in flight still uses a
//! mapping: its owner waits for that work before dropping it.

use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;

use cudarc::driver::sys::{
    self, CUmemAllocationHandleType as HandleType, CUmemGenericAllocationHandle, CUresult,
};

use super::driver::{cu, failure, ignore, is_fatal};
use super::Cuda;
use crate::error::{err, Error, Result};

/// Memory of a GPU, in one piece, shareable by descriptor.
#[derive(Debug)]
pub(crate) struct Allocation {
    cuda: Arc<Cuda>,
    handle: CUmemGenericAllocationHandle,
    bytes: usize,
}

impl Allocation {
    /// Sizes of allocations and places of mappings are multiples of this (2 MiB on today's GPUs).
    pub(crate) fn granularity(cuda: &Cuda) -> Result<usize> {
        let _current = cuda.current()?;
        let mut bytes = 0;
        let least = sys::CUmemAllocationGranularity_flags::CU_MEM_ALLOC_GRANULARITY_MINIMUM;
        // SAFETY: a valid description; writes one number.
        unsafe { cu!(cuMemGetAllocationGranularity(&mut bytes, &properties(cuda), least)) }?;
        Ok(bytes.max(1))
    }

    /// `bytes` of the GPU's memory, a multiple of the granularity. Not zeroed.
    pub(crate) fn create(cuda: &Arc<Cuda>, bytes: usize) -> Result<Allocation> {
        let facts = cuda.facts();
        if !facts.vmm || !facts.posix_fd {
            return Err(err!(
                UNSUPPORTED,
                "{cuda} cannot share memory: it lacks virtual memory management or file descriptors for it"
            ));
        }
        let _current = cuda.current()?;
        let mut handle = 0;
        // SAFETY: a valid description; writes the handle, which is owned here at once.
        unsafe { cu!(cuMemCreate(&mut handle, bytes, &properties(cuda), 0)) }
            .map_err(|e| e.context(format_args!("{bytes} bytes of memory of {cuda}")))?;
        Ok(Allocation { cuda: Arc::clone(cuda), handle, bytes })
    }

    /// The memory that other code of this process has mapped at `at`, of which `bytes` from its start on are
    /// used; `None` where what lies there is not VMM memory.
    pub(crate) fn at_address(cuda: &Arc<Cuda>, at: usize, bytes: usize) -> Result<Option<Allocation>> {
        let _current = cuda.current()?;
        let mut handle = 0;
        // SAFETY: writes a handle that counts as one more, which is owned here at once; other addresses are
        // refused.
        let found = unsafe { sys::cuMemRetainAllocationHandle(&mut handle, at as *mut std::ffi::c_void) };
        match found {
            CUresult::CUDA_SUCCESS => Ok(Some(Allocation { cuda: Arc::clone(cuda), handle, bytes })),
            lost if is_fatal(lost) => Err(failure("cuMemRetainAllocationHandle", lost)),
            _ => Ok(None),
        }
    }

    /// Whether its maker meant it to be shared by descriptor.
    pub(crate) fn is_shareable(&self) -> Result<bool> {
        let _current = self.cuda.current()?;
        let mut properties = MaybeUninit::<sys::CUmemAllocationProp>::zeroed();
        let at = properties.as_mut_ptr();
        // SAFETY: writes the description of an allocation that we hold.
        unsafe { cu!(cuMemGetAllocationPropertiesFromHandle(at, self.handle)) }?;
        // SAFETY: written above, and zeroed before. Only this field is read: others are enumerations that may
        // have grown.
        let kinds = unsafe { (*at).requestedHandleTypes };
        Ok(kinds.0 & HandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR.0 != 0)
    }

    /// Length in bytes.
    #[cfg(test)]
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// A descriptor by which another process, or this one, imports the same memory. The memory lives as long
    /// as any. Only of memory that this process made: the driver refuses to export what was imported.
    pub(crate) fn export(&self) -> Result<OwnedFd> {
        let _current = self.cuda.current()?;
        let mut fd: i32 = -1;
        let to = (&raw mut fd).cast();
        // SAFETY: for this type of handle the call writes an int.
        unsafe {
            cu!(cuMemExportToShareableHandle(
                to,
                self.handle,
                HandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                0
            ))
        }?;
        // SAFETY: a new descriptor that is ours. Not every driver makes it close-on-exec.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        // SAFETY: sets a flag of an open descriptor.
        if unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFD, libc::FD_CLOEXEC) } != 0 {
            return Err(Error::os("keeping a memory descriptor from children"));
        }
        Ok(fd)
    }

    /// The memory behind a descriptor that `export` made, in any process of this host. `bytes` is the size
    /// that its owner tells: nothing here can ask, but mapping more than there is fails.
    pub(crate) fn import(cuda: &Arc<Cuda>, fd: OwnedFd, bytes: usize) -> Result<Allocation> {
        let _current = cuda.current()?;
        let mut handle = 0;
        let at = fd.as_raw_fd() as usize as *mut std::ffi::c_void;
        // SAFETY: for this type of handle the descriptor travels in the pointer; the driver keeps its own
        // reference.
        unsafe {
            cu!(cuMemImportFromShareableHandle(
                &mut handle,
                at,
                HandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
            ))
        }
        .map_err(|e| e.context(format_args!("importing {bytes} bytes of GPU memory on {cuda}")))?;
        Ok(Allocation { cuda: Arc::clone(cuda), handle, bytes })
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        // SAFETY: made by create or import; mappings keep the memory itself.
        ignore("cuMemRelease", unsafe { sys::cuMemRelease(self.handle) });
    }
}

fn properties(cuda: &Cuda) -> sys::CUmemAllocationProp {
    sys::CUmemAllocationProp {
        type_: sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
        requestedHandleTypes: HandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        location: location(cuda),
        win32HandleMetaData: std::ptr::null_mut(),
        allocFlags: sys::CUmemAllocationProp_st__bindgen_ty_1 {
            compressionType: 0,
            gpuDirectRDMACapable: u8::from(cuda.facts().rdma_vmm),
            usage: 0,
            reserved: [0; 4],
        },
    }
}

fn location(cuda: &Cuda) -> sys::CUmemLocation {
    sys::CUmemLocation { type_: sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id: cuda.device() }
}

/// A range of addresses, without memory except where something is mapped. The same in all contexts of the
/// process.
#[derive(Debug)]
pub(crate) struct AddressRange {
    cuda: Arc<Cuda>,
    base: usize,
    bytes: usize,
}

impl AddressRange {
    /// Reserves `bytes` (a multiple of the granularity) of address space that starts at a multiple of
    /// `align`.
    pub(crate) fn reserve(cuda: &Arc<Cuda>, bytes: usize, align: usize) -> Result<Arc<AddressRange>> {
        let _current = cuda.current()?;
        let mut base = 0;
        // SAFETY: writes the address of a new reservation, which is owned here at once.
        unsafe { cu!(cuMemAddressReserve(&mut base, bytes, align, 0, 0)) }.map_err(|e| {
            e.context(format_args!(
                "reserving {bytes} bytes of address space (lower RUSHMEM_HEAP_MAX, or raise `ulimit -v`)"
            ))
        })?;
        let range = AddressRange { cuda: Arc::clone(cuda), base: base as usize, bytes };
        if align > 1 && range.base % align != 0 {
            return Err(err!(UNSUPPORTED, "{cuda}: the driver does not align addresses to {align} bytes"));
        }
        Ok(Arc::new(range))
    }

    /// First address.
    pub(crate) fn base(&self) -> usize {
        self.base
    }

    /// Length in bytes.
    #[cfg(test)]
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Maps the whole of `allocation` at `offset`, readable and writable by the GPUs of `access`. The place
    /// must be free.
    pub(crate) fn map(
        self: &Arc<Self>,
        offset: usize,
        allocation: &Arc<Allocation>,
        access: &[&Cuda],
    ) -> Result<Mapping> {
        let bytes = allocation.bytes;
        if offset.checked_add(bytes).is_none_or(|end| end > self.bytes) {
            return Err(err!(
                INTERNAL,
                "mapping {bytes} bytes at offset {offset} of a reservation of {} bytes",
                self.bytes
            ));
        }
        let _current = self.cuda.current()?;
        let at = self.base + offset;
        // SAFETY: the place lies in our reservation; the driver refuses one that is taken, or more than the
        // allocation has.
        unsafe { cu!(cuMemMap(at as u64, bytes, 0, allocation.handle, 0)) }
            .map_err(|e| e.context(format_args!("mapping {bytes} bytes of GPU memory at {at:#x}")))?;
        let mapping = Mapping { range: Arc::clone(self), allocation: Arc::clone(allocation), at };
        mapping.set_access(access)?;
        Ok(mapping)
    }
}

impl Drop for AddressRange {
    fn drop(&mut self) {
        // SAFETY: reserved in `reserve`; nothing is mapped any more, as mappings hold an `Arc` of this.
        ignore("cuMemAddressFree", unsafe { sys::cuMemAddressFree(self.base as u64, self.bytes) });
    }
}

/// An allocation at an address. Unmaps on drop, for which nothing may be using it any more.
#[derive(Debug)]
pub(crate) struct Mapping {
    range: Arc<AddressRange>,
    allocation: Arc<Allocation>,
    at: usize,
}

impl Mapping {
    /// First address.
    #[cfg(test)]
    pub(crate) fn base(&self) -> usize {
        self.at
    }

    /// Length in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.allocation.bytes
    }

    /// What is mapped.
    #[cfg(test)]
    pub(crate) fn allocation(&self) -> &Arc<Allocation> {
        &self.allocation
    }

    /// These GPUs too may read and write here; the memory may be another's, if they are peers.
    pub(crate) fn set_access(&self, gpus: &[&Cuda]) -> Result<()> {
        if gpus.is_empty() {
            return Ok(());
        }
        let _current = self.range.cuda.current()?;
        let flags = sys::CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        let list: Vec<_> =
            gpus.iter().map(|gpu| sys::CUmemAccessDesc { location: location(gpu), flags }).collect();
        // SAFETY: the range is mapped as long as `self`; the list is as long as said.
        unsafe { cu!(cuMemSetAccess(self.at as u64, self.bytes(), list.as_ptr(), list.len())) }.map_err(|e| {
            let names: Vec<_> = gpus.iter().map(|gpu| gpu.to_string()).collect();
            e.context(format_args!("giving {} access to GPU memory", names.join(", ")))
        })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped in `map`; the owner has waited for the work that uses it.
        ignore("cuMemUnmap", unsafe { sys::cuMemUnmap(self.at as u64, self.bytes()) });
    }
}
