//! Host memory that GPUs can reach: a pinned box of our own, and memory of other owners, registered in place.

use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;

use cudarc::driver::sys::{self, CU_MEMHOSTALLOC_DEVICEMAP, CU_MEMHOSTALLOC_PORTABLE};

use super::driver::{cu, ignore};
use super::Cuda;
use crate::error::{err, Result};

/// A value in pinned host memory, mapped for all GPUs. To a kernel it is at [`PinnedBox::device_address`];
/// what a kernel may change while the host looks must be atomics or cells.
#[derive(Debug)]
pub(crate) struct PinnedBox<T: ?Sized> {
    cuda: Arc<Cuda>,
    at: NonNull<T>,
    device: usize,
}

// SAFETY: owns its value as a Box does; the memory may be freed by any thread.
unsafe impl<T: ?Sized + Send> Send for PinnedBox<T> {}
// SAFETY: as a Box.
unsafe impl<T: ?Sized + Sync> Sync for PinnedBox<T> {}

impl<T> PinnedBox<T> {
    /// Moves `value` into pinned memory.
    pub(crate) fn new(cuda: &Arc<Cuda>, value: T) -> Result<Self> {
        let (at, device) = allocate::<T>(cuda, 1)?;
        // SAFETY: fresh memory for one T.
        unsafe { at.write(value) };
        Ok(PinnedBox { cuda: Arc::clone(cuda), at, device })
    }
}

impl<T: Copy> PinnedBox<[T]> {
    /// `len` copies of `value` in pinned memory.
    pub(crate) fn filled(cuda: &Arc<Cuda>, len: usize, value: T) -> Result<Self> {
        let (at, device) = allocate::<T>(cuda, len)?;
        for i in 0..len {
            // SAFETY: fresh memory for `len` of them.
            unsafe { at.add(i).write(value) };
        }
        Ok(PinnedBox { cuda: Arc::clone(cuda), at: NonNull::slice_from_raw_parts(at, len), device })
    }

    /// The elements, for whom it belongs to alone: no copy or kernel that uses the memory is in flight.
    #[cfg(test)]
    pub(crate) fn as_mut_slice(&mut self) -> &mut [T] {
        // SAFETY: initialised, and borrowed exclusively.
        unsafe { self.at.as_mut() }
    }
}

impl<T: ?Sized> PinnedBox<T> {
    /// Where kernels and copies find it.
    pub(crate) fn device_address(&self) -> usize {
        self.device
    }

    /// Where the host finds it.
    pub(crate) fn as_ptr(&self) -> *mut T {
        self.at.as_ptr()
    }
}

impl<T: ?Sized> Deref for PinnedBox<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: initialised as long as `self`.
        unsafe { self.at.as_ref() }
    }
}

impl<T: ?Sized> Drop for PinnedBox<T> {
    fn drop(&mut self) {
        // SAFETY: initialised, and dropped once.
        unsafe { self.at.drop_in_place() };
        let Ok(_current) = self.cuda.current() else { return };
        // SAFETY: allocated in `allocate`.
        ignore("cuMemFreeHost", unsafe { sys::cuMemFreeHost(self.at.as_ptr().cast()) });
    }
}

fn allocate<T>(cuda: &Cuda, len: usize) -> Result<(NonNull<T>, usize)> {
    let bytes =
        len.checked_mul(size_of::<T>()).ok_or_else(|| err!(INVALID_ARGUMENT, "{len} elements: too many"))?;
    let _current = cuda.current()?;
    let mut at = std::ptr::null_mut();
    // Pages are what comes, and CUDA wants at least a byte.
    const { assert!(align_of::<T>() <= 4096) };
    let flags = CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP;
    // SAFETY: writes the address of new memory.
    unsafe { cu!(cuMemHostAlloc(&mut at, bytes.max(1), flags)) }
        .map_err(|e| e.context(format_args!("pinning {bytes} bytes of host memory")))?;
    let device = device_address(at).inspect_err(|_| {
        // SAFETY: allocated above.
        ignore("cuMemFreeHost", unsafe { sys::cuMemFreeHost(at) });
    })?;
    let at = NonNull::new(at.cast()).ok_or_else(|| err!(INTERNAL, "cuMemHostAlloc gave no memory"))?;
    Ok((at, device))
}

fn device_address(at: *mut std::ffi::c_void) -> Result<usize> {
    let mut device = 0;
    // SAFETY: host memory that is mapped for the current context; writes its address there.
    unsafe { cu!(cuMemHostGetDevicePointer_v2(&mut device, at, 0)) }?;
    Ok(device as usize)
}

/// Host memory of another owner (a shared memory segment, the user's pages), which GPUs can reach as long as
/// this lives.
#[derive(Debug)]
pub(crate) struct Registered {
    cuda: Arc<Cuda>,
    at: usize,
    device: usize,
}

impl Registered {
    /// Pins `[at, at + bytes)`, whole pages of them, and maps them for all GPUs of this process.
    ///
    /// # Safety
    /// The range stays mapped as it is until this is dropped.
    pub(crate) unsafe fn new(cuda: &Arc<Cuda>, at: usize, bytes: usize) -> Result<Registered> {
        let what = format_args!("making {bytes} bytes of host memory at {at:#x} reachable by {cuda}");
        // SAFETY: per contract.
        unsafe { Registered::with(cuda, at, bytes, 0) }.map_err(|e| e.context(what))
    }

    /// Maps `[at, at + bytes)`, registers of another device that this process has mapped.
    ///
    /// # Safety
    /// As for [`Registered::new`].
    pub(crate) unsafe fn registers(cuda: &Arc<Cuda>, at: usize, bytes: usize) -> Result<Registered> {
        let what = format_args!("mapping a device's registers at {at:#x} for {cuda}");
        // SAFETY: per contract.
        unsafe { Registered::with(cuda, at, bytes, sys::CU_MEMHOSTREGISTER_IOMEMORY) }
            .map_err(|e| e.context(what))
    }

    /// # Safety
    /// As for [`Registered::new`].
    unsafe fn with(cuda: &Arc<Cuda>, at: usize, bytes: usize, flags: u32) -> Result<Registered> {
        let _current = cuda.current()?;
        let flags = flags | sys::CU_MEMHOSTREGISTER_PORTABLE | sys::CU_MEMHOSTREGISTER_DEVICEMAP;
        let host = at as *mut std::ffi::c_void;
        // SAFETY: per contract; the driver checks that the range is mapped.
        unsafe { cu!(cuMemHostRegister_v2(host, bytes, flags)) }?;
        let mut registered = Registered { cuda: Arc::clone(cuda), at, device: 0 };
        registered.device = device_address(host)?;
        Ok(registered)
    }

    /// Where kernels find the first byte.
    pub(crate) fn device_address(&self) -> usize {
        self.device
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        let Ok(_current) = self.cuda.current() else { return };
        // SAFETY: registered in `new`.
        ignore("cuMemHostUnregister", unsafe { sys::cuMemHostUnregister(self.at as *mut _) });
    }
}
