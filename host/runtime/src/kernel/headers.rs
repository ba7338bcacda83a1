//! The device library's headers, carried inside the runtime, so that `#include <rushmem/rushmem.cuh>` works
//! with nothing installed.

use rushmem_device_cpu::Header;

/// Path under an include directory, and text.
pub(crate) static DEVICE_HEADERS: &[Header] = rushmem_device::HEADERS;
