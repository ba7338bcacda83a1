//! Streams: queues of work for a GPU. Our own never wait for the legacy default stream; the caller's are
//! borrowed.

use std::ffi::c_void;
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::time::Duration;

use cudarc::driver::sys::{self, CUresult, CUstream, CUstream_flags};

use super::driver::{cu, failure, ignore};
#[cfg(test)]
use super::event::CudaEvent;
use super::Cuda;
use crate::error::Result;
use crate::health::Health;

/// How a stream's work is chosen among that of others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Priority {
    /// As everything else.
    Normal,
    /// Before everything else that has not started.
    High,
}

/// A queue of work for one GPU.
#[derive(Debug)]
pub(crate) struct Stream {
    /// Of a caller's stream a copy that is not counted: a counter costs two locked instructions a call.
    cuda: ManuallyDrop<Arc<Cuda>>,
    raw: CUstream,
    ours: bool,
}

// SAFETY: streams may be used by any thread.
unsafe impl Send for Stream {}
// SAFETY: the driver locks.
unsafe impl Sync for Stream {}

impl Stream {
    /// A new stream that does not wait for the legacy default stream.
    pub(crate) fn new(cuda: &Arc<Cuda>, priority: Priority) -> Result<Stream> {
        let _current = cuda.current()?;
        let (mut least, mut greatest) = (0, 0);
        // SAFETY: the context is current; writes two ints.
        unsafe { cu!(cuCtxGetStreamPriorityRange(&mut least, &mut greatest)) }?;
        let level = if priority == Priority::High { greatest } else { least };
        let mut raw = std::ptr::null_mut();
        let flags = CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: writes the stream, which is owned here at once.
        unsafe { cu!(cuStreamCreateWithPriority(&mut raw, flags, level)) }?;
        Ok(Stream { cuda: ManuallyDrop::new(Arc::clone(cuda)), raw, ours: true })
    }

    /// A caller's stream (a `cudaStream_t` or `CUstream`); null is the legacy default stream.
    ///
    /// # Safety
    /// It belongs to the GPU's primary context and outlives the value, and so does `cuda`.
    pub(crate) unsafe fn foreign(cuda: &Arc<Cuda>, raw: *mut c_void) -> Stream {
        // SAFETY: never dropped, as `drop` looks, and `cuda` outlives it by contract.
        let cuda = ManuallyDrop::new(unsafe { std::ptr::read(cuda) });
        Stream { cuda, raw: raw.cast(), ours: false }
    }

    /// The GPU.
    pub(crate) fn cuda(&self) -> &Arc<Cuda> {
        &self.cuda
    }

    pub(super) fn raw(&self) -> CUstream {
        self.raw
    }

    /// The `CUstream`, for other libraries.
    pub(crate) fn as_raw(&self) -> *mut c_void {
        self.raw.cast()
    }

    /// Where a kernel on this stream's GPU reaches the memory at `at`; `None` where it does not: ordinary
    /// host memory, a GPU that is not a peer.
    pub(crate) fn reaches(&self, at: usize) -> Option<usize> {
        let _current = self.cuda.current().ok()?;
        let mut there: sys::CUdeviceptr = 0;
        let attribute = sys::CUpointer_attribute::CU_POINTER_ATTRIBUTE_DEVICE_POINTER;
        // SAFETY: writes an address; one that CUDA does not know is refused.
        let known = unsafe { sys::cuPointerGetAttribute((&raw mut there).cast(), attribute, at as u64) };
        (known == CUresult::CUDA_SUCCESS && there != 0).then_some(there as usize)
    }

    /// What is put on the stream from now on runs after `event`.
    #[cfg(test)]
    pub(crate) fn wait_for(&self, event: &CudaEvent) -> Result<()> {
        let _current = self.cuda.current()?;
        // SAFETY: both are alive.
        unsafe { cu!(cuStreamWaitEvent(self.raw, event.raw(), 0)) }
    }

    /// Whether all its work is done. An error where some of it failed.
    pub(crate) fn query(&self) -> Result<bool> {
        let _current = self.cuda.current()?;
        // SAFETY: the stream is alive.
        match unsafe { sys::cuStreamQuery(self.raw) } {
            CUresult::CUDA_SUCCESS => Ok(true),
            CUresult::CUDA_ERROR_NOT_READY => Ok(false),
            other => Err(failure("cuStreamQuery", other)),
        }
    }

    /// Calls `what` on a thread of the driver when the stream comes to it; what is behind waits for its end.
    /// It must not call CUDA, but may wait for threads that do. A recorded call is made at each launch of the
    /// graph, and kept for good.
    pub(crate) fn call(&self, what: impl Fn() + Send + Sync + 'static) -> Result<()> {
        struct StreamCall {
            what: Box<dyn Fn() + Send + Sync>,
            once: bool,
        }
        /// # Safety
        /// `call` is the box made below, which is alive.
        unsafe extern "C" fn run(call: *mut c_void) {
            let call = call.cast::<StreamCall>();
            // SAFETY: the box made below; alive, as only this function takes it, after its only call.
            let StreamCall { what, once } = unsafe { &*call };
            let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(what));
            if ended.is_err() {
                log::error!("a call made by a stream panicked");
            }
            if *once {
                // SAFETY: a box that runs once: this call is its only one, and `what` is used no more.
                drop(unsafe { Box::from_raw(call) });
            }
        }
        let call = Box::into_raw(Box::new(StreamCall { what: Box::new(what), once: !self.is_capturing()? }));
        let _current = self.cuda.current()?;
        // SAFETY: the stream is alive; the call's box is the function's.
        let put = unsafe { cu!(cuLaunchHostFunc(self.raw, Some(run), call.cast())) };
        put.inspect_err(|_| {
            // SAFETY: nobody else has it.
            drop(unsafe { Box::from_raw(call) });
        })
    }

    /// Whether the stream is being recorded into a graph, so that nothing put on it runs now.
    pub(crate) fn is_capturing(&self) -> Result<bool> {
        let _current = self.cuda.current()?;
        let mut status = sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
        // SAFETY: the stream is alive; writes the status.
        unsafe { cu!(cuStreamIsCapturing(self.raw, &mut status)) }?;
        Ok(status != sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE)
    }

    /// Waits until all its work is done, and never in the driver. Nothing ends this wait but the work: for
    /// short work that waits for nobody.
    pub(crate) fn finish(&self) -> Result<()> {
        let mut polls = 0u32;
        while !self.query()? {
            polls += 1;
            if polls > 100 {
                std::thread::sleep(Duration::from_micros(20));
            }
        }
        Ok(())
    }

    /// Waits until all its work is done, polling, so that a broken job or `limit` ends the wait. Then the
    /// work may still be running: memory that it uses must stay.
    pub(crate) fn synchronize(
        &self,
        health: &Health,
        limit: Option<Duration>,
        report: &dyn Fn() -> String,
    ) -> Result<()> {
        let mut outcome = Ok(());
        health.wait(limit, report, &mut || match self.query() {
            Ok(done) => done,
            Err(e) => {
                outcome = Err(e);
                true
            }
        })?;
        outcome
    }

    /// Runs `call` on a thread of the driver's once the work so far is done. It must not call CUDA, and
    /// should be short: other streams' callbacks wait for it. Where earlier work fails it never runs.
    pub(crate) fn callback(&self, call: impl FnOnce() + Send + 'static) -> Result<()> {
        let boxed: Box<Box<dyn FnOnce() + Send>> = Box::new(Box::new(call));
        let data = Box::into_raw(boxed);
        let _current = self.cuda.current().inspect_err(|_| {
            // SAFETY: nobody else has it.
            drop(unsafe { Box::from_raw(data) });
        })?;
        // SAFETY: the trampoline takes the box, once.
        unsafe { cu!(cuLaunchHostFunc(self.raw, Some(trampoline), data.cast())) }.inspect_err(|_| {
            // SAFETY: refused, so the trampoline is never called.
            drop(unsafe { Box::from_raw(data) });
        })
    }
}

/// How many hardware queues the streams of this process share, for texts: a stream that waits holds its own.
pub(crate) fn hardware_queues() -> String {
    match std::env::var("CUDA_DEVICE_MAX_CONNECTIONS") {
        Ok(n) => format!("CUDA_DEVICE_MAX_CONNECTIONS is {n}"),
        Err(_) => "CUDA_DEVICE_MAX_CONNECTIONS is not set, which means 8".into(),
    }
}

/// # Safety
/// `data` is a box made by `callback`, handed over.
unsafe extern "C" fn trampoline(data: *mut c_void) {
    // SAFETY: per contract.
    let call = unsafe { Box::from_raw(data.cast::<Box<dyn FnOnce() + Send>>()) };
    if std::panic::catch_unwind(std::panic::AssertUnwindSafe(call)).is_err() {
        log::error!("a defect in rushmem: a stream's callback panicked");
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if !self.ours {
            return;
        }
        if let Ok(_current) = self.cuda.current() {
            // SAFETY: made in `new`; work that is on it still runs to its end.
            ignore("cuStreamDestroy", unsafe { sys::cuStreamDestroy_v2(self.raw) });
        }
        // SAFETY: counted where it is ours, and not used any more.
        unsafe { ManuallyDrop::drop(&mut self.cuda) };
    }
}
