// `<cuda/barrier>`: `arrive`, `wait`, `arrive_and_wait`, `memcpy_async` of a group or a thread
#include <cooperative_groups.h>
#include <cuda/barrier>
#include <cuda/std/utility>
extern "C" __global__ void probe(const unsigned *random, unsigned *good) {
  using barrier = cuda::barrier<cuda::thread_scope_block>;
  alignas(barrier) __shared__ unsigned char room[sizeof(barrier)];
  __shared__ unsigned copy[64];
  barrier &bar = *reinterpret_cast<barrier *>(room);
  if (threadIdx.x == 0) init(&bar, blockDim.x);
  __syncthreads();
  cuda::memcpy_async(cooperative_groups::this_thread_block(), copy, random, sizeof copy, bar);
  bar.wait(bar.arrive());
  const bool is_same = copy[63 - threadIdx.x] == random[63 - threadIdx.x];
  bar.arrive_and_wait();
  good[threadIdx.x] = is_same;
}
