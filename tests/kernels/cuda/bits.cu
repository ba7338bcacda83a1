// Bits: `__popc`, `__clz`, `__ffs`, `__brev`, `__byte_perm`, `__funnelshift_*`, `__fns`, `__mulhi`,
// `__sad`
extern "C" __global__ void probe(const unsigned *random, unsigned *good) {
  const unsigned i = threadIdx.x, x = random[i], y = random[i + 64];
  unsigned ones = 0, back = 0, first = 0;
  for (unsigned k = 0; k < 32; ++k) {
    ones += x >> k & 1;
    back |= (x >> k & 1) << (31 - k);
    if (first == 0 && (x >> k & 1)) first = k + 1;
  }
  good[i] = __popc(x) == (int)ones && __brev(x) == back && __ffs((int)x) == (int)first &&
            (x == 0 || __clz((int)x) == __ffs((int)back) - 1) && (x == 0 || __fns(x, 0, 1) == first - 1) &&
            __byte_perm(x, y, 0x5410) == ((x & 0xffff) | y << 16) && __funnelshift_l(x, y, 8) == (y << 8 | x >> 24) &&
            __umulhi(x, y) == (unsigned)((unsigned long long)x * y >> 32);
}
