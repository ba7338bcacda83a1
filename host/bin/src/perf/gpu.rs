//! The CUDA context that a PE has before rushmem comes, so that what CUDA costs and what rushmem costs can be
//! told apart. It is the primary context, made the thread's current one: the runtime then takes the same GPU
//! and the same context, as it does in a program that has called `cudaSetDevice`.

use cudarc::driver::result::{self, DriverError};
use cudarc::driver::sys::{self, CUdevice, CUresult};

use crate::job::{Failure, Result};

/// A GPU with its primary context.
pub(crate) struct Gpu {
    ordinal: u32,
    device: CUdevice,
}

/// Starts CUDA: how many GPUs this process sees; none without a driver, or where the CPU device is asked for.
pub(crate) fn count() -> Result<u32> {
    // SAFETY: loads a library by name.
    if wish() == Wish::Cpu || !unsafe { sys::is_culib_present() } {
        return Ok(0);
    }
    match result::init() {
        Ok(()) => {}
        // A toolkit without a driver, or a driver without a GPU.
        Err(DriverError(CUresult::CUDA_ERROR_STUB_LIBRARY | CUresult::CUDA_ERROR_NO_DEVICE)) => return Ok(0),
        Err(e) => return Err(said("cuInit", e)),
    }
    let count = result::device::get_count().map_err(|e| said("cuDeviceGetCount", e))?;
    Ok(u32::try_from(count).unwrap_or(0))
}

/// The GPU that the PE would have anyway, of `count`: the one that was asked for, else the PEs take turns.
pub(crate) fn choose(pe: u32, count: u32) -> u32 {
    match wish() {
        Wish::Gpu(ordinal) => ordinal,
        _ => pe % count.max(1),
    }
}

impl Gpu {
    /// Starts a context, or joins the one that is there.
    pub(crate) fn open(ordinal: u32) -> Result<Gpu> {
        let device = result::device::get(ordinal as i32).map_err(|e| said("cuDeviceGet", e))?;
        // SAFETY: the driver's device; released in `drop`.
        let context = unsafe { result::primary_ctx::retain(device) }
            .map_err(|e| said("cuDevicePrimaryCtxRetain", e))?;
        let gpu = Gpu { ordinal, device };
        // SAFETY: retained above.
        unsafe { result::ctx::set_current(context) }.map_err(|e| said("cuCtxSetCurrent", e))?;
        Ok(gpu)
    }

    /// Its number in this process.
    pub(crate) fn ordinal(&self) -> u32 {
        self.ordinal
    }

    /// Bytes that are free now; other processes use memory, too.
    pub(crate) fn free(&self) -> Result<u64> {
        let (free, _) = result::mem_get_info().map_err(|e| said("cuMemGetInfo", e))?;
        Ok(free as u64)
    }
}

impl Drop for Gpu {
    fn drop(&mut self) {
        // A drop cannot return a failure; the process ends next, and the context with it.
        // SAFETY: retained in `open`; the world that used it is gone.
        let _ = unsafe { result::primary_ctx::release(self.device) };
    }
}

fn said(call: &str, e: DriverError) -> Failure {
    Failure::new(format!("{call}: {e} (RUSHMEM_DEVICE=cpu measures without a GPU)"))
}

/// What RUSHMEM_DEVICE asks for, as far as it matters before the runtime has read it; that refuses what makes
/// no sense.
#[derive(Debug, PartialEq)]
enum Wish {
    Cpu,
    Gpu(u32),
    Any,
}

fn wish() -> Wish {
    parse(&std::env::var("RUSHMEM_DEVICE").unwrap_or_default())
}

fn parse(text: &str) -> Wish {
    let text = text.trim().to_ascii_lowercase();
    let ordinal = text.strip_prefix("cuda:").and_then(|number| number.parse().ok());
    match ordinal {
        Some(ordinal) => Wish::Gpu(ordinal),
        None if text == "cpu" => Wish::Cpu,
        None => Wish::Any,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wishes_are_read_as_the_runtime_reads_them() {
        let words =
            [("cpu", Wish::Cpu), (" CPU ", Wish::Cpu), ("cuda:3", Wish::Gpu(3)), ("CUDA:0", Wish::Gpu(0))];
        for (text, wish) in words.into_iter().chain(["", "auto", "cuda", "gpu"].map(|text| (text, Wish::Any)))
        {
            assert_eq!(parse(text), wish, "{text:?}");
        }
    }
}
