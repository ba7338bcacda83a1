/* `cuda::std`, libcu++'s copy of the C++ standard library, is the compiler's own library here. Each header
 * <cuda/std/NAME> includes <NAME> and this (device/cpu/src/headers.rs). What kernels must not take from
 * there, as atomics, is declared in cuda::std itself, which hides the other. Newer parts of the standard come
 * from the compiler under -std=c++20, and before from cuda_std_bit.h and cuda_std_span.h. */
#ifndef RUSHMEM_CPU_CUDA_STD_H
#define RUSHMEM_CPU_CUDA_STD_H

#include <cstddef>

namespace cuda {
namespace std {
using namespace ::std;
}
}  // namespace cuda

#endif
