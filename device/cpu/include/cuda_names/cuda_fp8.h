/* CUDA's 8-bit floats on the CPU: E4M3 and E5M2, alone, in pairs and in fours. (CUDA Math API, FP8; OCP
 * "8-bit Floating Point Specification".) E4M3 has 4 bits of exponent, 3 of mantissa, no infinity, and 448 as
 * its largest value; E5M2 has 5 and 2, and is the upper half of a binary16. Conversions round to nearest,
 * ties to even. What is too large becomes the largest value under __NV_SATFINITE; under __NV_NOSAT it becomes
 * E4M3's NaN or E5M2's infinity. */
#ifndef RUSHMEM_CPU_CUDA_FP8_H
#define RUSHMEM_CPU_CUDA_FP8_H

#include <cuda_bf16.h>
#include <cuda_fp16.h>

typedef unsigned char __nv_fp8_storage_t;
typedef unsigned short __nv_fp8x2_storage_t;
typedef unsigned int __nv_fp8x4_storage_t;
enum __nv_saturation_t { __NV_NOSAT, __NV_SATFINITE };
enum __nv_fp8_interpretation_t { __NV_E4M3, __NV_E5M2 };

/* ---- bits ---- */

/* Rounds a double, which holds every float, half and bfloat16 exactly, once. */
static inline __nv_fp8_storage_t __nv_cvt_double_to_fp8(double value, __nv_saturation_t saturate,
                                                        __nv_fp8_interpretation_t format) {
  const int mantissa_bits = format == __NV_E4M3 ? 3 : 2, bias = format == __NV_E4M3 ? 7 : 15;
  const unsigned largest = format == __NV_E4M3 ? 0x7eu : 0x7bu, past_it = largest + 1u; /* NaN, infinity */
  const unsigned sign = std::signbit(value) ? 0x80u : 0u;
  if (value != value) return (__nv_fp8_storage_t)(0x7fu);
  const double size = std::fabs(value);
  unsigned bits = past_it;
  if (size < 131072.0) { /* 2^17, above both formats */
    int exponent = 1 - bias;
    if (size >= std::ldexp(1.0, exponent)) exponent = std::ilogb(size);
    /* In units of the last place; scaling by a power of two is exact. */
    const double scaled = std::ldexp(size, mantissa_bits - exponent), whole = std::floor(scaled);
    unsigned kept = (unsigned)whole;
    const double rest = scaled - whole;
    if (rest > 0.5 || (rest == 0.5 && (kept & 1u))) ++kept;
    bits = kept + ((unsigned)(exponent + bias - 1) << mantissa_bits); /* a carry goes into the exponent */
  }
  if (bits > largest) bits = saturate == __NV_SATFINITE ? largest : past_it;
  return (__nv_fp8_storage_t)(sign | bits);
}
static inline __nv_fp8_storage_t __nv_cvt_float_to_fp8(float value, __nv_saturation_t saturate,
                                                       __nv_fp8_interpretation_t format) {
  return __nv_cvt_double_to_fp8(value, saturate, format);
}
static inline __nv_fp8_storage_t __nv_cvt_halfraw_to_fp8(__half_raw value, __nv_saturation_t saturate,
                                                         __nv_fp8_interpretation_t format) {
  return __nv_cvt_float_to_fp8(__half2float(value), saturate, format);
}
static inline __nv_fp8_storage_t __nv_cvt_bfloat16raw_to_fp8(__nv_bfloat16_raw value,
                                                             __nv_saturation_t saturate,
                                                             __nv_fp8_interpretation_t format) {
  return __nv_cvt_float_to_fp8(__bfloat162float(value), saturate, format);
}
/* Exact: binary16 holds every value of both. */
static inline __half_raw __nv_cvt_fp8_to_halfraw(__nv_fp8_storage_t value, __nv_fp8_interpretation_t format) {
  const unsigned size = value & 0x7fu;
  if (size > (format == __NV_E4M3 ? 0x7eu : 0x7cu)) return __half_raw{0x7fff};
  if (format == __NV_E5M2) return __half_raw{(unsigned short)(value << 8)};
  const unsigned exponent = size >> 3, mantissa = size & 7u;
  const float exact =
      exponent ? std::ldexp((float)(8u + mantissa), (int)exponent - 10) : std::ldexp((float)mantissa, -9);
  return __half(value & 0x80u ? -exact : exact);
}

/* ---- two at once: the first in the low byte ---- */

static inline __nv_fp8x2_storage_t rushmem_cpu_fp8x2(unsigned low, unsigned high) {
  return (__nv_fp8x2_storage_t)(low | high << 8);
}
#define RUSHMEM_CPU_FP8X2(name, one, Pair)                                                                  \
  static inline __nv_fp8x2_storage_t name(Pair value, __nv_saturation_t saturate,                           \
                                          __nv_fp8_interpretation_t format) {                               \
    return rushmem_cpu_fp8x2(one(value.x, saturate, format), one(value.y, saturate, format));               \
  }
RUSHMEM_CPU_FP8X2(__nv_cvt_double2_to_fp8x2, __nv_cvt_double_to_fp8, double2)
RUSHMEM_CPU_FP8X2(__nv_cvt_float2_to_fp8x2, __nv_cvt_float_to_fp8, float2)
#undef RUSHMEM_CPU_FP8X2
static inline __nv_fp8x2_storage_t __nv_cvt_halfraw2_to_fp8x2(__half2_raw value, __nv_saturation_t saturate,
                                                              __nv_fp8_interpretation_t format) {
  return rushmem_cpu_fp8x2(__nv_cvt_halfraw_to_fp8(__half_raw{value.x}, saturate, format),
                           __nv_cvt_halfraw_to_fp8(__half_raw{value.y}, saturate, format));
}
static inline __nv_fp8x2_storage_t __nv_cvt_bfloat16raw2_to_fp8x2(__nv_bfloat162_raw value,
                                                                  __nv_saturation_t saturate,
                                                                  __nv_fp8_interpretation_t format) {
  return rushmem_cpu_fp8x2(__nv_cvt_bfloat16raw_to_fp8(__nv_bfloat16_raw{value.x}, saturate, format),
                           __nv_cvt_bfloat16raw_to_fp8(__nv_bfloat16_raw{value.y}, saturate, format));
}
static inline __half2_raw __nv_cvt_fp8x2_to_halfraw2(__nv_fp8x2_storage_t value,
                                                     __nv_fp8_interpretation_t format) {
  return __half2_raw{__nv_cvt_fp8_to_halfraw((__nv_fp8_storage_t)value, format).x,
                     __nv_cvt_fp8_to_halfraw((__nv_fp8_storage_t)(value >> 8), format).x};
}

/* ---- types ---- */

/* A cast that keeps to the type's range, NaN as 0: what CUDA's conversions to small integers do. */
template <class T> static inline T rushmem_cpu_fp8_to_small(float value) {
  const int whole = __float2int_rz(value), least = (T)-1 < (T)0 ? -128 : 0, most = (T)-1 < (T)0 ? 127 : 255;
  return (T)(whole < least ? least : whole > most ? most : whole);
}

/* `rushmem_cpu_fp8<__NV_E4M3>` is `__nv_fp8_e4m3`: constructors saturate. */
template <__nv_fp8_interpretation_t format> struct rushmem_cpu_fp8 {
  __nv_fp8_storage_t __x;

  rushmem_cpu_fp8() = default;
  explicit rushmem_cpu_fp8(double value) : __x(__nv_cvt_double_to_fp8(value, __NV_SATFINITE, format)) {}
  explicit rushmem_cpu_fp8(float value) : rushmem_cpu_fp8((double)value) {}
  explicit rushmem_cpu_fp8(__half value) : rushmem_cpu_fp8(__half2float(value)) {}
  explicit rushmem_cpu_fp8(__nv_bfloat16 value) : rushmem_cpu_fp8(__bfloat162float(value)) {}
  explicit rushmem_cpu_fp8(short value) : rushmem_cpu_fp8((float)value) {}
  explicit rushmem_cpu_fp8(unsigned short value) : rushmem_cpu_fp8((float)value) {}
  explicit rushmem_cpu_fp8(int value) : rushmem_cpu_fp8((float)value) {}
  explicit rushmem_cpu_fp8(unsigned value) : rushmem_cpu_fp8((float)value) {}
  explicit rushmem_cpu_fp8(long value) : rushmem_cpu_fp8((float)value) {}
  explicit rushmem_cpu_fp8(unsigned long value) : rushmem_cpu_fp8((float)value) {}
  explicit rushmem_cpu_fp8(long long value) : rushmem_cpu_fp8((float)value) {}
  explicit rushmem_cpu_fp8(unsigned long long value) : rushmem_cpu_fp8((float)value) {}

  explicit operator __half() const { return __nv_cvt_fp8_to_halfraw(__x, format); }
  explicit operator float() const { return __half2float(__nv_cvt_fp8_to_halfraw(__x, format)); }
  explicit operator double() const { return (float)*this; }
  explicit operator __nv_bfloat16() const { return __float2bfloat16((float)*this); }
  explicit operator bool() const { return (__x & 0x7fu) != 0; }
  explicit operator char() const { return rushmem_cpu_fp8_to_small<char>((float)*this); }
  explicit operator signed char() const { return rushmem_cpu_fp8_to_small<signed char>((float)*this); }
  explicit operator unsigned char() const { return rushmem_cpu_fp8_to_small<unsigned char>((float)*this); }
  explicit operator short() const { return __half2short_rz((__half)*this); }
  explicit operator unsigned short() const { return __half2ushort_rz((__half)*this); }
  explicit operator int() const { return __float2int_rz((float)*this); }
  explicit operator unsigned() const { return __float2uint_rz((float)*this); }
  explicit operator long() const { return (long)__float2ll_rz((float)*this); }
  explicit operator unsigned long() const { return (unsigned long)__float2ull_rz((float)*this); }
  explicit operator long long() const { return __float2ll_rz((float)*this); }
  explicit operator unsigned long long() const { return __float2ull_rz((float)*this); }
};

template <__nv_fp8_interpretation_t format> struct alignas(2) rushmem_cpu_fp8x2_of {
  __nv_fp8x2_storage_t __x;

  rushmem_cpu_fp8x2_of() = default;
  explicit rushmem_cpu_fp8x2_of(__half2 value)
      : __x(__nv_cvt_halfraw2_to_fp8x2(value, __NV_SATFINITE, format)) {}
  explicit rushmem_cpu_fp8x2_of(__nv_bfloat162 value)
      : __x(__nv_cvt_bfloat16raw2_to_fp8x2(value, __NV_SATFINITE, format)) {}
  explicit rushmem_cpu_fp8x2_of(float2 value)
      : __x(__nv_cvt_float2_to_fp8x2(value, __NV_SATFINITE, format)) {}
  explicit rushmem_cpu_fp8x2_of(double2 value)
      : __x(__nv_cvt_double2_to_fp8x2(value, __NV_SATFINITE, format)) {}

  explicit operator __half2() const { return __nv_cvt_fp8x2_to_halfraw2(__x, format); }
  explicit operator float2() const { return __half22float2((__half2)*this); }
};

template <__nv_fp8_interpretation_t format> struct alignas(4) rushmem_cpu_fp8x4_of {
  __nv_fp8x4_storage_t __x;

  rushmem_cpu_fp8x4_of() = default;
  explicit rushmem_cpu_fp8x4_of(double4 value)
      : __x(pack(__nv_cvt_double2_to_fp8x2(make_double2(value.x, value.y), __NV_SATFINITE, format),
                 __nv_cvt_double2_to_fp8x2(make_double2(value.z, value.w), __NV_SATFINITE, format))) {}
  explicit rushmem_cpu_fp8x4_of(float4 value)
      : rushmem_cpu_fp8x4_of(make_double4(value.x, value.y, value.z, value.w)) {}
  explicit rushmem_cpu_fp8x4_of(__half2 low, __half2 high)
      : __x(pack(__nv_cvt_halfraw2_to_fp8x2(low, __NV_SATFINITE, format),
                 __nv_cvt_halfraw2_to_fp8x2(high, __NV_SATFINITE, format))) {}
  explicit rushmem_cpu_fp8x4_of(__nv_bfloat162 low, __nv_bfloat162 high)
      : __x(pack(__nv_cvt_bfloat16raw2_to_fp8x2(low, __NV_SATFINITE, format),
                 __nv_cvt_bfloat16raw2_to_fp8x2(high, __NV_SATFINITE, format))) {}

  explicit operator float4() const {
    const float2 low = __half22float2(__nv_cvt_fp8x2_to_halfraw2((__nv_fp8x2_storage_t)__x, format)),
                 high = __half22float2(__nv_cvt_fp8x2_to_halfraw2((__nv_fp8x2_storage_t)(__x >> 16), format));
    return make_float4(low.x, low.y, high.x, high.y);
  }

 private:
  static __nv_fp8x4_storage_t pack(unsigned low, unsigned high) { return low | high << 16; }
};

typedef rushmem_cpu_fp8<__NV_E4M3> __nv_fp8_e4m3;
typedef rushmem_cpu_fp8<__NV_E5M2> __nv_fp8_e5m2;
typedef rushmem_cpu_fp8x2_of<__NV_E4M3> __nv_fp8x2_e4m3;
typedef rushmem_cpu_fp8x2_of<__NV_E5M2> __nv_fp8x2_e5m2;
typedef rushmem_cpu_fp8x4_of<__NV_E4M3> __nv_fp8x4_e4m3;
typedef rushmem_cpu_fp8x4_of<__NV_E5M2> __nv_fp8x4_e5m2;

#endif
