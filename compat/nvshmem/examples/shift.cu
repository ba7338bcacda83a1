/* Each PE hands its words to its right neighbour, one by one, and fetches words of its left one. */
#include <nvshmem.h>

__global__ void shift(int *inbox, const int *outbox, int n) {
  const int right = (nvshmem_my_pe() + 1) % nvshmem_n_pes();
  for (int i = threadIdx.x; i < n; i += blockDim.x) nvshmem_int_p(inbox + i, outbox[i], right);
}

__global__ void fetch(int *copy, const int *outbox, int n) {
  const int left = (nvshmem_my_pe() + nvshmem_n_pes() - 1) % nvshmem_n_pes();
  for (int i = threadIdx.x; i < n; i += blockDim.x) copy[n - 1 - i] = nvshmem_int_g(outbox + i, left);
}

/* The host's part. */
#include "example.h"

int main(int argc, char **argv) {
  enum { N = 300 };
  const job j = start(argc, argv);
  int *inbox = symmetric<int>(N), *outbox = symmetric<int>(N), *copy = symmetric<int>(N);
  fill(j, outbox, values_of<int>(j, j.me, N));
  nvshmem_barrier_all();
  shift<<<1, 96, 0, j.stream>>>(inbox, outbox, N);
  fetch<<<1, 128, 0, j.stream>>>(copy, outbox, N);
  nvshmemx_barrier_all_on_stream(j.stream);
  const std::vector<int> got = look<int>(j, inbox, N), fetched = look<int>(j, copy, N);
  for (size_t i = 0; i < N; ++i) {
    SAME(got[i], value_of(j, j.left, i));
    SAME(fetched[N - 1 - i], value_of(j, j.left, i));
  }
  /* The same by the host, once all have looked. */
  nvshmem_barrier_all();
  nvshmem_int_put(copy, outbox, N, j.right);
  nvshmem_barrier_all();
  const std::vector<int> put = look<int>(j, copy, N);
  for (size_t i = 0; i < N; ++i) SAME(put[i], value_of(j, j.left, i));
  SAME(nvshmem_int_g(outbox + N - 1, j.right), value_of(j, j.right, N - 1));
  nvshmem_free(copy);
  nvshmem_free(outbox);
  nvshmem_free(inbox);
  end(j);
  return 0;
}
