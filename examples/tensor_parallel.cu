// A matrix product whose inner dimension is cut over the PEs, as a layer of a tensor-parallel network is:
// each PE multiplies its columns of `x` with its rows of `w`, and the products of all PEs are summed on all
// of them, in the same launch. Blocks take stripes of rows in turn and reduce each stripe as soon as it is
// computed, in a slot set of their own, so that one block's stripe travels while the others compute.
#include <rushmem/rushmem.cuh>

using namespace rushmem;

// `x` is `rows` by `depth`, `w` is `depth` by `cols`; `depth` is this PE's own, the others are the same on
// all. `t` has a slot set for each block, and all PEs launch as many blocks.
extern "C" __global__ void product(team t, float *y, const float *x, const float *w, uint64_t rows, uint64_t cols,
                                   uint64_t depth, uint64_t stripe) {
  const team lane = t.on(blockIdx.x);
  for (uint64_t row = blockIdx.x * stripe; row < rows; row += gridDim.x * stripe) {
    const uint64_t here = rows - row < stripe ? rows - row : stripe;
    float *const out = y + row * cols;
    for (uint64_t i = threadIdx.x; i < here * cols; i += blockDim.x) {
      const float *a = x + (row + i / cols) * depth, *b = w + i % cols;
      float sum = 0;
      for (uint64_t k = 0; k < depth; ++k) sum += a[k] * b[k * cols];
      out[i] = sum;
    }
    __syncthreads();  // the block's part of the stripe is whole
    reduce<block>(lane, out, out, here * cols, rushmem::sum{});
  }
}
