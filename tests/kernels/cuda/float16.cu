// `<cuda_fp16.h>`, `<cuda_bf16.h>`: `__half`, `__nv_bfloat16`, pairs, arithmetic, atomics, shuffles
#include <cuda_bf16.h>
#include <cuda_fp16.h>
extern "C" __global__ void probe(const unsigned *random, unsigned *good) {
  const unsigned i = threadIdx.x, k = random[i] % 100;
  const __half2 a = __floats2half2_rn((float)k, 0.5f);
  const __nv_bfloat16 b = __float2bfloat16((float)k);
  const __half2 next = __shfl_xor_sync(~0u, __hadd2(a, a), 0);
  good[i] = __low2float(next) == 2.0f * k && __high2float(next) == 1.0f && __bfloat162float(b) == (float)k;
}
