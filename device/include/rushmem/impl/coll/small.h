/* Calls whose words are so few that each thread of the scope has one at most, between members that are near.
 * They are one phase of the protocol in call.h, on the same packets:
 *
 * - A thread without a word does nothing but meet the others twice.
 * - What the slot set says and the word to send are loaded together.
 * - The word that says that the slot set is in use is taken while the packets are on their way.
 *
 * Two members have ways of their own (pair.h, pair_parts.h). Blocks that do not wait for one another make
 * such calls, too, each in its channel. Other calls go by few.h, or through `call`. Each member may take
 * another way. */
#ifndef RUSHMEM_IMPL_COLL_SMALL_H
#define RUSHMEM_IMPL_COLL_SMALL_H

#include <rushmem/impl/coll/pair_parts.h>

namespace rushmem {
namespace impl {

/* Whether a call that moves so many bytes between every two members is a small one. */
template <typename Scope> RUSHMEM_DEVICE bool is_small(const team &t, size_t bytes) {
  const uint32_t few = static_cast<uint32_t>(bytes), n = static_cast<uint32_t>(t.raw.n_pes);
  const uint32_t most = Scope::size() < t.raw.packets ? Scope::size() : t.raw.packets;
  return t.raw.all_near && bytes >> 32 == 0 && few <= most * 8 && few <= most_by_packets && few * n <= most_by_packets;
}

/* Before a thread sends its packets. */
template <typename Scope> RUSHMEM_DEVICE void make_small_room(call<Scope> &c) {
  if (RUSHMEM_LIKELY(c.behind <= RUSHMEM_TEAM_PHASES)) return;
  await_room<Scope>(c.t, c.number(c.next));
  c.behind = RUSHMEM_TEAM_PHASES;
}

/* Packets of member `first` and those behind it, in flight together. */
constexpr int members_polled = 4;

/* This thread's packets of all members, in the order of their numbers; `own` in this one's place. */
template <typename Scope, typename Sink>
RUSHMEM_DEVICE void receive_from_all(const call<Scope> &c, Sink &sink, const packet *from, uint64_t own, size_t w) {
  const int n = c.t.raw.n_pes, me = c.t.raw.my_pe;
  if (n == 2) {
    const uint64_t theirs = c.receive(me == 0 ? from + c.t.raw.packets : from, c.next, 1 - me);
    sink.take(0, w, me == 0 ? own : theirs);
    sink.take(1, w, me == 0 ? theirs : own);
    return;
  }
  const uint64_t wanted = c.number(c.next);
  RUSHMEM_ROLLED
  for (int first = 0; first < n; first += members_polled) {
    uint64_t got[members_polled];
    typename call<Scope>::patience p;
    for (;;) {
      int late = -1;
      uint64_t other = wanted;
      packet seen[members_polled];
      RUSHMEM_UNROLL
      for (int u = 0; u < members_polled; ++u) {
        seen[u] = {own, wanted};
        if (first + u < n && first + u != me) seen[u] = load_packet(from + static_cast<size_t>(first + u) * c.t.raw.packets);
      }
      RUSHMEM_UNROLL
      for (int u = members_polled; u-- > 0;) {
        got[u] = seen[u].value;
        if (seen[u].sequence != wanted) {
          late = u;
          other = seen[u].sequence;
        }
      }
      if (RUSHMEM_LIKELY(late < 0)) break;
      const uint64_t *word_ = &from[static_cast<size_t>(first + late) * c.t.raw.packets].sequence;
      if (RUSHMEM_UNLIKELY(other >> 16 == c.next)) c.check_tag(word_, wanted, other, first + late);
      p.unsatisfied(c, word_, wanted, other, first + late);
    }
    RUSHMEM_UNROLL
    for (int u = 0; u < members_polled; ++u) {
      if (first + u < n) sink.take(first + u, w, got[u]);
    }
  }
}

/* `exchange` as a call by itself. Out of line. */
template <typename Scope, typename Source, typename Sink>
RUSHMEM_OUTLINED void exchange_small(team t, uint64_t tag, uint32_t words, Source source, Sink sink) {
  small_call<Scope>(t, tag).enter();
  const uint32_t w = Scope::rank();
  rushmem_team_slots *const slots = small_call<Scope>(t, tag).slots();
  uint64_t next = 0;
  if (w < words) {
    const int n = t.raw.n_pes, me = t.raw.my_pe;
    call<Scope> c = small_call<Scope>(t, tag);
    const last_phases last = c.load_phases();
    const uint64_t own = source.word(me, w), sent = Source::same ? own : source.word(c.right(1), w);
    c.begin(last, 0);
    make_small_room(c);
    packet *const slot = c.packets(c.next, me) + w;
    RUSHMEM_ROLLED
    for (int s = 1; s < n; ++s) {
      const int member = c.right(s);
      const uint64_t value = Source::same || s == 1 ? sent : source.word(member, w);
      store_packet(c.near_at(slot, member), value, c.number(c.next));
    }
    if (w == 0) c.take();
    receive_from_all(c, sink, c.packets(c.next, 0) + w, own, w);
    heard_of_all();
    sink.done(w);
    c.check_busy();
    next = c.next;
  }
  Scope::sync();
  if (w == 0) call<Scope>::leave_alone(slots, ended_word(next, 1));
}

/* The end of a broadcast, whose packets went one way (call.h). */
template <typename Scope> RUSHMEM_DEVICE void end_broadcast(call<Scope> &c) {
  loads_before_later();
  if (Scope::rank() == 0) c.check_busy();
  Scope::sync();
  c.show(c.next);
  const uint32_t ago = c.behind <= RUSHMEM_TEAM_PHASES ? c.behind : RUSHMEM_TEAM_PHASES;
  if (Scope::rank() == 0) c.leave_alone(c.slots(), ended_word(c.next, ago));
}

/* `broadcast` as a call by itself. Members show that they have read the root's packets, as after any phase
 * whose packets go one way (call.h). */
template <typename Scope, typename T>
RUSHMEM_DEVICE void broadcast_small(const team &t, uint64_t tag, T *dst, const T *src, size_t n, int root) {
  const uint32_t words = static_cast<uint32_t>(words_of<T>(n)), w = Scope::rank();
  call<Scope> c = small_call<Scope>(t, tag);
  c.enter();
  c.begin(c.load_phases(), 0);
  if (w < words) {
    if (t.raw.my_pe == root) {
      const uint64_t value = word_at(src, n, w);
      make_small_room(c);
      packet *const to = c.packets(c.next, root) + w;
      RUSHMEM_ROLLED
      for (int s = 1; s < t.raw.n_pes; ++s) store_packet(c.near_at(to, c.right(s)), value, c.number(c.next));
      if (w == 0) c.take();
      heard_of_all();
      if (dst != src) set_word(dst, n, w, value);
    } else {
      if (w == 0) c.take();
      const uint64_t received = c.receive(c.packets(c.next, root) + w, c.next, root);
      heard_of_all();
      set_word(dst, n, w, received);
      c.received_from(root);
    }
  }
  end_broadcast(c);
}

/* ---- by blocks that do not wait for one another ---- */

/* Whether a call is one chunk of which each thread has one word at most. */
template <typename Scope> RUSHMEM_DEVICE bool is_small_of_parts(const team &t, size_t bytes) {
  const size_t room = call<Scope>::room_of(t), threads = block::size();
  return t.raw.all_near && (bytes + 7) / 8 <= call<Scope>::channels_of(t) * (room < threads ? room : threads) &&
         !is_large<Scope>(t, bytes);
}

/* This block's part of such a call. */
template <typename Scope> struct small_part {
  call<Scope> c;
  phases_of_block answer; /* of the slot set, in the first thread */
  uint32_t count;         /* this channel's words */
  size_t w;               /* the word of this thread, which has one if its rank is less than `count` */

  RUSHMEM_DEVICE small_part(const team &t, uint64_t tag, size_t words)
      : c(t, {0, 0, call<Scope>::tag_of_blocks(tag), 0, call<Scope>::room_of(t), 0}) {
    answer = c.enter_by_blocks();
    const chunks shares = chunks_of(c, words);
    count = shares.count(0);
    w = shares.offset + block::rank();
  }

  /* All threads of the block, behind the loads of what they send. */
  RUSHMEM_DEVICE void begin() {
    c.begin_by_blocks(answer);
  }

  /* All threads of the block, when theirs is done. */
  RUSHMEM_DEVICE void end() {
    if (call<Scope>::is_first()) c.check_busy();
    block::sync();
    if (block::rank() != 0) return;
    store_relaxed_word(c.ended_by_blocks() + block_in_grid(), c.next);
    ++c.next;
    if (block_in_grid() == 0) c.leave(answer.last.alone, answer.last.of_grid);
  }
};

template <typename Scope, typename Source, typename Sink>
RUSHMEM_DEVICE void exchange_parts(const team &t, uint64_t tag, size_t words, Source source, Sink sink) {
  if (block_in_grid() >= t.raw.packets) return;
  const uint32_t rank = block::rank();
  small_part<Scope> part(t, tag, words);
  call<Scope> &c = part.c;
  const int n = t.raw.n_pes, me = t.raw.my_pe;
  const bool has_word = rank < part.count;
  const uint64_t own = has_word ? source.word(me, part.w) : 0;
  const uint64_t first = has_word && !Source::same ? source.word(c.right(1), part.w) : own;
  part.begin();
  if (has_word) {
    make_small_room(c);
    packet *const to = c.packets(c.next, me) + rank;
    RUSHMEM_ROLLED
    for (int s = 1; s < n; ++s) {
      const int member = c.right(s);
      const uint64_t value = Source::same || s == 1 ? first : source.word(member, part.w);
      store_packet(c.near_at(to, member), value, c.number(c.next));
    }
    if (call<Scope>::is_first()) c.take();
    receive_from_all(c, sink, c.packets(c.next, 0) + rank, own, part.w);
    heard_of_all();
    sink.done(part.w);
  } else if (rank == 0) {
    make_small_room(c);
    say_here(c);
    hear_all(c, c.next, me);
    heard_of_all();
  }
  part.end();
}

/* Every member says that it is there, as the root of a later call may be another one (call.h). */
template <typename Scope, typename T>
RUSHMEM_DEVICE void broadcast_parts(const team &t, uint64_t tag, T *dst, const T *src, size_t n, int root) {
  if (block_in_grid() >= t.raw.packets) return;
  const uint32_t rank = block::rank();
  small_part<Scope> part(t, tag, words_of<T>(n));
  call<Scope> &c = part.c;
  const bool sends = t.raw.my_pe == root && rank < part.count;
  const uint64_t value = sends ? word_at(src, n, part.w) : 0;
  part.begin();
  if (rank == 0 || sends) make_small_room(c);
  if (sends) {
    packet *const to = c.packets(c.next, root) + rank;
    RUSHMEM_ROLLED
    for (int s = 1; s < t.raw.n_pes; ++s) store_packet(c.near_at(to, c.right(s)), value, c.number(c.next));
  } else if (rank == 0) {
    say_here(c);
  }
  if (call<Scope>::is_first()) c.take();
  if (sends && dst != src) set_word(dst, n, part.w, value);
  if (!sends && rank < part.count) set_word(dst, n, part.w, c.receive(c.packets(c.next, root) + rank, c.next, root));
  if (rank == 0) {
    hear_all(c, c.next, part.count == 0 ? t.raw.my_pe : root);
    heard_of_all();
  }
  loads_before_later();
  part.end();
}

/* The whole call if it is a small one. `bytes` go between every two members; `more` is tag_of()'s. */
template <typename Scope, typename Source, typename Sink>
RUSHMEM_DEVICE bool small_exchange(const team &t, uint32_t collective, size_t bytes, uint64_t more, Source source, Sink sink) {
  if constexpr (!has_blocks<Scope>::value) {
    if (!is_small<Scope>(t, bytes)) return false;
    exchange_small<Scope>(t, tag_of(collective, bytes, more), static_cast<uint32_t>((bytes + 7) / 8), source, sink);
    return true;
  } else if constexpr (!has_blocks<Scope>::meet) {
    if (!is_small_of_parts<Scope>(t, bytes)) return false;
    exchange_parts<Scope>(t, tag_of(collective, bytes, more), (bytes + 7) / 8, source, sink);
    return true;
  }
  return false;
}

template <typename Scope, typename T>
RUSHMEM_DEVICE bool small_broadcast(const team &t, T *dst, const T *src, size_t n, int root) {
  const uint64_t tag = tag_of(RUSHMEM_COLLECTIVE_BROADCAST, n * sizeof(T), static_cast<uint64_t>(root) * 2);
  if constexpr (!has_blocks<Scope>::value) {
    const size_t bytes = n * sizeof(T);
    if (!is_small<Scope>(t, bytes)) return false;
    broadcast_small<Scope>(t, tag, dst, src, n, root);
    return true;
  } else if constexpr (!has_blocks<Scope>::meet) {
    if (!is_small_of_parts<Scope>(t, n * sizeof(T))) return false;
    broadcast_parts<Scope>(t, tag, dst, src, n, root);
    return true;
  }
  return false;
}

}  // namespace impl
}  // namespace rushmem

#endif
