/* One member's array to all. (OpenSHMEM 1.5, 9.9 shmem_broadcast) */
#ifndef RUSHMEM_BROADCAST_H
#define RUSHMEM_BROADCAST_H

#include <rushmem/impl/coll/direct.h>
#include <rushmem/impl/coll/exchange.h>
#include <rushmem/impl/coll/relay.h>
#include <rushmem/impl/coll/few.h>
#include <rushmem/impl/coll/wide.h>

namespace rushmem {
namespace impl {

/* Words [first, first + count) of the root's array go to all others, and to its own `dst`. */
template <typename Scope, typename T>
RUSHMEM_DEVICE void send_from_root(const call<Scope> &c, T *dst, const T *src, size_t n, size_t first, uint32_t count) {
  using group = typename call<Scope>::group;
  const words_from<T, false> source{src, n};
  packet *slot = c.packets(c.next, c.t.raw.my_pe);
  const uint32_t size = group::size();
  uint32_t i = group::rank();
  const bool whole = source.are_whole(src);
  RUSHMEM_ROLLED
  for (; whole && i < count; i += few_words * size) send_words<few_words>(c, source, slot, first, i, count);
  RUSHMEM_ROLLED
  for (; i < count; i += size) send_words<1>(c, source, slot, first, i, count);
  if (dst == src || count == 0) return;
  const size_t begin = first * 8, bytes = n * sizeof(T) - begin;
  copy_apart<group, unit_of<T>::value>(reinterpret_cast<char *>(dst) + begin, reinterpret_cast<const char *>(src) + begin,
                                       bytes < count * size_t(8) ? bytes : count * size_t(8));
}

template <typename Scope, typename T>
RUSHMEM_DEVICE void receive_from_root(const call<Scope> &c, T *dst, size_t n, size_t first, uint32_t count, int root) {
  using group = typename call<Scope>::group;
  constexpr uint32_t U = few_words;
  const packet *slot = c.packets(c.next, root);
  const uint32_t size = group::size();
  uint32_t i = group::rank();
  const bool whole = ((reinterpret_cast<uint64_t>(dst) | n * sizeof(T)) & 7) == 0;
  RUSHMEM_ROLLED
  for (; whole && i < count; i += U * size) {
    const auto got = c.template receive_some<U>(slot + i, size, count - i, c.next, root);
    RUSHMEM_UNROLL
    for (uint32_t u = 0; u < U; ++u) {
      if (u == 0 || i + u * size < count) leave_word<true>(dst, n, first + i + u * size, got.at[u]);
    }
  }
  RUSHMEM_ROLLED
  for (; i < count; i += size) set_word(dst, n, first + i, c.receive(slot + i, c.next, root));
}

/* The root sends packets; all members show when they are done with them. */
template <typename Scope, typename T>
RUSHMEM_DEVICE void broadcast_packets(call<Scope> &c, T *dst, const T *src, size_t n, int root) {
  const size_t words = words_of<T>(n), chunk = c.room;
  for (size_t from = 0; from < words; from += chunk) {
    const uint32_t count = static_cast<uint32_t>(words - from < chunk ? words - from : chunk);
    if (c.t.raw.my_pe == root) {
      c.make_room();
      send_from_root(c, dst, src, n, from, count);
    } else {
      receive_from_root(c, dst, n, from, count, root);
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
  const int me = c.t.raw.my_pe;
  const chunks shares = chunks_of(c, words_of<T>(n));
  c.make_room();
  for (size_t sent = 0; sent < shares.words; sent += shares.step) {
    const size_t first = sent + shares.offset;
    const uint32_t count = shares.count(sent);
    /* A sign of life goes first. */
    if (group::rank() == 0 && (me != root || count == 0)) say_here(c);
    if (me == root) send_from_root(c, dst, src, n, first, count);
    else receive_from_root(c, dst, n, first, count, root);
    if (group::rank() == 0) {
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
    write_to_all<unit_of<T>::value>(c, reinterpret_cast<char *>(dst), reinterpret_cast<const char *>(src), 0,
                                    n * sizeof(T));
  }
  c.meet_behind_puts();
  written(c);
}

/* The calls that are not small, out of line (small.h). */
template <typename Scope, typename T> RUSHMEM_OUTLINED_LARGE void broadcast_any(team t, T *dst, const T *src, size_t n, int root) {
  const bool direct = is_large_to_write<Scope, most_by_packets_one_way>(t, n * sizeof(T)) && is_symmetric(dst, n * sizeof(T));
  const uint64_t tag = tag_of(RUSHMEM_COLLECTIVE_BROADCAST, n * sizeof(T), static_cast<uint64_t>(root) * 2 + direct);
  char *const to = reinterpret_cast<char *>(dst);
  const char *const from = reinterpret_cast<const char *>(src);
  if constexpr (call<Scope>::blocks) {
    /* What this follows from is in the tag: the size, `direct`, and the number of blocks. */
    if (direct && is_relayed<Scope>(t, n * sizeof(T))) {
      return broadcast_by_relays<Scope, unit_of<T>::value>(t, tag, to, from, n * sizeof(T), root);
    }
  }
  call<Scope> c(t, tag);
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
  RUSHMEM_TRACED(COLLECTIVE, "broadcast", Scope::rank() == 0, -1, n * sizeof(T), nullptr);
  RUSHMEM_ASSERT_ELEMENT(T);
  if (RUSHMEM_UNLIKELY(static_cast<uint32_t>(root) >= static_cast<uint32_t>(t.raw.n_pes))) {
    impl::fail(RUSHMEM_DEVICE_FAIL_BAD_PE);
  }
  if (n == 0) return;
  const uint64_t of_root = static_cast<uint64_t>(root) * 2;
  if (impl::wide_move<Scope>(t, RUSHMEM_COLLECTIVE_BROADCAST, of_root, dst, 0, src, 0, n, root)) return;
  if (impl::small_broadcast<Scope>(t, dst, src, n, root)) return;
  impl::broadcast_any<Scope, T>(t, dst, src, n, root);
}

}  // namespace rushmem

#endif
