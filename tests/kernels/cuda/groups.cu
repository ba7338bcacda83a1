// `<cooperative_groups.h>`, with `reduce.h`, `scan.h` and `memcpy_async.h`: tiles of 32 at most, a
// cluster is a block
#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>
extern "C" __global__ void probe(const unsigned *random, unsigned *good) {
  namespace cg = cooperative_groups;
  __shared__ unsigned copy[64];
  const auto block = cg::this_thread_block();
  cg::memcpy_async(block, copy, random, sizeof copy);
  cg::wait(block);
  const auto tile = cg::tiled_partition<16>(block);
  unsigned sum = 0, before = 0;
  for (unsigned k = 0; k < 16; ++k) {
    sum += random[threadIdx.x / 16 * 16 + k];
    before += k < threadIdx.x % 16 ? random[threadIdx.x / 16 * 16 + k] : 0;
  }
  good[threadIdx.x] = cg::reduce(tile, copy[threadIdx.x], cg::plus<unsigned>()) == sum &&
                      cg::exclusive_scan(tile, copy[threadIdx.x], cg::plus<unsigned>()) == before;
}
