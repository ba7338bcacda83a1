//! The device library's headers, carried inside the runtime, so that `#include <rushmem/rushmem.cuh>` works with
//! nothing installed.

use rushmem_device_cpu::Header;

macro_rules! headers {
    ($($name:literal)*) => {
        &[$((concat!("rushmem/", $name), include_str!(concat!("../../../../device/include/rushmem/", $name)))),*]
    };
}

/// Path under an include directory, and text.
pub(crate) static DEVICE_HEADERS: &[Header] = headers! {
    "abi.h" "abi_mailbox.h" "abi_ring.h" "atomic.h" "order.h" "rma.h" "rushmem.cuh" "scope.h" "shared.h" "signal.h" "state.h"
    "strided.h" "sync.h" "test.h" "types.h" "wait.h"
    "packed.h" "stage.h" "impl/bulk.h"
    "impl/copy.h" "impl/cpu.h" "impl/cuda.h" "impl/far.h" "impl/help.h" "impl/platform.h" "impl/route.h" "impl/stall.h" "impl/traits.h"
};

#[cfg(test)]
mod tests {
    use std::path::Path;

    #[test]
    fn all_headers_are_carried() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../device/include");
        let mut there = Vec::new();
        for dir in ["rushmem", "rushmem/impl"] {
            for file in std::fs::read_dir(root.join(dir)).unwrap().map(Result::unwrap) {
                if file.file_type().unwrap().is_file() {
                    there.push(format!("{dir}/{}", file.file_name().to_str().unwrap()));
                }
            }
        }
        let mut carried: Vec<String> =
            super::DEVICE_HEADERS.iter().map(|header| header.0.to_owned()).collect();
        there.sort();
        carried.sort();
        assert_eq!(carried, there);
    }
}
