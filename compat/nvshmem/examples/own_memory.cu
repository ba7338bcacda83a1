/* Memory that the program has from CUDA: as the source of a kernel's put, and made symmetric, so that others
 * put into it. */
#include <nvshmem.h>

__global__ void send(int *inbox, const int *own, int n) {
  const int left = (nvshmem_my_pe() + nvshmem_n_pes() - 1) % nvshmem_n_pes();
  nvshmem_int_put(inbox, own, n, left);
}

/* The host's part. */
#include "example.h"

int main(int argc, char **argv) {
  enum { N = 1 << 19 }; /* 2 MiB, which is what CUDA maps at a time */
  const job j = start(argc, argv);
  int *inbox = symmetric<int>(N), *own = nullptr, *window = nullptr;
  FINE(cudaMalloc(reinterpret_cast<void **>(&own), N * sizeof(int)));
  FINE(cudaMalloc(reinterpret_cast<void **>(&window), N * sizeof(int)));
  fill(j, own, values_of<int>(j, j.me, N));
  nvshmem_barrier_all();
  /* A source alone. */
  FINE(nvshmemx_buffer_register(own, N * sizeof(int)));
  send<<<1, 1, 0, j.stream>>>(inbox, own, N / 64);
  nvshmemx_barrier_all_on_stream(j.stream);
  const std::vector<int> got = look<int>(j, inbox, N / 64);
  for (size_t i = 0; i < N / 64; ++i) SAME(got[i], value_of(j, j.right, i));
  /* A destination on all PEs, for the host and for streams. */
  int *shared = static_cast<int *>(nvshmemx_buffer_register_symmetric(window, N * sizeof(int), 0));
  if (!shared) FINE(NVSHMEMX_ERROR_SYMMETRY);
  nvshmemx_int_put_on_stream(shared, own, N - 1, j.right, j.stream);
  nvshmemx_int_p_on_stream(shared + N - 1, j.me - 77, j.right, j.stream);
  nvshmemx_barrier_all_on_stream(j.stream);
  const std::vector<int> here = look<int>(j, window, N);
  for (size_t i = 0; i < N - 1; ++i) SAME(here[i], value_of(j, j.left, i));
  SAME(here[N - 1], j.left - 77);
  nvshmem_barrier_all();
  FINE(nvshmemx_buffer_unregister_symmetric(shared, N * sizeof(int)));
  FINE(nvshmemx_buffer_unregister(own));
  FINE(cudaFree(window));
  FINE(cudaFree(own));
  nvshmem_free(inbox);
  end(j);
  return 0;
}
