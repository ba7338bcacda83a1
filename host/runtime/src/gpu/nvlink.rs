//! Whether stores to another GPU go over NVLink: what wide packets rest on (`impl/coll/wide.h`).
//!
//! The driver says it of GPUs that this process sees: atomic operations on the other one's memory are native
//! between those that NVLink connects, and not over PCIe. Of GPUs that only other processes see (each has one
//! of its own in `CUDA_VISIBLE_DEVICES`), NVML says it, which counts all of the machine.

use std::ffi::{c_char, c_int, c_void, CString};

use cudarc::driver::sys::CUdevice_P2PAttribute;

use super::device::{find_device, Cuda};
use super::driver::cu;

/// NVML's numbers: success; the GPUs can reach each other; over NVLink.
const SUCCESS: c_int = 0;
const STATUS_OK: c_int = 0;
const OVER_NVLINK: c_int = 2;

/// Whether `gpu` stores to the GPU with that UUID over NVLink, or is that one. What is not known is no.
pub(crate) fn connects(gpu: &Cuda, other: &[u8; 16]) -> bool {
    if gpu.facts().uuid == *other {
        return true;
    }
    if gpu.facts().capability < (7, 0) {
        return false;
    }
    match Cuda::find(other) {
        Ok(Some(ordinal)) => native_atomics(gpu, ordinal).unwrap_or(false),
        _ => by_nvml(&gpu.facts().uuid, other).unwrap_or(false),
    }
}

fn native_atomics(gpu: &Cuda, ordinal: usize) -> crate::error::Result<bool> {
    let (own, other) = (find_device(gpu.facts().ordinal)?.1, find_device(ordinal)?.1);
    let mut native = 0;
    let what = CUdevice_P2PAttribute::CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED;
    // SAFETY: two devices of the driver's; writes one int.
    unsafe { cu!(cuDeviceGetP2PAttribute(&mut native, what, own, other)) }?;
    Ok(native != 0)
}

/// `GPU-8f0e…`, as NVML knows it.
fn name_of(uuid: &[u8; 16]) -> CString {
    let hex = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
    let parts = [&uuid[..4], &uuid[4..6], &uuid[6..8], &uuid[8..10], &uuid[10..]].map(hex);
    CString::new(format!("GPU-{}", parts.join("-"))).expect("hexadecimal digits")
}

fn by_nvml(own: &[u8; 16], other: &[u8; 16]) -> Result<bool, libloading::Error> {
    type Start = unsafe extern "C" fn() -> c_int;
    type Find = unsafe extern "C" fn(*const c_char, *mut *mut c_void) -> c_int;
    type Status = unsafe extern "C" fn(*mut c_void, *mut c_void, c_int, *mut c_int) -> c_int;
    // SAFETY: NVML, of the driver that is loaded; it starts nothing by itself.
    let nvml = unsafe { libloading::Library::new("libnvidia-ml.so.1") }?;
    // SAFETY: the four have had these types since NVML 8.
    let (start, find, status, end) = unsafe {
        (
            nvml.get::<Start>(b"nvmlInit_v2")?,
            nvml.get::<Find>(b"nvmlDeviceGetHandleByUUID")?,
            nvml.get::<Status>(b"nvmlDeviceGetP2PStatus")?,
            nvml.get::<Start>(b"nvmlShutdown")?,
        )
    };
    // SAFETY: may be called at any time; is paired with the end below.
    if unsafe { start() } != SUCCESS {
        return Ok(false);
    }
    let [mut first, mut second] = [std::ptr::null_mut(); 2];
    let mut found = -1;
    // SAFETY: NVML is started; the names end with a zero, and the calls write a handle each, and one int.
    let known = unsafe {
        find(name_of(own).as_ptr(), &mut first) == SUCCESS
            && find(name_of(other).as_ptr(), &mut second) == SUCCESS
            && status(first, second, OVER_NVLINK, &mut found) == SUCCESS
    };
    // SAFETY: it was started above, and nothing of it is used behind this.
    unsafe { end() };
    Ok(known && found == STATUS_OK)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_is_written_as_nvml_writes_it() {
        let uuid: [u8; 16] = std::array::from_fn(|i| 16 * i as u8 + 15 - i as u8);
        assert_eq!(name_of(&uuid).to_str().unwrap(), "GPU-0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0");
    }

    /// On machines whose GPUs NVLink connects both ways to ask say the same.
    #[test]
    fn the_driver_and_nvml_agree() {
        const NAME: &str = "the_driver_and_nvml_agree";
        let count = Cuda::count().unwrap_or(0);
        if count < 2 {
            eprintln!("{NAME}: skipped: there are {count} GPUs, and it takes two");
            return;
        }
        let (a, b) = (Cuda::open(0).unwrap(), Cuda::open(1).unwrap());
        assert!(connects(&a, &a.facts().uuid));
        let (driver, nvml) = (native_atomics(&a, 1).unwrap(), by_nvml(&a.facts().uuid, &b.facts().uuid));
        eprintln!("{NAME}: the driver says {driver}, NVML {nvml:?}");
        assert_eq!(nvml.expect("NVML is here where the driver is"), driver);
    }
}
