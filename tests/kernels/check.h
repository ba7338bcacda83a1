/* What the device tests' kernels share: checks that end up in a report for the host, and reproducible random
 * data. A report is 8 words of the PE's heap: [0] errors, and of the first one [1] line, [2] got, [3] wanted,
 * [4] the check's own number, [5] thread, [6] block. tests/device/main.rs reads it. */
#ifndef RUSHMEM_TEST_CHECK_H
#define RUSHMEM_TEST_CHECK_H

#include <rushmem/rushmem.cuh>

enum { SCOPE_THREAD = 0, SCOPE_WARP = 1, SCOPE_BLOCK = 2, SCOPE_GRID = 4, SCOPE_GRID_PARTS = 5 };

__device__ inline void check_failed(uint64_t *report, int line, uint64_t got, uint64_t wanted,
                                    uint64_t info) {
  unsigned long long *errors = reinterpret_cast<unsigned long long *>(report);
  if (atomicAdd(errors, 1ull) != 0) return;
  report[1] = static_cast<uint64_t>(line);
  report[2] = got;
  report[3] = wanted;
  report[4] = info;
  report[5] = threadIdx.x;
  report[6] = blockIdx.x;
}

/* `info` is any number that helps: the size, the round. */
#define CHECK_EQ(report, got, wanted, info)                                                              \
  do {                                                                                                   \
    const uint64_t check_got = static_cast<uint64_t>(got), check_wanted = static_cast<uint64_t>(wanted); \
    if (check_got != check_wanted) {                                                                     \
      check_failed(report, __LINE__, check_got, check_wanted, static_cast<uint64_t>(info));              \
    }                                                                                                    \
  } while (0)
#define CHECK(report, condition, info) CHECK_EQ(report, (condition) ? 1 : 0, 1, info)

/* splitmix64's output function: every input bit reaches every output bit. */
__device__ inline uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}
__device__ inline uint64_t mix(uint64_t a, uint64_t b) { return mix(mix(a) ^ b); }

/* Byte `at` of what PE `pe` has to say in the run with this seed. */
__device__ inline unsigned char pattern(uint64_t seed, int pe, uint64_t at) {
  uint64_t word = mix(mix(seed, static_cast<uint64_t>(pe)), at / 8);
  return static_cast<unsigned char>(word >> (at % 8 * 8));
}

__device__ inline int right_of(int pe) { return pe + 1 == rushmem::n_pes() ? 0 : pe + 1; }
__device__ inline int left_of(int pe) { return pe == 0 ? rushmem::n_pes() - 1 : pe - 1; }

/* The number of this thread's scope among the block's, and how many there are: units of work are shared out
 * by it. */
template <typename Scope> struct share;
template <> struct share<rushmem::thread> {
  __device__ static uint32_t mine() { return threadIdx.x; }
  __device__ static uint32_t count() { return blockDim.x; }
};
template <> struct share<rushmem::warp> {
  __device__ static uint32_t mine() { return threadIdx.x / 32; }
  __device__ static uint32_t count() { return (blockDim.x + 31) / 32; }
};
template <> struct share<rushmem::block> {
  __device__ static uint32_t mine() { return 0; }
  __device__ static uint32_t count() { return 1; }
};

#endif
