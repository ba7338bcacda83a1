// Integer SIMD: `__vadd2`, `__vadd4`, `__vmax*`, `__vabsdiff*`, `__vcmp*` and others, but
// `__vavgs*`; `__dp4a`, `__dp2a_*`
extern "C" __global__ void probe(const unsigned *random, unsigned *good) {
  const unsigned i = threadIdx.x, a = random[i], b = random[i + 64];
  unsigned sums = 0, more = 0, dot = 7;
  for (unsigned at = 0; at < 32; at += 8) {
    const unsigned x = a >> at & 0xff, y = b >> at & 0xff;
    sums |= ((x + y) & 0xff) << at;
    more |= (x > y ? 0xffu : 0u) << at;
    dot += x * y;
  }
  good[i] = __vadd4(a, b) == sums && __vcmpgtu4(a, b) == more && __dp4a(a, b, 7u) == dot &&
            __vmaxu2(a, b) == __vsub2(__vadd2(a, b), __vminu2(a, b)) &&
            __dp2a_lo(a, b, 0u) == (a & 0xffff) * (b & 0xff) + (a >> 16) * (b >> 8 & 0xff);
}
