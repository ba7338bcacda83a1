/* Calls of which each thread has few words, between members that are near, where all words are whole: what
 * `exchange` does with its only chunk, on the same packets, written for the time of one message. (What each
 * thread has one word of at most is in small.h; whatever is left goes by exchange.h. Each member may take
 * another way.)
 *
 * - What the slot set says and the words to send are loaded together.
 * - This member's own words are loaded before packets are polled.
 * - The word that says that the slot set is in use is taken while the packets are on their way.
 * - What the slot set has said is kept, and not loaded again at the end. */
#ifndef RUSHMEM_IMPL_COLL_FEW_H
#define RUSHMEM_IMPL_COLL_FEW_H

#include <rushmem/impl/coll/small.h>

namespace rushmem {
namespace impl {

/* Words of a thread at most. With 8 of them calls that have two took 0.6 us longer: what a thread has no word
 * for is skipped instruction by instruction. */
constexpr uint32_t few_words = 4;

/* Whether a call of so many words for each member is such a one. */
template <typename Scope, typename Source>
RUSHMEM_DEVICE bool is_of_few(const team &t, size_t words, const Source &source, const void *dst) {
  const size_t channels = call<Scope>::blocks ? call<Scope>::channels_of(t) : 1, room = call<Scope>::room_of(t);
  const size_t most = few_words * static_cast<size_t>(call<Scope>::group::size());
  return t.raw.all_near && words <= channels * (room < most ? room : most) && source.are_whole(dst);
}

/* Words i, i + size ... of a channel that has n, of those for a member. */
template <uint32_t U, typename Source>
RUSHMEM_DEVICE void load_words(uint64_t (&to)[U], const Source &source, int member, size_t first, uint32_t i, uint32_t n,
                               uint32_t size) {
  RUSHMEM_UNROLL
  for (uint32_t u = 0; u < U; ++u) {
    if (i + u * size < n) to[u] = source.whole(member, first + i + u * size);
  }
}

/* Such a call: `words` for each member from `source`, to `sink` (exchange.h). */
template <typename Scope, typename Source, typename Sink>
RUSHMEM_DEVICE void exchange_few(const team &t, uint64_t tag, size_t words, Source source, Sink sink) {
  using group = typename call<Scope>::group;
  constexpr bool blocks = call<Scope>::blocks;
  constexpr uint32_t U = few_words;
  if (RUSHMEM_UNLIKELY(!t.raw.slots || t.raw.heap_base != state().heap_base)) fail(RUSHMEM_DEVICE_FAIL_TEAM);
  uint32_t number = static_cast<uint32_t>(tag);
  if constexpr (blocks) number = call<Scope>::tag_of_blocks(tag);
  call<Scope> c(t, {0, 0, number, 0, call<Scope>::room_of(t)});
  phases_of_block found{};
  if constexpr (blocks) {
    found = c.tell_block(c.enter_by_blocks());
  } else {
    c.sync();
    found.last = call<Scope>::load_phases(t);
  }
  if (c.is_idle()) {
    if constexpr (has_blocks<Scope>::meet) c.sync();
    return;
  }
  const chunks shares = chunks_of(c, words);
  const uint32_t rank = group::rank(), size = group::size(), n = shares.count(0);
  const size_t first = shares.offset;
  const int members = t.raw.n_pes, me = t.raw.my_pe;
  uint64_t word_[U] = {}, own[U] = {};
  load_words(word_, source, c.right(1), first, rank, n, size);
  c.begin(found.last.alone, found.last.of_grid, found.ended);
  if (rank < n) {
    make_small_room(c);
    packet *const slot = c.packets(c.next, me) + rank;
    RUSHMEM_ROLLED
    for (int s = 1; s < members; ++s) {
      const int member = c.right(s);
      if (s != 1 && !Source::same) load_words(word_, source, member, first, rank, n, size);
      packet *there = c.near_at(slot, member);
      RUSHMEM_UNROLL
      for (uint32_t u = 0; u < U; ++u) {
        if (rank + u * size < n) store_packet(there + u * size, word_[u], c.number(c.next));
      }
    }
  } else if (blocks && n == 0 && rank == 0) {
    make_small_room(c);
    say_here(c);
  }
  if (call<Scope>::is_first()) c.take();
  if (rank < n) {
    load_words(own, source, me, first, rank, n, size);
    struct {
      Sink of;
    } sinks[U];
    RUSHMEM_UNROLL
    for (uint32_t u = 0; u < U; ++u) sinks[u].of = sink;
    const packet *from = c.packets(c.next, 0) + rank;
    RUSHMEM_ROLLED
    for (int member = 0; member < members; ++member) {
      typename call<Scope>::template words<U> got;
      if (member == me) {
        RUSHMEM_UNROLL
        for (uint32_t u = 0; u < U; ++u) got.at[u] = own[u];
      } else {
        got = c.template receive_some<U>(from, size, n - rank, c.next, member);
      }
      RUSHMEM_UNROLL
      for (uint32_t u = 0; u < U; ++u) {
        if (rank + u * size < n) sinks[u].of.template take<true>(member, first + rank + u * size, got.at[u]);
      }
      from += t.raw.packets;
    }
    RUSHMEM_UNROLL
    for (uint32_t u = 0; u < U; ++u) {
      if (rank + u * size < n) sinks[u].of.template done<true>(first + rank + u * size);
    }
  } else if (blocks && n == 0 && rank == 0) {
    hear_all(c, c.next, me);
  }
  if constexpr (blocks) {
    if (call<Scope>::is_first()) c.check_busy();
    group::sync();
    if (rank == 0) {
      store_relaxed_word(c.ended_by_blocks() + block_in_grid(), c.next);
      ++c.next;
      if (block_in_grid() == 0) c.leave(found.last.alone.value, found.last.of_grid);
    }
    if constexpr (has_blocks<Scope>::meet) c.sync();
  } else {
    group::sync();
    if (rank == 0) leave_slots(c, c.next - 1);
  }
}

}  // namespace impl
}  // namespace rushmem

#endif
