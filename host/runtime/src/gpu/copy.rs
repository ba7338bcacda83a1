//! Copies and fills on a stream, done by the copy engines. Addresses are unified ones: of this GPU's memory,
//! of a peer's that is mapped here, or of host memory; CUDA finds out the direction by itself.

use cudarc::driver::sys::{self, CUmemorytype};

use super::driver::cu;
use super::stream::Stream;
use crate::error::{err, Result};

/// Elements in memory at regular distances.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Strided {
    /// Address of the first.
    pub(crate) at: usize,
    /// Bytes from one to the next.
    pub(crate) stride: usize,
}

impl Stream {
    /// Puts a copy of `bytes` on the stream. With pageable host memory on a side CUDA may do it, or wait for
    /// it, at once.
    ///
    /// # Safety
    /// Both ranges are memory that the GPU may access, valid until the copy is done, and they do not overlap.
    pub(crate) unsafe fn copy(&self, dst: usize, src: usize, bytes: usize) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        let _current = self.cuda().current()?;
        // SAFETY: per contract.
        unsafe { cu!(cuMemcpyAsync(dst as u64, src as u64, bytes, self.raw())) }
            .map_err(|e| e.context(format_args!("copying {bytes} bytes from {src:#x} to {dst:#x}")))
    }

    /// The same where both ranges are GPU memory, which CUDA then need not find out.
    ///
    /// # Safety
    /// As for [`Stream::copy`].
    pub(crate) unsafe fn copy_on_gpus(&self, dst: usize, src: usize, bytes: usize) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        let _current = self.cuda().current_for_work()?;
        // SAFETY: per contract.
        unsafe { cu!(cuMemcpyDtoDAsync_v2(dst as u64, src as u64, bytes, self.raw())) }
            .map_err(|e| e.context(format_args!("copying {bytes} bytes from {src:#x} to {dst:#x}")))
    }

    /// Puts a copy of `count` elements of `size` bytes on the stream, from and to regular distances.
    ///
    /// # Safety
    /// As for [`Stream::copy`], for every element.
    pub(crate) unsafe fn copy_strided(
        &self,
        dst: Strided,
        src: Strided,
        size: usize,
        count: usize,
    ) -> Result<()> {
        if size == 0 || count == 0 {
            return Ok(());
        }
        // Elements that touch are one copy, and one element has no distance.
        if count == 1 || (dst.stride == size && src.stride == size) {
            // SAFETY: per contract.
            return unsafe { self.copy(dst.at, src.at, size * count) };
        }
        if dst.stride < size || src.stride < size {
            return Err(err!(
                INVALID_ARGUMENT,
                "a strided copy of {size}-byte elements at distances of {} and {} bytes: they overlap",
                dst.stride,
                src.stride
            ));
        }
        if dst.stride.max(src.stride) > self.cuda().facts().max_pitch {
            for i in 0..count {
                // SAFETY: per contract.
                unsafe { self.copy(dst.at + i * dst.stride, src.at + i * src.stride, size) }?;
            }
            return Ok(());
        }
        let _current = self.cuda().current()?;
        let copy = sys::CUDA_MEMCPY2D {
            srcXInBytes: 0,
            srcY: 0,
            srcMemoryType: CUmemorytype::CU_MEMORYTYPE_UNIFIED,
            srcHost: std::ptr::null(),
            srcDevice: src.at as u64,
            srcArray: std::ptr::null_mut(),
            srcPitch: src.stride,
            dstXInBytes: 0,
            dstY: 0,
            dstMemoryType: CUmemorytype::CU_MEMORYTYPE_UNIFIED,
            dstHost: std::ptr::null_mut(),
            dstDevice: dst.at as u64,
            dstArray: std::ptr::null_mut(),
            dstPitch: dst.stride,
            WidthInBytes: size,
            Height: count,
        };
        // SAFETY: per contract; the description is read before the call returns.
        unsafe { cu!(cuMemcpy2DAsync_v2(&copy, self.raw())) }
            .map_err(|e| e.context(format_args!("copying {count} elements of {size} bytes")))
    }

    /// Puts the store of the low `bytes` (1 to 8) of `bits` on the stream: in one piece where that is 1, 2 or
    /// 4 aligned bytes.
    ///
    /// # Safety
    /// The range is memory that the GPU may access, valid until the store is done.
    pub(crate) unsafe fn set(&self, dst: usize, bits: u64, bytes: usize) -> Result<()> {
        let _current = self.cuda().current()?;
        let mut done = 0;
        while done < bytes {
            let (at, value) = ((dst + done) as u64, bits >> (8 * done));
            let left = bytes - done;
            let piece = match at % 4 {
                0 if left >= 4 => 4,
                0 | 2 if left >= 2 => 2,
                _ => 1,
            };
            // SAFETY: per contract.
            let stored = unsafe {
                match piece {
                    4 => cu!(cuMemsetD32Async(at, value as u32, 1, self.raw())),
                    2 => cu!(cuMemsetD16Async(at, value as u16, 1, self.raw())),
                    _ => cu!(cuMemsetD8Async(at, value as u8, 1, self.raw())),
                }
            };
            stored.map_err(|e| e.context(format_args!("storing {bytes} bytes at {dst:#x}")))?;
            done += piece;
        }
        Ok(())
    }

    /// Puts a fill of `bytes` with the byte `value` on the stream.
    ///
    /// # Safety
    /// The range is memory that the GPU may access, valid until the fill is done.
    pub(crate) unsafe fn fill(&self, dst: usize, value: u8, bytes: usize) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        let _current = self.cuda().current()?;
        let (word, at) = (u32::from_ne_bytes([value; 4]), dst as u64);
        let done = if dst % 4 == 0 && bytes % 4 == 0 {
            // SAFETY: per contract.
            unsafe { cu!(cuMemsetD32Async(at, word, bytes / 4, self.raw())) }
        } else {
            // SAFETY: per contract.
            unsafe { cu!(cuMemsetD8Async(at, value, bytes, self.raw())) }
        };
        done.map_err(|e| e.context(format_args!("filling {bytes} bytes at {dst:#x}")))
    }
}
