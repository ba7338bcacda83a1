/* CUDA's function and variable qualifiers, said in plain C++. While the compiler driver only looks for
 * kernels (RUSHMEM_CPU_SCAN) `__global__` stays as it is, so that the scanner sees it in the preprocessed
 * text. */
#ifndef RUSHMEM_CPU_QUALIFIERS_H
#define RUSHMEM_CPU_QUALIFIERS_H

#if !defined(RUSHMEM_CPU_SCAN)
#define __global__
#endif
#define __device__
#define __host__
#define __constant__
#define __managed__
/* One block, one OS thread: block-shared is thread-local. */
#define __shared__ static thread_local
#define __forceinline__ inline __attribute__((always_inline))
/* Empty and not an attribute: libstdc++ writes `__attribute__((__noinline__))`. */
#define __noinline__
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __maxnreg__(...)
#define __grid_constant__
#define __align__(n) __attribute__((aligned(n)))
#define __builtin_align__(n) __attribute__((aligned(n)))
#if !defined(__clang__)
#define __builtin_assume(condition) ((void)0)
#endif

#endif
