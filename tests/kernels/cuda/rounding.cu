// Arithmetic and conversions in each direction: `__fadd_rz`, `__fmaf_ru`, `__dmul_rd`,
// `__double2float_rd`, `__int2float_rz`
extern "C" __global__ void probe(const unsigned *random, unsigned *good) {
  const unsigned i = threadIdx.x;
  const float a = 1.0f + (float)(random[i] % 1000), b = 1e-9f;
  const double d = a + 1e-12;
  good[i] = __fadd_rz(a, b) == a && __fadd_rd(a, b) == a && __fadd_ru(a, b) > a && __fadd_rn(a, b) == a &&
            __fmaf_ru(a, 1.0f, b) > a && __dmul_rd(d, 1 / 3.0) < __dmul_ru(d, 1 / 3.0) &&
            __double2float_rd(-d) < -a && __double2float_rz(-d) == -a && __int2float_rz(0x7fffffff) < 2147483648.0f;
}
