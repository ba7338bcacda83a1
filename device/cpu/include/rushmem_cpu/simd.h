/* CUDA's integer SIMD: words of two halves or four bytes, and dot products (CUDA Math API, "SIMD
 * Intrinsics"; PTX dp4a, dp2a). Names end in 2 or 4 parts, behind s for signed and u for unsigned ones. */
#ifndef RUSHMEM_CPU_SIMD_H
#define RUSHMEM_CPU_SIMD_H

#include <stdint.h>

#include "rushmem_cpu/vector_types.h"

/* `f` of each pair of parts of `Part`, whose result is cut to the part. */
template <class Part, class F> static inline unsigned rushmem_cpu_parts(unsigned a, unsigned b, F f) {
  constexpr unsigned bits = 8 * sizeof(Part), mask = bits == 8 ? 0xffu : 0xffffu;
  unsigned out = 0;
  for (unsigned at = 0; at < 32; at += bits) {
    const int x = (Part)(a >> at & mask), y = (Part)(b >> at & mask);
    out |= ((unsigned)f(x, y) & mask) << at;
  }
  return out;
}
/* The sum of `f` over parts. */
template <class Part, class F> static inline unsigned rushmem_cpu_over_parts(unsigned a, unsigned b, F f) {
  constexpr unsigned bits = 8 * sizeof(Part), mask = bits == 8 ? 0xffu : 0xffffu;
  unsigned sum = 0;
  for (unsigned at = 0; at < 32; at += bits)
    sum += (unsigned)f((int)(Part)(a >> at & mask), (int)(Part)(b >> at & mask));
  return sum;
}
template <class Part> static inline int rushmem_cpu_clamp_part(int x) {
  constexpr bool is_signed = (Part)-1 < (Part)0;
  constexpr int bits = 8 * (int)sizeof(Part), most = (1 << (bits - is_signed)) - 1,
                least = is_signed ? -most - 1 : 0;
  return x < least ? least : x > most ? most : x;
}

#define RUSHMEM_CPU_SIMD(name, Part, expression)                                                   \
  static inline unsigned name(unsigned a, unsigned b) {                                            \
    using part = Part;                                                                             \
    return rushmem_cpu_parts<part>(a, b, [](int x, int y) -> int { return (expression); });        \
  }
#define RUSHMEM_CPU_SIMD_ONE(name, Part, expression)                                               \
  static inline unsigned name(unsigned a) {                                                        \
    using part = Part;                                                                             \
    return rushmem_cpu_parts<part>(a, 0, [](int x, int) -> int { return (expression); });          \
  }
/* In two parts and in four, signed or unsigned. */
#define RUSHMEM_CPU_SIMD_S(stem, expression)        \
  RUSHMEM_CPU_SIMD(stem##2, int16_t, expression)    \
  RUSHMEM_CPU_SIMD(stem##4, int8_t, expression)
#define RUSHMEM_CPU_SIMD_U(stem, expression)        \
  RUSHMEM_CPU_SIMD(stem##2, uint16_t, expression)   \
  RUSHMEM_CPU_SIMD(stem##4, uint8_t, expression)

RUSHMEM_CPU_SIMD_U(__vadd, x + y)
RUSHMEM_CPU_SIMD_U(__vsub, x - y)
RUSHMEM_CPU_SIMD_S(__vaddss, rushmem_cpu_clamp_part<part>(x + y))
RUSHMEM_CPU_SIMD_U(__vaddus, rushmem_cpu_clamp_part<part>(x + y))
RUSHMEM_CPU_SIMD_S(__vsubss, rushmem_cpu_clamp_part<part>(x - y))
RUSHMEM_CPU_SIMD_U(__vsubus, rushmem_cpu_clamp_part<part>(x - y))
RUSHMEM_CPU_SIMD_S(__vmaxs, x > y ? x : y)
RUSHMEM_CPU_SIMD_U(__vmaxu, x > y ? x : y)
RUSHMEM_CPU_SIMD_S(__vmins, x < y ? x : y)
RUSHMEM_CPU_SIMD_U(__vminu, x < y ? x : y)
/* Averages: rounded up; rounded down. Signed ones are missing: how they round is not documented. */
RUSHMEM_CPU_SIMD_U(__vavgu, (x + y + 1) >> 1)
RUSHMEM_CPU_SIMD_U(__vhaddu, (x + y) >> 1)
RUSHMEM_CPU_SIMD_S(__vabsdiffs, x > y ? x - y : y - x)
RUSHMEM_CPU_SIMD_U(__vabsdiffu, x > y ? x - y : y - x)
/* Comparisons: all bits of a part (vcmp), or its lowest (vset). */
#define RUSHMEM_CPU_SIMD_COMPARE(name, XX, op)            \
  RUSHMEM_CPU_SIMD_##XX(__vcmp##name, x op y ? -1 : 0)    \
  RUSHMEM_CPU_SIMD_##XX(__vset##name, x op y)
RUSHMEM_CPU_SIMD_COMPARE(eq, U, ==)
RUSHMEM_CPU_SIMD_COMPARE(ne, U, !=)
RUSHMEM_CPU_SIMD_COMPARE(ges, S, >=)
RUSHMEM_CPU_SIMD_COMPARE(geu, U, >=)
RUSHMEM_CPU_SIMD_COMPARE(gts, S, >)
RUSHMEM_CPU_SIMD_COMPARE(gtu, U, >)
RUSHMEM_CPU_SIMD_COMPARE(les, S, <=)
RUSHMEM_CPU_SIMD_COMPARE(leu, U, <=)
RUSHMEM_CPU_SIMD_COMPARE(lts, S, <)
RUSHMEM_CPU_SIMD_COMPARE(ltu, U, <)
#undef RUSHMEM_CPU_SIMD_COMPARE
/* The least part of both signs has no opposite: `abs` and `neg` leave it, the forms with ss saturate. */
RUSHMEM_CPU_SIMD_ONE(__vabs2, int16_t, x < 0 ? -x : x)
RUSHMEM_CPU_SIMD_ONE(__vabs4, int8_t, x < 0 ? -x : x)
RUSHMEM_CPU_SIMD_ONE(__vabsss2, int16_t, rushmem_cpu_clamp_part<part>(x < 0 ? -x : x))
RUSHMEM_CPU_SIMD_ONE(__vabsss4, int8_t, rushmem_cpu_clamp_part<part>(x < 0 ? -x : x))
RUSHMEM_CPU_SIMD_ONE(__vneg2, int16_t, -x)
RUSHMEM_CPU_SIMD_ONE(__vneg4, int8_t, -x)
RUSHMEM_CPU_SIMD_ONE(__vnegss2, int16_t, rushmem_cpu_clamp_part<part>(-x))
RUSHMEM_CPU_SIMD_ONE(__vnegss4, int8_t, rushmem_cpu_clamp_part<part>(-x))
#undef RUSHMEM_CPU_SIMD
#undef RUSHMEM_CPU_SIMD_ONE
#undef RUSHMEM_CPU_SIMD_S
#undef RUSHMEM_CPU_SIMD_U

#define RUSHMEM_CPU_SAD(name, Part)                                                                \
  static inline unsigned name(unsigned a, unsigned b) {                                            \
    return rushmem_cpu_over_parts<Part>(a, b, [](int x, int y) { return x > y ? x - y : y - x; }); \
  }
RUSHMEM_CPU_SAD(__vsads2, int16_t)
RUSHMEM_CPU_SAD(__vsads4, int8_t)
RUSHMEM_CPU_SAD(__vsadu2, uint16_t)
RUSHMEM_CPU_SAD(__vsadu4, uint8_t)
#undef RUSHMEM_CPU_SAD

/* Dot products that are added to `c`: of four bytes; of two halves of `a` with the lower or the upper two
 * bytes of `b`. */
static inline int __dp4a(int a, int b, int c) {
  return (int)((unsigned)c +
               rushmem_cpu_over_parts<int8_t>((unsigned)a, (unsigned)b, [](int x, int y) { return x * y; }));
}
static inline unsigned __dp4a(unsigned a, unsigned b, unsigned c) {
  return c + rushmem_cpu_over_parts<uint8_t>(a, b, [](int x, int y) { return x * y; });
}
static inline int __dp2a_lo(int a, int b, int c) {
  return (int)((unsigned)c + (unsigned)((int16_t)a * (int8_t)b) +
               (unsigned)((int16_t)(a >> 16) * (int8_t)(b >> 8)));
}
static inline int __dp2a_hi(int a, int b, int c) { return __dp2a_lo(a, b >> 16, c); }
static inline unsigned __dp2a_lo(unsigned a, unsigned b, unsigned c) {
  return c + (a & 0xffffu) * (b & 0xffu) + (a >> 16) * (b >> 8 & 0xffu);
}
static inline unsigned __dp2a_hi(unsigned a, unsigned b, unsigned c) { return __dp2a_lo(a, b >> 16, c); }

/* The same of vectors. */
#define RUSHMEM_CPU_WORD_OF(v) rushmem_cpu_word_of(&(v), sizeof(v))
static inline unsigned rushmem_cpu_word_of(const void *at, size_t bytes) {
  unsigned word = 0;
  __builtin_memcpy(&word, at, bytes);
  return word;
}
static inline int __dp4a(char4 a, char4 b, int c) {
  return __dp4a((int)RUSHMEM_CPU_WORD_OF(a), (int)RUSHMEM_CPU_WORD_OF(b), c);
}
static inline unsigned __dp4a(uchar4 a, uchar4 b, unsigned c) {
  return __dp4a(RUSHMEM_CPU_WORD_OF(a), RUSHMEM_CPU_WORD_OF(b), c);
}
static inline int __dp2a_lo(short2 a, char4 b, int c) {
  return __dp2a_lo((int)RUSHMEM_CPU_WORD_OF(a), (int)RUSHMEM_CPU_WORD_OF(b), c);
}
static inline int __dp2a_hi(short2 a, char4 b, int c) {
  return __dp2a_hi((int)RUSHMEM_CPU_WORD_OF(a), (int)RUSHMEM_CPU_WORD_OF(b), c);
}
static inline unsigned __dp2a_lo(ushort2 a, uchar4 b, unsigned c) {
  return __dp2a_lo(RUSHMEM_CPU_WORD_OF(a), RUSHMEM_CPU_WORD_OF(b), c);
}
static inline unsigned __dp2a_hi(ushort2 a, uchar4 b, unsigned c) {
  return __dp2a_hi(RUSHMEM_CPU_WORD_OF(a), RUSHMEM_CPU_WORD_OF(b), c);
}
#undef RUSHMEM_CPU_WORD_OF

#endif
