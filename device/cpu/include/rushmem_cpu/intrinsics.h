/* CUDA's integer and floating-point intrinsics, bit casts, conversions, and min and max with CUDA's
 * overloads. The fast-math forms compute the ordinary function. */
#ifndef RUSHMEM_CPU_INTRINSICS_H
#define RUSHMEM_CPU_INTRINSICS_H

#include <cmath>
#include <limits.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

static inline int __popc(unsigned x) { return __builtin_popcount(x); }
static inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
static inline int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
static inline int __clzll(long long x) { return x ? __builtin_clzll((unsigned long long)x) : 64; }
static inline int __ffs(int x) { return __builtin_ffs(x); }
static inline int __ffsll(long long x) { return __builtin_ffsll(x); }
static inline unsigned long long __brevll(unsigned long long x) {
  x = (x >> 1 & 0x5555555555555555ull) | (x & 0x5555555555555555ull) << 1;
  x = (x >> 2 & 0x3333333333333333ull) | (x & 0x3333333333333333ull) << 2;
  x = (x >> 4 & 0x0f0f0f0f0f0f0f0full) | (x & 0x0f0f0f0f0f0f0f0full) << 4;
  return __builtin_bswap64(x);
}
static inline unsigned __brev(unsigned x) { return (unsigned)(__brevll(x) >> 32); }
static inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
  uint64_t bytes = (uint64_t)y << 32 | x;
  unsigned out = 0;
  for (unsigned i = 0; i < 4; ++i) {
    unsigned pick = selector >> (4 * i), byte = (unsigned)(bytes >> (8 * (pick & 7u))) & 0xffu;
    if (pick & 8u) byte = byte & 0x80u ? 0xffu : 0u;
    out |= byte << (8 * i);
  }
  return out;
}
static inline unsigned __funnelshift_l(unsigned lo, unsigned hi, unsigned shift) {
  return (unsigned)((((uint64_t)hi << 32 | lo) << (shift & 31u)) >> 32);
}
static inline unsigned __funnelshift_r(unsigned lo, unsigned hi, unsigned shift) {
  return (unsigned)(((uint64_t)hi << 32 | lo) >> (shift & 31u));
}
static inline unsigned __funnelshift_lc(unsigned lo, unsigned hi, unsigned shift) {
  return shift >= 32u ? lo : __funnelshift_l(lo, hi, shift);
}
static inline unsigned __funnelshift_rc(unsigned lo, unsigned hi, unsigned shift) {
  return shift >= 32u ? hi : __funnelshift_r(lo, hi, shift);
}
static inline int __mulhi(int a, int b) { return (int)((int64_t)a * b >> 32); }
static inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((uint64_t)a * b >> 32); }
static inline long long __mul64hi(long long a, long long b) { return (long long)((__int128)a * b >> 64); }
static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return (unsigned long long)((unsigned __int128)a * b >> 64);
}
static inline int __mul24(int a, int b) {
  return (int)((unsigned)((int)((unsigned)a << 8) >> 8) * (unsigned)((int)((unsigned)b << 8) >> 8));
}
static inline unsigned __umul24(unsigned a, unsigned b) { return (a & 0xffffffu) * (b & 0xffffffu); }
static inline unsigned __usad(unsigned a, unsigned b, unsigned c) { return (a > b ? a - b : b - a) + c; }
static inline unsigned __sad(int a, int b, unsigned c) {
  return (a > b ? (unsigned)a - (unsigned)b : (unsigned)b - (unsigned)a) + c;
}
static inline int __hadd(int a, int b) { return (int)(((int64_t)a + b) >> 1); }
static inline int __rhadd(int a, int b) { return (int)(((int64_t)a + b + 1) >> 1); }

#define RUSHMEM_CPU_CAST(name, From, To)    \
  static inline To name(From from) {        \
    To to;                                  \
    memcpy(&to, &from, sizeof to);          \
    return to;                              \
  }
RUSHMEM_CPU_CAST(__float_as_int, float, int)
RUSHMEM_CPU_CAST(__int_as_float, int, float)
RUSHMEM_CPU_CAST(__float_as_uint, float, unsigned)
RUSHMEM_CPU_CAST(__uint_as_float, unsigned, float)
RUSHMEM_CPU_CAST(__double_as_longlong, double, long long)
RUSHMEM_CPU_CAST(__longlong_as_double, long long, double)
#undef RUSHMEM_CPU_CAST
static inline int __double2hiint(double x) { return (int)(__double_as_longlong(x) >> 32); }
static inline int __double2loint(double x) { return (int)__double_as_longlong(x); }
static inline double __hiloint2double(int hi, int lo) {
  return __longlong_as_double((long long)((uint64_t)(unsigned)hi << 32 | (unsigned)lo));
}

/* Float to integer: NaN is 0 and what does not fit saturates, as on the GPU (a plain cast would be
 * undefined). */
template <class To, class From> static inline To rushmem_cpu_to_int(From x) {
  constexpr bool is_signed = (To)-1 < (To)0;
  constexpr unsigned bits = sizeof(To) * 8;
  const From limit = (From)std::ldexp(1.0, (int)bits - (is_signed ? 1 : 0));
  if (x != x) return 0;
  if (x >= limit) return is_signed ? (To)(((To)1 << (bits - 2)) - 1 + ((To)1 << (bits - 2))) : (To)-1;
  if (is_signed ? x < -limit : x <= 0)
    return is_signed ? (To)(-(((To)1 << (bits - 2)) - 1) - ((To)1 << (bits - 2)) - 1) : 0;
  return (To)x;
}
#define RUSHMEM_CPU_TO_INT(stem, From, To)                                                 \
  static inline To stem##_rz(From x) { return rushmem_cpu_to_int<To>(std::trunc(x)); }     \
  static inline To stem##_rn(From x) { return rushmem_cpu_to_int<To>(std::nearbyint(x)); } \
  static inline To stem##_rd(From x) { return rushmem_cpu_to_int<To>(std::floor(x)); }     \
  static inline To stem##_ru(From x) { return rushmem_cpu_to_int<To>(std::ceil(x)); }
RUSHMEM_CPU_TO_INT(__float2int, float, int)
RUSHMEM_CPU_TO_INT(__float2uint, float, unsigned)
RUSHMEM_CPU_TO_INT(__float2ll, float, long long)
RUSHMEM_CPU_TO_INT(__float2ull, float, unsigned long long)
RUSHMEM_CPU_TO_INT(__double2int, double, int)
RUSHMEM_CPU_TO_INT(__double2uint, double, unsigned)
RUSHMEM_CPU_TO_INT(__double2ll, double, long long)
RUSHMEM_CPU_TO_INT(__double2ull, double, unsigned long long)
#undef RUSHMEM_CPU_TO_INT
static inline float __int2float_rn(int x) { return (float)x; }
static inline float __uint2float_rn(unsigned x) { return (float)x; }
static inline float __ll2float_rn(long long x) { return (float)x; }
static inline float __ull2float_rn(unsigned long long x) { return (float)x; }
static inline double __int2double_rn(int x) { return x; }
static inline double __uint2double_rn(unsigned x) { return x; }
static inline double __ll2double_rn(long long x) { return (double)x; }
static inline double __ull2double_rn(unsigned long long x) { return (double)x; }
static inline float __double2float_rn(double x) { return (float)x; }

static inline float __fadd_rn(float a, float b) { return a + b; }
static inline float __fsub_rn(float a, float b) { return a - b; }
static inline float __fmul_rn(float a, float b) { return a * b; }
static inline float __fdiv_rn(float a, float b) { return a / b; }
static inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
static inline float __fsqrt_rn(float a) { return sqrtf(a); }
static inline float __frcp_rn(float a) { return 1.0f / a; }
static inline double __dadd_rn(double a, double b) { return a + b; }
static inline double __dsub_rn(double a, double b) { return a - b; }
static inline double __dmul_rn(double a, double b) { return a * b; }
static inline double __ddiv_rn(double a, double b) { return a / b; }
static inline double __fma_rn(double a, double b, double c) { return fma(a, b, c); }
static inline double __dsqrt_rn(double a) { return sqrt(a); }
static inline float __fdividef(float a, float b) { return a / b; }
static inline float __saturatef(float a) { return a > 0.0f ? (a < 1.0f ? a : 1.0f) : 0.0f; }
static inline float rsqrtf(float a) { return 1.0f / sqrtf(a); }
static inline double rsqrt(double a) { return 1.0 / sqrt(a); }
static inline float rsqrt(float a) { return rsqrtf(a); }
/* Macros: glibc declares functions of these names. */
#define __sinf(x) sinf(x)
#define __cosf(x) cosf(x)
#define __tanf(x) tanf(x)
#define __expf(x) expf(x)
#define __exp10f(x) powf(10.0f, (x))
#define __logf(x) logf(x)
#define __log2f(x) log2f(x)
#define __log10f(x) log10f(x)
#define __powf(x, y) powf((x), (y))

#define RUSHMEM_CPU_MINMAX(A, B, T)                                                        \
  static inline T min(A a, B b) { return (T)a < (T)b ? (T)a : (T)b; }                      \
  static inline T max(A a, B b) { return (T)a > (T)b ? (T)a : (T)b; }
RUSHMEM_CPU_MINMAX(int, int, int)
RUSHMEM_CPU_MINMAX(unsigned, unsigned, unsigned)
RUSHMEM_CPU_MINMAX(int, unsigned, unsigned)
RUSHMEM_CPU_MINMAX(unsigned, int, unsigned)
RUSHMEM_CPU_MINMAX(long, long, long)
RUSHMEM_CPU_MINMAX(unsigned long, unsigned long, unsigned long)
RUSHMEM_CPU_MINMAX(long, unsigned long, unsigned long)
RUSHMEM_CPU_MINMAX(unsigned long, long, unsigned long)
RUSHMEM_CPU_MINMAX(long long, long long, long long)
RUSHMEM_CPU_MINMAX(unsigned long long, unsigned long long, unsigned long long)
RUSHMEM_CPU_MINMAX(long long, unsigned long long, unsigned long long)
RUSHMEM_CPU_MINMAX(unsigned long long, long long, unsigned long long)
#undef RUSHMEM_CPU_MINMAX
#define RUSHMEM_CPU_MINMAX(A, B, T, suffix)                                                \
  static inline T min(A a, B b) { return fmin##suffix((T)a, (T)b); }                       \
  static inline T max(A a, B b) { return fmax##suffix((T)a, (T)b); }
RUSHMEM_CPU_MINMAX(float, float, float, f)
RUSHMEM_CPU_MINMAX(double, double, double, )
RUSHMEM_CPU_MINMAX(float, double, double, )
RUSHMEM_CPU_MINMAX(double, float, double, )
#undef RUSHMEM_CPU_MINMAX

#endif
