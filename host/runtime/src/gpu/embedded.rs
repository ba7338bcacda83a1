//! What the runtime carries for GPUs since it was built (`build.rs`, `device/library`): the device library as
//! LTO-IR, to link kernels with, and the runtime's own kernels. Empty where it was built without nvcc.

use std::hash::{DefaultHasher, Hash, Hasher};

/// Bytes at an address that readers of such files like.
#[repr(C, align(16))]
struct Aligned<Bytes: ?Sized>(Bytes);

static LIBRARY_BYTES: &Aligned<[u8]> =
    &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/rushmem_device.ltoir.fatbin")));
static SERVICE_BYTES: &Aligned<[u8]> = &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/service.fatbin")));

/// The device library, as a fatbin of LTO-IR for several architectures.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Library {
    /// The fatbin; empty: there is none.
    pub(crate) code: &'static [u8],
    /// Version of the toolkit that made it, as in `13.0`.
    pub(super) toolkit: &'static str,
}

/// The library that this runtime carries.
pub(crate) static LIBRARY: Library =
    Library { code: &LIBRARY_BYTES.0, toolkit: env!("RUSHMEM_CARRIED_CUDA") };

/// The runtime's own kernels for sm_80, sm_90 and sm_100, and as PTX; empty: compile [`SERVICE_SOURCE`].
pub(crate) static SERVICE: &[u8] = &SERVICE_BYTES.0;

/// Their source, over the device headers. What they do, and their parameters, are described there.
pub(crate) static SERVICE_SOURCE: &str = rushmem_device::SERVICE;

impl Library {
    /// No library.
    #[cfg(test)]
    pub(crate) const NONE: Library = Library { code: &[], toolkit: "" };

    /// Version of the toolkit that made it; `None` where there is no library.
    pub(crate) fn version(&self) -> Option<(i32, i32)> {
        let (major, minor) = self.toolkit.split_once('.')?;
        Some((major.parse().ok()?, minor.parse().ok()?))
    }

    /// Tells one library from another.
    pub(crate) fn stamp(&self) -> String {
        let mut hasher = DefaultHasher::new();
        self.code.hash(&mut hasher);
        format!("library {} {:016x}", self.toolkit, hasher.finish())
    }
}
