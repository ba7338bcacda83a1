//! The driver library: found at run time, initialised once, its answers turned into errors that name the call
//! and carry CUDA's own text.
//!
//! `cudarc` panics where libcuda or one of its functions is missing. So everything goes through [`driver`],
//! which looks first and refuses drivers older than every function that this crate calls.

use std::ffi::CStr;
use std::sync::OnceLock;

use cudarc::driver::sys::{self, CUresult};

use crate::error::{code, err, Error, Result};

/// `cu!(cuMemCreate(…))`: calls the driver; anything but success is an error that names the call. Unsafe as
/// the call is.
macro_rules! cu {
    ($call:ident ( $($arg:expr),* $(,)? )) => {
        $crate::gpu::driver::check(stringify!($call), cudarc::driver::sys::$call($($arg),*))
    };
}
pub(crate) use cu;

/// The oldest driver that has every function we call (CUDA 12.4: enumeration of a module's kernels, their
/// parameters).
const OLDEST: i32 = 12040;

/// A driver that answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Driver {
    /// CUDA version of the driver, as CUDA counts: 13.0 is 13000.
    pub(crate) version: i32,
    /// GPUs that this process sees.
    pub(crate) devices: usize,
}

/// The driver, looked for by the first call. `None` on a machine that has none.
pub(crate) fn driver() -> Result<Option<Driver>> {
    static FOUND: OnceLock<Result<Option<Driver>>> = OnceLock::new();
    FOUND.get_or_init(find).clone()
}

/// `13.0` for 13000.
pub(crate) fn version_text(version: i32) -> String {
    format!("{}.{}", version / 1000, version % 1000 / 10)
}

fn find() -> Result<Option<Driver>> {
    // The driver's two names first: `cudarc` asks for 34, each in every folder of the system's search path,
    // and each PE without a GPU would wait for it. What is found stays loaded, or it would start again.
    // SAFETY: loads the driver, as the calls below would.
    let load = |name: &str| unsafe { libloading::Library::new(name) }.map(std::mem::forget).is_ok();
    // SAFETY: loads no more than is loaded by then.
    if !(load("libcuda.so.1") || load("libcuda.so")) || !unsafe { sys::is_culib_present() } {
        return Ok(None);
    }
    let mut version = 0;
    // SAFETY: may be called before anything else; writes one int. A library of that name has had the function
    // since CUDA 2.
    unsafe { cu!(cuDriverGetVersion(&mut version)) }?;
    if version < OLDEST {
        return Err(err!(
            VERSION,
            "the NVIDIA driver here supports CUDA {}, rushmem needs {} or newer: update the driver, or use the CPU device",
            version_text(version),
            version_text(OLDEST)
        ));
    }
    // SAFETY: no preconditions.
    match unsafe { sys::cuInit(0) } {
        CUresult::CUDA_SUCCESS => {}
        // A toolkit without a driver, or a driver without a GPU: as good as none.
        CUresult::CUDA_ERROR_STUB_LIBRARY | CUresult::CUDA_ERROR_NO_DEVICE => return Ok(None),
        other => return Err(failure("cuInit", other)),
    }
    let mut devices = 0;
    // SAFETY: writes one int.
    unsafe { cu!(cuDeviceGetCount(&mut devices)) }?;
    Ok(Some(Driver { version, devices: usize::try_from(devices).unwrap_or(0) }))
}

/// The result of the call named `what`.
pub(crate) fn check(what: &str, result: CUresult) -> Result<()> {
    match result {
        CUresult::CUDA_SUCCESS => Ok(()),
        other => Err(failure(what, other)),
    }
}

/// For drops and the like, which cannot return an error. Logs a failure, unless the driver is going away with
/// the process, or the device failed earlier, which another call has reported.
pub(crate) fn ignore(what: &str, result: CUresult) {
    let quiet = matches!(
        result,
        CUresult::CUDA_SUCCESS
            | CUresult::CUDA_ERROR_DEINITIALIZED
            | CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED
    );
    if !quiet && !is_fatal(result) {
        log::warn!("{}", failure(what, result));
    }
}

/// The error that `result` of the call `what` means.
pub(crate) fn failure(what: &str, result: CUresult) -> Error {
    let (name, text) = describe(result);
    let after = if is_fatal(result) {
        "; the device's context is lost, every later call on it in this process fails alike"
    } else {
        ""
    };
    Error::new(code_of(result), format!("{what}: {name} ({text}){after}"))
}

/// CUDA's name and text for a result.
fn describe(result: CUresult) -> (String, String) {
    let text = |call: unsafe fn(CUresult, *mut *const std::ffi::c_char) -> CUresult| {
        let mut at = std::ptr::null();
        // SAFETY: both functions write a pointer to a constant string, or null.
        let known = unsafe { call(result, &mut at) } == CUresult::CUDA_SUCCESS && !at.is_null();
        // SAFETY: then it is a C string that lives as long as the library.
        known.then(|| unsafe { CStr::from_ptr(at) }.to_string_lossy().into_owned())
    };
    let name = text(sys::cuGetErrorName).unwrap_or_else(|| format!("CUDA error {}", result as u32));
    (name, text(sys::cuGetErrorString).unwrap_or_else(|| "no description".into()))
}

fn code_of(result: CUresult) -> i32 {
    use CUresult as R;
    match result {
        R::CUDA_ERROR_INVALID_VALUE | R::CUDA_ERROR_INVALID_DEVICE => code::INVALID_ARGUMENT,
        R::CUDA_ERROR_OUT_OF_MEMORY => code::HEAP_EXHAUSTED,
        R::CUDA_ERROR_NOT_SUPPORTED
        | R::CUDA_ERROR_NO_DEVICE
        | R::CUDA_ERROR_NO_BINARY_FOR_GPU
        | R::CUDA_ERROR_UNSUPPORTED_PTX_VERSION
        | R::CUDA_ERROR_PEER_ACCESS_UNSUPPORTED => code::UNSUPPORTED,
        R::CUDA_ERROR_SYSTEM_DRIVER_MISMATCH => code::VERSION,
        R::CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES
        | R::CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE
        | R::CUDA_ERROR_INVALID_CLUSTER_SIZE => code::LAUNCH,
        R::CUDA_ERROR_INVALID_HANDLE | R::CUDA_ERROR_INVALID_CONTEXT | R::CUDA_ERROR_CONTEXT_IS_DESTROYED => {
            code::BAD_HANDLE
        }
        R::CUDA_ERROR_NOT_READY => code::BUSY,
        fatal if is_fatal(fatal) => code::LAUNCH,
        _ => code::IO,
    }
}

/// A failure after which nothing works in the device's context any more: a kernel trapped, or touched what it
/// must not, or the hardware failed. CUDA has no way back from it but ending the process (or resetting the
/// primary context, which takes everybody's memory with it).
pub(crate) fn is_fatal(result: CUresult) -> bool {
    use CUresult as R;
    matches!(
        result,
        R::CUDA_ERROR_ILLEGAL_ADDRESS
            | R::CUDA_ERROR_LAUNCH_TIMEOUT
            | R::CUDA_ERROR_ASSERT
            | R::CUDA_ERROR_HARDWARE_STACK_ERROR
            | R::CUDA_ERROR_ILLEGAL_INSTRUCTION
            | R::CUDA_ERROR_MISALIGNED_ADDRESS
            | R::CUDA_ERROR_INVALID_ADDRESS_SPACE
            | R::CUDA_ERROR_INVALID_PC
            | R::CUDA_ERROR_LAUNCH_FAILED
            | R::CUDA_ERROR_ECC_UNCORRECTABLE
            | R::CUDA_ERROR_NVLINK_UNCORRECTABLE
            | R::CUDA_ERROR_MPS_CLIENT_TERMINATED
            | R::CUDA_ERROR_EXTERNAL_DEVICE
            | R::CUDA_ERROR_CONTAINED
            | R::CUDA_ERROR_TENSOR_MEMORY_LEAK
    )
}
