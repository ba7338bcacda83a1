/* Arrays of different sizes of all members to all. (OpenSHMEM 1.5, 9.9 shmem_collect) */
#ifndef RUSHMEM_COLLECT_H
#define RUSHMEM_COLLECT_H

#include <rushmem/impl/coll/sizes.h>

namespace rushmem {
namespace impl {

/* Word w of each member goes behind what the members before it have. */
template <typename T> struct one_after_another {
  T *dst;
  const rushmem_sync_line *lines;
  size_t at;
  RUSHMEM_DEVICE void take(int member, size_t w, uint64_t word_) {
    const size_t n = lines[member].said[0];
    if (w < words_of<T>(n)) set_word(dst + at, n, w, word_);
    at += n;
  }
  RUSHMEM_DEVICE void done(size_t) { at = 0; }
};

}  // namespace impl

/* n elements from `src` of each member to `dst` of all, one after the other in the order of the members; n
 * may differ from member to member, and be zero. `src` may be this member's part of `dst`. `dst` is
 * symmetric, or not for any member. On return `dst` may be read by every thread of the scope, and `src`
 * changed. (OpenSHMEM 1.5, 9.9 shmem_collect)
 * Order: the data is here on return. Cost: collective. */
template <typename Scope = thread, typename T>
RUSHMEM_DEVICE void collect(const team &t, T *dst, const T *src, size_t n) {
  RUSHMEM_TRACED(COLLECTIVE, "collect", Scope::rank() == 0, -1, n * sizeof(T), nullptr);
  RUSHMEM_ASSERT_ELEMENT(T);
  const bool symmetric = impl::is_symmetric(dst, sizeof(T));
  impl::call<Scope> c(t, impl::tag_of(RUSHMEM_COLLECTIVE_COLLECT, sizeof(T), symmetric));
  impl::tell(c, 1, [=](int, size_t) { return static_cast<uint64_t>(n); });
  size_t most = 0, before = 0; /* elements of the largest, and of those in front of this PE's */
  RUSHMEM_ROLLED
  for (int member = 0; member < t.raw.n_pes; ++member) {
    const size_t theirs = c.lines()[member].said[0];
    if (theirs > most) most = theirs;
    if (member < t.raw.my_pe) before += theirs;
  }
  if (symmetric && impl::is_large_to_write<Scope>(t, most * sizeof(T))) {
    c.meet();
    impl::write_to_all<impl::unit_of<T>::value>(c, reinterpret_cast<char *>(dst + before),
                                                reinterpret_cast<const char *>(src), 0, n * sizeof(T));
    c.meet_behind_puts();
    impl::written(c);
  } else if (most != 0) {
    impl::exchange<Scope>(
        c, impl::words_of<T>(most), impl::words_of_each([=](int, size_t w) { return impl::word_or_zero(src, n, w); }),
        impl::one_after_another<T>{dst, c.lines(), 0});
  }
  impl::forget_said(c);
  c.end();
}

}  // namespace rushmem

#endif
