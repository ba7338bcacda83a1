//! GPU memory as a descriptor that other devices' drivers take (a dma-buf): how a network card reaches it.

use std::os::fd::{FromRawFd, OwnedFd};

use cudarc::driver::sys::CUmemRangeHandleType_enum as RangeHandle;

use super::driver::cu;
use super::Cuda;
use crate::error::{err, Result};

impl Cuda {
    /// A descriptor of GPU memory, `[at, at + bytes)`, whole pages of the host's size. The memory stays as
    /// long as any driver has it.
    pub(crate) fn dma_buf(&self, at: usize, bytes: usize) -> Result<OwnedFd> {
        if !self.facts().dma_buf {
            return Err(err!(
                UNSUPPORTED,
                "{self} gives no dma-bufs (NVIDIA's open kernel modules do, on Linux 5.12 or newer)"
            ));
        }
        let _current = self.current()?;
        let mut fd: i32 = -1;
        // SAFETY: for this type of handle the call writes an int; the driver checks the range.
        unsafe {
            cu!(cuMemGetHandleForAddressRange(
                (&raw mut fd).cast(),
                at as u64,
                bytes,
                RangeHandle::CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD,
                0
            ))
        }
        .map_err(|e| e.context(format_args!("a dma-buf of {bytes} bytes at {at:#x} of {self}")))?;
        // SAFETY: a new descriptor that is ours.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }
}
