/* Everybody with everybody, by several blocks of each PE. */
#if !defined(RUSHMEM_TEST_CHECK_H)
#include "check.h"
#endif

/* `Alltoall` of arguments.rs. */
struct alltoall_args {
  size_t words;
  int rounds;
  uint64_t seed;
};

/* Each round, each PE puts `words` words into every PE's inbox, in its own place there, and waits for those
 * of all. Block b exchanges with the PEs b, b + gridDim, … places away. `inbox` and `outbox` have n_pes *
 * words words; `arrived` and `taken` have one of zero for each PE. */
extern "C" __global__ void many_alltoall(uint64_t *report, uint64_t *inbox, uint64_t *outbox,
                                         uint64_t *arrived, uint64_t *taken, alltoall_args a) {
  const int me = rushmem::my_pe(), n = rushmem::n_pes();
  const size_t words = a.words;
  for (int round = 1; round <= a.rounds; ++round) {
    const uint64_t number = static_cast<uint64_t>(round), data = mix(a.seed, number);
    for (int k = static_cast<int>(blockIdx.x); k < n; k += static_cast<int>(gridDim.x)) {
      const int pe = (me + k) % n;
      uint64_t *mine = outbox + static_cast<size_t>(pe) * words;
      for (size_t i = threadIdx.x; i < words; i += blockDim.x) {
        mine[i] = mix(data, static_cast<uint64_t>(me * n + pe) << 32 | i);
      }
      if (threadIdx.x == 0) rushmem::signal_wait_until(taken + pe, rushmem::cmp::ge, number - 1);
      __syncthreads();
      rushmem::put_signal<rushmem::block>(inbox + static_cast<size_t>(me) * words, mine, words, arrived + me,
                                          number, rushmem::signal::set, pe);
    }
    for (int k = static_cast<int>(blockIdx.x); k < n; k += static_cast<int>(gridDim.x)) {
      const int pe = (me + n - k) % n;
      if (threadIdx.x == 0) rushmem::signal_wait_until(arrived + pe, rushmem::cmp::eq, number);
      __syncthreads();
      const uint64_t *from = inbox + static_cast<size_t>(pe) * words;
      for (size_t i = threadIdx.x; i < words; i += blockDim.x) {
        CHECK_EQ(report, from[i], mix(data, static_cast<uint64_t>(pe * n + me) << 32 | i), number << 32 | i);
      }
      __syncthreads();
      if (threadIdx.x == 0) {
        rushmem::fence();
        rushmem::signal_op(taken + me, number, rushmem::signal::set, pe);
      }
    }
  }
}
