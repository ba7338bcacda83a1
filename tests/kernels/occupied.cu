/* A kernel of which every thread waits, launched so that it fills the device: what it waits for must come all
 * the same. */
#if !defined(RUSHMEM_TEST_CHECK_H)
#include "check.h"
#endif

/* Every thread waits for `sig` to reach `value`, then looks at the data that came with it. `arrived` and
 * `left` count threads: zero at first. */
extern "C" __global__ void occupied_wait(uint64_t *report, uint64_t *arrived, uint64_t *left,
                                         const uint64_t *data, size_t words, const uint64_t *sig,
                                         uint64_t value, uint64_t seed) {
  rushmem::atomic_inc(arrived, rushmem::my_pe());
  rushmem::signal_wait_until(sig, rushmem::cmp::ge, value);
  for (size_t i = threadIdx.x; i < words; i += blockDim.x) CHECK_EQ(report, data[i], mix(seed, i), i);
  rushmem::atomic_inc(left, rushmem::my_pe());
}

/* Sends them. One block; `from` has room for the words. */
extern "C" __global__ void occupied_send(uint64_t *data, uint64_t *from, size_t words, uint64_t *sig,
                                         uint64_t value, uint64_t seed, int pe) {
  for (size_t i = threadIdx.x; i < words; i += blockDim.x) from[i] = mix(seed, i);
  __syncthreads();
  rushmem::put_signal<rushmem::block>(data, from, words, sig, value, rushmem::signal::set, pe);
}
