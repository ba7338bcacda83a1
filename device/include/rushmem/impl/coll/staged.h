/* Collectives of middling size by a grid, between members that are near: packets again, but denser ones, in
 * staging memory. Nothing is waited for but the data, and what has come is combined while more is on its way.
 *
 * A slot set may have staging memory: for each member and each of RUSHMEM_TEAM_PHASES phases so many bytes as
 * `rushmem_team::stage` says, of which a grid's channels have a part each, as of the packets (call.h). It
 * holds nothing but dense packets: 12 bytes of data and a stamp of 4, seen whole like any packet. Three words
 * are two packets: the first two words, and behind each a half of the third.
 *
 * The stamp is what is left of the phase's number once the place has said its remainder. A place is zero, or
 * has the stamp of an earlier phase, as long as stamps have 32 bits: after 2^33 phases calls are made by
 * ordinary packets (`stamps_last`), which all members find alike. Ordinary packets go along: one from every
 * member in each phase and channel, as the rules of call.h want it. It has the tag, too.
 *
 * A warp's words and packets lie together in tiles of 32 threes, so that each access is of whole lines. Which
 * thread has which three is its member's own affair. */
#ifndef RUSHMEM_IMPL_COLL_STAGED_H
#define RUSHMEM_IMPL_COLL_STAGED_H

#include <rushmem/impl/coll/direct.h>
#include <rushmem/impl/coll/exchange.h>

namespace rushmem {
namespace impl {

/* Threes of a thread that are sent and received together. */
constexpr uint32_t threes_together = 2;

RUSHMEM_DEVICE bool stamps_last(uint64_t phase) { return phase >> 33 == 0; }
RUSHMEM_DEVICE uint32_t stamp_of(uint64_t phase) { return static_cast<uint32_t>(phase / RUSHMEM_TEAM_PHASES) + 1; }

/* The first word of a three, and its first packet; its others lie a tile's width behind one another. */
RUSHMEM_DEVICE uint32_t word_of_three(uint32_t q) { return q / 32 * 96 + q % 32; }
RUSHMEM_DEVICE uint32_t packet_of_three(uint32_t q) { return q / 32 * 64 + q % 32; }
RUSHMEM_DEVICE uint32_t threes_of(uint32_t words) { return (words + 95) / 96 * 32; }

/* How a call's words are shared out: in one chunk, or in two. Channels begin at whole lines. */
template <typename Scope> RUSHMEM_DEVICE chunks dense_chunks(const call<Scope> &c, size_t words) {
  const uint32_t channels = c.channels();
  uint32_t each = static_cast<uint32_t>(dense_room<Scope>(c.t));
  if (words < size_t(each) * channels) each = ((static_cast<uint32_t>(words) + channels - 1) / channels + 15) / 16 * 16;
  return {words, each, each * channels, each * block_in_grid()};
}

/* A phase's words for the other members, n of this channel from word `first` on. */
template <bool whole, typename Scope, typename Source>
RUSHMEM_DEVICE void send_dense(const call<Scope> &c, const Source &source, uint64_t phase, size_t first, uint32_t n) {
  using group = typename call<Scope>::group;
  constexpr uint32_t U = threes_together;
  const uint32_t size = group::size(), threes = threes_of(n);
  packet *const stage = reinterpret_cast<packet *>(c.stage(phase, c.t.raw.my_pe));
  const uint64_t stamp = stamp_of(phase);
  RUSHMEM_ROLLED
  for (uint32_t q = group::rank(); q < threes; q += U * size) {
    uint64_t word_[3 * U] = {};
    RUSHMEM_ROLLED
    for (int s = 1; s < c.t.raw.n_pes; ++s) {
      const int member = c.right(s);
      RUSHMEM_UNROLL
      for (uint32_t k = 0; k < 3 * U; ++k) {
        const uint32_t at = word_of_three(q + k / 3 * size) + k % 3 * 32;
        if ((s == 1 || !Source::same) && at < n) word_[k] = source_word<whole>(source, member, first + at);
      }
      packet *const there = c.near_at(stage, member);
      RUSHMEM_UNROLL
      for (uint32_t u = 0; u < U; ++u) {
        const uint32_t at = word_of_three(q + u * size);
        packet *const to = there + packet_of_three(q + u * size);
        const uint64_t third = word_[3 * u + 2];
        if (at < n) store_packet(to, word_[3 * u], third << 32 | stamp);
        if (at + 32 < n) store_packet(to + 32, word_[3 * u + 1], (third >> 32) << 32 | stamp);
      }
    }
  }
}

/* Threes of a member: q, and those behind it, all in flight until all have come. */
template <uint32_t U, typename Scope>
RUSHMEM_DEVICE typename call<Scope>::template words<3 * U> receive_threes(const call<Scope> &c, uint64_t phase, int member,
                                                                          uint32_t q, uint32_t n) {
  const uint32_t size = call<Scope>::group::size(), stamp = stamp_of(phase);
  const packet *const stage = reinterpret_cast<const packet *>(c.stage(phase, member));
  typename call<Scope>::patience p;
  for (;;) {
    typename call<Scope>::template words<3 * U> got;
    uint64_t seen[2 * U];
    RUSHMEM_UNROLL
    for (uint32_t k = 0; k < 2 * U; ++k) {
      packet one{0, stamp};
      if (word_of_three(q + k / 2 * size) + k % 2 * 32 < n) one = load_packet(stage + packet_of_three(q + k / 2 * size) + k % 2 * 32);
      got.at[k / 2 * 3 + k % 2] = one.value;
      seen[k] = one.sequence;
    }
    uint32_t late = 2 * U;
    RUSHMEM_UNROLL
    for (uint32_t k = 2 * U; k-- > 0;) {
      if (static_cast<uint32_t>(seen[k]) != stamp) late = k;
    }
    if (RUSHMEM_LIKELY(late == 2 * U)) {
      RUSHMEM_UNROLL
      for (uint32_t u = 0; u < U; ++u) got.at[3 * u + 2] = (seen[2 * u + 1] >> 32) << 32 | seen[2 * u] >> 32;
      return got;
    }
    const packet *const missing = stage + packet_of_three(q + late / 2 * size) + late % 2 * 32;
    p.unsatisfied(c, &missing->sequence, c.number(phase), 0, member);
  }
}

/* A phase's words of all members, in the order of their numbers, this one among them. */
template <bool whole, typename Scope, typename Source, typename Sink>
RUSHMEM_DEVICE void receive_dense(const call<Scope> &c, const Source &source, const Sink &sink, uint64_t phase, size_t first,
                                  uint32_t n) {
  using group = typename call<Scope>::group;
  constexpr uint32_t U = threes_together;
  const uint32_t size = group::size(), threes = threes_of(n);
  RUSHMEM_ROLLED
  for (uint32_t q = group::rank(); q < threes; q += U * size) {
    struct {
      Sink of;
    } sinks[3 * U];
    RUSHMEM_UNROLL
    for (uint32_t k = 0; k < 3 * U; ++k) sinks[k].of = sink;
    RUSHMEM_ROLLED
    for (int member = 0; member < c.t.raw.n_pes; ++member) {
      typename call<Scope>::template words<3 * U> got{};
      if (member != c.t.raw.my_pe) got = receive_threes<U>(c, phase, member, q, n);
      RUSHMEM_UNROLL
      for (uint32_t k = 0; k < 3 * U; ++k) {
        const uint32_t at = word_of_three(q + k / 3 * size) + k % 3 * 32;
        if (at >= n) continue;
        if (member == c.t.raw.my_pe) got.at[k] = source_word<whole>(source, member, first + at);
        sinks[k].of.template take<whole>(member, first + at, got.at[k]);
      }
    }
    RUSHMEM_UNROLL
    for (uint32_t k = 0; k < 3 * U; ++k) {
      const uint32_t at = word_of_three(q + k / 3 * size) + k % 3 * 32;
      if (at < n) sinks[k].of.template done<whole>(first + at);
    }
  }
}

/* What the members do in a phase, by functions of a phase, the first word and their number. The second chunk
 * goes before the first is received where its place is free already: all members have ended the phase three
 * before the first, that is. Else it goes after it, and after all threads have heard of it that may have
 * to. */
template <typename Scope, typename Send, typename Receive>
RUSHMEM_DEVICE void dense_phases(call<Scope> &c, size_t words, Send send, Receive receive) {
  using group = typename call<Scope>::group;
  const chunks shares = dense_chunks(c, words);
  const uint32_t several = words > shares.step;
  const bool together = c.behind < RUSHMEM_TEAM_PHASES;
  const auto send_chunk_of = [&](uint32_t k) {
    if (group::rank() == 0) say_here(c, c.next + k);
    send(c.next + k, k * size_t(shares.step) + shares.offset, shares.count(k * size_t(shares.step)));
  };
  const auto receive_chunk_of = [&](uint32_t k) {
    receive(c.next + k, k * size_t(shares.step) + shares.offset, shares.count(k * size_t(shares.step)));
    if (group::rank() == 0) hear_all(c, c.next + k, c.t.raw.my_pe);
  };
  RUSHMEM_ROLLED
  for (uint32_t k = 0; k <= several; ++k) {
    if (k == 0 || !together) send_chunk_of(k);
    if (k == 0 && several && together) send_chunk_of(1);
    c.check_busy();
    receive_chunk_of(k);
    if (several && !together) group::sync();
  }
  loads_before_later();
  c.next += 1 + several;
  c.behind = 2 + several;
}

/* `exchange` by dense packets. Out of line, and all by value, as exchange_chunks(). */
template <bool whole, typename Scope, typename Source, typename Sink>
RUSHMEM_OUTLINED typename call<Scope>::state_of exchange_by_threes(team t, typename call<Scope>::state_of so_far, size_t words,
                                                                   Source source, Sink sink) {
  call<Scope> c(t, so_far);
  dense_phases(
      c, words, [&](uint64_t phase, size_t first, uint32_t n) { send_dense<whole>(c, source, phase, first, n); },
      [&](uint64_t phase, size_t first, uint32_t n) { receive_dense<whole>(c, source, sink, phase, first, n); });
  return c.so_far();
}

template <typename Scope, typename Source, typename Sink>
RUSHMEM_DEVICE void exchange_dense(call<Scope> &c, size_t words, Source source, Sink sink) {
  if (c.is_idle()) return;
  if (RUSHMEM_UNLIKELY(!stamps_last(c.next + 1))) return exchange<Scope>(c, words, source, sink);
  c.make_room();
  const auto after = source.are_whole(sink.dst) ? exchange_by_threes<true, Scope>(c.t, c.so_far(), words, source, sink)
                                                : exchange_by_threes<false, Scope>(c.t, c.so_far(), words, source, sink);
  c.next = after.next;
  c.behind = after.behind;
  c.busy = after.busy;
}

/* The words of one member alone, which the others leave at `dst`. */
template <bool whole, typename Scope, typename T>
RUSHMEM_OUTLINED typename call<Scope>::state_of broadcast_by_threes(team t, typename call<Scope>::state_of so_far, T *dst,
                                                                    const T *src, size_t n, int root) {
  using group = typename call<Scope>::group;
  constexpr uint32_t U = threes_together;
  call<Scope> c(t, so_far);
  const bool is_root = t.raw.my_pe == root;
  const words_from<T, false> source{src, n};
  dense_phases(
      c, words_of<T>(n),
      [&](uint64_t phase, size_t first, uint32_t count) {
        if (is_root) send_dense<whole>(c, source, phase, first, count);
      },
      [&](uint64_t phase, size_t first, uint32_t count) {
        RUSHMEM_ROLLED
        for (uint32_t q = group::rank(); !is_root && q < threes_of(count); q += U * group::size()) {
          const auto got = receive_threes<U>(c, phase, root, q, count);
          RUSHMEM_UNROLL
          for (uint32_t k = 0; k < 3 * U; ++k) {
            const uint32_t at = word_of_three(q + k / 3 * group::size()) + k % 3 * 32;
            if (at < count) leave_word<whole>(dst, n, first + at, got.at[k]);
          }
        }
        if (!is_root || dst == src) return;
        const size_t begin = first * 8, bytes = n * sizeof(T);
        if (count == 0) return;
        const size_t end = begin + count * size_t(8) < bytes ? begin + count * size_t(8) : bytes;
        copy_apart<group, unit_of<T>::value>(reinterpret_cast<char *>(dst) + begin, reinterpret_cast<const char *>(src) + begin,
                                             end - begin);
      });
  return c.so_far();
}

/* n elements from `src` of member `root` to `dst` of all, unless stamps are used up. */
template <typename Scope, typename T>
RUSHMEM_DEVICE bool broadcast_dense(call<Scope> &c, T *dst, const T *src, size_t n, int root) {
  if (c.is_idle()) return true;
  if (RUSHMEM_UNLIKELY(!stamps_last(c.next + 1))) return false;
  c.make_room();
  const bool whole = words_from<T, false>{src, n}.are_whole(dst);
  const auto after = whole ? broadcast_by_threes<true, Scope>(c.t, c.so_far(), dst, src, n, root)
                           : broadcast_by_threes<false, Scope>(c.t, c.so_far(), dst, src, n, root);
  c.next = after.next;
  c.behind = after.behind;
  c.busy = after.busy;
  return true;
}

}  // namespace impl
}  // namespace rushmem

#endif
