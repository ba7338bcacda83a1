/* <cuda/std/span>: C++20's span in C++17. */
#ifndef RUSHMEM_CPU_CUDA_STD_SPAN_H
#define RUSHMEM_CPU_CUDA_STD_SPAN_H

#include <array>
#include <cstddef>
#include <iterator>
#include <type_traits>

#include "rushmem_cpu/cuda_std.h"

#if __cplusplus >= 202002L
#include <span>
#else
namespace cuda {
namespace std {

inline constexpr ::std::size_t dynamic_extent = (::std::size_t)-1;

/* Elements in a row that belong to others: a pointer and a count. */
template <class T, ::std::size_t Extent = dynamic_extent> class span {
 public:
  using element_type = T;
  using value_type = ::std::remove_cv_t<T>;
  using size_type = ::std::size_t;
  using difference_type = ::std::ptrdiff_t;
  using pointer = T *;
  using reference = T &;
  using iterator = T *;
  static constexpr size_type extent = Extent;

  constexpr span() noexcept : data_(nullptr), size_(0) {}
  constexpr span(T *first, size_type count) : data_(first), size_(count) {}
  constexpr span(T *first, T *last) : data_(first), size_((size_type)(last - first)) {}
  template <size_type N> constexpr span(T (&array)[N]) noexcept : data_(array), size_(N) {}
  template <class U, size_type N>
  constexpr span(::std::array<U, N> &array) noexcept : data_(array.data()), size_(N) {}
  template <class U, size_type N>
  constexpr span(const ::std::array<U, N> &array) noexcept : data_(array.data()), size_(N) {}
  /* To elements that are const, or of fixed to any size. */
  template <class U, size_type N, class = ::std::enable_if_t<::std::is_convertible<U (*)[], T (*)[]>::value>>
  constexpr span(const span<U, N> &other) noexcept : data_(other.data()), size_(other.size()) {}

  constexpr T *data() const noexcept { return data_; }
  constexpr size_type size() const noexcept { return size_; }
  constexpr size_type size_bytes() const noexcept { return size_ * sizeof(T); }
  constexpr bool empty() const noexcept { return size_ == 0; }
  constexpr T &operator[](size_type i) const { return data_[i]; }
  constexpr T &front() const { return data_[0]; }
  constexpr T &back() const { return data_[size_ - 1]; }
  constexpr iterator begin() const noexcept { return data_; }
  constexpr iterator end() const noexcept { return data_ + size_; }
  constexpr span<T> first(size_type count) const { return {data_, count}; }
  constexpr span<T> last(size_type count) const { return {data_ + (size_ - count), count}; }
  constexpr span<T> subspan(size_type at, size_type count = dynamic_extent) const {
    return {data_ + at, count == dynamic_extent ? size_ - at : count};
  }
  template <size_type N> constexpr span<T, N> first() const { return {data_, N}; }
  template <size_type N> constexpr span<T, N> last() const { return {data_ + (size_ - N), N}; }

 private:
  T *data_;
  size_type size_;
};
template <class T, ::std::size_t N> span(T (&)[N]) -> span<T, N>;
template <class T, ::std::size_t N> span(::std::array<T, N> &) -> span<T, N>;
template <class T, ::std::size_t N> span(const ::std::array<T, N> &) -> span<const T, N>;
template <class T> span(T *, ::std::size_t) -> span<T>;

}  // namespace std
}  // namespace cuda
#endif

#endif
