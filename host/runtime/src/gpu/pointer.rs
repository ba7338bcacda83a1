//! What an address is: whether CUDA knows it, whose memory it is, and of which allocation. Asked before user
//! memory becomes symmetric, because the calls that would share it say little about why they cannot.

use cudarc::driver::sys::{self, CUpointer_attribute as Attribute};

use super::driver::{check, cu};
use super::Cuda;
use crate::error::Result;

/// Memory that CUDA knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MemoryType {
    /// Host memory: pinned, or registered with CUDA.
    Host,
    /// Managed memory, which moves between host and GPUs.
    Managed,
    /// Memory of the GPU with this ordinal.
    Gpu(usize),
}

impl Cuda {
    /// What lies at `at`; `None` where CUDA knows nothing of it: ordinary host memory, or freed.
    pub(crate) fn place_of(&self, at: usize) -> Result<Option<MemoryType>> {
        let _current = self.current()?;
        let Some(kind) = attribute(at, Attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE) else { return Ok(None) };
        if attribute(at, Attribute::CU_POINTER_ATTRIBUTE_IS_MANAGED).is_some_and(|managed| managed != 0) {
            return Ok(Some(MemoryType::Managed));
        }
        if kind != u64::from(sys::CUmemorytype::CU_MEMORYTYPE_DEVICE as u32) {
            return Ok(Some(MemoryType::Host));
        }
        let ordinal = attribute(at, Attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL);
        Ok(ordinal.map(|ordinal| MemoryType::Gpu(ordinal as usize)))
    }

    /// First address and length of the allocation (of VMM memory: of the mapping) that `at` lies in.
    pub(crate) fn allocation_around(&self, at: usize) -> Result<(usize, usize)> {
        let _current = self.current()?;
        let (mut start, mut bytes) = (0, 0);
        // SAFETY: writes two numbers; an address that is none is refused.
        unsafe { cu!(cuMemGetAddressRange_v2(&mut start, &mut bytes, at as u64)) }?;
        Ok((start as usize, bytes))
    }

    /// A number that only this allocation ever has in this process: an address that was freed and handed out
    /// again has another. `None` where there is none.
    pub(crate) fn allocation_id(&self, at: usize) -> Result<Option<u64>> {
        let _current = self.current()?;
        Ok(attribute(at, Attribute::CU_POINTER_ATTRIBUTE_BUFFER_ID))
    }

    /// Whether the memory comes from a pool, as that of `cudaMallocAsync` does.
    pub(crate) fn is_pooled(&self, at: usize) -> Result<bool> {
        let _current = self.current()?;
        Ok(attribute(at, Attribute::CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE).is_some_and(|pool| pool != 0))
    }
}

/// An attribute of an address, in the context that is current; `None` where the driver knows none.
fn attribute(at: usize, which: Attribute) -> Option<u64> {
    // As wide as the widest of them; narrower ones are written to its low bytes.
    let mut value = 0u64;
    // SAFETY: every attribute asked for here is a number or a pointer of at most eight bytes.
    let found = unsafe { sys::cuPointerGetAttribute((&raw mut value).cast(), which, at as u64) };
    check("cuPointerGetAttribute", found).ok().map(|()| value)
}
