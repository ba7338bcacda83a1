/* The few type questions the headers ask, without <type_traits>: NVRTC has no standard headers. */
#ifndef RUSHMEM_IMPL_TRAITS_H
#define RUSHMEM_IMPL_TRAITS_H

#if defined(__CUDACC_RTC__)
/* The names abi.h needs. The same types as CCCL's <cuda/std/cstdint> gives under NVRTC, so both may be
 * included. */
using int8_t = signed char;
using int16_t = signed short;
using int32_t = signed int;
using int64_t = signed long long;
using uint8_t = unsigned char;
using uint16_t = unsigned short;
using uint32_t = unsigned int;
using uint64_t = unsigned long long;
using uintptr_t = uint64_t;
#else
#include <stddef.h>
#include <stdint.h>
#endif

/* CUDA's 16-bit floats, by name alone: a program that has words of them includes cuda_fp16.h or cuda_bf16.h
 * itself, before or after these headers, and one that has none needs neither. */
struct __half;
struct __nv_bfloat16;

namespace rushmem {
namespace impl {

/* `same<T>` as a parameter type takes no part in deduction: `wait_until(&u64, cmp::ge, 1)` finds T from the
 * first. */
template <typename T> struct same_type {
  using type = T;
};
template <typename T> using same = typename same_type<T>::type;

/* The unsigned type of N bytes. */
template <size_t N> struct word_of {};
template <> struct word_of<1> {
  using type = unsigned char;
};
template <> struct word_of<2> {
  using type = unsigned short;
};
template <> struct word_of<4> {
  using type = uint32_t;
};
template <> struct word_of<8> {
  using type = uint64_t;
};
template <typename T> using word = typename word_of<sizeof(T)>::type;

template <typename T> struct is_word_integer {
  static constexpr bool value = false;
};
template <> struct is_word_integer<int> {
  static constexpr bool value = true;
};
template <> struct is_word_integer<unsigned int> {
  static constexpr bool value = true;
};
template <> struct is_word_integer<long> {
  static constexpr bool value = true;
};
template <> struct is_word_integer<unsigned long> {
  static constexpr bool value = true;
};
template <> struct is_word_integer<long long> {
  static constexpr bool value = true;
};
template <> struct is_word_integer<unsigned long long> {
  static constexpr bool value = true;
};

template <typename T> struct is_floating {
  static constexpr bool value = false;
};
template <> struct is_floating<float> {
  static constexpr bool value = true;
};
template <> struct is_floating<double> {
  static constexpr bool value = true;
};

template <typename T> struct is_half {
  static constexpr bool value = false;
};
template <> struct is_half<__half> {
  static constexpr bool value = true;
};
template <typename T> struct is_bfloat16 {
  static constexpr bool value = false;
};
template <> struct is_bfloat16<__nv_bfloat16> {
  static constexpr bool value = true;
};

/* An object that one load or store moves whole. */
template <typename T> struct is_word {
  static constexpr bool value =
      (sizeof(T) == 1 || sizeof(T) == 2 || sizeof(T) == 4 || sizeof(T) == 8) && alignof(T) == sizeof(T);
};

/* The widest access, up to 16 bytes, that every T* is aligned for. */
template <typename T> struct unit_of {
  static constexpr size_t value = alignof(T) < 16 ? alignof(T) : 16;
};

}  // namespace impl
}  // namespace rushmem

#endif
