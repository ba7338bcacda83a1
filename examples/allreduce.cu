// A ring allreduce: every PE ends with the element-wise sum of all PEs' arrays. The array is cut into slices,
// one for each block, which go round by themselves; a slice is cut into n chunks. For n - 1 steps each PE
// passes a partial sum to the right, and then for n - 1 steps a finished one.
#include <rushmem/rushmem.cuh>

using namespace rushmem;

// `inbox` is as long as `data`; `arrived` has 2 (n - 1) words for each block. `round` counts the calls from
// 1: the words then need no reset. Each step has a word of its own, because two steps' messages may be under
// way at once, in any order.
extern "C" __global__ void allreduce(int64_t *data, int64_t *inbox, uint64_t *arrived, uint64_t len,
                                     uint64_t round) {
  const int me = my_pe(), n = n_pes(), right = (me + 1) % n, steps = 2 * (n - 1);
  const uint64_t slice = len * blockIdx.x / gridDim.x, size = len * (blockIdx.x + 1) / gridDim.x - slice;

  for (int step = 0; step < steps; ++step) {
    const bool partial = step < n - 1;
    const int out = (me - step + 2 * n) % n, in = (me - step - 1 + 2 * n) % n;
    const uint64_t out_begin = slice + size * out / n, out_end = slice + size * (out + 1) / n;
    const uint64_t in_begin = slice + size * in / n, in_end = slice + size * (in + 1) / n;
    uint64_t *const word = arrived + blockIdx.x * steps + step;

    // A partial sum goes to the inbox. A finished one goes to its place: the right neighbour passed that
    // chunk on long ago.
    put_signal<block>((partial ? inbox : data) + out_begin, data + out_begin, out_end - out_begin, word,
                      round, signal::set, right);
    if (threadIdx.x == 0) signal_wait_until(word, cmp::ge, round);
    __syncthreads();  // the left neighbour's chunk is here
    for (uint64_t i = in_begin + threadIdx.x; partial && i < in_end; i += blockDim.x) data[i] += inbox[i];
    __syncthreads();  // and what goes on is whole
  }
}
