// A token goes round all PEs, lap after lap. The PE that holds it adds one to each of its words (a thread has
// one each) and puts it to the right-hand neighbour, with a signal that is never seen before the token.
#include <rushmem/rushmem.cuh>

extern "C" __global__ void ring(uint64_t *token, uint64_t *arrived, uint64_t laps) {
  using namespace rushmem;
  int right = (my_pe() + 1) % n_pes();

  for (uint64_t lap = 1; lap <= laps; ++lap) {
    if (threadIdx.x == 0) signal_wait_until(arrived, cmp::ge, lap);
    __syncthreads();  // the token is here, for every thread

    token[threadIdx.x] += 1;
    __syncthreads();  // and whole again

    put_signal<block>(token, token, blockDim.x, arrived, 1, signal::add, right);
  }
}
