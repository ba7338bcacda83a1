/* A kernel of which every thread waits, launched so that it fills the device: what it waits for must come all
 * the same. */
#if !defined(RUSHMEM_TEST_CHECK_H)
#include "check.h"
#endif

/* `Occupied` of arguments.rs. */
struct occupied_args {
  size_t words;
  uint64_t value, seed;
};

/* Every thread waits for `sig` to reach `value`, then looks at the data that came with it. `arrived` and
 * `left` count threads: zero at first. */
extern "C" __global__ void occupied_wait(uint64_t *report, uint64_t *arrived, uint64_t *left,
                                         const uint64_t *data, const uint64_t *sig, occupied_args a) {
  rushmem::atomic_inc(arrived, rushmem::my_pe());
  rushmem::signal_wait_until(sig, rushmem::cmp::ge, a.value);
  for (size_t i = threadIdx.x; i < a.words; i += blockDim.x) CHECK_EQ(report, data[i], mix(a.seed, i), i);
  rushmem::atomic_inc(left, rushmem::my_pe());
}

/* Sends them. One block; `from` has room for the words. */
extern "C" __global__ void occupied_send(uint64_t *data, uint64_t *from, uint64_t *sig, int pe, occupied_args a) {
  for (size_t i = threadIdx.x; i < a.words; i += blockDim.x) from[i] = mix(a.seed, i);
  __syncthreads();
  rushmem::put_signal<rushmem::block>(data, from, a.words, sig, a.value, rushmem::signal::set, pe);
}
