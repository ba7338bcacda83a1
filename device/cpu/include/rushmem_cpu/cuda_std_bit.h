/* <cuda/std/bit>: C++20's functions of bits in C++17. */
#ifndef RUSHMEM_CPU_CUDA_STD_BIT_H
#define RUSHMEM_CPU_CUDA_STD_BIT_H

#include <limits>
#include <string.h>
#include <type_traits>

#include "rushmem_cpu/cuda_std.h"

#if __cplusplus >= 202002L
#include <bit>
#else
namespace cuda {
namespace std {

template <class To, class From> inline To bit_cast(const From &from) {
  static_assert(sizeof(To) == sizeof(From), "bit_cast is between types of one size");
  static_assert(::std::is_trivially_copyable<To>::value && ::std::is_trivially_copyable<From>::value,
                "bit_cast is between types that can be copied as bytes");
  To to;
  memcpy(&to, &from, sizeof to);
  return to;
}

#define RUSHMEM_CPU_BITS(T)                                                                \
  static_assert(::std::is_unsigned<T>::value, "functions of bits take unsigned integers"); \
  constexpr int digits = ::std::numeric_limits<T>::digits;                                 \
  (void)digits

template <class T> constexpr int popcount(T x) noexcept {
  RUSHMEM_CPU_BITS(T);
  return __builtin_popcountll(x);
}
template <class T> constexpr int countl_zero(T x) noexcept {
  RUSHMEM_CPU_BITS(T);
  return x ? __builtin_clzll(x) - (64 - digits) : digits;
}
template <class T> constexpr int countr_zero(T x) noexcept {
  RUSHMEM_CPU_BITS(T);
  return x ? __builtin_ctzll(x) : digits;
}
template <class T> constexpr int countl_one(T x) noexcept { return countl_zero((T)~x); }
template <class T> constexpr int countr_one(T x) noexcept { return countr_zero((T)~x); }
template <class T> constexpr int bit_width(T x) noexcept {
  RUSHMEM_CPU_BITS(T);
  return digits - countl_zero(x);
}
template <class T> constexpr bool has_single_bit(T x) noexcept { return popcount(x) == 1; }
template <class T> constexpr T bit_floor(T x) noexcept { return x ? (T)((T)1 << (bit_width(x) - 1)) : (T)0; }
template <class T> constexpr T bit_ceil(T x) noexcept {
  return x <= 1 ? (T)1 : (T)((T)1 << bit_width((T)(x - 1)));
}
template <class T> constexpr T rotl(T x, int by) noexcept {
  RUSHMEM_CPU_BITS(T);
  const int left = (by % digits + digits) % digits;
  return left ? (T)((T)(x << left) | (T)(x >> (digits - left))) : x;
}
template <class T> constexpr T rotr(T x, int by) noexcept {
  RUSHMEM_CPU_BITS(T);
  return rotl(x, digits - by % digits);
}
#undef RUSHMEM_CPU_BITS

}  // namespace std
}  // namespace cuda
#endif

#endif
