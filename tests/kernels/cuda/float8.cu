// `<cuda_fp8.h>`: E4M3 and E5M2, single, in pairs and in fours; conversions, saturating or not
#include <cuda_fp8.h>
extern "C" __global__ void probe(const unsigned *random, unsigned *good) {
  const unsigned i = threadIdx.x, code = random[i] % 0x78;
  __nv_fp8_e4m3 a;
  a.__x = (__nv_fp8_storage_t)code;
  const __nv_fp8_e4m3 same((float)a), most(1e6f);
  const __nv_fp8x4_e5m2 four(make_float4(1.0f, -2.0f, 4.0f, 1e9f));
  const __nv_fp8_storage_t none = __nv_cvt_float_to_fp8(1e6f, __NV_NOSAT, __NV_E4M3);
  good[i] = same.__x == code && (float)most == 448.0f && four.__x == 0x7b44c03cu && (none & 0x7f) == 0x7f;
}
