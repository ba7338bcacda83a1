/* Reads the GPU's clock when the host asks, several times: how a traced run finds out how far the two clocks
 * are apart (host/runtime/src/trace/gpu_clock.rs). One thread; `words` are in pinned host memory and 0 at
 * first. The host counts up word 0; the answer to its i-th question, from 1, is word 7 + i. Ends after
 * `limit_ns`, whatever the host does. */

namespace {

__device__ __forceinline__ unsigned long long clock_now() {
  unsigned long long now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now)::"memory");
  return now;
}

}  // namespace

extern "C" __global__ void rushmem_trace_clock(volatile unsigned long long *words, unsigned long long questions,
                                               unsigned long long limit_ns) {
  const unsigned long long start = clock_now();
  for (unsigned long long i = 1; i <= questions; ++i) {
    while (words[0] < i) {
      if (clock_now() - start > limit_ns) return;
    }
    words[7 + i] = clock_now();
  }
}
