//! rushmem's device library as files and as text: the CUDA C++ headers that kernels include, and the sources
//! of what is compiled once (`library` builds them with nvcc).
//!
//! A crate of its own, because the runtime carries the headers for kernels that it compiles, its build script
//! compiles the library, and build scripts of programs want the headers' folder: wherever cargo has put these
//! files, this crate knows.
//!
//! ```
//! let first = std::path::Path::new(rushmem_device::INCLUDE).join("rushmem/rushmem.cuh");
//! assert!(first.is_file());
//! ```

/// The folder of this crate, with `include/`, `src/` and the script `library`.
pub const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// The folder for a compiler's `-I`.
pub const INCLUDE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/include");

/// The runtime's own kernels, over the headers.
pub const SERVICE: &str = include_str!("src/service.cu");

/// The runtime's collectives in a stream's turn: templates over the headers.
pub const COLLECTIVES: &str = include_str!("src/collectives.cu");

/// The kernel by which a traced run compares a GPU's clock with the host's.
pub const TRACE_CLOCK: &str = include_str!("src/trace_clock.cu");

macro_rules! headers {
    ($($name:literal)*) => {
        &[$((concat!("rushmem/", $name), include_str!(concat!("include/rushmem/", $name)))),*]
    };
}

/// Path under an include directory, and text.
pub const HEADERS: &[(&str, &str)] = headers! {
    "abi.h" "abi_mailbox.h" "abi_queue.h" "abi_ring.h" "abi_trace.h" "atomic.h" "card_word.h" "grid.h" "order.h" "rma.h" "rushmem.cuh" "scope.h" "shared.h" "signal.h" "state.h"
    "strided.h" "sync.h" "test.h" "types.h" "wait.h"
    "packed.h" "packed_row.h" "stage.h" "impl/bulk.h"
    "alltoall.h" "alltoallv.h" "barrier.h" "broadcast.h" "collect.h" "fcollect.h" "reduce.h" "team.h"
    "impl/coll/between.h" "impl/coll/call.h" "impl/coll/combine.h" "impl/coll/complex.h" "impl/coll/direct.h" "impl/coll/exchange.h" "impl/coll/few.h" "impl/coll/grid.h"
    "impl/coll/limits.h" "impl/coll/operators.h" "impl/coll/pair.h" "impl/coll/pair_parts.h" "impl/coll/pull.h" "impl/coll/relay.h" "impl/coll/rows.h" "impl/coll/sizes.h" "impl/coll/slot_set.h" "impl/coll/small.h" "impl/coll/wide.h" "impl/coll/words.h"
    "impl/copy.h" "impl/cpu.h" "impl/cuda.h" "impl/cuda_atomic.h" "impl/help.h" "impl/net/card.h" "impl/net/mlx5.h" "impl/net/net.h" "impl/net/proxy.h" "impl/net/queue.h" "impl/net/ring.h" "impl/net/send_queue.h" "impl/platform.h" "impl/route.h" "impl/stall.h" "impl/tiles.h" "impl/trace.h" "impl/traits.h"
};

#[cfg(test)]
mod tests {
    use std::path::Path;

    #[test]
    fn all_headers_are_carried() {
        let root = Path::new(super::INCLUDE);
        let mut there = Vec::new();
        for dir in ["rushmem", "rushmem/impl", "rushmem/impl/coll", "rushmem/impl/net"] {
            for file in std::fs::read_dir(root.join(dir)).unwrap().map(Result::unwrap) {
                if file.file_type().unwrap().is_file() {
                    there.push(format!("{dir}/{}", file.file_name().to_str().unwrap()));
                }
            }
        }
        let mut carried: Vec<String> = super::HEADERS.iter().map(|header| header.0.to_owned()).collect();
        there.sort();
        carried.sort();
        assert_eq!(carried, there);
    }
}
