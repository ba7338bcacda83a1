// CUB's primitives of a block: `BlockReduce`, `BlockScan`, `BlockLoad`, `BlockStore`,
// `BlockExchange`, `BlockRadixSort`
#include <cub/block/block_exchange.cuh>
#include <cub/block/block_load.cuh>
#include <cub/block/block_radix_sort.cuh>
#include <cub/block/block_reduce.cuh>
#include <cub/block/block_scan.cuh>
#include <cub/block/block_store.cuh>
extern "C" __global__ void probe(const unsigned *random, unsigned *good) {
  using Load = cub::BlockLoad<unsigned, 64, 4, cub::BLOCK_LOAD_WARP_TRANSPOSE>;
  using Store = cub::BlockStore<unsigned, 64, 4>;
  using Scan = cub::BlockScan<unsigned, 64>;
  using Reduce = cub::BlockReduce<unsigned, 64>;
  using Exchange = cub::BlockExchange<unsigned, 64, 4>;
  using Sort = cub::BlockRadixSort<unsigned, 64, 4>;
  __shared__ union {
    typename Load::TempStorage load;
    typename Store::TempStorage store;
    typename Scan::TempStorage scan;
    typename Reduce::TempStorage reduce;
    typename Exchange::TempStorage exchange;
    typename Sort::TempStorage sort;
  } temp;
  __shared__ unsigned sorted[256];
  unsigned v[4], before[4], total;
  Load(temp.load).Load(random, v);
  __syncthreads();
  Scan(temp.scan).ExclusiveSum(v, before, total);
  __syncthreads();
  unsigned want = 0;
  bool right = true;
  for (unsigned i = 0; i < 256; ++i) {
    if (i / 4 == threadIdx.x) right = right && before[i % 4] == want;
    want += random[i];
  }
  const unsigned sum = Reduce(temp.reduce).Sum(v);
  right = right && total == want && (threadIdx.x != 0 || sum == want);
  __syncthreads();
  Exchange(temp.exchange).BlockedToStriped(v);
  right = right && v[1] == random[64 + threadIdx.x];
  __syncthreads();
  Sort(temp.sort).Sort(v);
  __syncthreads();
  Store(temp.store).Store(sorted, v);
  __syncthreads();
  for (unsigned i = 0; i < 255; ++i) right = right && sorted[i] <= sorted[i + 1];
  good[threadIdx.x] = right;
}
