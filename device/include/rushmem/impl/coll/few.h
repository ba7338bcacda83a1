/* Calls of one chunk between members that are near, where all words are whole: what `exchange` does with its
 * only chunk, on the same packets, written for the time of one message. (What each thread has one word of at
 * most is in small.h; whatever is left goes by exchange.h. Each member may take another way.)
 *
 * - What the slot set says and the first words to send are loaded together.
 * - A thread sends all of its words, and then receives: a load behind stores to another GPU waits until these
 *   have left, so to do both by turns is slower.
 * - The word that says that the slot set is in use is taken while the packets are on their way.
 * - What the slot set has said is kept, and not loaded again at the end.
 * - Of 16 warps an instruction for each word of 64 KiB is 64 cycles. So this is inline, as in a function each
 *   access of memory takes two more; words of a tile lie at distances that the compiler knows; and two
 *   members have a loop of their own (docs/performance-log.md, 22). */
#ifndef RUSHMEM_IMPL_COLL_FEW_H
#define RUSHMEM_IMPL_COLL_FEW_H

#include <rushmem/impl/coll/small.h>

namespace rushmem {
namespace impl {

/* Words of a thread in a tile. With 8 of them calls that have two took 0.6 us longer: what a thread has no
 * word for is skipped instruction by instruction. */
constexpr uint32_t few_words = 4;

/* Whether a call of so many bytes for each member is such a one. One thread and one warp have more words in
 * flight where they have many (exchange.h). */
template <typename Scope, typename Source>
RUSHMEM_DEVICE bool is_of_few(const team &t, size_t bytes, const Source &source, const void *dst) {
  using group = typename call<Scope>::group;
  if (!t.raw.all_near || is_large<Scope>(t, bytes) || !source.are_whole(dst)) return false;
  if constexpr (call<Scope>::blocks) {
    return bytes <= 8 * static_cast<size_t>(call<Scope>::channels_of(t)) * call<Scope>::room_of(t);
  } else if constexpr (is_alone<group>::value || is_one_warp<group>::value) {
    return bytes <= 8 * few_words * group::size();
  }
  return true;
}

/* A word of each of two members. */
template <typename Sink> RUSHMEM_DEVICE void take_both(Sink sink, size_t w, uint32_t past, uint64_t first, uint64_t second) {
  sink.take_whole(0, w, past, first);
  sink.take_whole(1, w, past, second);
  sink.done_whole(w, past);
}

/* The words of whole tiles of two members, in the order of their numbers. */
template <uint32_t U, typename Scope, typename Source, typename Sink>
RUSHMEM_DEVICE void receive_of_two(const call<Scope> &c, const Source &source, const Sink &sink, const packet *slot, size_t w) {
  constexpr uint32_t apart = tiles<typename call<Scope>::group, U>::known;
  const int me = c.t.raw.my_pe;
  uint64_t own[U];
  load_tile<true>(own, source, me, w, apart, 0);
  const auto got = c.template receive_some<U, true>(slot, apart, 0, c.next, 1 - me);
  if (me == 0) {
    RUSHMEM_UNROLL
    for (uint32_t u = 0; u < U; ++u) take_both(sink, w, u * apart, own[u], got.at[u]);
  } else {
    RUSHMEM_UNROLL
    for (uint32_t u = 0; u < U; ++u) take_both(sink, w, u * apart, got.at[u], own[u]);
  }
}

/* This PE's packets at the first member to the right, worked out here as far as one can who does not know the
 * phase. */
struct places_to_right {
  packet *first;   /* in phase 0 */
  uint32_t apart;  /* from one phase to the next */
  template <typename Scope> explicit RUSHMEM_DEVICE places_to_right(const call<Scope> &c)
      : first(opaque(c.near_at(c.packets(0, c.t.raw.my_pe), c.right(1)))),
        apart(opaque(static_cast<uint32_t>(c.t.raw.n_pes) * c.t.raw.packets)) {}
  RUSHMEM_DEVICE packet *in(uint64_t phase) const { return first + static_cast<uint32_t>(phase % RUSHMEM_TEAM_PHASES) * apart; }
};

/* Such a call: `words` for each member from `source`, to `sink` (exchange.h). */
template <typename Scope, typename Source, typename Sink>
RUSHMEM_DEVICE void exchange_few(const team &t, uint64_t tag, size_t words, Source source, Sink sink) {
  using group = typename call<Scope>::group;
  using share = tiles<group, few_words>;
  constexpr bool blocks = call<Scope>::blocks;
  uint32_t tag_ = static_cast<uint32_t>(tag);
  if constexpr (blocks) tag_ = call<Scope>::tag_of_blocks(tag);
  call<Scope> c(t, {0, 0, opaque(tag_), 0, call<Scope>::room_of(t), 0});
  phases_of_block answer{};
  if constexpr (blocks) answer = c.enter_by_blocks();
  else c.enter();
  if (c.is_idle()) {
    if constexpr (has_blocks<Scope>::meet) c.sync();
    return;
  }
  if constexpr (!blocks) answer.last = c.load_phases();
  const chunks shares = chunks_of(c, words);
  const uint32_t n = shares.count(0);
  const size_t first = shares.offset;
  const share mine(n);
  uint64_t word_[few_words] = {};
  if (mine.first < mine.whole) load_tile<true>(word_, source, c.right(1), first + mine.first, share::known, 0);
  /* While these loads are on their way, what does not depend on them. */
  const places_to_right places(c);
  if constexpr (blocks) c.begin_by_blocks(answer);
  else c.begin(answer.last, answer.ended);
  if (mine.first < n) {
    make_small_room(c);
    const uint64_t number = c.number(c.next);
    packet *there = places.in(c.next);
    int s = 1, member = c.right(1);
    RUSHMEM_ROLLED
    while (RUSHMEM_LIKELY(s < t.raw.n_pes)) {
      uint32_t i = mine.first;
      RUSHMEM_ROLLED
      for (; i < mine.whole; i += mine.step) {
        if (i != mine.first || s != 1) load_tile<true>(word_, source, member, first + i, share::known, 0);
        store_tile<true>(there + i, word_, number, share::known, 0);
      }
      RUSHMEM_ROLLED
      for (; i < n; i += mine.step) {
        load_tile<false>(word_, source, member, first + i, mine.apart, n - i);
        store_tile<false>(there + i, word_, number, mine.apart, n - i);
      }
      if (RUSHMEM_LIKELY(++s >= t.raw.n_pes)) break;
      member = c.right(s);
      there = c.near_at(c.packets(c.next, t.raw.my_pe), member);
    }
  } else if (blocks && n == 0 && group::rank() == 0) {
    make_small_room(c);
    say_here(c);
  }
  if (call<Scope>::is_first()) c.take();
  if (mine.first < n) {
    const packet *const from = c.packets(c.next, 0);
    uint32_t i = mine.first;
    if (RUSHMEM_LIKELY(t.raw.n_pes == 2)) {
      const packet *const theirs = c.packets(c.next, 1 - t.raw.my_pe);
      RUSHMEM_ROLLED
      for (; i < mine.whole; i += mine.step) receive_of_two<few_words>(c, source, sink, theirs + i, first + i);
    }
    RUSHMEM_ROLLED
    for (; i < mine.whole; i += mine.step) {
      receive_tile<true, few_words>(c, source, sink, from + i, c.next, first + i, share::known, 0);
    }
    RUSHMEM_ROLLED
    for (; i < n; i += mine.step) {
      receive_tile<false, few_words>(c, source, sink, from + i, c.next, first + i, mine.apart, n - i);
    }
    heard_of_all();
  } else if (blocks && n == 0 && group::rank() == 0) {
    hear_all(c, c.next, t.raw.my_pe);
    heard_of_all();
  }
  if (call<Scope>::is_first()) c.check_busy();
  group::sync();
  if constexpr (blocks) {
    if (group::rank() == 0) {
      store_relaxed_word(c.ended_by_blocks() + block_in_grid(), c.next);
      ++c.next;
      if (block_in_grid() == 0) c.leave(answer.last.alone, answer.last.of_grid);
    }
    if constexpr (has_blocks<Scope>::meet) c.sync();
  } else {
    if (group::rank() == 0) c.leave_alone(c.slots(), ended_word(c.next, 1));
  }
}

/* The whole call if it is such a one. `bytes` go between every two members; `more` is tag_of()'s. */
template <typename Scope, typename Source, typename Sink>
RUSHMEM_DEVICE bool few_exchange(const team &t, uint32_t collective, size_t bytes, uint64_t more, Source source, Sink sink) {
  if (!is_of_few<Scope>(t, bytes, source, sink.dst)) return false;
  exchange_few<Scope>(t, tag_of(collective, bytes, more), bytes / 8, source, sink);
  return true;
}

}  // namespace impl
}  // namespace rushmem

#endif
