/* One member's array to all. (OpenSHMEM 1.5, 9.9 shmem_broadcast) */
#ifndef RUSHMEM_BROADCAST_H
#define RUSHMEM_BROADCAST_H

#include <rushmem/impl/coll/direct.h>
#include <rushmem/impl/coll/exchange.h>
#include <rushmem/impl/coll/small.h>

namespace rushmem {
namespace impl {

/* The root sends packets; all members show when they are done with them. */
template <typename Scope, typename T>
RUSHMEM_DEVICE void broadcast_packets(call<Scope> &c, T *dst, const T *src, size_t n, int root) {
  constexpr uint32_t U = words_together;
  const int me = c.t.raw.my_pe;
  const size_t words = words_of<T>(n), chunk = c.room, size = Scope::size();
  for (size_t from = 0; from < words; from += chunk) {
    const size_t count = words - from < chunk ? words - from : chunk;
    if (me == root) {
      c.make_room();
      packet *slot = c.packets(c.next, root);
      for (size_t i = Scope::rank(); i < count; i += size) {
        const uint64_t value = word_at(src, n, from + i);
        for (int s = 1; s < c.t.raw.n_pes; ++s) c.send(slot + i, value, c.next, c.right(s));
        if (dst != src) set_word(dst, n, from + i, value);
      }
    } else {
      const packet *slot = c.packets(c.next, root);
      size_t i = Scope::rank();
      RUSHMEM_ROLLED
      for (; i + (U - 1) * size < count; i += U * size) {
        const auto got = c.template receive_some<U>(slot + i, size, c.next, root);
        RUSHMEM_UNROLL
        for (uint32_t u = 0; u < U; ++u) set_word(dst, n, from + i + u * size, got.at[u]);
      }
      RUSHMEM_ROLLED
      for (; i < count; i += size) set_word(dst, n, from + i, c.receive(slot + i, c.next, root));
    }
    c.check_busy();
    loads_before_later();
    c.ended();
  }
}

/* The same by blocks, each in its channel, where every member says in each phase that it is there: the root
 * by its words, the others by one packet. A chunk is sent once all members have shown themselves in the one
 * before, so nothing is overwritten that is not read (call.h). */
template <typename Scope, typename T>
RUSHMEM_DEVICE void broadcast_by_blocks(call<Scope> &c, T *dst, const T *src, size_t n, int root) {
  if (c.is_idle()) return;
  using group = typename call<Scope>::group;
  const int me = c.t.raw.my_pe, members = c.t.raw.n_pes;
  const chunks shares = chunks_of(c, words_of<T>(n));
  c.make_room();
  for (size_t sent = 0; sent < shares.words; sent += shares.step) {
    const size_t first = sent + shares.offset, count = shares.count(sent);
    if (me == root) {
      packet *slot = c.packets(c.next, me);
      for (size_t i = group::rank(); i < count; i += group::size()) {
        const uint64_t value = word_at(src, n, first + i);
        for (int s = 1; s < members; ++s) c.send(slot + i, value, c.next, c.right(s));
        if (dst != src) set_word(dst, n, first + i, value);
      }
    } else {
      const packet *slot = c.packets(c.next, root);
      for (size_t i = group::rank(); i < count; i += group::size()) {
        /* This PE's own sign of life goes first. */
        if (i == 0) say_here(c);
        set_word(dst, n, first + i, c.receive(slot + i, c.next, root));
      }
    }
    if (group::rank() == 0) {
      if (count == 0) say_here(c);
      c.check_busy();
      hear_all(c, c.next, count == 0 ? me : root);
    }
    loads_before_later();
    group::sync();
    ++c.next;
    c.behind = 2;
  }
}

/* The root writes to all. */
template <typename Scope, typename T>
RUSHMEM_DEVICE void broadcast_direct(call<Scope> &c, T *dst, const T *src, size_t n, int root) {
  c.meet();
  if (c.t.raw.my_pe == root) {
    write_to_all<unit_of<T>::value>(c, reinterpret_cast<char *>(dst), 0, n * sizeof(T),
                                    [=](int) { return reinterpret_cast<const char *>(src); });
  }
  c.meet();
}

/* The calls that are not small, out of line (small.h). */
template <typename Scope, typename T> RUSHMEM_OUTLINED void broadcast_any(team t, T *dst, const T *src, size_t n, int root) {
  const bool direct = is_large<Scope>(t, n * sizeof(T)) && t.raw.all_near && is_symmetric(dst, n * sizeof(T));
  call<Scope> c(t, tag_of(RUSHMEM_COLLECTIVE_BROADCAST, n * sizeof(T), static_cast<uint64_t>(root) * 2 + direct));
  if (direct) broadcast_direct(c, dst, src, n, root);
  else if constexpr (call<Scope>::blocks) broadcast_by_blocks(c, dst, src, n, root);
  else broadcast_packets(c, dst, src, n, root);
  c.end();
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
  if (impl::small_broadcast<Scope>(t, dst, src, n, root)) return;
  impl::broadcast_any<Scope, T>(t, dst, src, n, root);
}

}  // namespace rushmem

#endif
