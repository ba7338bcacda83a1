//! What CUDA C++ has and the CPU device has not, outside of PTX (`ptx`): where a source does not compile, and
//! the compiler's messages name such a thing, a note says what to write instead.

/// What messages quote, and the note. A name is a whole word of theirs, a header's may be the first part.
const MISSING: &[(&[&str], &str)] = &[
    (
        &["<<<"],
        "kernels do not launch kernels on the CPU device: call a __device__ function, or launch the second kernel from \
         the host",
    ),
    (
        &["thrust/", "thrust"],
        "the CPU device has no Thrust, which the host calls: in kernels write CUB's block and warp primitives \
         (<cub/cub.cuh>), on the host the standard library's algorithms",
    ),
    (
        &["cub/device/", "DeviceReduce", "DeviceScan", "DeviceRadixSort", "DeviceSelect", "DeviceHistogram"],
        "CUB's algorithms that the host launches are not on the CPU device: write those of a block or a warp in a kernel \
         (cub::BlockReduce, BlockScan, BlockRadixSort, BlockExchange, BlockLoad, BlockStore, WarpReduce, WarpScan)",
    ),
    (
        &["cub/", "BlockMergeSort", "BlockHistogram", "BlockDiscontinuity", "BlockAdjacentDifference", "BlockShuffle",
          "BlockRunLengthDecode", "WarpMergeSort", "WarpExchange", "WarpLoad", "WarpStore"],
        "of CUB the CPU device has BlockReduce, BlockScan, BlockRadixSort, BlockExchange, BlockLoad, BlockStore, WarpReduce \
         and WarpScan",
    ),
    (
        &["tex1D", "tex1Dfetch", "tex1DLod", "tex2D", "tex2DLod", "tex2Dgather", "tex3D", "texCubemap", "surf1Dread",
          "surf1Dwrite", "surf2Dread", "surf2Dwrite", "surf3Dread", "surf3Dwrite", "cudaTextureObject_t",
          "cudaSurfaceObject_t"],
        "the CPU device has no textures or surfaces: pass a pointer and index it, with __ldg(p) where it is only read",
    ),
    (
        &["mma.h", "nvcuda", "wmma"],
        "the CPU device has no tensor cores' fragments: write the product as a loop with fmaf or __hfma, under \
         #if defined(RUSHMEM_CPU)",
    ),
    (
        &["curand", "curand_kernel.h", "curand_init", "curandState", "curandState_t", "curandStatePhilox4_32_10_t"],
        "the CPU device has no cuRAND: write a counter-based generator (Philox, or a hash of seed and index)",
    ),
    (
        &["cuda/ptx"],
        "the CPU device has no <cuda/ptx>: write cuda::barrier, cuda::memcpy_async and cuda::atomic_ref, or keep it for \
         GPUs, under #if !defined(RUSHMEM_CPU)",
    ),
    (
        &["cuda/annotated_ptr", "cuda/access_property", "cuda/discard_memory", "cuda/stream_ref"],
        "of <cuda/…> the CPU device has atomic, barrier, cmath, functional, latch, pipeline, semaphore and std/…: hints \
         to caches may be left out here, under #if !defined(RUSHMEM_CPU)",
    ),
    (
        &["__isGlobal", "__isLocal", "__isConstant", "__isGridConstant"],
        "memory that is not shared is all of one kind on the CPU device: __isShared(p) is what can be asked",
    ),
    (&["__globaltimer"], "write clock64(), which counts nanoseconds on the CPU device"),
    (
        &["__shfl", "__shfl_up", "__shfl_down", "__shfl_xor", "__ballot", "__any", "__all"],
        "write the form with a mask, __shfl_sync(mask, …) and its like: GPUs of sm_70 on have no other either",
    ),
    (
        &["cudaMalloc", "cudaFree", "cudaMemcpyAsync", "cudaDeviceSynchronize", "cudaGetLastError", "cudaStreamCreate",
          "cudaGraphLaunch"],
        "kernels on the CPU device do not call CUDA's runtime: write malloc and free, memcpy, or do it from the host",
    ),
    (&["__brkpt"], "write __trap(), or set a breakpoint in gdb: a kernel is a function of the process"),
];

/// A note for each thing that the compiler's messages name, one a line.
pub(crate) fn notes(messages: &str) -> String {
    let named = |(names, note): &(&[&str], &'static str)| {
        names.iter().any(|name| is_named(messages, name)).then(|| format!("note: {note}\n"))
    };
    MISSING.iter().filter_map(named).collect()
}

/// Whether the text has the name and not as a part of another one; what ends with a slash begins a path.
fn is_named(text: &str, name: &str) -> bool {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    if !name.starts_with(part) {
        return text.contains(name);
    }
    text.match_indices(name).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        let after = text[at + name.len()..].chars().next();
        let begins = !before.is_some_and(|c| part(c) || c == '/');
        let ends = name.ends_with('/') || !after.is_some_and(part);
        begins && ends
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_whole_words_and_headers_may_be_parts() {
        let one = |text: &str| notes(text).lines().count();
        assert_eq!(one("a.cu:1:10: fatal error: thrust/sort.h: No such file or directory\n"), 1);
        assert_eq!(one("a.cu:3:5: error: 'tex1Dfetch' was not declared in this scope\n"), 1);
        assert_eq!(one("    3 |   child<<<1, 32>>>();\n"), 1);
        assert_eq!(one("fatal error: 'cub/device/device_reduce.cuh' file not found\n"), 2);
        // Each once, however often it is named.
        assert_eq!(one("error: 'wmma' is not a namespace\nerror: 'nvcuda' has not been declared\n"), 1);
        for text in [
            "error: 'my_tex1D' is missing\n",
            "error: 'tex1Ds' is missing\n",
            "x << y\n",
            "a/thrust/b.h\n",
            "",
        ] {
            assert_eq!(one(text), 0, "{text}");
        }
    }
}
