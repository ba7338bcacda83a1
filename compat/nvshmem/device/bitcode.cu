/* libnvshmem_device.bc: the functions of kernels as LLVM bitcode, by their names in C, for kernels that no
 * CUDA compiler compiles: Triton's and Numba's. device/bitcode builds it, by a clang without CUDA's
 * headers. */
#define RUSHMEM_NVSHMEM_BITCODE 1

#include "clang.h"

#include <rushmem/impl/platform.h>

/* Inlined, too: these functions have structures as arguments by value, on which the LLVM of Triton 3.6 ends
 * with an assertion. */
#undef RUSHMEM_OUTLINED
#define RUSHMEM_OUTLINED static __device__ __forceinline__

/* CUDA's 16-bit floats, in its layout. Sums and products round once: a float has more than twice the bits of
 * either. */
#define HALF(name, widen, narrow) \
  struct name { \
    unsigned short bits; \
    name() = default; \
    RUSHMEM_DEVICE name(float value) : bits(rushmem::impl::narrow(value)) {} \
    RUSHMEM_DEVICE operator float() const { return rushmem::impl::widen(bits); } \
  }; \
  RUSHMEM_DEVICE name operator+(name a, name b) { return name(float(a) + float(b)); } \
  RUSHMEM_DEVICE name operator*(name a, name b) { return name(float(a) * float(b)); } \
  RUSHMEM_DEVICE bool operator<(name a, name b) { return float(a) < float(b); } \
  RUSHMEM_DEVICE bool operator>(name a, name b) { return float(a) > float(b); }
HALF(__half, float_of_half, half_of_float)
HALF(__nv_bfloat16, float_of_bfloat16, bfloat16_of_float)

struct __attribute__((aligned(16))) double2 {
  double x, y;
};

#include <rushmem_nvshmem/kernel.h>

#include "functions.h"

/* A macro of NVSHMEM's headers; Triton-distributed calls it as a function. */
#undef nvshmem_sync
extern "C" __device__ int nvshmem_sync(nvshmem_team_t team) { return nvshmem_team_sync(team); }
