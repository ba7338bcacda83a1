// Vector types, `make_*`, loads and stores of them with cache hints (`__ldg`, `__ldcv`, `__stcs`
// ...), `atomicAdd` of `float2`, `float4`
extern "C" __global__ void probe(const unsigned *random, unsigned *good) {
  __shared__ uint4 words[64];
  const unsigned i = threadIdx.x;
  const uint4 v = __ldg(reinterpret_cast<const uint4 *>(random) + i);
  if (i < 16) __stcs(reinterpret_cast<uint4 *>(good) + i, make_uint4(0, 0, 0, 0));
  words[i] = make_uint4(v.w, v.z, v.y, v.x);
  __syncthreads();
  const dim3 shape(2, 3);
  good[i] = words[i].x == random[4 * i + 3] && __ldcg(reinterpret_cast<const uint2 *>(random) + i).y == random[2 * i + 1] &&
            shape.z == 1 && sizeof(float4) == 16 && alignof(float4) == 16 && sizeof(float3) == 12;
}
