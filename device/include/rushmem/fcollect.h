/* Every member's array to all, one after the other. (OpenSHMEM 1.5, 9.9 shmem_fcollect) */
#ifndef RUSHMEM_FCOLLECT_H
#define RUSHMEM_FCOLLECT_H

#include <rushmem/impl/coll/between.h>
#include <rushmem/impl/coll/few.h>
#include <rushmem/impl/coll/wide.h>

namespace rushmem {
namespace impl {

/* Word w of member m goes to block m. */
template <typename T> struct block_each {
  T *dst;
  size_t n;
  RUSHMEM_DEVICE T *block_of(int member) const { return dst + static_cast<size_t>(member) * n; }
  RUSHMEM_DEVICE void take(int member, size_t w, uint64_t word_) { set_word(block_of(member), n, w, word_); }
  RUSHMEM_DEVICE void done(size_t) {}
  RUSHMEM_DEVICE void take_whole(int member, size_t w, uint32_t past, uint64_t word_) {
    leave_whole(block_of(member), w, past, word_);
  }
  RUSHMEM_DEVICE void done_whole(size_t, uint32_t) {}
  RUSHMEM_DEVICE void take_both(bool second_half, uint64_t first, uint64_t second) {
    leave_halves(block_of(0), second_half, first);
    leave_halves(block_of(1), second_half, second);
  }
};

/* The calls that are neither small nor of few words, out of line (small.h): direct ones, and others. */
template <typename Scope, typename T> RUSHMEM_OUTLINED_LARGE void fcollect_direct(team t, T *dst, const T *src, size_t n) {
  direct_call<Scope>(t, tag_of(RUSHMEM_COLLECTIVE_FCOLLECT, n * sizeof(T), 1), [=](const call<Scope> &c) {
    char *block_ = reinterpret_cast<char *>(dst + static_cast<size_t>(c.t.raw.my_pe) * n);
    write_to_all<unit_of<T>::value>(c, block_, reinterpret_cast<const char *>(src), 0, n * sizeof(T));
  });
}
template <typename Scope, typename T> RUSHMEM_OUTLINED_LARGE void fcollect_any(team t, T *dst, const T *src, size_t n) {
  call<Scope> c(t, tag_of(RUSHMEM_COLLECTIVE_FCOLLECT, n * sizeof(T), 0));
  exchange<Scope>(c, words_of<T>(n), words_from<T, false>{src, n}, block_each<T>{dst, n});
  c.end();
}

}  // namespace impl

/* n elements from `src` of each member to `dst` of all, n_pes() * n elements: block i is member i's. `src`
 * may be this member's block of `dst`. `dst` is symmetric, or not for any member. On return `dst` may be read
 * by every thread of the scope, and `src` changed. (OpenSHMEM 1.5, 9.9 shmem_fcollect) Order: the data is
 * here on return. Cost: collective. */
template <typename Scope = thread, typename T>
RUSHMEM_DEVICE void fcollect(const team &t, T *dst, const T *src, size_t n) {
  RUSHMEM_TRACED(COLLECTIVE, "fcollect", Scope::rank() == 0, -1, n * sizeof(T), nullptr);
  RUSHMEM_ASSERT_ELEMENT(T);
  const impl::words_from<T, false> source{src, n};
  const impl::block_each<T> sink{dst, n};
  if (RUSHMEM_LIKELY((impl::is_of_pair<Scope>(t, n * sizeof(T), source, dst)))) {
    impl::pair_exchange<Scope>(t, RUSHMEM_COLLECTIVE_FCOLLECT, n * sizeof(T), 0, source, sink);
    return;
  }
  if (n == 0) return;
  if (impl::wide_move<Scope>(t, RUSHMEM_COLLECTIVE_FCOLLECT, 0, dst, n, src, 0, n, -1)) return;
  if (impl::small_exchange<Scope>(t, RUSHMEM_COLLECTIVE_FCOLLECT, n * sizeof(T), 0, source, sink)) return;
  if (impl::few_exchange<Scope>(t, RUSHMEM_COLLECTIVE_FCOLLECT, n * sizeof(T), 0, source, sink)) return;
  const size_t count = static_cast<size_t>(t.raw.n_pes) * n;
  if (impl::is_large_to_write<Scope>(t, n * sizeof(T)) && impl::is_symmetric(dst, count * sizeof(T))) {
    return impl::fcollect_direct<Scope, T>(t, dst, src, n);
  }
  impl::fcollect_any<Scope, T>(t, dst, src, n);
}

}  // namespace rushmem

#endif
