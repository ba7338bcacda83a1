// `<cuda/atomic>`: `cuda::atomic`, `cuda::atomic_ref` in each scope, fences, `wait` and `notify`;
// of 1 to 8 bytes
#include <cuda/atomic>
extern "C" __global__ void probe(const unsigned *random, unsigned *good) {
  __shared__ unsigned words[2];
  if (threadIdx.x < 2) words[threadIdx.x] = 0;
  __syncthreads();
  cuda::atomic_ref<unsigned, cuda::thread_scope_block> sum(words[0]);
  cuda::atomic_ref<unsigned, cuda::thread_scope_device> turn(words[1]);
  sum.fetch_add(random[threadIdx.x], cuda::memory_order_relaxed);
  turn.fetch_add(1, cuda::memory_order_release);
  turn.notify_all();
  for (unsigned seen; (seen = turn.load(cuda::memory_order_acquire)) != 64;) turn.wait(seen);
  cuda::atomic_thread_fence(cuda::memory_order_seq_cst, cuda::thread_scope_device);
  unsigned want = 0;
  for (int i = 0; i < 64; ++i) want += random[i];
  good[threadIdx.x] = sum.load() == want;
}
