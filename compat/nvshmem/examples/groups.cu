/* Copies by one thread, by a warp and by a block, each of its own part; those without blocking end with a
 * quiet. */
#include <nvshmem.h>
#include <nvshmemx.h>

__global__ void copies(float *to, const float *from, int part) {
  const int right = (nvshmem_my_pe() + 1) % nvshmem_n_pes(), warp = threadIdx.x / 32, warps = blockDim.x / 32;
  /* Part 0: all threads together. */
  nvshmemx_float_put_nbi_block(to, from, part, right);
  /* Part 1: the warps, a slice each. */
  const int slice = part / warps, first = part + warp * slice;
  nvshmemx_float_put_warp(to + first, from + first, warp == warps - 1 ? part - warp * slice : slice, right);
  /* Part 2: one thread. */
  if (threadIdx.x == 0) nvshmem_float_put_nbi(to + 2 * part, from + 2 * part, part, right);
  nvshmem_quiet();
  nvshmemx_barrier_all_block();
  /* What has arrived here goes back to where it came from. */
  const int left = (nvshmem_my_pe() + nvshmem_n_pes() - 1) % nvshmem_n_pes();
  nvshmemx_float_get_block(to + 3 * part, to, 3 * part, right);
  nvshmemx_float_put_block(to + 6 * part, to, 3 * part, left);
  nvshmemx_barrier_all_block();
}

/* The host's part. */
#include "example.h"

int main(int argc, char **argv) {
  enum { PART = 523 };
  const job j = start(argc, argv);
  float *to = symmetric<float>(9 * PART), *from = symmetric<float>(3 * PART);
  fill(j, from, values_of<float>(j, j.me, 3 * PART));
  int part = PART;
  void *arguments[] = {&to, &from, &part};
  FINE(nvshmemx_collective_launch(reinterpret_cast<const void *>(copies), 1, 128, arguments, 0, j.stream));
  const std::vector<float> got = look<float>(j, to, 9 * PART);
  for (size_t i = 0; i < 3 * PART; ++i) {
    SAME(got[i], static_cast<float>(value_of(j, j.left, i)));
    SAME(got[3 * PART + i], static_cast<float>(value_of(j, j.me, i)));
    SAME(got[6 * PART + i], static_cast<float>(value_of(j, j.me, i)));
  }
  nvshmem_barrier_all();
  nvshmem_free(from);
  nvshmem_free(to);
  end(j);
  return 0;
}
