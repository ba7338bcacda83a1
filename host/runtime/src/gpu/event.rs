//! Events: points in a stream's work that others can wait for, and time.

use std::sync::Arc;

use cudarc::driver::sys::{self, CUevent, CUevent_flags as Flags};

use super::driver::{cu, failure, ignore};
use super::stream::Stream;
use super::Cuda;
use crate::error::Result;

/// A point in a stream's work.
#[derive(Debug)]
pub(crate) struct CudaEvent {
    cuda: Arc<Cuda>,
    raw: CUevent,
}

// SAFETY: events may be used by any thread.
unsafe impl Send for CudaEvent {}
// SAFETY: the driver locks.
unsafe impl Sync for CudaEvent {}

impl CudaEvent {
    /// An event that orders; with `timing` it measures too, and costs more.
    pub(crate) fn new(cuda: &Arc<Cuda>, timing: bool) -> Result<CudaEvent> {
        let _current = cuda.current()?;
        let flags = if timing { Flags::CU_EVENT_DEFAULT } else { Flags::CU_EVENT_DISABLE_TIMING };
        let mut raw = std::ptr::null_mut();
        // SAFETY: writes the event, which is owned here at once.
        unsafe { cu!(cuEventCreate(&mut raw, flags as u32)) }?;
        Ok(CudaEvent { cuda: Arc::clone(cuda), raw })
    }

    /// From now on means all that the stream has been given so far.
    pub(crate) fn record(&self, stream: &Stream) -> Result<()> {
        let _current = self.cuda.current()?;
        // SAFETY: both are alive.
        unsafe { cu!(cuEventRecord(self.raw, stream.raw())) }
    }

    /// Whether it has come about; true for one that was never recorded. An error where the work failed.
    pub(crate) fn query(&self) -> Result<bool> {
        let _current = self.cuda.current()?;
        // SAFETY: the event is alive.
        match unsafe { sys::cuEventQuery(self.raw) } {
            sys::CUresult::CUDA_SUCCESS => Ok(true),
            sys::CUresult::CUDA_ERROR_NOT_READY => Ok(false),
            other => Err(failure("cuEventQuery", other)),
        }
    }

    /// Milliseconds from `start` to this; both with timing, recorded and come about.
    #[cfg(test)]
    pub(crate) fn since(&self, start: &CudaEvent) -> Result<f32> {
        let _current = self.cuda.current()?;
        let mut ms = 0.0;
        // SAFETY: both are alive; writes a float.
        unsafe { cu!(cuEventElapsedTime(&mut ms, start.raw, self.raw)) }?;
        Ok(ms)
    }

    #[cfg(test)]
    pub(super) fn raw(&self) -> CUevent {
        self.raw
    }
}

impl Drop for CudaEvent {
    fn drop(&mut self) {
        let Ok(_current) = self.cuda.current() else { return };
        // SAFETY: made in `new`; work that waits for it keeps what it needs.
        ignore("cuEventDestroy", unsafe { sys::cuEventDestroy_v2(self.raw) });
    }
}
