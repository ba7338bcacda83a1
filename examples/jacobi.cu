// Jacobi's iteration on a plate that is cut into bands of rows, one band for each block of each PE. All steps
// are one launch: a block sends its edge rows to the blocks above and below, on this PE or on the next one,
// and waits for theirs.
//
// No block is ever more than one step ahead of a neighbour, since it needs the neighbour's row of the step
// before. So two places for each incoming row, used in turn, are enough, and a signal word for each place
// says which step's row is there.
#include <rushmem/rushmem.cuh>

using namespace rushmem;

// `halo` and `arrived` have, for each block of a PE, two sides (0: from above, 1: from below) of two places.
// `plate` and `other` hold this PE's rows; the result of `steps` steps is in `plate` if `steps` is even.
extern "C" __global__ void jacobi(double *plate, double *other, double *halo, uint64_t *arrived,
                                  uint64_t rows, uint64_t cols, uint64_t steps) {
  const int band = my_pe() * gridDim.x + blockIdx.x, bands = n_pes() * gridDim.x;
  const uint64_t pe_begin = rows * (my_pe() * gridDim.x) / bands;
  const uint64_t begin = rows * band / bands - pe_begin, end = rows * (band + 1) / bands - pe_begin;

  for (uint64_t step = 0; step < steps; ++step) {
    for (int side = 0; side < 2; ++side) {
      const int neighbour = side == 0 ? band - 1 : band + 1;
      if (neighbour < 0 || neighbour >= bands) continue;
      // What goes up arrives from below.
      const uint64_t place = ((neighbour % gridDim.x) * 2 + (1 - side)) * 2 + step % 2;
      const double *row = plate + (side == 0 ? begin : end - 1) * cols;
      put_signal<block>(halo + place * cols, row, cols, arrived + place, step + 1, signal::set,
                        neighbour / gridDim.x);
    }
    const uint64_t above = (blockIdx.x * 2 + 0) * 2 + step % 2, below = (blockIdx.x * 2 + 1) * 2 + step % 2;
    if (threadIdx.x == 0) {
      if (band > 0) signal_wait_until(arrived + above, cmp::eq, step + 1);
      if (band < bands - 1) signal_wait_until(arrived + below, cmp::eq, step + 1);
    }
    __syncthreads();  // both rows are here, for every thread

    for (uint64_t i = begin * cols + threadIdx.x; i < end * cols; i += blockDim.x) {
      const uint64_t row = i / cols, col = i % cols;
      const double up = row == begin ? halo[above * cols + col] : plate[i - cols];
      const double down = row == end - 1 ? halo[below * cols + col] : plate[i + cols];
      const bool fixed = col == 0 || col == cols - 1;
      other[i] = fixed ? plate[i] : 0.25 * ((up + down) + (plate[i - 1] + plate[i + 1]));
    }
    __syncthreads();  // the edge rows of the next step are whole
    double *const last = plate;
    plate = other;
    other = last;
  }
}
