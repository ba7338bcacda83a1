/* A shared library with a kernel, which modules.cu loads into a job that runs: its own CUDA runtime, its own
 * device state, the program's world. */
#include <nvshmem.h>

__global__ static void shift(int *dest) {
  const int me = nvshmem_my_pe();
  nvshmem_int_p(dest, me + 5, (me + 1) % nvshmem_n_pes());
}

/* Writes `dest` of the right neighbour; 0, or an error of CUDA's. */
extern "C" int plugin(int *dest) {
  nvshmem_fence();
  shift<<<1, 1>>>(dest);
  return static_cast<int>(cudaDeviceSynchronize());
}
