// `<cuda_pipeline.h>`, `<cuda/pipeline>` of one thread: copies to shared memory, in stages
#include <cuda/pipeline>
#include <cuda_pipeline.h>
extern "C" __global__ void probe(const unsigned *random, unsigned *good) {
  __shared__ uint4 copies[2][32];
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const uint4 *from = reinterpret_cast<const uint4 *>(random) + 32 * warp;
  __pipeline_memcpy_async(&copies[warp][lane], from + lane, sizeof(uint4));
  __pipeline_commit();
  __pipeline_wait_prior(0);
  const bool first = copies[warp][lane].y == random[128 * warp + 4 * lane + 1];
  auto pipe = cuda::make_pipeline();
  pipe.producer_acquire();
  cuda::memcpy_async(&copies[warp][lane], from + 31 - lane, sizeof(uint4), pipe);
  pipe.producer_commit();
  pipe.consumer_wait();
  good[threadIdx.x] = first && copies[warp][lane].z == random[128 * warp + 4 * (31 - lane) + 2];
  pipe.consumer_release();
}
