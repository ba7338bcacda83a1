//! Symmetric memory for programs that use [`cudarc`] (cargo feature `cudarc`): a view that its functions take
//! where they take a `CudaSlice`: copies, launches, cuBLAS.
//!
//! The heap lives in the GPU's primary context, which is that of `cudarc::driver::CudaContext::new`. A view
//! does no bookkeeping of reads and writes: cudarc records an event for each access to a slice and lets other
//! streams wait for it, but such events know nothing of peers' writes. The program orders its streams itself.

use std::marker::PhantomData;
use std::sync::Arc;

use cudarc::driver::result::primary_ctx;
use cudarc::driver::sys::CUdeviceptr;
use cudarc::driver::{
    CudaStream, DevicePtr, DevicePtrMut, DeviceSlice, LaunchArgs, PushKernelArg, SyncOnDrop,
};

use crate::{Device, Error, ErrorCode, Pe, Result, SymRef, Symmetric, World};

/// This PE's own copy of a [`SymRef`], or a peer's, as a device slice of cudarc's on a stream.
///
/// ```no_run
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use cudarc::driver::CudaContext;
///
/// let world = rushmem::World::init()?;
/// let rushmem::Device::Cuda(Some(gpu)) = world.device() else { return Ok(()) };
/// let stream = CudaContext::new(gpu as usize)?.new_stream()?;
/// let inbox = world.alloc::<f32>(1024)?;
///
/// // SAFETY: nobody else touches `inbox` before the barrier, which comes after the stream's work.
/// let mut view = unsafe { inbox.on_stream(&stream)? };
/// stream.memcpy_htod(&[1.0; 1024], &mut view)?;
/// stream.synchronize()?;
/// world.barrier_all()?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct DeviceView<'a, T> {
    address: CUdeviceptr,
    len: usize,
    stream: Arc<CudaStream>,
    memory: PhantomData<(&'a World, *mut T)>,
}

// SAFETY: an address for the GPU, of which no reference is ever made; a stream may be used from any thread.
unsafe impl<T: Send> Send for DeviceView<'_, T> {}
// SAFETY: an address for the GPU, of which no reference is ever made; a stream may be used from any thread.
unsafe impl<T: Sync> Sync for DeviceView<'_, T> {}

impl<T: Symmetric> SymRef<'_, T> {
    /// This PE's own elements as a device slice on `stream`, a stream of the world's GPU.
    ///
    /// # Errors
    /// [`ErrorCode::Unsupported`] where the heap is not in a GPU's memory; [`ErrorCode::InvalidArgument`]
    /// where the stream is of another GPU, or of another context than the GPU's primary one.
    ///
    /// # Safety
    /// - Work that is put on streams with the view has ended before the memory is freed or unregistered, and
    ///   before the world ends: the view keeps neither alive, and its drop waits for nothing.
    /// - That work does not race with other accesses, a peer's included: it reads data after a signal or a
    ///   barrier says that they arrived, and others use what it writes after one that follows the work.
    pub unsafe fn on_stream(&self, stream: &Arc<CudaStream>) -> Result<DeviceView<'_, T>> {
        // SAFETY: the caller keeps the memory until the stream's work has ended, and that work free of races.
        unsafe { self.on_stream_at(self.world().my_pe(), stream) }
    }

    /// `pe`'s elements, where they are mapped for this PE's GPU, as a device slice on `stream`: work that
    /// uses it goes over NVLink or PCIe.
    ///
    /// # Errors
    /// Those of [`SymRef::on_stream`], and [`ErrorCode::Unsupported`] where `pe`'s memory is not mapped here
    /// or there is no such PE.
    ///
    /// # Safety
    /// As for [`SymRef::on_stream`]; it is `pe` that must not free the memory or leave, and a put or a signal
    /// of rushmem's is not ordered after that work unless the host has waited for the stream, or is on it.
    pub unsafe fn on_stream_at(&self, pe: Pe, stream: &Arc<CudaStream>) -> Result<DeviceView<'_, T>> {
        check_stream(self.world(), stream)?;
        let address = match self.ptr_at(pe) {
            Some(at) => at as CUdeviceptr,
            None if self.is_empty() => 0,
            None => {
                return Err(Error::new(
                    ErrorCode::Unsupported,
                    format!(
                        "the memory of {pe} is not mapped for {}, or there is no such PE",
                        self.world().my_pe()
                    ),
                ))
            }
        };
        Ok(DeviceView { address, len: self.len(), stream: Arc::clone(stream), memory: PhantomData })
    }
}

/// Whether work on `stream` finds the memory of `world`.
fn check_stream(world: &World, stream: &CudaStream) -> Result<()> {
    let Device::Cuda(Some(gpu)) = world.device() else {
        return Err(Error::new(
            ErrorCode::Unsupported,
            format!("the heap of {} is in host memory, which is no slice of a GPU's", world.my_pe()),
        ));
    };
    let wrong = |what: String| Err(Error::new(ErrorCode::InvalidArgument, what));
    let (context, gpu) = (stream.context(), gpu as usize);
    if context.ordinal() != gpu {
        let other = context.ordinal();
        return wrong(format!("the stream is of GPU {other}, the heap of {} on GPU {gpu}", world.my_pe()));
    }
    let device = context.cu_device();
    // SAFETY: a device of the driver's. The runtime's world holds the primary context, of which there is one
    // in a process: what is retained here only tells which it is.
    let primary =
        unsafe { primary_ctx::retain(device).and_then(|it| primary_ctx::release(device).map(|()| it)) };
    let primary =
        primary.map_err(|e| Error::new(ErrorCode::Io, format!("the primary context of GPU {gpu}: {e}")))?;
    if primary != context.cu_ctx() {
        return wrong(format!(
            "the stream is of another context than the primary one of GPU {gpu}: make it by CudaContext::new({gpu})"
        ));
    }
    Ok(())
}

impl<T> DeviceSlice<T> for DeviceView<'_, T> {
    fn len(&self) -> usize {
        self.len
    }

    fn stream(&self) -> &Arc<CudaStream> {
        &self.stream
    }
}

impl<T> DevicePtr<T> for DeviceView<'_, T> {
    /// The address. `stream` waits for nothing, and nothing is recorded.
    fn device_ptr<'b>(&'b self, _stream: &'b CudaStream) -> (CUdeviceptr, SyncOnDrop<'b>) {
        (self.address, SyncOnDrop::Record(None))
    }
}

impl<T> DevicePtrMut<T> for DeviceView<'_, T> {
    /// As [`DevicePtr::device_ptr`].
    fn device_ptr_mut<'b>(&'b mut self, _stream: &'b CudaStream) -> (CUdeviceptr, SyncOnDrop<'b>) {
        (self.address, SyncOnDrop::Record(None))
    }
}

// SAFETY: a kernel's parameter is the address, as for cudarc's own slices.
unsafe impl<'a, 'b: 'a, 'c: 'b, T> PushKernelArg<&'b DeviceView<'c, T>> for LaunchArgs<'a> {
    #[inline(always)]
    fn arg(&mut self, arg: &'b DeviceView<'c, T>) -> &mut Self {
        self.arg(&arg.address)
    }
}

// SAFETY: a kernel's parameter is the address, as for cudarc's own slices.
unsafe impl<'a, 'b: 'a, 'c: 'b, T> PushKernelArg<&'b mut DeviceView<'c, T>> for LaunchArgs<'a> {
    #[inline(always)]
    fn arg(&mut self, arg: &'b mut DeviceView<'c, T>) -> &mut Self {
        self.arg(&arg.address)
    }
}
