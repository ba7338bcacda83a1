/* The ring of many introductions: each PE tells its right neighbour its number, in a kernel, then on a
 * stream. */
#include <cstdio>

#include <nvshmem.h>
#include <nvshmemx.h>

__global__ void shift(int *dest) {
  const int me = nvshmem_my_pe(), n = nvshmem_n_pes();
  nvshmem_int_p(dest, me, (me + 1) % n);
}

__global__ void __launch_bounds__(1024) sum(int *to, int *from) {
  nvshmemx_int_sum_reduce_block(NVSHMEM_TEAM_WORLD, to, from, 1);
}

int main() {
  int got = -1, all = -1;
  cudaStream_t stream;
  nvshmem_init();
  const int me = nvshmem_my_pe(), n = nvshmem_n_pes(), mine = nvshmem_team_my_pe(NVSHMEMX_TEAM_NODE);
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || cudaSetDevice(mine % devices) != cudaSuccess ||
      cudaStreamCreate(&stream) != cudaSuccess) {
    return 1;
  }
  int *dest = static_cast<int *>(nvshmem_malloc(2 * sizeof(int))), *to = dest + 1;
  shift<<<1, 1, 0, stream>>>(dest);
  nvshmemx_barrier_all_on_stream(stream);
  void *arguments[] = {&to, &dest};
  if (nvshmemx_collective_launch(reinterpret_cast<const void *>(sum), 1, 32, arguments, 0, stream) != 0) return 2;
  cudaMemcpyAsync(&got, dest, sizeof(int), cudaMemcpyDeviceToHost, stream);
  cudaMemcpyAsync(&all, to, sizeof(int), cudaMemcpyDeviceToHost, stream);
  if (cudaStreamSynchronize(stream) != cudaSuccess || got != (me + n - 1) % n || all != n * (n - 1) / 2) return 3;
  std::printf("PE %d of %d: all well\n", me, n);
  nvshmem_free(dest);
  nvshmem_finalize();
  return 0;
}
