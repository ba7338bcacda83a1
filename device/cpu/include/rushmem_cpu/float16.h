/* CUDA's 16-bit floats, of one type each time this is included (cuda_fp16.h, cuda_bf16.h): the type, its
 * pair, conversions, arithmetic, comparisons, functions, atomics. (CUDA Math API, half and bfloat16.) Each
 * operation is rounded once, to nearest, as on the GPU; functions are rounded from the double's.
 *
 * RUSHMEM_CPU_F, RUSHMEM_CPU_F2: the type and the pair; RUSHMEM_CPU_F_RAW, RUSHMEM_CPU_F2_RAW: their bits as
 * plain structs; RUSHMEM_CPU_F_NAME: what functions call it; RUSHMEM_CPU_F_FORMAT: float16_bits.h's. */

#define RUSHMEM_CPU_JOIN_(a, b, c) a##b##c
#define RUSHMEM_CPU_JOIN(a, b, c) RUSHMEM_CPU_JOIN_(a, b, c)
#define RUSHMEM_CPU_TO(from) RUSHMEM_CPU_JOIN(from, RUSHMEM_CPU_F_NAME, )
#define RUSHMEM_CPU_TO_BY(from, how) RUSHMEM_CPU_JOIN(from, RUSHMEM_CPU_F_NAME, how)
#define RUSHMEM_CPU_FROM(to) RUSHMEM_CPU_JOIN(__, RUSHMEM_CPU_F_NAME, to)

struct RUSHMEM_CPU_F_RAW {
  unsigned short x;
};

struct RUSHMEM_CPU_F {
  RUSHMEM_CPU_F() = default;
  RUSHMEM_CPU_F(RUSHMEM_CPU_F_RAW raw) : bits(raw.x) {}
  RUSHMEM_CPU_F(float value) : bits(RUSHMEM_CPU_F_FORMAT::narrow(value)) {}
  RUSHMEM_CPU_F(double value) : bits(RUSHMEM_CPU_F_FORMAT::narrow(value)) {}
  RUSHMEM_CPU_F(short value) : RUSHMEM_CPU_F((double)value) {}
  RUSHMEM_CPU_F(unsigned short value) : RUSHMEM_CPU_F((double)value) {}
  RUSHMEM_CPU_F(int value) : RUSHMEM_CPU_F((double)value) {}
  RUSHMEM_CPU_F(unsigned value) : RUSHMEM_CPU_F((double)value) {}
  RUSHMEM_CPU_F(long value) : RUSHMEM_CPU_F(rushmem_cpu_to_odd((long long)value)) {}
  RUSHMEM_CPU_F(unsigned long value) : RUSHMEM_CPU_F(rushmem_cpu_to_odd((unsigned long long)value)) {}
  RUSHMEM_CPU_F(long long value) : RUSHMEM_CPU_F(rushmem_cpu_to_odd(value)) {}
  RUSHMEM_CPU_F(unsigned long long value) : RUSHMEM_CPU_F(rushmem_cpu_to_odd(value)) {}
  operator float() const { return RUSHMEM_CPU_F_FORMAT::widen(bits); }
  operator RUSHMEM_CPU_F_RAW() const { return RUSHMEM_CPU_F_RAW{bits}; }
  static RUSHMEM_CPU_F of(unsigned short bits) { return RUSHMEM_CPU_F_RAW{bits}; }

  unsigned short bits;
};

struct alignas(4) RUSHMEM_CPU_F2_RAW {
  unsigned short x, y;
};

struct alignas(4) RUSHMEM_CPU_F2 {
  RUSHMEM_CPU_F2() = default;
  RUSHMEM_CPU_F2(RUSHMEM_CPU_F x_, RUSHMEM_CPU_F y_) : x(x_), y(y_) {}
  RUSHMEM_CPU_F2(RUSHMEM_CPU_F2_RAW raw) : x(RUSHMEM_CPU_F::of(raw.x)), y(RUSHMEM_CPU_F::of(raw.y)) {}
  operator RUSHMEM_CPU_F2_RAW() const { return RUSHMEM_CPU_F2_RAW{x.bits, y.bits}; }
  RUSHMEM_CPU_F x, y;
};

template <> struct rushmem_cpu_is_passed<RUSHMEM_CPU_F> : std::true_type {};
template <> struct rushmem_cpu_is_passed<RUSHMEM_CPU_F2> : std::true_type {};

/* ---- conversions ---- */

#define RUSHMEM_CPU_ROUNDED(suffix, mode)                                        \
  static inline RUSHMEM_CPU_F RUSHMEM_CPU_TO_BY(__float2, suffix)(float value) { \
    return RUSHMEM_CPU_F::of(RUSHMEM_CPU_F_FORMAT::narrow(value, mode));         \
  }                                                                              \
  RUSHMEM_CPU_ROUNDED_INTEGERS(suffix, mode)
#define RUSHMEM_CPU_ROUNDED_INTEGER(name, T, Wide, suffix, mode)                                   \
  static inline RUSHMEM_CPU_F RUSHMEM_CPU_TO_BY(__##name##2, suffix)(T value) {                    \
    return RUSHMEM_CPU_F::of(RUSHMEM_CPU_F_FORMAT::narrow(rushmem_cpu_to_odd((Wide)value), mode)); \
  }
#define RUSHMEM_CPU_ROUNDED_INTEGERS(suffix, mode)                             \
  RUSHMEM_CPU_ROUNDED_INTEGER(short, short, long long, suffix, mode)           \
  RUSHMEM_CPU_ROUNDED_INTEGER(ushort, unsigned short, long long, suffix, mode) \
  RUSHMEM_CPU_ROUNDED_INTEGER(int, int, long long, suffix, mode)               \
  RUSHMEM_CPU_ROUNDED_INTEGER(uint, unsigned, long long, suffix, mode)         \
  RUSHMEM_CPU_ROUNDED_INTEGER(ll, long long, long long, suffix, mode)          \
  RUSHMEM_CPU_ROUNDED_INTEGER(ull, unsigned long long, unsigned long long, suffix, mode)
RUSHMEM_CPU_ROUNDED(_rn, RUSHMEM_CPU_RN)
RUSHMEM_CPU_ROUNDED(_rz, RUSHMEM_CPU_RZ)
RUSHMEM_CPU_ROUNDED(_ru, RUSHMEM_CPU_RU)
RUSHMEM_CPU_ROUNDED(_rd, RUSHMEM_CPU_RD)
#undef RUSHMEM_CPU_ROUNDED
#undef RUSHMEM_CPU_ROUNDED_INTEGERS
#undef RUSHMEM_CPU_ROUNDED_INTEGER
static inline RUSHMEM_CPU_F RUSHMEM_CPU_TO(__float2)(float value) { return value; }
static inline RUSHMEM_CPU_F RUSHMEM_CPU_TO(__double2)(double value) { return value; }
static inline float RUSHMEM_CPU_FROM(2float)(RUSHMEM_CPU_F a) { return a; }

#define RUSHMEM_CPU_TO_INTEGER(name, T)                             \
  static inline T RUSHMEM_CPU_FROM(2##name##_rz)(RUSHMEM_CPU_F a) { \
    return rushmem_cpu_to_int<T>(std::trunc((float)a));             \
  }                                                                 \
  static inline T RUSHMEM_CPU_FROM(2##name##_rn)(RUSHMEM_CPU_F a) { \
    return rushmem_cpu_to_int<T>(std::nearbyint((float)a));         \
  }                                                                 \
  static inline T RUSHMEM_CPU_FROM(2##name##_rd)(RUSHMEM_CPU_F a) { \
    return rushmem_cpu_to_int<T>(std::floor((float)a));             \
  }                                                                 \
  static inline T RUSHMEM_CPU_FROM(2##name##_ru)(RUSHMEM_CPU_F a) { \
    return rushmem_cpu_to_int<T>(std::ceil((float)a));              \
  }
RUSHMEM_CPU_TO_INTEGER(short, short)
RUSHMEM_CPU_TO_INTEGER(ushort, unsigned short)
RUSHMEM_CPU_TO_INTEGER(int, int)
RUSHMEM_CPU_TO_INTEGER(uint, unsigned)
RUSHMEM_CPU_TO_INTEGER(ll, long long)
RUSHMEM_CPU_TO_INTEGER(ull, unsigned long long)
#undef RUSHMEM_CPU_TO_INTEGER

static inline unsigned short RUSHMEM_CPU_FROM(_as_ushort)(RUSHMEM_CPU_F a) { return a.bits; }
static inline short RUSHMEM_CPU_FROM(_as_short)(RUSHMEM_CPU_F a) { return (short)a.bits; }
static inline RUSHMEM_CPU_F RUSHMEM_CPU_TO(__ushort_as_)(unsigned short bits) {
  return RUSHMEM_CPU_F::of(bits);
}
static inline RUSHMEM_CPU_F RUSHMEM_CPU_TO(__short_as_)(short bits) {
  return RUSHMEM_CPU_F::of((unsigned short)bits);
}

/* Pairs. */
static inline RUSHMEM_CPU_F2 RUSHMEM_CPU_TO_BY(make_, 2)(RUSHMEM_CPU_F x, RUSHMEM_CPU_F y) { return {x, y}; }
static inline RUSHMEM_CPU_F2 RUSHMEM_CPU_TO_BY(__halves2, 2)(RUSHMEM_CPU_F x, RUSHMEM_CPU_F y) {
  return {x, y};
}
static inline RUSHMEM_CPU_F2 RUSHMEM_CPU_TO_BY(__floats2, 2_rn)(float x, float y) { return {x, y}; }
static inline RUSHMEM_CPU_F2 RUSHMEM_CPU_TO_BY(__float22, 2_rn)(float2 a) { return {a.x, a.y}; }
static inline RUSHMEM_CPU_F2 RUSHMEM_CPU_TO_BY(__float2, 2_rn)(float a) { return {a, a}; }
static inline float2 RUSHMEM_CPU_FROM(22float2)(RUSHMEM_CPU_F2 a) { return make_float2(a.x, a.y); }
static inline RUSHMEM_CPU_F RUSHMEM_CPU_TO(__low2)(RUSHMEM_CPU_F2 a) { return a.x; }
static inline RUSHMEM_CPU_F RUSHMEM_CPU_TO(__high2)(RUSHMEM_CPU_F2 a) { return a.y; }
static inline RUSHMEM_CPU_F2 RUSHMEM_CPU_TO_BY(__low2, 2)(RUSHMEM_CPU_F2 a) { return {a.x, a.x}; }
static inline RUSHMEM_CPU_F2 RUSHMEM_CPU_TO_BY(__high2, 2)(RUSHMEM_CPU_F2 a) { return {a.y, a.y}; }
static inline RUSHMEM_CPU_F2 RUSHMEM_CPU_TO_BY(__lows2, 2)(RUSHMEM_CPU_F2 a, RUSHMEM_CPU_F2 b) {
  return {a.x, b.x};
}
static inline RUSHMEM_CPU_F2 RUSHMEM_CPU_TO_BY(__highs2, 2)(RUSHMEM_CPU_F2 a, RUSHMEM_CPU_F2 b) {
  return {a.y, b.y};
}
static inline float __low2float(RUSHMEM_CPU_F2 a) { return a.x; }
static inline float __high2float(RUSHMEM_CPU_F2 a) { return a.y; }
static inline RUSHMEM_CPU_F2 __lowhigh2highlow(RUSHMEM_CPU_F2 a) { return {a.y, a.x}; }

/* ---- arithmetic, of one and of pairs ---- */

#define RUSHMEM_CPU_BINARY(name, name2, expression)                           \
  static inline RUSHMEM_CPU_F name(RUSHMEM_CPU_F left, RUSHMEM_CPU_F right) { \
    const double a = (float)left, b = (float)right;                           \
    return RUSHMEM_CPU_F(expression);                                         \
  }                                                                           \
  static inline RUSHMEM_CPU_F2 name2(RUSHMEM_CPU_F2 a, RUSHMEM_CPU_F2 b) {    \
    return {name(a.x, b.x), name(a.y, b.y)};                                  \
  }
/* Sums of doubles may be inexact, with exponents this far apart; products and what comes of division and
 * roots are rounded so finely that rounding twice is rounding once. */
RUSHMEM_CPU_BINARY(__hadd, __hadd2, rushmem_cpu_fma_to_odd(a, 1, b))
RUSHMEM_CPU_BINARY(__hsub, __hsub2, rushmem_cpu_fma_to_odd(a, 1, -b))
RUSHMEM_CPU_BINARY(__hmul, __hmul2, a * b)
RUSHMEM_CPU_BINARY(__hdiv, __h2div, a / b)
RUSHMEM_CPU_BINARY(__hadd_rn, __hadd2_rn, rushmem_cpu_fma_to_odd(a, 1, b))
RUSHMEM_CPU_BINARY(__hsub_rn, __hsub2_rn, rushmem_cpu_fma_to_odd(a, 1, -b))
RUSHMEM_CPU_BINARY(__hmul_rn, __hmul2_rn, a * b)
#define RUSHMEM_CPU_CLAMPED(value) __saturatef(RUSHMEM_CPU_F(value))
RUSHMEM_CPU_BINARY(__hadd_sat, __hadd2_sat, RUSHMEM_CPU_CLAMPED(rushmem_cpu_fma_to_odd(a, 1, b)))
RUSHMEM_CPU_BINARY(__hsub_sat, __hsub2_sat, RUSHMEM_CPU_CLAMPED(rushmem_cpu_fma_to_odd(a, 1, -b)))
RUSHMEM_CPU_BINARY(__hmul_sat, __hmul2_sat, RUSHMEM_CPU_CLAMPED(a * b))
/* The other where one is no number; -0 is less than 0. (PTX min, max) */
RUSHMEM_CPU_BINARY(__hmin, __hmin2, a != a ? b : b != b ? a : a < b || (a == b && std::signbit(a)) ? a : b)
RUSHMEM_CPU_BINARY(__hmax, __hmax2, a != a ? b : b != b ? a : a > b || (a == b && !std::signbit(a)) ? a : b)
RUSHMEM_CPU_BINARY(__hmin_nan, __hmin2_nan, a != a || b != b ? a + b : (double)(float)__hmin(left, right))
RUSHMEM_CPU_BINARY(__hmax_nan, __hmax2_nan, a != a || b != b ? a + b : (double)(float)__hmax(left, right))
#undef RUSHMEM_CPU_BINARY

#define RUSHMEM_CPU_FUSED(name, name2, finish)                                               \
  static inline RUSHMEM_CPU_F name(RUSHMEM_CPU_F a, RUSHMEM_CPU_F b, RUSHMEM_CPU_F c) {      \
    return finish(RUSHMEM_CPU_F(rushmem_cpu_fma_to_odd((float)a, (float)b, (float)c)));      \
  }                                                                                          \
  static inline RUSHMEM_CPU_F2 name2(RUSHMEM_CPU_F2 a, RUSHMEM_CPU_F2 b, RUSHMEM_CPU_F2 c) { \
    return {name(a.x, b.x, c.x), name(a.y, b.y, c.y)};                                       \
  }
#define RUSHMEM_CPU_RELU(value) __hmax_nan(value, RUSHMEM_CPU_F(0.0f))
RUSHMEM_CPU_FUSED(__hfma, __hfma2, )
RUSHMEM_CPU_FUSED(__hfma_sat, __hfma2_sat, RUSHMEM_CPU_CLAMPED)
RUSHMEM_CPU_FUSED(__hfma_relu, __hfma2_relu, RUSHMEM_CPU_RELU)
#undef RUSHMEM_CPU_FUSED
#undef RUSHMEM_CPU_CLAMPED
#undef RUSHMEM_CPU_RELU

static inline RUSHMEM_CPU_F __hneg(RUSHMEM_CPU_F a) { return RUSHMEM_CPU_F::of(a.bits ^ 0x8000); }
static inline RUSHMEM_CPU_F __habs(RUSHMEM_CPU_F a) { return RUSHMEM_CPU_F::of(a.bits & 0x7fff); }
static inline RUSHMEM_CPU_F2 __hneg2(RUSHMEM_CPU_F2 a) { return {__hneg(a.x), __hneg(a.y)}; }
static inline RUSHMEM_CPU_F2 __habs2(RUSHMEM_CPU_F2 a) { return {__habs(a.x), __habs(a.y)}; }

#define RUSHMEM_CPU_OPERATOR(op, name, name2)                                                                \
  static inline RUSHMEM_CPU_F operator op(RUSHMEM_CPU_F a, RUSHMEM_CPU_F b) { return name(a, b); }           \
  static inline RUSHMEM_CPU_F &operator op##=(RUSHMEM_CPU_F & a, RUSHMEM_CPU_F b) { return a = name(a, b); } \
  static inline RUSHMEM_CPU_F2 operator op(RUSHMEM_CPU_F2 a, RUSHMEM_CPU_F2 b) { return name2(a, b); }       \
  static inline RUSHMEM_CPU_F2 &operator op##=(RUSHMEM_CPU_F2 & a, RUSHMEM_CPU_F2 b) {                       \
    return a = name2(a, b);                                                                                  \
  }
RUSHMEM_CPU_OPERATOR(+, __hadd, __hadd2)
RUSHMEM_CPU_OPERATOR(-, __hsub, __hsub2)
RUSHMEM_CPU_OPERATOR(*, __hmul, __hmul2)
RUSHMEM_CPU_OPERATOR(/, __hdiv, __h2div)
#undef RUSHMEM_CPU_OPERATOR
static inline RUSHMEM_CPU_F operator+(RUSHMEM_CPU_F a) { return a; }
static inline RUSHMEM_CPU_F operator-(RUSHMEM_CPU_F a) { return __hneg(a); }
static inline RUSHMEM_CPU_F2 operator-(RUSHMEM_CPU_F2 a) { return __hneg2(a); }
static inline RUSHMEM_CPU_F &operator++(RUSHMEM_CPU_F &a) { return a += RUSHMEM_CPU_F(1); }
static inline RUSHMEM_CPU_F &operator--(RUSHMEM_CPU_F &a) { return a -= RUSHMEM_CPU_F(1); }

/* ---- comparisons ---- */

/* The forms with u are also true where one is no number. `__hb...2` is whether both halves are; `__h...2`
 * gives 1 or 0 for each. */
#define RUSHMEM_CPU_COMPARISON(name, op)                                                            \
  static inline bool __h##name(RUSHMEM_CPU_F a, RUSHMEM_CPU_F b) { return (float)a op(float) b; }   \
  static inline bool __h##name##u(RUSHMEM_CPU_F a, RUSHMEM_CPU_F b) {                               \
    return (float)a != (float)a || (float)b != (float)b || (float)a op(float) b;                    \
  }                                                                                                 \
  static inline bool __hb##name##2(RUSHMEM_CPU_F2 a, RUSHMEM_CPU_F2 b) {                            \
    return __h##name(a.x, b.x) && __h##name(a.y, b.y);                                              \
  }                                                                                                 \
  static inline bool __hb##name##u2(RUSHMEM_CPU_F2 a, RUSHMEM_CPU_F2 b) {                           \
    return __h##name##u(a.x, b.x) && __h##name##u(a.y, b.y);                                        \
  }                                                                                                 \
  static inline RUSHMEM_CPU_F2 __h##name##2(RUSHMEM_CPU_F2 a, RUSHMEM_CPU_F2 b) {                   \
    return {(float)__h##name(a.x, b.x), (float)__h##name(a.y, b.y)};                                \
  }                                                                                                 \
  static inline bool operator op(RUSHMEM_CPU_F a, RUSHMEM_CPU_F b) { return (float)a op(float) b; } \
  static inline bool operator op(RUSHMEM_CPU_F2 a, RUSHMEM_CPU_F2 b) { return __hb##name##2(a, b); }
RUSHMEM_CPU_COMPARISON(eq, ==)
RUSHMEM_CPU_COMPARISON(ne, !=)
RUSHMEM_CPU_COMPARISON(lt, <)
RUSHMEM_CPU_COMPARISON(le, <=)
RUSHMEM_CPU_COMPARISON(gt, >)
RUSHMEM_CPU_COMPARISON(ge, >=)
#undef RUSHMEM_CPU_COMPARISON
static inline bool __hisnan(RUSHMEM_CPU_F a) { return (float)a != (float)a; }
static inline int __hisinf(RUSHMEM_CPU_F a) {
  return std::isinf((float)a) ? (std::signbit((float)a) ? -1 : 1) : 0;
}
static inline RUSHMEM_CPU_F2 __hisnan2(RUSHMEM_CPU_F2 a) {
  return {(float)__hisnan(a.x), (float)__hisnan(a.y)};
}

/* ---- functions ---- */

#define RUSHMEM_CPU_FUNCTION(name, expression)               \
  static inline RUSHMEM_CPU_F h##name(RUSHMEM_CPU_F value) { \
    const double a = (float)value;                           \
    return RUSHMEM_CPU_F(expression);                        \
  }                                                          \
  static inline RUSHMEM_CPU_F2 h2##name(RUSHMEM_CPU_F2 a) { return {h##name(a.x), h##name(a.y)}; }
RUSHMEM_CPU_FUNCTION(sqrt, std::sqrt(a))
RUSHMEM_CPU_FUNCTION(rsqrt, 1.0 / std::sqrt(a))
RUSHMEM_CPU_FUNCTION(rcp, 1.0 / a)
RUSHMEM_CPU_FUNCTION(exp, std::exp(a))
RUSHMEM_CPU_FUNCTION(exp2, std::exp2(a))
RUSHMEM_CPU_FUNCTION(exp10, std::pow(10.0, a))
RUSHMEM_CPU_FUNCTION(log, std::log(a))
RUSHMEM_CPU_FUNCTION(log2, std::log2(a))
RUSHMEM_CPU_FUNCTION(log10, std::log10(a))
RUSHMEM_CPU_FUNCTION(sin, std::sin(a))
RUSHMEM_CPU_FUNCTION(cos, std::cos(a))
RUSHMEM_CPU_FUNCTION(tanh, std::tanh(a))
RUSHMEM_CPU_FUNCTION(ceil, std::ceil(a))
RUSHMEM_CPU_FUNCTION(floor, std::floor(a))
RUSHMEM_CPU_FUNCTION(rint, std::nearbyint(a))
RUSHMEM_CPU_FUNCTION(trunc, std::trunc(a))
#undef RUSHMEM_CPU_FUNCTION

/* ---- atomics ---- */

static inline RUSHMEM_CPU_F atomicAdd(RUSHMEM_CPU_F *address, RUSHMEM_CPU_F value) {
  RUSHMEM_CPU_SCOPED(RUSHMEM_CPU_OF_DEVICE);
  return rushmem_cpu_update(address, [value](RUSHMEM_CPU_F old) -> RUSHMEM_CPU_F { return old + value; });
}
static inline RUSHMEM_CPU_F2 atomicAdd(RUSHMEM_CPU_F2 *address, RUSHMEM_CPU_F2 value) {
  RUSHMEM_CPU_SCOPED(RUSHMEM_CPU_OF_DEVICE);
  return rushmem_cpu_update(address, [value](RUSHMEM_CPU_F2 old) -> RUSHMEM_CPU_F2 { return old + value; });
}

#undef RUSHMEM_CPU_JOIN_
#undef RUSHMEM_CPU_JOIN
#undef RUSHMEM_CPU_TO
#undef RUSHMEM_CPU_TO_BY
#undef RUSHMEM_CPU_FROM
#undef RUSHMEM_CPU_F
#undef RUSHMEM_CPU_F2
#undef RUSHMEM_CPU_F_RAW
#undef RUSHMEM_CPU_F2_RAW
#undef RUSHMEM_CPU_F_NAME
#undef RUSHMEM_CPU_F_FORMAT
