/* What the device headers take from CUDA, for clang without CUDA's own headers: device/bitcode compiles with
 * it. The functions are PTX instructions, which only the assembler interprets: Triton and
 * others link this code with an LLVM of their own, in which intrinsics may have other names. */
#ifndef RUSHMEM_CLANG_H
#define RUSHMEM_CLANG_H

#include <stddef.h>
#include <stdint.h>

#define __device__ __attribute__((device))
#define __global__ __attribute__((global))
#define __host__ __attribute__((host))
#define __constant__ __attribute__((constant))
#define __shared__ __attribute__((shared))
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __align__(n) __attribute__((aligned(n)))

/* PTX ISA 8.7, which is the oldest that Triton 3.6's assembler takes. */
#define __CUDACC__ 1
#define __CUDACC_VER_MAJOR__ 12
#define __CUDACC_VER_MINOR__ 8

#include <__clang_cuda_builtin_vars.h>

/* Some versions of clang know this name as a builtin, and refuse a definition. */
#define __syncthreads rushmem_syncthreads
static __device__ __forceinline__ void rushmem_syncthreads() { asm volatile("bar.sync 0;" ::: "memory"); }

static __device__ __forceinline__ void __syncwarp(uint32_t lanes = 0xffffffffu) {
  asm volatile("bar.warp.sync %0;" ::"r"(lanes) : "memory");
}
static __device__ __forceinline__ uint32_t __activemask() {
  uint32_t lanes;
  asm volatile("activemask.b32 %0;" : "=r"(lanes));
  return lanes;
}
static __device__ __forceinline__ void __threadfence_system() { asm volatile("fence.acq_rel.sys;" ::: "memory"); }
static __device__ __forceinline__ void __trap() { asm volatile("trap;"); }
static __device__ __forceinline__ uint32_t __shfl_sync(uint32_t lanes, uint32_t value, int from) {
  uint32_t there;
  asm volatile("shfl.sync.idx.b32 %0, %1, %2, 31, %3;" : "=r"(there) : "r"(value), "r"(from), "r"(lanes));
  return there;
}
static __device__ __forceinline__ int __all_sync(uint32_t lanes, int yes) {
  int all;
  asm volatile(
      "{\n"
      "  .reg .pred yes, all;\n"
      "  setp.ne.b32 yes, %1, 0;\n"
      "  vote.sync.all.pred all, yes, %2;\n"
      "  selp.b32 %0, 1, 0, all;\n"
      "}"
      : "=r"(all)
      : "r"(yes), "r"(lanes));
  return all;
}
static __device__ __forceinline__ uint32_t __funnelshift_r(uint32_t low, uint32_t high, uint32_t shift) {
  uint32_t word;
  asm("shf.r.wrap.b32 %0, %1, %2, %3;" : "=r"(word) : "r"(low), "r"(high), "r"(shift));
  return word;
}
static __device__ __forceinline__ uint32_t __byte_perm(uint32_t a, uint32_t b, uint32_t which) {
  uint32_t word;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(word) : "r"(a), "r"(b), "r"(which));
  return word;
}
static __device__ __forceinline__ uint64_t __cvta_generic_to_shared(const void *at) {
  uint64_t shared;
  asm("cvta.to.shared.u64 %0, %1;" : "=l"(shared) : "l"(at));
  return shared;
}

#endif
