/* A collective launch: block b of a PE waits for block b of its left neighbour, round by round, so that the
 * blocks of all PEs have to run at once. A word goes round, and each PE adds its own to it. */
#include <nvshmem.h>
#include <nvshmemx.h>

__global__ void rounds(uint64_t *words, uint64_t *inbox, uint64_t *arrived, int most) {
  if (threadIdx.x != 0) return;
  const int right = (nvshmem_my_pe() + 1) % nvshmem_n_pes(), b = blockIdx.x, blocks = gridDim.x;
  uint64_t word = words[b];
  for (int round = 0; round < most; ++round) {
    /* A place for each round: a PE may be ahead of its neighbours. */
    uint64_t *place = inbox + round * blocks + b;
    nvshmem_uint64_p(place, word, right);
    nvshmem_fence();
    nvshmemx_signal_op(arrived + b, 1, NVSHMEM_SIGNAL_ADD, right);
    nvshmem_signal_wait_until(arrived + b, NVSHMEM_CMP_GE, round + 1);
    word = *static_cast<volatile uint64_t *>(place) + words[b];
  }
  words[blocks + b] = word;
}

/* The host's part. */
#include "example.h"

int main(int argc, char **argv) {
  const job j = start(argc, argv);
  int blocks = 0, most = 7;
  const void *kernel = reinterpret_cast<const void *>(rounds);
  FINE(nvshmemx_collective_launch_query_gridsize(kernel, 32, nullptr, 0, &blocks));
  if (blocks > 12) blocks = 12;
  uint64_t *words = symmetric<uint64_t>(2 * blocks), *inbox = symmetric<uint64_t>(most * blocks);
  uint64_t *arrived = symmetric<uint64_t>(blocks);
  fill(j, words, values_of<uint64_t>(j, j.me, blocks));
  nvshmem_barrier_all();
  void *arguments[] = {&words, &inbox, &arrived, &most};
  FINE(nvshmemx_collective_launch(kernel, blocks, 32, arguments, 0, j.stream));
  const std::vector<uint64_t> got = look<uint64_t>(j, words, 2 * blocks);
  for (int b = 0; b < blocks; ++b) {
    /* It began `most` PEs to the left, and has been at all of those since. */
    uint64_t wanted = 0;
    for (int back = 0; back <= most; ++back) wanted += value_of(j, ((j.me - back) % j.n + j.n) % j.n, b);
    SAME(got[blocks + b], wanted);
  }
  nvshmem_barrier_all();
  nvshmem_free(arrived);
  nvshmem_free(inbox);
  nvshmem_free(words);
  end(j);
  return 0;
}
