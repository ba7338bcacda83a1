//! The headers that make a C++ compiler understand CUDA C++, carried inside this crate so that nothing has to
//! be installed, and written to the cache directory for the compiler.

use std::io;

use crate::cache::Folder;

/// Path under the include directory, and text.
pub type Header = (&'static str, &'static str);

/// Files of this crate, by folder; and headers of `cuda::std` that include the standard's of the same name,
/// or one of this crate.
macro_rules! headers {
    ($($dir:literal: $($name:literal)*;)* standard: $($same:literal)*; own: $($own:literal $file:literal)*;) => {
        &[
            $($((concat!($dir, $name), include_str!(concat!("../include/", $dir, $name)))),*,)*
            $((
                concat!("cuda_names/cuda/std/", $same),
                concat!("#include <", $same, ">\n#include \"rushmem_cpu/cuda_std.h\"\n"),
            ),)*
            $((concat!("cuda_names/cuda/std/", $own), concat!("#include \"rushmem_cpu/", $file, "\"\n")),)*
        ]
    };
}

pub(crate) const HEADERS: &[Header] = headers! {
    "rushmem_cpu/": "address_space.h" "atomic.h" "check.h" "cuda.h" "cuda_atomic.h" "cuda_barrier.h" "cuda_std.h" "cuda_std_bit.h"
        "cuda_std_span.h" "float16.h" "float16_bits.h" "hooks.h" "intrinsics.h" "kernel.h" "math_functions.h" "qualifiers.h" "simd.h" "sync.h"
        "trace.h" "vector_types.h" "warp.h";
    "cuda_names/": "cooperative_groups.h" "cuda_bf16.h" "cuda_fp16.h" "cuda_fp8.h" "cuda_pipeline.h"
        "cuda_runtime.h" "device_launch_parameters.h" "math_constants.h";
    "cuda_names/cooperative_groups/": "memcpy_async.h" "operators.h" "reduce.h" "scan.h";
    "cuda_names/cub/": "cub.cuh" "util_type.cuh";
    "cuda_names/cub/block/": "block_exchange.cuh" "block_load.cuh" "block_radix_sort.cuh" "block_reduce.cuh"
        "block_scan.cuh" "block_store.cuh";
    "cuda_names/cub/thread/": "thread_operators.cuh";
    "cuda_names/cub/warp/": "warp_reduce.cuh" "warp_scan.cuh";
    "cuda_names/cuda/": "atomic" "barrier" "cmath" "functional" "latch" "pipeline" "semaphore";
    standard: "algorithm" "array" "cassert" "cfloat" "chrono" "climits" "cmath" "complex" "cstddef" "cstdint"
        "cstdlib" "cstring" "functional" "initializer_list" "iterator" "limits" "memory" "numeric" "optional"
        "ratio" "string_view" "tuple" "type_traits" "utility" "variant" "version";
    own: "atomic" "cuda_atomic.h" "barrier" "cuda_barrier.h" "bit" "cuda_std_bit.h" "latch" "cuda_barrier.h"
        "semaphore" "cuda_barrier.h" "span" "cuda_std_span.h";
};

/// Makes the folder hold these headers. Each file is replaced whole, so that a compiler running at the same
/// time reads one or the other, and these are the same.
pub(crate) fn write(folder: &Folder, headers: impl Iterator<Item = Header>) -> io::Result<()> {
    for (path, text) in headers {
        let mut names: Vec<&str> = path.split('/').collect();
        let name = names.pop().unwrap_or_default();
        let mut inner = None;
        for dir in names {
            inner = Some(inner.as_ref().unwrap_or(folder).sub(dir)?);
        }
        let inner = inner.as_ref().unwrap_or(folder);
        if !inner.read(name).is_ok_and(|present| present == text.as_bytes()) {
            inner.replace(name, text.as_bytes())?;
        }
    }
    Ok(())
}
