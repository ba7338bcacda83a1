// CUB's primitives of a warp: `WarpReduce`, `WarpScan`
#include <cub/warp/warp_reduce.cuh>
#include <cub/warp/warp_scan.cuh>
extern "C" __global__ void probe(const unsigned *random, unsigned *good) {
  using Reduce = cub::WarpReduce<unsigned>;
  using Scan = cub::WarpScan<unsigned, 16>;
  __shared__ typename Reduce::TempStorage reduce[2];
  __shared__ typename Scan::TempStorage scan[4];
  const unsigned i = threadIdx.x, v = random[i];
  const unsigned sum = Reduce(reduce[i / 32]).Sum(v);
  unsigned before, want = 0, all = 0;
  Scan(scan[i / 16]).ExclusiveSum(v, before);
  for (unsigned k = i / 16 * 16; k < i; ++k) want += random[k];
  for (unsigned k = i / 32 * 32; k < i / 32 * 32 + 32; ++k) all += random[k];
  good[i] = before == want && (i % 32 != 0 || sum == all);
}
