/* One member's array to all. (OpenSHMEM 1.5, 9.9 shmem_broadcast) */
#ifndef RUSHMEM_BROADCAST_H
#define RUSHMEM_BROADCAST_H

#include <rushmem/impl/coll/direct.h>
#include <rushmem/impl/coll/exchange.h>

namespace rushmem {
namespace impl {

/* The root sends packets; everybody shows when it is done with them. */
template <typename Scope, typename T>
RUSHMEM_DEVICE void broadcast_packets(call<Scope> &c, T *dst, const T *src, size_t n, int root) {
  const int me = c.t.raw.my_pe;
  const size_t words = words_of<T>(n), room = c.t.raw.packets;
  for (size_t from = 0; from < words; from += room) {
    const size_t count = words - from < room ? words - from : room;
    if (me == root) {
      c.make_room();
      for (size_t i = Scope::rank(); i < count; i += Scope::size()) {
        const uint64_t value = word_at(src, n, from + i);
        for (int s = 1; s < c.t.raw.n_pes; ++s) c.send(c.packets(c.next, root) + i, value, c.next, c.right(s));
        if (dst != src) set_word(dst, n, from + i, value);
      }
    } else {
      for (size_t i = Scope::rank(); i < count; i += Scope::size()) {
        set_word(dst, n, from + i, c.receive(c.packets(c.next, root) + i, c.next, root));
      }
    }
    c.check_busy();
    loads_before_later();
    c.ended();
  }
}

/* The root writes to all, each thread a share for every member. */
template <typename Scope, typename T>
RUSHMEM_DEVICE void broadcast_direct(call<Scope> &c, T *dst, const T *src, size_t n, int root) {
  c.meet();
  if (c.t.raw.my_pe == root) {
    RUSHMEM_ROLLED
    for (int s = 1; s < c.t.raw.n_pes; ++s) copy_to_member(c, dst, src, n, c.right(s));
    copy_own<Scope>(dst, src, n);
  }
  c.meet();
}

}  // namespace impl

/* n elements from `src` of member `root` to `dst` of all members, the root's own too. `dst` is symmetric, or
 * not for any member; they may be the same array. On return `dst` may be read by every thread of the scope,
 * and `src` changed. (OpenSHMEM 1.5, 9.9 shmem_broadcast) Order: the data is here on return. Cost:
 * collective. */
template <typename Scope = thread, typename T>
RUSHMEM_DEVICE void broadcast(const team &t, T *dst, const T *src, size_t n, int root) {
  RUSHMEM_ASSERT_ELEMENT(T);
  if (RUSHMEM_UNLIKELY(static_cast<uint32_t>(root) >= static_cast<uint32_t>(t.raw.n_pes))) {
    impl::fail(RUSHMEM_DEVICE_FAIL_BAD_PE);
  }
  if (n == 0) return;
  const bool direct = impl::is_large(t, n * sizeof(T)) && t.raw.all_near && impl::is_symmetric(dst, n * sizeof(T));
  const uint64_t tag = impl::tag_of(RUSHMEM_COLLECTIVE_BROADCAST, n * sizeof(T), static_cast<uint64_t>(root) * 2 + direct);
  impl::call<Scope> c(t, RUSHMEM_COLLECTIVE_BROADCAST, tag);
  if (direct) impl::broadcast_direct(c, dst, src, n, root);
  else impl::broadcast_packets(c, dst, src, n, root);
  c.end();
}

}  // namespace rushmem

#endif
