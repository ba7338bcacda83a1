/* 16-bit floats by their bits: IEEE 754 binary16 (5 bits of exponent, 10 of mantissa) and bfloat16 (8 and
 * 7). A result is rounded once, from a double that is exact, or rounded to odd where no double is: with two
 * bits more than the target's, rounding such a double again gives the exact value's rounding (Boldo and
 * Melquiond, "Emulation of FMA and correctly rounded sums", 2008). */
#ifndef RUSHMEM_CPU_FLOAT16_BITS_H
#define RUSHMEM_CPU_FLOAT16_BITS_H

#include <stdint.h>
#include <string.h>

/* CUDA's suffixes: to nearest, ties to even; to zero; up; down. */
enum rushmem_cpu_rounding { RUSHMEM_CPU_RN, RUSHMEM_CPU_RZ, RUSHMEM_CPU_RU, RUSHMEM_CPU_RD };

/* a * b + c, rounded to odd; a * b is exact, as products of 16-bit floats are. */
static inline double rushmem_cpu_fma_to_odd(double a, double b, double c) {
  const double product = a * b, sum = product + c;
  if (!(sum - sum == 0)) return sum; /* infinite, or no number */
  const double added = sum - product;
  const double lost = (product - (sum - added)) + (c - added);
  if (lost == 0) return sum;
  uint64_t bits;
  memcpy(&bits, &sum, sizeof bits);
  if (!(bits & 1)) bits += (lost > 0) == (sum > 0) ? 1 : -1;
  double odd;
  memcpy(&odd, &bits, sizeof odd);
  return odd;
}

/* An integer, rounded to odd. */
static inline double rushmem_cpu_to_odd(unsigned long long value) {
  if (value >> 53 == 0) return (double)value;
  return (double)(value >> 11 | ((value & 0x7ff) != 0)) * 2048.0;
}
static inline double rushmem_cpu_to_odd(long long value) {
  const unsigned long long size = value < 0 ? 0ull - (unsigned long long)value : (unsigned long long)value;
  return value < 0 ? -rushmem_cpu_to_odd(size) : rushmem_cpu_to_odd(size);
}

template <int exponent_bits, int mantissa_bits> struct rushmem_cpu_float16_format {
  static constexpr int bias = (1 << (exponent_bits - 1)) - 1;
  static constexpr int64_t infinity = ((int64_t{1} << exponent_bits) - 1) << mantissa_bits;

  static unsigned short narrow(double value, rushmem_cpu_rounding mode = RUSHMEM_CPU_RN) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    const bool negative = bits >> 63;
    const unsigned short sign = negative ? 0x8000 : 0;
    const int field = (int)(bits >> 52 & 0x7ff);
    uint64_t mantissa = bits & ((uint64_t{1} << 52) - 1);
    if (field == 0x7ff) return mantissa ? 0x7fff : (unsigned short)(sign | infinity); /* CUDA's NaN */
    if (field) mantissa |= uint64_t{1} << 52;
    const int exponent = (field ? field : 1) - 1023;
    const int64_t scale = exponent + bias > 1 ? exponent + bias : 1; /* 1: of subnormals, too */
    const int64_t dropped = 52 - mantissa_bits + (scale - bias - exponent);
    int64_t kept = 0;
    uint64_t rest = mantissa, tie = uint64_t{1} << 53; /* all of it is less than half of a last place */
    if (dropped < 54) {
      kept = (int64_t)(mantissa >> dropped);
      rest = mantissa & ((uint64_t{1} << dropped) - 1);
      tie = uint64_t{1} << (dropped - 1);
    }
    const bool away = mode == RUSHMEM_CPU_RU ? !negative : mode == RUSHMEM_CPU_RD ? negative : false;
    if (mode == RUSHMEM_CPU_RN ? rest > tie || (rest == tie && (kept & 1)) : away && rest) ++kept;
    int64_t result = kept + ((scale - 1) << mantissa_bits); /* a carry goes into the exponent */
    if (result >= infinity) result = mode == RUSHMEM_CPU_RN || away ? infinity : infinity - 1;
    return (unsigned short)(sign | result);
  }

  static float widen(unsigned short bits) {
    const uint32_t sign = (uint32_t)(bits & 0x8000) << 16, magnitude = bits & 0x7fffu;
    uint32_t wide = magnitude << (23 - mantissa_bits); /* bfloat16 is the upper half of a float */
    if constexpr (exponent_bits != 8) {
      if (magnitude >> mantissa_bits == 0) { /* zero, subnormal */
        const float value = (float)magnitude / (float)(1u << (bias - 1 + mantissa_bits));
        return sign ? -value : value;
      }
      wide = magnitude >= infinity ? 0x7f800000u | (wide & 0x7fffffu) : wide + ((uint32_t)(127 - bias) << 23);
    }
    wide |= sign;
    float value;
    memcpy(&value, &wide, sizeof value);
    return value;
  }

  static unsigned short sum(unsigned short a, unsigned short b) {
    return narrow(rushmem_cpu_fma_to_odd(widen(a), 1, widen(b)));
  }
};
using rushmem_cpu_half_format = rushmem_cpu_float16_format<5, 10>;
using rushmem_cpu_bfloat16_format = rushmem_cpu_float16_format<8, 7>;

#endif
