/* Remote memory access: single values (p, g), contiguous arrays (put, get), and the address itself (ptr).
 *
 * Terms used throughout: `dst` of a put and `src` of a get are symmetric addresses (this PE's own copy names
 * every PE's); the other side is any memory of this PE, but for memory of the device's own malloc where the
 * PE is not mapped. Counts are in elements. A PE outside 0 .. n_pes() - 1 ends the launch with the error
 * RUSHMEM_DEVICE_FAIL_BAD_PE. T is any trivially copyable type.
 *
 * No operation here is ordered with another one, except that a get's data is there when it returns. Order
 * puts by fence() or quiet(), or announce them by put_signal. See scope.h for warp and block scope; such a
 * call does not synchronise before it starts: what other threads wrote to the source must be ordered before
 * the call by the program (__syncthreads, __syncwarp), as it would have to be for plain loads.
 */
#ifndef RUSHMEM_RMA_H
#define RUSHMEM_RMA_H

#include <rushmem/impl/copy.h>
#include <rushmem/impl/net/net.h>
#include <rushmem/impl/route.h>
#include <rushmem/scope.h>

#define RUSHMEM_ASSERT_ELEMENT(T)           \
  static_assert(__is_trivially_copyable(T), \
                "rushmem moves bytes: the element type must be trivially copyable")

namespace rushmem {
namespace impl {

/* A put's or get's bytes to or from a mapped PE; false, and nothing done, where it is not mapped.
 *
 * At warp and block scope few branches stand before the first load of the usual cases, a PE of the run and
 * whole vectors, or an element for each thread, or both sides aligned alike: each branch is a latency for
 * which all warps wait, and each instruction one that a block's 32 warps have to issue (performance-log.md,
 * 3, 9 and 14). A warp has one way through its tiles, for which it has registers, and whole vectors go there
 * at once (20). A thread alone tests one condition after the other, because threads alone make small
 * copies. */
template <typename Scope, size_t unit, bool gets, bool signals>
RUSHMEM_DEVICE bool copy_near(char *dst, const char *src, size_t bytes, int pe) {
  if constexpr (is_alone<Scope>::value) {
    const route way = route_to(pe);
    if (RUSHMEM_UNLIKELY(!way.near)) return false;
    copy<Scope, unit, gets, signals>(gets ? dst : way.at(dst), gets ? way.at(src) : src, bytes);
  } else {
    constexpr bool by_warp = is_one_warp<Scope>::value;
    char *to = gets ? dst : run_address(dst, pe);
    const char *from = gets ? run_address(src, pe) : src;
    bool near = is_in_run(pe);
    const bool ready = near & are_vectors(to, from, bytes);
    if (RUSHMEM_LIKELY(ready & are_served<Scope>(bytes))) {
      copy_whole<Scope, gets, signals>(to, from, bytes);
      return true;
    }
    if (near & are_few<Scope, unit>(bytes)) {
      copy_few<Scope, unit, gets>(to, from, bytes);
      return true;
    }
    size_t n = bytes / 16;
    if (!(by_warp & ready)) {
      if (RUSHMEM_UNLIKELY(!near)) {
        const route way = route_apart(pe, affine_distance(pe));
        /* Asked for here as well, a warp's copies of bytes stay within 64 registers, and a block's way has
         * two instructions less; a warp's copies of words would have more. */
        constexpr bool asked = unit < 8 || !by_warp;
        if (asked && !way.near) return false;
        near = asked || way.near;
        if constexpr (gets) from = way.at(src);
        else to = way.at(dst);
      }
      if (RUSHMEM_UNLIKELY(!(near & in_line<unit>(to, from, bytes)))) {
        if (near) copy_askew<Scope, unit, gets, signals>(to, from, bytes);
        return near;
      }
      if constexpr (by_warp) n = copy_up_to_vectors<Scope, unit, gets>(to, from, bytes);
      else copy_in_line<Scope, unit, gets, signals>(to, from, bytes);
    }
    if constexpr (by_warp) copy_vectors<Scope, unit, gets, false, signals>(to, from, 0, n);
  }
  return true;
}

template <typename Scope, bool signals = false, typename T>
RUSHMEM_DEVICE bool put_near(T *dst, const T *src, size_t n, int pe) {
  return copy_near<Scope, unit_of<T>::value, false, signals>(reinterpret_cast<char *>(dst),
                                                             reinterpret_cast<const char *>(src), n * sizeof(T), pe);
}

template <typename Scope, typename T> RUSHMEM_DEVICE bool get_near(T *dst, const T *src, size_t n, int pe) {
  return copy_near<Scope, unit_of<T>::value, true, false>(reinterpret_cast<char *>(dst),
                                                          reinterpret_cast<const char *>(src), n * sizeof(T), pe);
}

/* Where so many bytes are on their way that the link is what limits gets, blocks whose warps drift apart get
 * 1 to 3 % less than those whose warps meet in between; with fewer a meeting takes up to a third
 * (performance-log.md, 39). A block has no more than `most_under_way` bytes on their way. */
constexpr uint64_t most_under_way = 64 << 10, fills_link = 1000000;
template <typename Scope> RUSHMEM_DEVICE void keep_in_step(uint64_t bytes) {
#if !defined(RUSHMEM_CPU)
  if constexpr (!is_alone<Scope>::value && !is_one_warp<Scope>::value) {
    if (gridDim.x * (bytes < most_under_way ? bytes : most_under_way) >= fills_link) Scope::sync();
  }
#else
  static_cast<void>(bytes);
#endif
}

/* Single values to and from PEs outside the run around this one. One call, out of line: what a loop of p or g
 * has in it besides the near access is small enough for the compiler to take the question whether the PE is
 * in the run out of the loop, and nothing of this is copied when it unrolls one (performance-log.md, 10). */
template <typename T> RUSHMEM_OUTLINED void p_apart(T *dst, T value, int pe) {
  const route to = route_apart(pe, affine_distance(pe));
  if (to.is_far()) far_p(dst, value, pe);
  else store_at(dst, to.distance, value);
}
template <typename T> RUSHMEM_OUTLINED T g_apart(const T *src, int pe) {
  const route from = route_apart(pe, affine_distance(pe));
  return from.is_far() ? far_g(src, pe) : load_at(src, from.distance);
}

}  // namespace impl

/* The address in this PE's own address space of `pe`'s copy of the symmetric object at `local`, for plain
 * loads, stores and atomics; null where that PE's heap is not mapped here. (OpenSHMEM 1.5, 9.1 shmem_ptr)
 * Order: none. Cost: local. */
template <typename T> RUSHMEM_DEVICE T *ptr(T *local, int pe) {
  const impl::route to = impl::route_to(pe);
  if (RUSHMEM_LIKELY(to.near)) return to.at(local);
  if (static_cast<uint32_t>(pe) >= static_cast<uint32_t>(n_pes())) impl::fail(RUSHMEM_DEVICE_FAIL_BAD_PE);
  return nullptr;
}

/* Stores one value into `pe`'s `*dst`. Whole for T of 1, 2, 4 and 8 bytes: a reader sees the old or
 * the new value. (OpenSHMEM 1.5, 9.6 shmem_p)
 * Order: none. Cost: store. */
template <typename T> RUSHMEM_DEVICE void p(T *dst, impl::same<T> value, int pe) {
  RUSHMEM_TRACED(RMA, "p", true, pe, sizeof(T), dst);
  RUSHMEM_ASSERT_ELEMENT(T);
  if constexpr (impl::is_word<T>::value) {
    if (RUSHMEM_LIKELY(impl::is_in_run(pe))) impl::store_at<T>(impl::run_address(dst, pe), 0, value);
    else impl::p_apart<T>(dst, value, pe);
  } else {
    const impl::route to = impl::route_to(pe);
    if (to.is_far()) {
      return impl::far_put<thread>(dst, &value, sizeof(T), pe, RUSHMEM_RING_REPLY);
    }
    impl::copy<thread, impl::unit_of<T>::value, false>(to.at(dst), &value, sizeof(T));
  }
}

/* Reads one value from `pe`'s `*src`. Whole for T of 1, 2, 4 and 8 bytes. Calls whose values are needed later
 * overlap where the compiler sees that. (OpenSHMEM 1.5, 9.6 shmem_g)
 * Order: none. Cost: round trip. */
template <typename T> RUSHMEM_DEVICE T g(const T *src, int pe) {
  RUSHMEM_TRACED(RMA, "g", true, pe, sizeof(T), nullptr);
  RUSHMEM_ASSERT_ELEMENT(T);
  impl::breathe();
  if constexpr (impl::is_word<T>::value) {
    if (RUSHMEM_LIKELY(impl::is_in_run(pe))) return impl::load_at(src, impl::affine_distance(pe));
    return impl::g_apart<T>(src, pe);
  } else {
    const impl::route from = impl::route_to(pe);
    T value;
    if (from.is_far()) {
      impl::far_get<thread>(&value, src, sizeof(T), pe, RUSHMEM_RING_REPLY);
      return value;
    }
    impl::copy<thread, impl::unit_of<T>::value, true>(&value, from.at(src), sizeof(T));
    impl::loads_before_later();
    return value;
  }
}

/* Copies n elements into `pe`'s `dst` and returns at once: `src` must stay as it is, and the data is
 * delivered, only when quiet() has returned. At warp and block scope each thread's share is its own: every
 * thread of the scope calls quiet() afterwards, or they synchronise and one does. A block's threads may meet
 * in it. (OpenSHMEM 1.5, 9.6 shmem_put_nbi)
 * Order: none. Cost: copy. */
template <typename Scope = thread, typename T>
RUSHMEM_DEVICE void put_nbi(T *dst, const T *src, size_t n, int pe) {
  RUSHMEM_TRACED(NBI, "put_nbi", Scope::rank() == 0, pe, n * sizeof(T), nullptr);
  RUSHMEM_ASSERT_ELEMENT(T);
  const impl::noted_nbi noted(impl::noted_put_nbi);
  if (!impl::put_near<Scope>(dst, src, n, pe)) impl::far_put<Scope>(dst, src, n * sizeof(T), pe, 0);
}

/* Copies n elements into `pe`'s `dst`. On return `src` may be changed, by any thread of the scope (warp and
 * block scope synchronise at the end); delivery is what quiet() waits for. (OpenSHMEM 1.5, 9.6 shmem_put)
 * Order: none. Cost: copy. */
template <typename Scope = thread, typename T>
RUSHMEM_DEVICE void put(T *dst, const T *src, size_t n, int pe) {
  RUSHMEM_TRACED(RMA, "put", Scope::rank() == 0, pe, n * sizeof(T), nullptr);
  RUSHMEM_ASSERT_ELEMENT(T);
  if (!impl::put_near<Scope>(dst, src, n, pe)) {
    impl::far_put<Scope>(dst, src, n * sizeof(T), pe, RUSHMEM_RING_REPLY);
  }
  Scope::sync();
}

/* Copies n elements from `pe`'s `src` and returns at once: `dst` may be read only when quiet() has returned;
 * at warp and block scope as for put_nbi. A block's threads may meet in it. (OpenSHMEM 1.5, 9.6
 * shmem_get_nbi)
 * Order: none. Cost: copy. */
template <typename Scope = thread, typename T>
RUSHMEM_DEVICE void get_nbi(T *dst, const T *src, size_t n, int pe) {
  RUSHMEM_TRACED(NBI, "get_nbi", Scope::rank() == 0, pe, n * sizeof(T), nullptr);
  RUSHMEM_ASSERT_ELEMENT(T);
  impl::breathe();
  const impl::noted_nbi noted(impl::noted_get_nbi);
  if (!impl::get_near<Scope>(dst, src, n, pe)) return impl::far_get<Scope>(dst, src, n * sizeof(T), pe, 0);
  impl::loads_before_later();
  impl::keep_in_step<Scope>(n * sizeof(T));
}

/* Copies n elements from `pe`'s `src`. On return every thread of the scope may read all of `dst` (warp and
 * block scope synchronise at the end). (OpenSHMEM 1.5, 9.6 shmem_get)
 * Order: the data is here on return. Cost: round trip and copy. */
template <typename Scope = thread, typename T>
RUSHMEM_DEVICE void get(T *dst, const T *src, size_t n, int pe) {
  RUSHMEM_TRACED(RMA, "get", Scope::rank() == 0, pe, n * sizeof(T), nullptr);
  RUSHMEM_ASSERT_ELEMENT(T);
  impl::breathe();
  if (impl::get_near<Scope>(dst, src, n, pe)) impl::loads_before_later();
  else impl::far_get<Scope>(dst, src, n * sizeof(T), pe, RUSHMEM_RING_REPLY);
  Scope::sync();
}

}  // namespace rushmem

#endif
