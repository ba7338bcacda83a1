/* One member's array to all. (OpenSHMEM 1.5, 9.9 shmem_broadcast) */
#ifndef RUSHMEM_BROADCAST_H
#define RUSHMEM_BROADCAST_H

#include <rushmem/impl/coll/direct.h>
#include <rushmem/impl/coll/exchange.h>
#include <rushmem/impl/coll/few.h>
#include <rushmem/impl/coll/pull.h>
#include <rushmem/impl/coll/relay.h>
#include <rushmem/impl/coll/rows.h>

namespace rushmem {
namespace impl {

/* Words [first, first + count) of the root's array go to all others, and to its own `dst`. `whole`: all words
 * of both arrays are. */
template <typename Scope, typename T>
RUSHMEM_DEVICE void send_from_root(const call<Scope> &c, T *dst, const T *src, size_t n, size_t first, uint32_t count, bool whole) {
  using group = typename call<Scope>::group;
  using share = tiles<group, few_words>;
  const words_from<T, false> source{src, n};
  packet *const slot = c.packets(c.next, c.t.raw.my_pe);
  const share mine(whole && c.t.raw.all_near && c.t.raw.n_pes > 1 ? count : 0);
  const bool copies = dst != src;
  RUSHMEM_ROLLED
  for (int s = 1; s < c.t.raw.n_pes; ++s) {
    packet *const there = c.near_at(slot, c.right(s));
    const uint64_t number = c.number(c.next);
    RUSHMEM_ROLLED
    for (uint32_t i = mine.first; i < mine.whole; i += mine.step) {
      uint64_t word_[few_words];
      load_tile<true>(word_, source, 0, first + i, share::known, 0);
      store_tile<true>(there + i, word_, number, share::known, 0);
      if (s != 1 || !copies) continue;
      RUSHMEM_UNROLL
      for (uint32_t u = 0; u < few_words; ++u) leave_whole(dst, first + i, u * share::known, word_[u]);
    }
  }
  RUSHMEM_ROLLED
  for (uint32_t i = mine.whole + group::rank(); i < count; i += group::size()) {
    send_word(c, source, slot + i, first + i);
  }
  if (!copies || mine.whole >= count) return;
  const size_t begin = (first + mine.whole) * 8, bytes = n * sizeof(T) - begin, most = (count - mine.whole) * size_t(8);
  copy_apart<group, unit_of<T>::value>(reinterpret_cast<char *>(dst) + begin, reinterpret_cast<const char *>(src) + begin,
                                       bytes < most ? bytes : most);
}

template <typename Scope, typename T>
RUSHMEM_DEVICE void receive_from_root(const call<Scope> &c, T *dst, size_t n, size_t first, uint32_t count, int root, bool whole) {
  using group = typename call<Scope>::group;
  using share = tiles<group, few_words>;
  const packet *const slot = c.packets(c.next, root);
  const share mine(whole ? count : 0);
  RUSHMEM_ROLLED
  for (uint32_t i = mine.first; i < mine.whole; i += mine.step) {
    const auto got = c.template receive_some<few_words, true>(slot + i, share::known, 0, c.next, root);
    RUSHMEM_UNROLL
    for (uint32_t u = 0; u < few_words; ++u) leave_whole(dst, first + i, u * share::known, got.at[u]);
  }
  RUSHMEM_ROLLED
  for (uint32_t i = mine.whole + group::rank(); i < count; i += group::size()) {
    set_word(dst, n, first + i, c.receive(slot + i, c.next, root));
  }
}

/* The root sends packets; all members show when they are done with them. */
template <typename Scope, typename T>
RUSHMEM_DEVICE void broadcast_packets(call<Scope> &c, T *dst, const T *src, size_t n, int root) {
  const size_t words = words_of<T>(n), chunk = c.room;
  const bool whole = words_from<T, false>{src, n}.are_whole(dst);
  for (size_t from = 0; from < words; from += chunk) {
    const uint32_t count = static_cast<uint32_t>(words - from < chunk ? words - from : chunk);
    if (c.t.raw.my_pe == root) {
      c.make_room();
      send_from_root(c, dst, src, n, from, count, whole);
    } else {
      receive_from_root(c, dst, n, from, count, root, whole);
      c.received_from(root);
    }
    c.check_busy();
    loads_before_later();
    c.ended();
  }
}

/* One chunk of whole words between near members, as a call by itself: as those of few.h. */
template <typename Scope, typename T>
RUSHMEM_DEVICE void broadcast_few(const team &t, uint64_t tag, T *dst, const T *src, size_t n, int root) {
  call<Scope> c = small_call<Scope>(t, tag);
  c.enter();
  c.begin(c.load_phases(), 0);
  const uint32_t words = static_cast<uint32_t>(words_of<T>(n));
  if (t.raw.my_pe == root) {
    make_small_room(c);
    send_from_root(c, dst, src, n, 0, words, true);
    if (Scope::rank() == 0) c.take();
  } else {
    if (Scope::rank() == 0) c.take();
    receive_from_root(c, dst, n, 0, words, root, true);
    c.received_from(root);
  }
  end_broadcast(c);
}

/* The whole call if it is such a one. */
template <typename Scope, typename T>
RUSHMEM_DEVICE bool few_broadcast(const team &t, T *dst, const T *src, size_t n, int root) {
  if constexpr (!call<Scope>::blocks) {
    const size_t bytes = n * sizeof(T);
    if (!t.raw.all_near || bytes > 8 * static_cast<size_t>(t.raw.packets) || is_large<Scope, most_by_packets_one_way>(t, bytes) ||
        !words_from<T, false>{src, n}.are_whole(dst)) {
      return false;
    }
    broadcast_few<Scope>(t, tag_of(RUSHMEM_COLLECTIVE_BROADCAST, bytes, static_cast<uint64_t>(root) * 2), dst, src, n, root);
    return true;
  }
  return false;
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
  const bool whole = words_from<T, false>{src, n}.are_whole(dst);
  c.make_room();
  for (size_t sent = 0; sent < shares.words; sent += shares.step) {
    const size_t first = sent + shares.offset;
    const uint32_t count = shares.count(sent);
    /* A sign of life goes first. */
    if (group::rank() == 0 && (me != root || count == 0)) say_here(c);
    if (me == root) send_from_root(c, dst, src, n, first, count, whole);
    else receive_from_root(c, dst, n, first, count, root, whole);
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
  c.meet_first();
  if (c.t.raw.my_pe == root) {
    write_to_all<unit_of<T>::value>(c, reinterpret_cast<char *>(dst), reinterpret_cast<const char *>(src), 0,
                                    n * sizeof(T));
  }
  c.meet_behind_puts();
  written(c);
}

/* The calls that are neither small nor of few words, out of line (small.h). */
template <typename Scope, typename T> RUSHMEM_OUTLINED_LARGE void broadcast_any(team t, T *dst, const T *src, size_t n, int root) {
  char *const to = reinterpret_cast<char *>(dst);
  const char *const from = reinterpret_cast<const char *>(src);
  if constexpr (!call<Scope>::blocks) {
    if (is_pulled<Scope>(t, n * sizeof(T))) {
      const uint64_t pulled = tag_of(RUSHMEM_COLLECTIVE_BROADCAST, n * sizeof(T), static_cast<uint64_t>(root) * 2 + pulled_call);
      if (broadcast_pulled<Scope, unit_of<T>::value>(t, pulled, to, from, n * sizeof(T), root)) return;
    }
  }
  const bool direct = is_large_to_write<Scope, most_by_packets_one_way>(t, n * sizeof(T)) && is_symmetric(dst, n * sizeof(T));
  const uint64_t tag = tag_of(RUSHMEM_COLLECTIVE_BROADCAST, n * sizeof(T), static_cast<uint64_t>(root) * 2 + direct);
  if constexpr (call<Scope>::blocks) {
    /* What this follows from is in the tag: the size, `direct`, and the number of blocks. */
    if (direct && is_relayed<Scope>(t, n * sizeof(T))) {
      return broadcast_by_relays<Scope, unit_of<T>::value>(t, tag, to, from, n * sizeof(T), root);
    }
  }
  call<Scope> c(t, tag, direct);
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
  const impl::words_from<T, false> source{src, n};
  if (RUSHMEM_LIKELY((impl::is_of_pair<Scope>(t, n * sizeof(T), source, dst)))) {
    impl::pair_broadcast<Scope>(t, dst, src, n, root);
    return;
  }
  if (n == 0) return;
  const uint64_t of_root = static_cast<uint64_t>(root) * 2;
  if (impl::wide_move<Scope>(t, RUSHMEM_COLLECTIVE_BROADCAST, of_root, dst, 0, src, 0, n, root)) return;
  if (impl::rows_broadcast<Scope>(t, dst, src, n, root)) return;
  if (impl::small_broadcast<Scope>(t, dst, src, n, root)) return;
  if (impl::few_broadcast<Scope>(t, dst, src, n, root)) return;
  impl::broadcast_any<Scope, T>(t, dst, src, n, root);
}

}  // namespace rushmem

#endif
