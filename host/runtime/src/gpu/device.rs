//! A GPU with its primary context, which it shares with everything else in the process that uses CUDA
//! (cudarc, PyTorch), so that their pointers and streams work with ours.

use std::ffi::{c_char, CStr};
use std::fmt;
use std::marker::PhantomData;
use std::sync::{Arc, OnceLock};

use cudarc::driver::sys::{
    self, CUcontext, CUdevice, CUdevice_attribute as Attribute, CUstreamCaptureMode as CaptureMode,
};

use super::context;
use super::driver::{cu, driver, ignore, is_fatal, version_text, Driver};
use super::watch::{self, DriverCalls};
use crate::error::{err, Error, Result};

/// What a GPU is and can do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Facts {
    /// Its number in this process; another process may count otherwise.
    pub(crate) ordinal: usize,
    /// `NVIDIA H200`.
    pub(crate) name: String,
    /// The same for the same GPU in every process of the host.
    pub(crate) uuid: [u8; 16],
    /// `0000:1b:00.0`.
    pub(crate) pci_bus_id: String,
    /// 9.0 is `(9, 0)`.
    pub(crate) capability: (u32, u32),
    /// Streaming multiprocessors.
    pub(crate) sms: u32,
    /// Bytes of memory.
    pub(crate) memory: usize,
    /// Virtual memory management, and its allocations exported as file descriptors: what a symmetric heap
    /// needs.
    pub(crate) vmm: bool,
    /// Descriptors of its allocations can be sent to other processes.
    pub(crate) posix_fd: bool,
    /// Network cards may reach its VMM allocations.
    pub(crate) rdma_vmm: bool,
    /// Drivers of other devices can be given its memory as a descriptor.
    pub(crate) dma_buf: bool,
    /// Launches can insist that all blocks are resident.
    pub(crate) cooperative: bool,
    /// Launches can have thread block clusters.
    pub(crate) clusters: bool,
    /// A kernel may start while the one before it on its stream ends (programmatic dependent launch), in
    /// graphs, too.
    pub(crate) early_launches: bool,
    /// Streams can wait for and write 64-bit words.
    pub(crate) stream_words: bool,
    /// Dynamic and static shared memory of a block without asking.
    pub(crate) shared_default: usize,
    /// The same, when the kernel's limit is raised.
    pub(crate) shared_most: usize,
    /// Largest pitch of a strided copy.
    pub(crate) max_pitch: usize,
}

/// A GPU with its primary context retained. Lives as long as anything that was made with it.
pub(crate) struct Cuda {
    device: CUdevice,
    context: CUcontext,
    facts: Facts,
    /// Why the context is taken for lost, though the driver knows nothing of it.
    condemned: OnceLock<Error>,
    /// Calls of the driver.
    calls: Arc<DriverCalls>,
}

// SAFETY: contexts may be used by any thread; a thread makes it current for itself (`current`).
unsafe impl Send for Cuda {}
// SAFETY: any thread may use a context; `condemned` changes once, by a lock, and nothing else does.
unsafe impl Sync for Cuda {}

impl fmt::Debug for Cuda {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cuda({self})")
    }
}

/// `GPU 0 (NVIDIA H200, 0000:1b:00.0)`, for texts.
impl fmt::Display for Cuda {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GPU {} ({}, {})", self.facts.ordinal, self.facts.name, self.facts.pci_bus_id)
    }
}

impl Cuda {
    /// The GPUs that this process sees: none without a driver. An error where there is a driver that does not
    /// work.
    pub(crate) fn count() -> Result<usize> {
        Ok(driver()?.map_or(0, |d| d.devices))
    }

    /// The GPU of the calling thread's current context, where it has one.
    pub(crate) fn current_ordinal() -> Result<Option<usize>> {
        if driver()?.is_none() {
            return Ok(None);
        }
        let (mut context, mut device) = (std::ptr::null_mut(), 0);
        // SAFETY: writes the context, or null.
        unsafe { cu!(cuCtxGetCurrent(&mut context)) }?;
        if context.is_null() {
            return Ok(None);
        }
        // SAFETY: there is a current context; writes its device, which the driver counts as its ordinals.
        unsafe { cu!(cuCtxGetDevice(&mut device)) }?;
        Ok(usize::try_from(device).ok())
    }

    /// Retains the primary context of a GPU.
    pub(crate) fn open(ordinal: usize) -> Result<Arc<Cuda>> {
        let (driver, device) = find_device(ordinal)?;
        let facts = facts(ordinal, device)?;
        let context = context::retain(device).map_err(|e| {
            e.context(format_args!("starting CUDA {} on GPU {ordinal}", version_text(driver.version)))
        })?;
        Ok(Arc::new(Cuda { device, context, facts, condemned: OnceLock::new(), calls: Arc::default() }))
    }

    /// What a GPU is and can do, without a context on it.
    pub(crate) fn look(ordinal: usize) -> Result<Facts> {
        facts(ordinal, find_device(ordinal)?.1)
    }

    /// Whether kernels and copies of GPU `from` can reach memory of GPU `to` once it is mapped for them;
    /// without contexts.
    pub(crate) fn reaches(from: usize, to: usize) -> Result<bool> {
        reaches(find_device(from)?.1, find_device(to)?.1)
    }

    /// What the GPU is and can do.
    pub(crate) fn facts(&self) -> &Facts {
        &self.facts
    }

    /// Calls of the driver for this GPU, for who watches whether they return.
    pub(crate) fn calls(&self) -> &Arc<DriverCalls> {
        &self.calls
    }

    /// The driver's number for the device, which descriptions of memory locations want.
    pub(super) fn device(&self) -> CUdevice {
        self.device
    }

    /// The primary context, which others of this GPU's may be asked to let in.
    pub(super) fn context(&self) -> CUcontext {
        self.context
    }

    /// Makes this GPU's context the thread's current one until the guard goes. Cheap where it already is.
    ///
    /// Until then the thread's calls cannot spoil a graph capture, in this thread or (in CUDA's global mode)
    /// in any other: what we do off the captured stream has nothing to do with it.
    pub(crate) fn current(&self) -> Result<Current<'_>> {
        self.current_for_work()?.while_graphs_are_recorded()
    }

    /// The same for calls that do nothing but put work on a stream. Those are allowed while graphs are
    /// recorded, whatever the thread's mode, which concerns "potentially unsafe" calls (CUDA Driver API,
    /// `cuThreadExchangeStreamCaptureMode`). So it is left as it is: two calls of the driver less, where the
    /// host is what limits small operations.
    pub(super) fn current_for_work(&self) -> Result<Current<'_>> {
        if let Some(why) = self.condemned.get() {
            return Err(why.clone());
        }
        let timed = Timed::new(&self.calls);
        let mut current = self.make_current()?;
        current.timed = Some(timed);
        Ok(current)
    }

    /// As [`Cuda::current`], for a thread that has the context as long as it lives, so that its calls find it
    /// there: this is no call of the driver that does not return.
    pub(crate) fn current_for_life(&self) -> Result<Current<'_>> {
        self.make_current()?.while_graphs_are_recorded()
    }

    fn make_current(&self) -> Result<Current<'_>> {
        let mut now = std::ptr::null_mut();
        // SAFETY: writes the context, or null.
        unsafe { cu!(cuCtxGetCurrent(&mut now)) }?;
        let pushed = now != self.context;
        if pushed {
            // SAFETY: the context is retained as long as `self`, which outlives the guard.
            unsafe { cu!(cuCtxPushCurrent_v2(self.context)) }?;
        }
        Ok(Current { pushed, mode: None, timed: None, _thread: PhantomData })
    }

    /// Whether this GPU's kernels and copies can reach memory of `other` once it is mapped for them.
    #[cfg(test)]
    pub(crate) fn can_access_peer(&self, other: &Cuda) -> Result<bool> {
        reaches(self.device, other.device)
    }

    /// The number in this process of the GPU with that UUID, where the process sees it.
    pub(crate) fn find(uuid: &[u8; 16]) -> Result<Option<usize>> {
        for ordinal in 0..Cuda::count()? {
            let mut device = 0;
            // SAFETY: the ordinal is one of the driver's.
            unsafe { cu!(cuDeviceGet(&mut device, ordinal as i32)) }?;
            if uuid_of(device)? == *uuid {
                return Ok(Some(ordinal));
            }
        }
        Ok(None)
    }

    /// Free and total bytes of the GPU's memory now.
    pub(crate) fn memory(&self) -> Result<(usize, usize)> {
        let _current = self.current()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: the context is current; writes two numbers.
        unsafe { cu!(cuMemGetInfo_v2(&mut free, &mut total)) }?;
        Ok((free, total))
    }

    /// An error once the context is lost (a kernel trapped, say), no matter by whose work. Waits for nothing.
    pub(crate) fn check(&self) -> Result<()> {
        self.memory().map(drop).map_err(|e| e.context(self))
    }

    /// Whether the context is lost. Waits for nothing.
    pub(crate) fn is_lost(&self) -> bool {
        let Ok(_current) = self.current() else { return true };
        let (mut free, mut total) = (0, 0);
        // SAFETY: the context is current; writes two numbers.
        is_fatal(unsafe { sys::cuMemGetInfo_v2(&mut free, &mut total) })
    }

    /// Takes the context for lost: from here on every call on it is that error, and nobody waits for the
    /// driver. What was made with it is left to the end of the process.
    pub(crate) fn condemn(&self, why: Error) {
        let _ = self.condemned.set(why);
    }

    /// Whether the context is taken for lost, though the driver knows nothing of it.
    pub(crate) fn is_condemned(&self) -> bool {
        self.condemned.get().is_some()
    }

    /// Waits for everything in the context, other users' work included.
    #[cfg(test)]
    pub(crate) fn synchronize(&self) -> Result<()> {
        let _current = self.current()?;
        // SAFETY: the context is current.
        unsafe { cu!(cuCtxSynchronize()) }
    }
}

impl Drop for Cuda {
    fn drop(&mut self) {
        if self.is_condemned() {
            return;
        }
        // Nothing made with it is left: all of that holds an `Arc` of this.
        context::release(self.device);
    }
}

/// While it lives, a GPU's context is the thread's current one. Guards go in the opposite order of their
/// making, as scopes do.
#[must_use]
pub(crate) struct Current<'a> {
    pushed: bool,
    /// What the thread was allowed while graphs are recorded, where that was changed.
    mode: Option<CaptureMode>,
    /// Goes last. None where it is the thread's for life.
    timed: Option<Timed<'a>>,
    /// A thread's matter: not `Send`.
    _thread: PhantomData<*const ()>,
}

impl Current<'_> {
    fn while_graphs_are_recorded(mut self) -> Result<Self> {
        let mut mode = CaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
        // SAFETY: exchanges the thread's mode, which the guard gives back.
        unsafe { cu!(cuThreadExchangeStreamCaptureMode(&mut mode)) }?;
        self.mode = Some(mode);
        Ok(self)
    }
}

/// A call of the driver, while it lasts.
struct Timed<'a> {
    calls: &'a DriverCalls,
    call: watch::DriverCall,
}

impl Timed<'_> {
    fn new(calls: &DriverCalls) -> Timed<'_> {
        Timed { calls, call: calls.begin() }
    }
}

impl Drop for Timed<'_> {
    fn drop(&mut self) {
        self.calls.end(&self.call);
    }
}

impl Drop for Current<'_> {
    fn drop(&mut self) {
        if let Some(mode) = &mut self.mode {
            // SAFETY: gives the thread's mode back.
            ignore("cuThreadExchangeStreamCaptureMode", unsafe {
                sys::cuThreadExchangeStreamCaptureMode(mode)
            });
        }
        if self.pushed {
            let mut popped = std::ptr::null_mut();
            // SAFETY: the thread's stack of contexts has what `current` pushed on top.
            ignore("cuCtxPopCurrent", unsafe { sys::cuCtxPopCurrent_v2(&mut popped) });
        }
    }
}

/// The driver, and its handle for the GPU that this process counts as `ordinal`.
pub(super) fn find_device(ordinal: usize) -> Result<(Driver, CUdevice)> {
    let Some(driver) = driver()? else {
        return Err(err!(
            UNSUPPORTED,
            "no CUDA here: NVIDIA's driver (libcuda.so.1) is not installed, or it finds no GPU; the CPU device needs neither"
        ));
    };
    if ordinal >= driver.devices {
        return Err(err!(
            INVALID_ARGUMENT,
            "GPU {ordinal} does not exist: this process sees {} (CUDA_VISIBLE_DEVICES chooses them)",
            driver.devices
        ));
    }
    let mut device = 0;
    // SAFETY: the ordinal is one of the driver's; writes the device.
    unsafe { cu!(cuDeviceGet(&mut device, ordinal as i32)) }?;
    Ok((driver, device))
}

fn reaches(from: CUdevice, to: CUdevice) -> Result<bool> {
    if from == to {
        return Ok(true);
    }
    let mut can = 0;
    // SAFETY: two devices of the driver's; writes one int.
    unsafe { cu!(cuDeviceCanAccessPeer(&mut can, from, to)) }?;
    Ok(can != 0)
}

fn facts(ordinal: usize, device: CUdevice) -> Result<Facts> {
    use Attribute as A;
    let number = |attribute| -> Result<usize> {
        let mut value = 0;
        // SAFETY: a device of the driver's; writes one int.
        unsafe { cu!(cuDeviceGetAttribute(&mut value, attribute, device)) }?;
        Ok(usize::try_from(value).unwrap_or(0))
    };
    let flag = |attribute| number(attribute).map(|value| value != 0);
    // An attribute that the driver is too old to know is one that the device does not have.
    let new_flag = |attribute| flag(attribute).unwrap_or(false);
    let mut memory = 0;
    // SAFETY: a device of the driver's; writes one number.
    unsafe { cu!(cuDeviceTotalMem_v2(&mut memory, device)) }?;
    Ok(Facts {
        ordinal,
        // SAFETY: the buffers are as long as said, and both calls end their text with a zero.
        name: text(|at, len| unsafe { cu!(cuDeviceGetName(at, len, device)) })?,
        uuid: uuid_of(device)?,
        // SAFETY: the buffer is as long as said, and the call ends its text with a zero.
        pci_bus_id: text(|at, len| unsafe { cu!(cuDeviceGetPCIBusId(at, len, device)) })?,
        capability: (
            number(A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)? as u32,
            number(A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)? as u32,
        ),
        sms: number(A::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)? as u32,
        memory,
        vmm: new_flag(A::CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED),
        posix_fd: new_flag(A::CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED),
        rdma_vmm: new_flag(A::CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED),
        dma_buf: new_flag(A::CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED),
        cooperative: flag(A::CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH)?,
        clusters: new_flag(A::CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH),
        // Every driver that is taken has it, in graphs, too (CUDA 12.3).
        early_launches: number(A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)? >= 9,
        stream_words: new_flag(A::CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS),
        shared_default: number(A::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK)?,
        shared_most: number(A::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?,
        max_pitch: number(A::CU_DEVICE_ATTRIBUTE_MAX_PITCH)?,
    })
}

fn uuid_of(device: CUdevice) -> Result<[u8; 16]> {
    let mut uuid = sys::CUuuid { bytes: [0; 16] };
    // SAFETY: a device of the driver's; writes the struct.
    unsafe { cu!(cuDeviceGetUuid(&mut uuid, device)) }?;
    Ok(uuid.bytes.map(|byte| byte as u8))
}

fn text(call: impl Fn(*mut c_char, i32) -> Result<()>) -> Result<String> {
    let mut buffer = [0 as c_char; 256];
    // One byte is kept back, so that the text ends in any case.
    call(buffer.as_mut_ptr(), buffer.len() as i32 - 1)?;
    // SAFETY: the last byte is zero.
    Ok(unsafe { CStr::from_ptr(buffer.as_ptr()) }.to_string_lossy().into_owned())
}
