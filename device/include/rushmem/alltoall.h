/* A block from every member to every member. (OpenSHMEM 1.5, 9.9 shmem_alltoall, shmem_alltoalls) */
#ifndef RUSHMEM_ALLTOALL_H
#define RUSHMEM_ALLTOALL_H

#include <rushmem/fcollect.h>

namespace rushmem {
namespace impl {

/* The calls that are neither small nor of few words, out of line (small.h): direct ones, and others. */
template <typename Scope, typename T> RUSHMEM_OUTLINED_LARGE void alltoall_direct(team t, T *dst, const T *src, size_t n) {
  direct_call<Scope>(t, tag_of(RUSHMEM_COLLECTIVE_ALLTOALL, n * sizeof(T), 1), [=](const call<Scope> &c) {
    char *block_ = reinterpret_cast<char *>(dst + static_cast<size_t>(c.t.raw.my_pe) * n);
    write_to_all<unit_of<T>::value>(c, block_, reinterpret_cast<const char *>(src), n * sizeof(T), n * sizeof(T));
  });
}
template <typename Scope, typename T> RUSHMEM_OUTLINED_LARGE void alltoall_any(team t, T *dst, const T *src, size_t n) {
  call<Scope> c(t, tag_of(RUSHMEM_COLLECTIVE_ALLTOALL, n * sizeof(T), 0));
  exchange<Scope>(c, words_of<T>(n), words_from<T, true>{src, n}, block_each<T>{dst, n});
  c.end();
}

}  // namespace impl


/* Block j of `src` goes to member j, where it is block `my_pe` of `dst`; a block is n elements, an array
 * n_pes() of them. `dst` and `src` are the same array or do not overlap. `dst` is symmetric, or not for any
 * member. On return `dst` may be read by every thread of the scope, and `src` changed. (OpenSHMEM 1.5, 9.9
 * shmem_alltoall)
 * Order: the data is here on return. Cost: collective. */
template <typename Scope = thread, typename T>
RUSHMEM_DEVICE void alltoall(const team &t, T *dst, const T *src, size_t n) {
  RUSHMEM_TRACED(COLLECTIVE, "alltoall", Scope::rank() == 0, -1, n * sizeof(T), nullptr);
  RUSHMEM_ASSERT_ELEMENT(T);
  const impl::words_from<T, true> source{src, n};
  const impl::block_each<T> sink{dst, n};
  if (RUSHMEM_LIKELY((impl::is_of_pair<Scope>(t, n * sizeof(T), source, dst)))) {
    impl::pair_exchange<Scope>(t, RUSHMEM_COLLECTIVE_ALLTOALL, n * sizeof(T), 0, source, sink);
    return;
  }
  if (n == 0) return;
  if (impl::wide_move<Scope>(t, RUSHMEM_COLLECTIVE_ALLTOALL, 0, dst, n, src, n, n, -1)) return;
  if (impl::small_exchange<Scope>(t, RUSHMEM_COLLECTIVE_ALLTOALL, n * sizeof(T), 0, source, sink)) return;
  if (impl::few_exchange<Scope>(t, RUSHMEM_COLLECTIVE_ALLTOALL, n * sizeof(T), 0, source, sink)) return;
  const size_t count = static_cast<size_t>(t.raw.n_pes) * n;
  /* In place, a block could arrive before the one that it replaces has left. */
  if (impl::is_large_to_write<Scope>(t, n * sizeof(T)) && dst != src && impl::is_symmetric(dst, count * sizeof(T))) {
    return impl::alltoall_direct<Scope, T>(t, dst, src, n);
  }
  impl::alltoall_any<Scope, T>(t, dst, src, n);
}

namespace impl {

/* Elements apart from one another, as words: as many as fit, or each in several. */
template <typename T> struct apart {
  static constexpr size_t in_word = sizeof(T) <= 8 ? 8 / sizeof(T) : 1;
  static constexpr size_t words_each = (sizeof(T) + 7) / 8;

  RUSHMEM_DEVICE static size_t words(size_t n) { return (n + in_word - 1) / in_word * words_each; }

  RUSHMEM_DEVICE static uint64_t gather(const T *from, size_t stride, size_t n, size_t w) {
    if constexpr (sizeof(T) > 8) return word_at(from + w / words_each * stride, 1, w % words_each);
    uint64_t value = 0;
    RUSHMEM_ROLLED
    for (size_t k = 0; k < in_word && w * in_word + k < n; ++k) {
      value |= word_at(from + (w * in_word + k) * stride, 1, 0) << (8 * sizeof(T) * k);
    }
    return value;
  }

  RUSHMEM_DEVICE static void scatter(T *to, size_t stride, size_t n, size_t w, uint64_t value) {
    if constexpr (sizeof(T) > 8) {
      set_word(to + w / words_each * stride, 1, w % words_each, value);
    } else {
      RUSHMEM_ROLLED
      for (size_t k = 0; k < in_word && w * in_word + k < n; ++k) {
        set_word(to + (w * in_word + k) * stride, 1, 0, value >> (8 * sizeof(T) * k));
      }
    }
  }
};

/* Word w of member m goes to block m, whose elements are apart. */
template <typename T> struct block_apart {
  T *dst;
  size_t stride, n;
  RUSHMEM_DEVICE void take(int member, size_t w, uint64_t word_) {
    apart<T>::scatter(dst + static_cast<size_t>(member) * n * stride, stride, n, w, word_);
  }
  RUSHMEM_DEVICE void done(size_t) {}
};

/* Elements that are apart, to a far member. One block asks for all of them. */
template <typename Scope, typename T>
RUSHMEM_DEVICE void put_strided(const call<Scope> &c, T *dst, const T *src, size_t dst_stride, size_t src_stride, size_t n,
                                int member) {
  if (call<Scope>::blocks && block_in_grid() != 0) return;
  far_iput<typename call<Scope>::group>(dst, src, static_cast<ptrdiff_t>(dst_stride), static_cast<ptrdiff_t>(src_stride), n,
                                        c.t.world_pe(member));
}

}  // namespace impl

/* `alltoall` of elements that are `dst_stride` and `src_stride` elements apart, at least 1: element k of
 * block j of `src` is `src[(j * n + k) * src_stride]`, and so in `dst`. What lies between is not touched.
 * Sizes and strides are the same on all members. `dst` and `src` do not overlap. `dst` is symmetric, or not
 * for any member. On return `dst` may be read by every thread of the scope, and `src` changed. (OpenSHMEM
 * 1.5, 9.9 shmem_alltoalls)
 * Order: the data is here on return. Cost: collective. */
template <typename Scope = thread, typename T>
RUSHMEM_DEVICE void alltoalls(const team &t, T *dst, const T *src, size_t dst_stride, size_t src_stride, size_t n) {
  RUSHMEM_TRACED(COLLECTIVE, "alltoalls", Scope::rank() == 0, -1, n * sizeof(T), nullptr);
  RUSHMEM_ASSERT_ELEMENT(T);
  if (n == 0) return;
  const size_t me = static_cast<size_t>(t.raw.my_pe), count = static_cast<size_t>(t.raw.n_pes) * n;
  const bool direct = impl::is_large_to_write<Scope>(t, n * sizeof(T)) &&
                      impl::is_symmetric(dst, ((count - 1) * dst_stride + 1) * sizeof(T));
  const uint64_t shape = (dst_stride * 0x9e3779b97f4a7c15u ^ src_stride) << 1 | static_cast<uint64_t>(direct);
  impl::call<Scope> c(t, impl::tag_of(RUSHMEM_COLLECTIVE_ALLTOALLS, n * sizeof(T), shape), direct);
  if (direct) {
    c.meet_first();
    RUSHMEM_ROLLED
    for (int s = 0; s < t.raw.n_pes; ++s) {
      const int to = s == 0 ? t.raw.my_pe : c.right(s);
      T *there = (s == 0 ? dst : impl::of_member(c, dst, to)) + me * n * dst_stride;
      const T *from = src + static_cast<size_t>(to) * n * src_stride;
      if (RUSHMEM_UNLIKELY(!t.raw.all_near && s != 0)) {
        const impl::route way = impl::route_to(t.world_pe(to));
        if (way.is_far()) {
          impl::put_strided(c, dst + me * n * dst_stride, from, dst_stride, src_stride, n, to);
          continue;
        }
        there = way.at(dst) + me * n * dst_stride;
      }
      for (size_t k = Scope::rank(); k < n && !c.is_idle(); k += Scope::size()) {
        there[k * dst_stride] = from[k * src_stride];
      }
    }
    c.meet_behind_puts();
    impl::written(c);
  } else {
    impl::exchange<Scope>(
        c, impl::apart<T>::words(n),
        impl::words_of_each([=](int member, size_t w) {
          return impl::apart<T>::gather(src + static_cast<size_t>(member) * n * src_stride, src_stride, n, w);
        }),
        impl::block_apart<T>{dst, dst_stride, n});
  }
  c.end();
}

}  // namespace rushmem

#endif
