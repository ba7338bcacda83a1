// Cooperative groups: what each thread sees of its tile, and blocks that meet as a grid. The expectation is
// computed by tests/device/groups.rs.
#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>

namespace cg = cooperative_groups;

struct wide {
  unsigned long long a;
  unsigned b;
  unsigned short c;
};

// What functions take that work for every group.
__device__ unsigned rank_of(const cg::thread_group &group) { return (unsigned)group.thread_rank(); }

template <unsigned Size> __device__ void tile(const unsigned *in, unsigned *out) {
  cg::thread_block block = cg::this_thread_block();
  auto tile = cg::tiled_partition<Size>(block);
  const unsigned v = in[block.thread_rank()];
  out += 24 * (blockIdx.x * blockDim.x + block.thread_rank());
  out[0] = tile.thread_rank();
  out[1] = tile.num_threads();
  out[2] = tile.meta_group_rank();
  out[3] = tile.meta_group_size();
  out[4] = tile.shfl(v, v % Size);
  out[5] = tile.shfl_up(v, 1);
  out[6] = tile.shfl_down(v, Size / 2);
  out[7] = tile.shfl_xor(v, Size - 1);
  out[8] = tile.ballot(v & 1);
  out[9] = tile.any((v & 7) == 7) != 0;
  out[10] = tile.all(v & 31) != 0;
  out[11] = tile.match_any(v % 3);
  int same;
  out[12] = tile.match_all(v / 256, same);
  out[13] = same;
  out[14] = cg::reduce(tile, v, cg::plus<unsigned>());
  out[15] = cg::reduce(tile, v, cg::greater<unsigned>());
  out[16] = cg::reduce(tile, v, cg::bit_xor<unsigned>());
  out[17] = cg::inclusive_scan(tile, v);
  out[18] = cg::exclusive_scan(tile, v);
  const wide mine = {v * 0x100000001ull, ~v, (unsigned short)v};
  const wide theirs = tile.shfl(mine, 0);
  out[19] = (unsigned)(theirs.a >> 32) + theirs.b + theirs.c;
  cg::coalesced_group like = cg::labeled_partition(tile, (int)(v % 3));
  out[20] = like.thread_rank() << 16 | like.num_threads();
  out[21] = cg::reduce(like, v, cg::plus<unsigned>());
  cg::coalesced_group odd = cg::binary_partition(tile, v & 1);
  out[22] = odd.shfl(v, 0);
  out[23] = rank_of(tile) << 16 | rank_of(cg::tiled_partition(block, Size));
  cg::sync(tile);
}

extern "C" __global__ void tiles_of_32(const unsigned *in, unsigned *out) { tile<32>(in, out); }
extern "C" __global__ void tiles_of_8(const unsigned *in, unsigned *out) { tile<8>(in, out); }
extern "C" __global__ void tiles_of_1(const unsigned *in, unsigned *out) { tile<1>(in, out); }

// Blocks copy what another block has written before they met; `rounds` times.
#if defined(RUSHMEM_CPU)  // rushmem's launches are not cooperative on GPUs
extern "C" __global__ void grid(unsigned *words, unsigned *seen, unsigned rounds) {
  cg::grid_group grid = cg::this_grid();
  cg::thread_block block = cg::this_thread_block();
  __shared__ unsigned part[64];
  unsigned sum = 0;
  for (unsigned round = 0; round < rounds; ++round) {
    words[grid.thread_rank()] = round * 1000 + (unsigned)grid.thread_rank();
    grid.sync();
    const unsigned other = (unsigned)(grid.block_rank() + 1 + round) % (unsigned)grid.num_blocks();
    cg::memcpy_async(block, part, words + other * blockDim.x, sizeof(unsigned) * blockDim.x);
    cg::wait(block);
    sum += part[(threadIdx.x + round) % blockDim.x];
    auto token = grid.barrier_arrive();
    grid.barrier_wait(static_cast<cg::grid_group::arrival_token &&>(token));
  }
  seen[grid.thread_rank()] = sum;
}
#endif
