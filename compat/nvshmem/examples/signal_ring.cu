/* An array goes round the ring of PEs by puts with a signal: each adds its own words and passes it on, and
 * PE 0 gets the sum. */
#include <nvshmem.h>
#include <nvshmemx.h>

__global__ void pass_on(double *travels, const double *mine, double *sum, uint64_t *arrived, int n) {
  const int me = nvshmem_my_pe(), pes = nvshmem_n_pes(), right = (me + 1) % pes;
  if (me != 0) {
    if (threadIdx.x == 0) nvshmem_signal_wait_until(arrived, NVSHMEM_CMP_EQ, me);
    __syncthreads();
  }
  for (int i = threadIdx.x; i < n; i += blockDim.x) sum[i] = (me == 0 ? 0 : travels[i]) + mine[i];
  __syncthreads();
  nvshmemx_double_put_signal_block(travels, sum, n, arrived, me + 1, NVSHMEM_SIGNAL_SET, right);
  if (me == 0 && threadIdx.x == 0) nvshmem_signal_wait_until(arrived, NVSHMEM_CMP_EQ, pes);
}

/* The host's part. */
#include "example.h"

int main(int argc, char **argv) {
  enum { N = 411 };
  const job j = start(argc, argv);
  double *travels = symmetric<double>(N), *mine = symmetric<double>(N), *sum = symmetric<double>(N);
  uint64_t *arrived = symmetric<uint64_t>(1);
  fill(j, mine, values_of<double>(j, j.me, N));
  nvshmem_barrier_all();
  pass_on<<<1, 64, 0, j.stream>>>(travels, mine, sum, arrived, N);
  nvshmemx_barrier_all_on_stream(j.stream);
  /* What the left neighbour passed on: its own words and those of all before it. */
  const std::vector<double> got = look<double>(j, travels, N);
  for (size_t i = 0; i < N; ++i) {
    double wanted = 0;
    for (int pe = 0; pe <= j.left; ++pe) wanted += value_of(j, pe, i);
    SAME(got[i], wanted);
  }
  SAME(nvshmem_uint64_g(arrived, j.me), static_cast<uint64_t>(j.left + 1));
  nvshmem_barrier_all();
  nvshmem_free(arrived);
  nvshmem_free(sum);
  nvshmem_free(mine);
  nvshmem_free(travels);
  end(j);
  return 0;
}
