#include <rushmem/rushmem.cuh>

/* Puts twice each of its words to the PE on the right, and waits for those of the PE on the left. */
extern "C" __global__ void twice(uint64_t *to, const uint64_t *from, size_t n) {
  const int right = (rushmem::my_pe() + 1) % rushmem::n_pes();
  for (size_t i = threadIdx.x; i < n; i += blockDim.x) rushmem::p(to + i, 2 * from[i], right);
  __syncthreads();
  if (threadIdx.x == 0) rushmem::barrier_all();
}
