/* A chain of work on one stream: a kernel, a put with a signal and the wait for it, a kernel on what has
 * arrived, a sum over all PEs. The host waits once, at the end. */
#include <nvshmem.h>
#include <nvshmemx.h>

__global__ void triple(float *words, int n) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) words[i] *= 3;
}

__global__ void add(float *to, const float *more, int n) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) to[i] += more[i];
}

/* The host's part. */
#include "example.h"

int main(int argc, char **argv) {
  enum { N = 700 };
  const job j = start(argc, argv);
  float *mine = symmetric<float>(N), *inbox = symmetric<float>(N), *total = symmetric<float>(N);
  uint64_t *arrived = symmetric<uint64_t>(1);
  fill(j, mine, values_of<float>(j, j.me, N));
  nvshmem_barrier_all();
  triple<<<3, 64, 0, j.stream>>>(mine, N);
  nvshmemx_float_put_signal_on_stream(inbox, mine, N, arrived, 5, NVSHMEM_SIGNAL_ADD, j.right, j.stream);
  nvshmemx_signal_wait_until_on_stream(arrived, NVSHMEM_CMP_EQ, 5, j.stream);
  add<<<2, 96, 0, j.stream>>>(inbox, mine, N);
  FINE(nvshmemx_float_sum_reduce_on_stream(NVSHMEM_TEAM_WORLD, total, inbox, N, j.stream));
  /* A word of one's own is there before the next meeting. */
  nvshmemx_float_p_on_stream(mine, static_cast<float>(100 + j.me), j.right, j.stream);
  nvshmemx_barrier_all_on_stream(j.stream);
  FINE(cudaStreamSynchronize(j.stream));
  const std::vector<float> got = look<float>(j, inbox, N), sum = look<float>(j, total, N);
  for (size_t i = 0; i < N; ++i) {
    SAME(got[i], 3.0f * static_cast<float>(value_of(j, j.left, i) + value_of(j, j.me, i)));
    /* In the order of the PEs, as a float adds up. */
    float wanted = 0;
    for (int pe = 0; pe < j.n; ++pe) {
      wanted += 3.0f * static_cast<float>(value_of(j, (pe + j.n - 1) % j.n, i) + value_of(j, pe, i));
    }
    SAME(sum[i], wanted);
  }
  SAME(nvshmem_float_g(mine, j.me), 100.0f + static_cast<float>(j.left));
  nvshmem_free(arrived);
  nvshmem_free(total);
  nvshmem_free(inbox);
  nvshmem_free(mine);
  end(j);
  return 0;
}
