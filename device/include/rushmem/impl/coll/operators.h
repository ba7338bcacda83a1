/* What a reduction does with two elements, and in which type.
 *
 * Members are taken in the order of their numbers, element by element, at every scope and by every protocol:
 * a result is ((x0 + x1) + x2) + ... of these very operands, so it is the same bits on every member, in every
 * run. 16-bit floats are summed in f32 and rounded once. */
#ifndef RUSHMEM_IMPL_COLL_OPERATORS_H
#define RUSHMEM_IMPL_COLL_OPERATORS_H

#include <rushmem/impl/platform.h>

namespace rushmem {

/* The operators of reduce, reducescatter and scan. and_, or_ and xor_ are of integers. */
struct sum {
  static constexpr uint32_t code = 0;
  template <typename A> RUSHMEM_DEVICE static A of(A a, A b) { return static_cast<A>(a + b); }
};
struct prod {
  static constexpr uint32_t code = 1;
  template <typename A> RUSHMEM_DEVICE static A of(A a, A b) { return static_cast<A>(a * b); }
};
struct min {
  static constexpr uint32_t code = 2;
  template <typename A> RUSHMEM_DEVICE static A of(A a, A b) { return b < a ? b : a; }
};
struct max {
  static constexpr uint32_t code = 3;
  template <typename A> RUSHMEM_DEVICE static A of(A a, A b) { return a < b ? b : a; }
};
struct and_ {
  static constexpr uint32_t code = 4;
  template <typename A> RUSHMEM_DEVICE static A of(A a, A b) { return static_cast<A>(a & b); }
};
struct or_ {
  static constexpr uint32_t code = 5;
  template <typename A> RUSHMEM_DEVICE static A of(A a, A b) { return static_cast<A>(a | b); }
};
struct xor_ {
  static constexpr uint32_t code = 6;
  template <typename A> RUSHMEM_DEVICE static A of(A a, A b) { return static_cast<A>(a ^ b); }
};

/* A complex number as C, C++ and CUDA lay it out (`float _Complex`, `std::complex<float>`, `cuComplex`). */
template <typename F> struct complex {
  F re, im;
};
template <typename F> RUSHMEM_DEVICE complex<F> operator+(complex<F> a, complex<F> b) { return {a.re + b.re, a.im + b.im}; }

namespace impl {

/* A product that is rounded by itself: where one is contracted with a sum, the result has other bits. */
#if defined(RUSHMEM_CPU)
template <typename F> RUSHMEM_DEVICE F product(F a, F b) { return a * b; }
#else
RUSHMEM_DEVICE float product(float a, float b) {
  float value;
  asm("mul.rn.f32 %0, %1, %2;" : "=f"(value) : "f"(a), "f"(b));
  return value;
}
#endif

}  // namespace impl

RUSHMEM_DEVICE complex<float> operator*(complex<float> a, complex<float> b) {
  return {impl::product(a.re, b.re) - impl::product(a.im, b.im), impl::product(a.re, b.im) + impl::product(a.im, b.re)};
}

namespace impl {

/* What is reduced as a word or part of one: numbers, and complex<float>. */
template <typename T> struct is_reducible {
  static constexpr bool value = is_word<T>::value;
};
template <> struct is_reducible<complex<float>> {
  static constexpr bool value = true;
};

/* The type in which elements are combined, and the way there and back, by bits. */
template <typename T> struct combined {
  using type = T;
  RUSHMEM_DEVICE static T from(word<T> bits) { return from_bits<T>(bits); }
  RUSHMEM_DEVICE static word<T> to(T value) { return to_bits(value); }
};

/* 16-bit floats are combined as floats, and rounded once. */
template <> struct combined<__half> {
  using type = float;
  RUSHMEM_DEVICE static float from(unsigned short bits) { return float_of_half(bits); }
  RUSHMEM_DEVICE static unsigned short to(float value) { return half_of_float(value); }
};
template <> struct combined<__nv_bfloat16> {
  using type = float;
  RUSHMEM_DEVICE static float from(unsigned short bits) { return float_of_bfloat16(bits); }
  RUSHMEM_DEVICE static unsigned short to(float value) { return bfloat16_of_float(value); }
};

/* A word's elements, combined one member after the other. */
template <typename T, typename Op> struct accumulator {
  static constexpr int each = 8 / sizeof(T);
  typename combined<T>::type value[each];

  RUSHMEM_DEVICE static typename combined<T>::type element(uint64_t word_, int i) {
    return combined<T>::from(static_cast<word<T>>(word_ >> (8 * sizeof(T) * static_cast<unsigned>(i)) ));
  }

  RUSHMEM_DEVICE void begin(uint64_t word_) {
    RUSHMEM_UNROLL
    for (int i = 0; i < each; ++i) value[i] = element(word_, i);
  }
  RUSHMEM_DEVICE void add(uint64_t word_) {
    RUSHMEM_UNROLL
    for (int i = 0; i < each; ++i) value[i] = Op::of(value[i], element(word_, i));
  }
  RUSHMEM_DEVICE uint64_t result() const {
    uint64_t word_ = 0;
    RUSHMEM_UNROLL
    for (int i = 0; i < each; ++i) {
      word_ |= static_cast<uint64_t>(combined<T>::to(value[i])) << (8 * sizeof(T) * static_cast<unsigned>(i));
    }
    return word_;
  }
};

/* What members have in common besides the size. Even: one more where the call is direct. */
template <typename T, typename Op> constexpr uint64_t reduction = (Op::code * 16 + sizeof(T)) * 2;

}  // namespace impl
}  // namespace rushmem

#endif
