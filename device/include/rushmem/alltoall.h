/* A block from every member to every member. (OpenSHMEM 1.5, 9.9 shmem_alltoall) */
#ifndef RUSHMEM_ALLTOALL_H
#define RUSHMEM_ALLTOALL_H

#include <rushmem/fcollect.h>

namespace rushmem {

/* Block j of `src` goes to member j, where it is block `my_pe` of `dst`; a block is n elements, an array
 * n_pes() of them. `dst` and `src` are the same array or do not overlap. `dst` is symmetric, or not for any
 * member. On return `dst` may be read by every thread of the scope, and `src` changed. (OpenSHMEM 1.5, 9.9
 * shmem_alltoall)
 * Order: the data is here on return. Cost: collective. */
template <typename Scope = thread, typename T>
RUSHMEM_DEVICE void alltoall(const team &t, T *dst, const T *src, size_t n) {
  RUSHMEM_ASSERT_ELEMENT(T);
  if (n == 0) return;
  const size_t count = static_cast<size_t>(t.raw.n_pes) * n, me = static_cast<size_t>(t.raw.my_pe);
  /* In place, a block could arrive before the one that it replaces has left. */
  const bool direct = impl::is_large(t, n * sizeof(T)) && t.raw.all_near && dst != src &&
                      impl::is_symmetric(dst, count * sizeof(T));
  impl::call<Scope> c(t, RUSHMEM_COLLECTIVE_ALLTOALL, impl::tag_of(RUSHMEM_COLLECTIVE_ALLTOALL, n * sizeof(T), direct));
  if (direct) {
    c.meet();
    RUSHMEM_ROLLED
    for (int s = 1; s < t.raw.n_pes; ++s) {
      const int to = c.right(s);
      impl::copy_to_member(c, dst + me * n, src + static_cast<size_t>(to) * n, n, to);
    }
    impl::copy_own<Scope>(dst + me * n, src + me * n, n);
    c.meet();
  } else {
    impl::exchange<Scope>(
        c, impl::words_of<T>(n),
        [=](int member, size_t w) { return impl::word_at(src + static_cast<size_t>(member) * n, n, w); },
        impl::block_each<T>{dst, n});
  }
  c.end();
}

}  // namespace rushmem

#endif
