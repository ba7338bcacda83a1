//! GPUs and the parts of CUDA, as far as they can be known without a world: nothing here starts a context on
//! a GPU, so that looking costs no GPU memory and disturbs nobody.

use std::collections::HashSet;
use std::ffi::{CStr, CString};
use std::os::raw::c_char;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};

use super::{guard, write_out};
use crate::error::{err, Result};
use crate::gpu::device::Facts;
use crate::gpu::driver::driver;
use crate::gpu::embedded::LIBRARY;
use crate::gpu::nvjitlink::NvJitLink;
use crate::gpu::nvrtc::Nvrtc;
use crate::gpu::Cuda;
use rushmem_abi::c::*;

/// The number of GPUs that this process sees; 0 on a machine without NVIDIA's driver. `RUSHMEM_ERR_VERSION`
/// where the driver is too old. Local; starts no CUDA context.
///
/// # Safety
/// `out` is null or valid.
#[no_mangle]
pub unsafe extern "C" fn rushmem_gpu_count(out: *mut i32) -> i32 {
    // SAFETY: per contract.
    guard(|| unsafe { write_out(out, Cuda::count()? as i32, "out") })
}

/// What GPU `index` of this process is and can do. Local; starts no CUDA context.
///
/// # Safety
/// `out` is null or points at a `rushmem_gpu_t` of `out->size` bytes.
#[no_mangle]
pub unsafe extern "C" fn rushmem_gpu_info(index: i32, out: *mut rushmem_gpu_t) -> i32 {
    guard(|| {
        // SAFETY: per contract.
        unsafe { check_size(out.cast(), size_of::<rushmem_gpu_t>(), "rushmem_gpu_t")? };
        let gpu = describe(&Cuda::look(ordinal(index)?)?);
        // SAFETY: `out` points at a struct of the size that was checked.
        unsafe { write_out(out, gpu, "out") }
    })
}

/// Whether GPU `from` can reach the memory of GPU `to` by loads, stores and copies (over NVLink or PCIe):
/// `*out` is 1 or
/// 0. Local; starts no CUDA context.
///
/// # Safety
/// `out` is null or valid.
#[no_mangle]
pub unsafe extern "C" fn rushmem_gpu_can_access(from: i32, to: i32, out: *mut i32) -> i32 {
    guard(|| {
        let can = Cuda::reaches(ordinal(from)?, ordinal(to)?)?;
        // SAFETY: per contract.
        unsafe { write_out(out, i32::from(can), "out") }
    })
}

/// The CUDA driver and the libraries that kernels for GPUs are compiled with (`RUSHMEM_NVRTC` and
/// `RUSHMEM_NVJITLINK` name them). Succeeds also where they are missing: the struct says why. Loads them, but
/// starts no CUDA context. Local.
///
/// # Safety
/// `out` is null or points at a `rushmem_cuda_t` of `out->size` bytes.
#[no_mangle]
pub unsafe extern "C" fn rushmem_cuda_versions(out: *mut rushmem_cuda_t) -> i32 {
    guard(|| {
        // SAFETY: per contract.
        unsafe { check_size(out.cast(), size_of::<rushmem_cuda_t>(), "rushmem_cuda_t")? };
        let (version, error) = match driver() {
            Ok(found) => (found.map_or(0, |driver| driver.version), String::new()),
            Err(e) => (0, e.message),
        };
        let found = rushmem_cuda_t {
            size: size_of::<rushmem_cuda_t>() as u32,
            driver: version,
            driver_error: forever(&error),
            nvrtc: tool(nvrtc()),
            nvjitlink: tool(nvjitlink()),
            device_library: forever(&LIBRARY.version().map(version_text).unwrap_or_default()),
        };
        // SAFETY: `out` points at a struct of the size that was checked.
        unsafe { write_out(out, found, "out") }
    })
}

fn ordinal(index: i32) -> Result<usize> {
    usize::try_from(index)
        .map_err(|_| err!(INVALID_ARGUMENT, "GPU {index} does not exist: they are counted from 0"))
}

fn describe(facts: &Facts) -> rushmem_gpu_t {
    let bits = [
        (facts.vmm, RUSHMEM_GPU_VMM),
        (facts.posix_fd, RUSHMEM_GPU_POSIX_FD),
        (facts.cooperative, RUSHMEM_GPU_COOPERATIVE),
        (facts.clusters, RUSHMEM_GPU_CLUSTERS),
        (facts.stream_words, RUSHMEM_GPU_STREAM_WORDS),
        (facts.rdma_vmm, RUSHMEM_GPU_RDMA),
    ];
    rushmem_gpu_t {
        size: size_of::<rushmem_gpu_t>() as u32,
        index: facts.ordinal as i32,
        name: forever(&facts.name),
        pci_bus_id: forever(&facts.pci_bus_id.to_ascii_lowercase()),
        uuid: facts.uuid,
        capability_major: facts.capability.0 as i32,
        capability_minor: facts.capability.1 as i32,
        sms: facts.sms as i32,
        flags: bits.iter().filter(|(set, _)| *set).fold(0, |flags, (_, bit)| flags | bit),
        memory: facts.memory as u64,
    }
}

fn setting(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

/// File and version.
pub(super) type Found = Result<(PathBuf, String)>;

fn nvrtc() -> Found {
    let nvrtc = Nvrtc::load(setting("RUSHMEM_NVRTC").as_deref())?;
    Ok((nvrtc.path.clone(), version_text(nvrtc.version)))
}

/// The one that would link what this NVRTC compiles.
fn nvjitlink() -> Found {
    let nvrtc = nvrtc().map(|(path, _)| path).unwrap_or_default();
    let linker = NvJitLink::load(setting("RUSHMEM_NVJITLINK").as_deref(), &nvrtc)?;
    Ok((linker.path.clone(), version_text(linker.version)))
}

/// `13.0`.
fn version_text(version: (i32, i32)) -> String {
    format!("{}.{}", version.0, version.1)
}

/// A [`Found`] as C sees it.
pub(super) fn tool(found: Found) -> rushmem_tool_t {
    match found {
        Ok((path, version)) => {
            rushmem_tool_t { path: forever_path(&path), version: forever(&version), error: forever("") }
        }
        Err(e) => rushmem_tool_t { path: forever(""), version: forever(""), error: forever(&e.message) },
    }
}

/// Refuses a struct of another size than ours: the caller was built against another header, or did not set
/// it.
///
/// # Safety
/// `out` is null or points at a struct that begins with its size.
pub(super) unsafe fn check_size(out: *const u32, expected: usize, name: &str) -> Result<()> {
    // SAFETY: per contract.
    match unsafe { out.as_ref() } {
        None => Err(err!(INVALID_ARGUMENT, "out is null")),
        Some(size) if *size as usize == expected => Ok(()),
        Some(size) => {
            Err(err!(INVALID_ARGUMENT, "{name}: size is {size}, expected {expected}: set it first"))
        }
    }
}

/// The text as a C string that is never freed. What is asked for again is the same string, so that asking
/// costs memory once.
pub(super) fn forever(text: &str) -> *const c_char {
    keep(text.as_bytes())
}

/// [`forever`] for a path, byte for byte.
pub(super) fn forever_path(path: &Path) -> *const c_char {
    use std::os::unix::ffi::OsStrExt;
    keep(path.as_os_str().as_bytes())
}

fn keep(bytes: &[u8]) -> *const c_char {
    static KEPT: OnceLock<Mutex<HashSet<&'static CStr>>> = OnceLock::new();
    let bytes: Vec<u8> = bytes.iter().copied().filter(|byte| *byte != 0).collect();
    let text = CString::new(bytes).unwrap_or_default();
    let mut kept = KEPT.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = kept.get(text.as_c_str()) {
        return known.as_ptr();
    }
    let text: &'static CStr = Box::leak(text.into_boxed_c_str());
    kept.insert(text);
    text.as_ptr()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::code;

    fn zeroed<T>() -> Box<T> {
        // SAFETY: the ABI's structs are plain numbers and raw pointers, for which zero is a value.
        unsafe { Box::new(std::mem::zeroed()) }
    }

    #[test]
    fn a_struct_of_another_size_is_refused_unwritten() {
        let mut cuda = zeroed::<rushmem_cuda_t>();
        cuda.size = size_of::<rushmem_cuda_t>() as u32 - 8;
        let mut gpu = zeroed::<rushmem_gpu_t>();
        // SAFETY: places for the answers, or null.
        unsafe {
            assert_eq!(rushmem_cuda_versions(&mut *cuda), code::INVALID_ARGUMENT);
            assert_eq!(rushmem_gpu_info(0, &mut *gpu), code::INVALID_ARGUMENT);
            assert_eq!(rushmem_gpu_info(0, std::ptr::null_mut()), code::INVALID_ARGUMENT);
            assert_eq!(rushmem_gpu_count(std::ptr::null_mut()), code::INVALID_ARGUMENT);
        }
        assert!(cuda.nvrtc.path.is_null() && gpu.name.is_null());
    }

    #[test]
    fn gpus_are_counted_from_zero() {
        let mut count = -1;
        // SAFETY: a place for the answer.
        assert_eq!(unsafe { rushmem_gpu_count(&mut count) }, RUSHMEM_OK);
        let (mut gpu, mut can) = (zeroed::<rushmem_gpu_t>(), -1);
        gpu.size = size_of::<rushmem_gpu_t>() as u32;
        for index in [-1, count, i32::MAX] {
            // SAFETY: a struct that says its size.
            assert_ne!(unsafe { rushmem_gpu_info(index, &mut *gpu) }, RUSHMEM_OK, "GPU {index} of {count}");
            assert_ne!(
                // SAFETY: a place for the answer.
                unsafe { rushmem_gpu_can_access(0, index, &mut can) },
                RUSHMEM_OK,
                "GPU {index} of {count}"
            );
        }
        for index in 0..count {
            // SAFETY: a struct that says its size.
            assert_eq!(unsafe { rushmem_gpu_info(index, &mut *gpu) }, RUSHMEM_OK);
            // SAFETY: a place for the answer.
            assert_eq!(unsafe { rushmem_gpu_can_access(index, index, &mut can) }, RUSHMEM_OK);
            assert!(gpu.index == index && gpu.memory > 1 << 30 && gpu.sms > 0 && can == 1);
        }
    }

    #[test]
    fn a_text_is_kept_once() {
        let (one, two) = (forever("kept"), forever(&String::from("ke\0pt")));
        assert_eq!(one, two);
        assert_ne!(one, forever("another"));
        // SAFETY: a C string that lives for ever.
        assert_eq!(unsafe { CStr::from_ptr(one) }, c"kept");
    }
}
