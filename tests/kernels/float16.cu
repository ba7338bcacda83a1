/* Sums of 16-bit floats that all PEs' threads add to at once. Types of the kernel's own, as the library looks
 * at the bits alone and NVRTC need not have CUDA's headers. One block. */
#if !defined(RUSHMEM_TEST_CHECK_H)
#include "check.h"
#endif

struct alignas(2) __half {
  unsigned short bits;
};
struct alignas(2) __nv_bfloat16 {
  unsigned short bits;
};

/* `words[1]` and `words[2]` of each PE are neighbours in two 4-byte words; thread i adds `one` to the first,
 * twice `one` to the second, and says in `seen` what the first was before. */
template <typename T> __device__ void add(T *words, T *seen, T one, T two) {
  for (int pe = 0; pe < rushmem::n_pes(); ++pe) {
    const size_t at = static_cast<size_t>(pe) * blockDim.x + threadIdx.x;
    seen[at] = rushmem::atomic_fetch_add(words + 1, one, pe);
    rushmem::atomic_add(words + 2, two, pe);
  }
  rushmem::barrier_all<rushmem::block>();
}

extern "C" __global__ void add_halves(__half *words, __half *seen) {
  add(words, seen, __half{0x3c00}, __half{0x4000});
}
extern "C" __global__ void add_bfloats(__nv_bfloat16 *words, __nv_bfloat16 *seen) {
  add(words, seen, __nv_bfloat16{0x3f80}, __nv_bfloat16{0x4000});
}
