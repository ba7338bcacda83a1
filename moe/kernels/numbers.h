/* Numbers of 16 and 8 bits, to and from f32: rounded to nearest, ties to even; fp8 saturates, as CUDA's
 * `satfinite` conversions do; what is no number becomes CUDA's. On GPUs by their instructions, on the CPU
 * device with the same bits.
 *
 * MOE_Y is the type of what experts produce, MOE_OUT that of their sums: 0 bf16, 1 fp16, 2 f32. MOE_CAST is
 * what dispatch makes of bf16: 0 nothing (bytes are sent as they are), 1 fp8 e4m3, 2 fp8 e5m2; MOE_SCALES how
 * it says the scales of fp8: 0 as f32, 1 as UE8M0, powers of two in a byte. */
#ifndef MOE_Y
#define MOE_Y 0
#endif
#ifndef MOE_OUT
#define MOE_OUT 0
#endif
#ifndef MOE_CAST
#define MOE_CAST 0
#endif
#ifndef MOE_SCALES
#define MOE_SCALES 0
#endif

#if defined(RUSHMEM_CPU)
#include <cuda_bf16.h>
#endif

namespace moe {

/* Which GPUs have instructions for fp8. */
#if !defined(RUSHMEM_CPU) && __CUDA_ARCH__ >= 890
#define MOE_HAS_FP8 1
#else
#define MOE_HAS_FP8 0
#endif

#if !MOE_HAS_FP8

/* A positive float's bits, rounded to a format of `mantissa` bits whose smallest normal has the exponent
 * field `least` of a float's. Too large is for the caller. */
__device__ inline uint32_t rounded(uint32_t a, uint32_t mantissa, uint32_t least) {
  const uint32_t exponent = a >> 23, drop = 23 - mantissa;
  if (exponent >= least) {
    a -= (least - 1) << 23;
    return (a + (1u << (drop - 1)) - 1 + (a >> drop & 1)) >> drop;
  }
  const uint32_t shift = drop + least - exponent;
  if (shift > 25) return 0;
  const uint32_t whole = (a & 0x7fffff) | (exponent ? 0x800000 : 0), kept = whole >> shift;
  const uint32_t rest = whole & ((1u << shift) - 1), half = 1u << (shift - 1);
  return kept + (rest > half || (rest == half && (kept & 1)) ? 1 : 0);
}
__device__ inline uint32_t to_fp8(float x) {
  constexpr bool e5m2 = MOE_CAST == 2;
  const uint32_t u = __float_as_uint(x), sign = u >> 24 & 0x80, a = u & 0x7fffffff;
  if (a > 0x7f800000) return 0x7f;
  if (a >= (e5m2 ? 0x47600000u : 0x43e00000u)) return sign | (e5m2 ? 0x7b : 0x7e); /* 57344, 448 */
  return sign | rounded(a, e5m2 ? 2 : 3, e5m2 ? 113 : 121);
}
__device__ inline uint32_t to_fp8_pair(float low, float high) { return to_fp8(low) | to_fp8(high) << 8; }

#endif
#if defined(RUSHMEM_CPU)

__device__ inline uint32_t to_half(float x) { return __half_as_ushort(__float2half(x)); }
__device__ inline uint32_t to_bf16(float x) { return __bfloat16_as_ushort(__float2bfloat16(x)); }
__device__ inline float from_half(uint32_t h) {
  return __half2float(__ushort_as_half(static_cast<unsigned short>(h)));
}
__device__ inline uint32_t to_bf16_pair(float low, float high) { return to_bf16(low) | to_bf16(high) << 16; }
__device__ inline uint32_t to_half_pair(float low, float high) { return to_half(low) | to_half(high) << 16; }

#else

#if MOE_HAS_FP8
__device__ inline uint32_t to_fp8_pair(float low, float high) {
  unsigned short both = 0;
#if MOE_CAST == 2
  asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(both) : "f"(high), "f"(low));
#elif MOE_CAST == 1
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(both) : "f"(high), "f"(low));
#endif
  return both;
}
#endif
__device__ inline uint32_t to_bf16_pair(float low, float high) {
  uint32_t both;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  return both;
}
__device__ inline uint32_t to_half_pair(float low, float high) {
  uint32_t both;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  return both;
}
__device__ inline float from_half(uint32_t h) {
  float x;
  asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(static_cast<unsigned short>(h)));
  return x;
}

#endif

__device__ inline float from_bf16(uint32_t b) { return __uint_as_float(b << 16); }

/* ---- eight numbers, as a thread has them ---- */

struct eight {
  float v[8];
};

__device__ inline eight eight_of_bf16(uint4 q) {
  const uint32_t w[4] = {q.x, q.y, q.z, q.w};
  eight out;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    out.v[2 * i] = from_bf16(w[i] & 0xffff);
    out.v[2 * i + 1] = __uint_as_float(w[i] & 0xffff0000);
  }
  return out;
}
/* 8 bytes of fp8, of eight numbers times `by`. */
__device__ inline uint64_t fp8_of(const eight &e, float by) {
  uint64_t out = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const uint32_t both = to_fp8_pair(__fmul_rn(e.v[2 * i], by), __fmul_rn(e.v[2 * i + 1], by));
    out |= static_cast<uint64_t>(both) << (16 * i);
  }
  return out;
}
__device__ inline float largest_of(const eight &e) {
  float most = 0;
#pragma unroll
  for (int i = 0; i < 8; ++i) most = fmaxf(most, fabsf(e.v[i]));
  return most;
}

/* The same of sixteen bf16 in 32 bytes; NaN if all of them are. */
#if defined(RUSHMEM_CPU)
__device__ inline float largest_of_bf16(uint4 a, uint4 b) { return fmaxf(largest_of(eight_of_bf16(a)), largest_of(eight_of_bf16(b))); }
#else
__device__ inline uint32_t larger_of_bf16(uint32_t a, uint32_t b) {
  uint32_t out;
  asm("{\n.reg .b32 x, y;\nabs.bf16x2 x, %1;\nabs.bf16x2 y, %2;\nmax.bf16x2 %0, x, y;\n}" : "=r"(out) : "r"(a), "r"(b));
  return out;
}
__device__ inline float largest_of_bf16(uint4 a, uint4 b) {
  const uint32_t x = larger_of_bf16(larger_of_bf16(a.x, a.y), larger_of_bf16(a.z, a.w));
  const uint32_t y = larger_of_bf16(larger_of_bf16(b.x, b.y), larger_of_bf16(b.z, b.w));
  const uint32_t both = larger_of_bf16(x, y);
  return fmaxf(from_bf16(both & 0xffff), __uint_as_float(both & 0xffff0000));
}
#endif

/* What 128 columns whose largest magnitude is `most` are multiplied by, and what a reader multiplies them
 * by. */
struct scaling {
  float by;
  uint32_t scale; /* the bits of a float, or a UE8M0 byte */
};
constexpr float top = MOE_CAST == 2 ? 57344.0f : 448.0f;
/* x / top for x of at least 2^-100, correctly rounded, in fewer instructions than a division by what may be
 * any number: by the inverse, and what is missing then (an exhaustive test of all mantissas found none that
 * differs). Infinite where x is. */
__device__ inline float over_top(float x) {
  constexpr float inverse = 1.0f / top;
  const float q = __fmul_rn(x, inverse);
  return q < 1e38f ? __fmaf_rn(__fmaf_rn(-top, q, x), inverse, q) : q;
}
__device__ inline scaling scaling_of(float most) {
  /* 2^-100 for groups of zeros and of what is next to nothing: no factor is infinite. */
  const float held = fmaxf(most, 7.888609052210118e-31f);
#if MOE_SCALES == 1
  const uint32_t bits = __float_as_uint(over_top(held));
  uint32_t exponent = (bits >> 23) + ((bits & 0x7fffff) != 0 ? 1 : 0);
  if (exponent > 253) exponent = 253;
  return {__uint_as_float((254 - exponent) << 23), exponent};
#else
  return {__fdiv_rn(top, held), __float_as_uint(over_top(held))};
#endif
}

/* ---- what experts produce, and their sums ---- */

constexpr uint32_t y_bytes = MOE_Y == 2 ? 4 : 2, out_bytes = MOE_OUT == 2 ? 4 : 2;

__device__ inline float from_narrow(uint32_t bits) { return MOE_Y == 1 ? from_half(bits) : from_bf16(bits); }

/* Four columns as f32, which a lane has: so 32 lanes store 512 bytes side by side. */
struct four {
  float v[4];
};
__device__ inline four four_of(float x) { return {{x, x, x, x}}; }
__device__ inline four four_of_floats(uint4 q) {
  return {{__uint_as_float(q.x), __uint_as_float(q.y), __uint_as_float(q.z), __uint_as_float(q.w)}};
}
__device__ inline uint4 floats_of(const four &f) {
  return make_uint4(__float_as_uint(f.v[0]), __float_as_uint(f.v[1]), __float_as_uint(f.v[2]), __float_as_uint(f.v[3]));
}
__device__ inline four four_of_narrow(uint64_t bits) {
  four f;
#pragma unroll
  for (int i = 0; i < 4; ++i) f.v[i] = from_narrow(static_cast<uint32_t>(bits >> (16 * i)) & 0xffff);
  return f;
}

/* The same as they lie in memory, where they may be half as long. */
struct raw_four {
  uint4 q; /* of 16-bit numbers x and y alone */
};
__device__ inline raw_four load_four(const unsigned char *row, uint32_t at) {
  if constexpr (y_bytes == 4) return {*reinterpret_cast<const uint4 *>(row + size_t(at) * 16)};
  const uint2 half = *reinterpret_cast<const uint2 *>(row + size_t(at) * 8);
  return {make_uint4(half.x, half.y, 0, 0)};
}
__device__ inline four four_of(const raw_four &raw) {
  if constexpr (y_bytes == 4) return four_of_floats(raw.q);
  return four_of_narrow(static_cast<uint64_t>(raw.q.y) << 32 | raw.q.x);
}
__device__ inline void store_four(unsigned char *row, uint32_t at, const four &f) {
  if constexpr (out_bytes == 4) {
    *reinterpret_cast<uint4 *>(row + size_t(at) * 16) = floats_of(f);
  } else {
    uint32_t w[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      w[i] = MOE_OUT == 1 ? to_half_pair(f.v[2 * i], f.v[2 * i + 1]) : to_bf16_pair(f.v[2 * i], f.v[2 * i + 1]);
    }
    *reinterpret_cast<uint2 *>(row + size_t(at) * 8) = make_uint2(w[0], w[1]);
  }
}

/* Four of the 16-bit type that experts produce. */
__device__ inline uint64_t narrow_of(const four &f) {
  const bool half = MOE_Y == 1;
  const uint32_t low = half ? to_half_pair(f.v[0], f.v[1]) : to_bf16_pair(f.v[0], f.v[1]);
  const uint32_t high = half ? to_half_pair(f.v[2], f.v[3]) : to_bf16_pair(f.v[2], f.v[3]);
  return static_cast<uint64_t>(high) << 32 | low;
}

/* Two fours side by side, in 16 bytes. */
__device__ inline uint4 narrow_pair_of(const four &f, const four &g) {
  const uint64_t a = narrow_of(f), b = narrow_of(g);
  return make_uint4(static_cast<uint32_t>(a), static_cast<uint32_t>(a >> 32), static_cast<uint32_t>(b), static_cast<uint32_t>(b >> 32));
}
__device__ inline void store_pair(unsigned char *row, uint32_t at, const four &f, const four &g) {
  if constexpr (out_bytes == 2) {
    uint4 both;
    if (MOE_OUT == 1) {
      both = make_uint4(to_half_pair(f.v[0], f.v[1]), to_half_pair(f.v[2], f.v[3]), to_half_pair(g.v[0], g.v[1]),
                        to_half_pair(g.v[2], g.v[3]));
    } else {
      both = make_uint4(to_bf16_pair(f.v[0], f.v[1]), to_bf16_pair(f.v[2], f.v[3]), to_bf16_pair(g.v[0], g.v[1]),
                        to_bf16_pair(g.v[2], g.v[3]));
    }
    *reinterpret_cast<uint4 *>(row + size_t(at) * 8) = both;
  }
}

/* A product and a sum, rounded one after the other, so that every compiler makes the same bits. */
__device__ inline void scale_four(four &f, float by) {
#pragma unroll
  for (int i = 0; i < 4; ++i) f.v[i] = __fmul_rn(f.v[i], by);
}
__device__ inline void add_four(four &to, const four &f) {
#pragma unroll
  for (int i = 0; i < 4; ++i) to.v[i] = __fadd_rn(to.v[i], f.v[i]);
}

}  // namespace moe
