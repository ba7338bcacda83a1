/* CUDA's mathematical functions that C++'s library lacks (CUDA Math API), arithmetic in the other rounding
 * directions, and conversions so rounded. Functions of floats are rounded from the double's. */
#ifndef RUSHMEM_CPU_MATH_FUNCTIONS_H
#define RUSHMEM_CPU_MATH_FUNCTIONS_H

#include <cfenv>
#include <cmath>
#include <stdint.h>

#include "rushmem_cpu/intrinsics.h"

/* ---- directed rounding ---- */

/* `expression` under a rounding direction of the processor. Operands and result pass through volatile
 * variables, as compilers move arithmetic across fesetround() otherwise. */
#define RUSHMEM_CPU_DIRECTED(T, mode, expression)    \
  const int before = fegetround();                   \
  fesetround(mode);                                  \
  volatile T result = (T)(expression);               \
  fesetround(before);                                \
  return result;
#define RUSHMEM_CPU_BINARY(name, T, suffix, mode, op)              \
  static inline T name##_##suffix(T a, T b) {                      \
    volatile T x = a, y = b;                                       \
    RUSHMEM_CPU_DIRECTED(T, mode, x op y)                          \
  }
#define RUSHMEM_CPU_ARITHMETIC(p, T, fma_name, fma_call, sqrt_call, suffix, mode)                     \
  RUSHMEM_CPU_BINARY(__##p##add, T, suffix, mode, +)                                                  \
  RUSHMEM_CPU_BINARY(__##p##sub, T, suffix, mode, -)                                                  \
  RUSHMEM_CPU_BINARY(__##p##mul, T, suffix, mode, *)                                                  \
  RUSHMEM_CPU_BINARY(__##p##div, T, suffix, mode, /)                                                  \
  static inline T fma_name##_##suffix(T a, T b, T c) {                                                \
    volatile T x = a, y = b, z = c;                                                                   \
    RUSHMEM_CPU_DIRECTED(T, mode, fma_call(x, y, z))                                                  \
  }                                                                                                   \
  static inline T __##p##sqrt_##suffix(T a) {                                                         \
    volatile T x = a;                                                                                 \
    RUSHMEM_CPU_DIRECTED(T, mode, sqrt_call(x))                                                       \
  }                                                                                                   \
  static inline T __##p##rcp_##suffix(T a) {                                                          \
    volatile T one = 1, x = a;                                                                        \
    RUSHMEM_CPU_DIRECTED(T, mode, one / x)                                                            \
  }
#define RUSHMEM_CPU_NARROWED(name, From, To, suffix, mode) \
  static inline To name##_##suffix(From a) {               \
    volatile From x = a;                                   \
    RUSHMEM_CPU_DIRECTED(To, mode, x)                      \
  }
#define RUSHMEM_CPU_DIRECTION(suffix, mode)                                        \
  RUSHMEM_CPU_ARITHMETIC(f, float, __fmaf, fmaf, sqrtf, suffix, mode)              \
  RUSHMEM_CPU_ARITHMETIC(d, double, __fma, fma, sqrt, suffix, mode)                \
  RUSHMEM_CPU_NARROWED(__double2float, double, float, suffix, mode)                \
  RUSHMEM_CPU_NARROWED(__int2float, int, float, suffix, mode)                      \
  RUSHMEM_CPU_NARROWED(__uint2float, unsigned, float, suffix, mode)                \
  RUSHMEM_CPU_NARROWED(__ll2float, long long, float, suffix, mode)                 \
  RUSHMEM_CPU_NARROWED(__ull2float, unsigned long long, float, suffix, mode)       \
  RUSHMEM_CPU_NARROWED(__ll2double, long long, double, suffix, mode)               \
  RUSHMEM_CPU_NARROWED(__ull2double, unsigned long long, double, suffix, mode)
RUSHMEM_CPU_DIRECTION(rz, FE_TOWARDZERO)
RUSHMEM_CPU_DIRECTION(ru, FE_UPWARD)
RUSHMEM_CPU_DIRECTION(rd, FE_DOWNWARD)
#undef RUSHMEM_CPU_DIRECTION
#undef RUSHMEM_CPU_NARROWED
#undef RUSHMEM_CPU_ARITHMETIC
#undef RUSHMEM_CPU_BINARY
#undef RUSHMEM_CPU_DIRECTED
static inline double __drcp_rn(double a) { return 1.0 / a; }
static inline float __frsqrt_rn(float a) { return (float)(1.0 / sqrt((double)a)); }
static inline float fdividef(float a, float b) { return a / b; }

/* ---- functions ---- */

/* sin(pi x): the argument is reduced exactly, to at most a quarter of a turn. */
static inline double rushmem_cpu_sinpi(double x) {
  if (!(x - x == 0)) return NAN;
  const double pi = 3.14159265358979323846;
  const double turn = std::fmod(std::fabs(x), 2.0); /* 0 to 2 */
  const double half = turn >= 1 ? turn - 1 : turn; /* 0 to 1, with the sign changed past 1 */
  const double size = half > 0.5 ? 1 - half : half; /* exact */
  const double sine = size > 0.25 ? std::cos(pi * (0.5 - size)) : std::sin(pi * size);
  const bool negative = turn >= 1 && sine != 0;
  return std::copysign(1.0, x) * (negative ? -sine : sine);
}
static inline double rushmem_cpu_cospi(double x) {
  if (!(x - x == 0)) return NAN;
  const double pi = 3.14159265358979323846;
  const double turn = std::fmod(std::fabs(x), 2.0), half = turn > 1 ? 2 - turn : turn; /* 0 to 1 */
  if (half == 0.5) return 0;
  if (half < 0.25) return std::cos(pi * half);
  if (half > 0.75) return -std::cos(pi * (1 - half));
  return std::sin(pi * (0.5 - half));
}
static inline float rushmem_cpu_sinpif(float x) { return (float)rushmem_cpu_sinpi((double)x); }
static inline float rushmem_cpu_cospif(float x) { return (float)rushmem_cpu_cospi((double)x); }
static inline void sincospi(double x, double *sine, double *cosine) {
  *sine = rushmem_cpu_sinpi(x), *cosine = rushmem_cpu_cospi(x);
}
static inline void sincospif(float x, float *sine, float *cosine) {
  *sine = rushmem_cpu_sinpif(x), *cosine = rushmem_cpu_cospif(x);
}

/* Macros: glibc declares functions of these names, newer ones of the first four. */
#define sinpi(x) rushmem_cpu_sinpi(x)
#define cospi(x) rushmem_cpu_cospi(x)
#define sinpif(x) rushmem_cpu_sinpif(x)
#define cospif(x) rushmem_cpu_cospif(x)
#define __sincosf(x, sine, cosine) sincosf((x), (sine), (cosine))

static inline double rcbrt(double x) { return 1.0 / cbrt(x); }
static inline float rcbrtf(float x) { return (float)rcbrt((double)x); }
static inline double rhypot(double x, double y) { return 1.0 / hypot(x, y); }
static inline float rhypotf(float x, float y) { return (float)rhypot((double)x, (double)y); }
static inline double norm3d(double x, double y, double z) { return std::hypot(x, y, z); }
static inline float norm3df(float x, float y, float z) {
  return (float)norm3d((double)x, (double)y, (double)z);
}
static inline double rnorm3d(double x, double y, double z) { return 1.0 / norm3d(x, y, z); }
static inline float rnorm3df(float x, float y, float z) {
  return (float)rnorm3d((double)x, (double)y, (double)z);
}
static inline double norm4d(double x, double y, double z, double w) {
  return hypot(hypot(x, y), hypot(z, w));
}
static inline float norm4df(float x, float y, float z, float w) {
  return (float)norm4d((double)x, (double)y, (double)z, (double)w);
}
static inline double rnorm4d(double x, double y, double z, double w) { return 1.0 / norm4d(x, y, z, w); }
static inline float rnorm4df(float x, float y, float z, float w) {
  return (float)rnorm4d((double)x, (double)y, (double)z, (double)w);
}
/* Of n numbers, each by the largest of them, so that no square is too large or too small. */
static inline double norm(int n, const double *x) {
  double most = 0, sum = 0;
  for (int i = 0; i < n; ++i) {
    if (std::isinf(x[i])) return INFINITY;
    if (std::isnan(x[i])) sum = NAN;
    most = std::fmax(most, std::fabs(x[i]));
  }
  if (most == 0) return sum;
  for (int i = 0; i < n; ++i) sum += x[i] / most * (x[i] / most);
  return most * std::sqrt(sum);
}
static inline float normf(int n, const float *x) {
  double sum = 0; /* of squares of floats, none of which is out of a double's range */
  for (int i = 0; i < n; ++i) {
    if (std::isinf(x[i])) return INFINITY;
    sum += (double)x[i] * x[i];
  }
  return (float)std::sqrt(sum);
}
static inline double rnorm(int n, const double *x) { return 1.0 / norm(n, x); }
static inline float rnormf(int n, const float *x) { return 1.0f / normf(n, x); }

/* Modified Bessel functions of the first kind, orders 0 and 1, by their series, all of whose terms have one
 * sign (Abramowitz and Stegun, 9.6.10). */
static inline double rushmem_cpu_bessel_i(double x, int order) {
  const double half = x / 2;
  double term = order == 0 ? 1 : half, sum = term;
  if (std::isinf(x)) return order == 0 ? INFINITY : x;
  for (int k = 1; std::fabs(term) > std::fabs(sum) * 1e-17; ++k) {
    term *= half / k * (half / (k + order));
    sum += term;
  }
  return sum;
}
static inline double cyl_bessel_i0(double x) { return rushmem_cpu_bessel_i(x, 0); }
static inline double cyl_bessel_i1(double x) { return rushmem_cpu_bessel_i(x, 1); }
static inline float cyl_bessel_i0f(float x) { return (float)cyl_bessel_i0((double)x); }
static inline float cyl_bessel_i1f(float x) { return (float)cyl_bessel_i1((double)x); }

/* The normal distribution, by the function that keeps its digits in both tails. */
static inline double normcdf(double x) { return 0.5 * erfc(-x * 0.70710678118654752440); }
static inline float normcdff(float x) { return (float)normcdf((double)x); }
/* The inverse of erfc, by bisection; near 1 that of erf, which keeps the digits there. */
static inline double erfinv(double y);
static inline double erfcinv(double y) {
  if (!(y >= 0 && y <= 2)) return NAN;
  if (y == 0) return INFINITY;
  if (y == 2) return -INFINITY;
  if (y > 1) return -erfcinv(2 - y); /* exact, as 1 - y is */
  if (y > 0.5) return erfinv(1 - y);
  double low = 0, high = 28;          /* erfc(28) is below the smallest double */
  for (int i = 0; i < 60; ++i) {
    const double middle = (low + high) / 2;
    if (erfc(middle) > y) low = middle;
    else high = middle;
  }
  return (low + high) / 2;
}
/* By Newton's steps, each of which doubles the digits. */
static inline double erfinv(double y) {
  if (!(y >= -1 && y <= 1)) return NAN;
  const double size = std::fabs(y);
  if (size > 0.5) return std::copysign(erfcinv(1 - size), y);
  double x = size * 0.88622692545275801365;
  for (int i = 0; i < 8 && x > 0; ++i) x -= (erf(x) - size) * 0.88622692545275801365 * exp(x * x);
  return std::copysign(x, y);
}
static inline float erfcinvf(float y) { return (float)erfcinv((double)y); }
static inline float erfinvf(float y) { return (float)erfinv((double)y); }
static inline double normcdfinv(double y) { return -1.41421356237309504880 * erfcinv(2 * y); }
static inline float normcdfinvf(float y) { return (float)normcdfinv((double)y); }
/* exp(x^2) erfc(x); where erfc underflows, its continued fraction. */
static inline double erfcx(double x) {
  if (x < 10) return exp(x * x) * erfc(x);
  double fraction = x;
  for (int k = 60; k > 0; --k) fraction = x + k / 2.0 / fraction;
  return 0.56418958354775628695 / fraction;
}
static inline float erfcxf(float x) { return (float)erfcx((double)x); }

static inline unsigned umin(unsigned a, unsigned b) { return a < b ? a : b; }
static inline unsigned umax(unsigned a, unsigned b) { return a > b ? a : b; }
static inline long long llmin(long long a, long long b) { return a < b ? a : b; }
static inline long long llmax(long long a, long long b) { return a > b ? a : b; }
static inline unsigned long long ullmin(unsigned long long a, unsigned long long b) { return a < b ? a : b; }
static inline unsigned long long ullmax(unsigned long long a, unsigned long long b) { return a > b ? a : b; }
static inline unsigned __uhadd(unsigned a, unsigned b) { return (unsigned)(((uint64_t)a + b) >> 1); }
static inline unsigned __urhadd(unsigned a, unsigned b) { return (unsigned)(((uint64_t)a + b + 1) >> 1); }
/* The place of the `n`-th bit that is set: from `base` upwards, or downwards where n is negative; of 0,
 * `base` itself if it is set. ~0 where there is none. */
static inline unsigned __fns(unsigned mask, unsigned base, int n) {
  if (base > 31) return ~0u;
  if (n == 0) return mask >> base & 1u ? base : ~0u;
  int left = n < 0 ? -n : n;
  for (int at = (int)base; at >= 0 && at < 32; at += n < 0 ? -1 : 1)
    if ((mask >> at & 1u) && --left == 0) return (unsigned)at;
  return ~0u;
}

#endif
