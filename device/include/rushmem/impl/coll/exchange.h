/* Words between every two members of a team, by packets: data and flag in one store, nobody waits twice.
 *
 * The words of a call go in chunks of as many as a slot set has packets for, each a phase; of a grid every
 * block has its part of each chunk, or in the last one a packet that says nothing where there is no word left
 * for it (call.h). A packet's place in its channel is the same thread's in every chunk. A chunk is sent
 * before the one in front of it is received, from the second on: `send(k)` comes after this thread has
 * received chunk k - 2 in that place, so that its sender has received k - 4, whose place k takes (call.h).
 * The first two chunks do not overlap: members may have come from another call, in which other threads had
 * these places. Every chunk but the last fills all places, so that after the last each thread has received
 * in its place the last chunk or the one before: all members have ended the third one before the last.
 *
 * Loads of a thread are in flight together, of the words that it sends and of the packets that it polls: a
 * load from this GPU's memory takes a third of a microsecond, and one block has several words for each
 * thread. */
#ifndef RUSHMEM_IMPL_COLL_EXCHANGE_H
#define RUSHMEM_IMPL_COLL_EXCHANGE_H

#include <rushmem/impl/coll/call.h>

namespace rushmem {
namespace impl {

/* Words of n elements at `from`, of which the last may be part of one. */
template <typename T> RUSHMEM_DEVICE size_t words_of(size_t n) { return packets<T>(n); }

/* Words of bytes and of 2-byte elements are taken apart out of line: eight loads of one word are many
 * registers. */
template <size_t unit> RUSHMEM_OUTLINED uint64_t gather_small(const char *from, size_t bytes) {
  return gather_word<unit>(from, bytes);
}
template <size_t unit> RUSHMEM_OUTLINED void scatter_small(char *to, uint64_t value, size_t bytes) {
  scatter_word<unit>(to, value, bytes);
}

template <typename T> RUSHMEM_DEVICE uint64_t word_at(const T *from, size_t n, size_t w) {
  constexpr size_t unit = part_of<T>::value;
  const char *at = reinterpret_cast<const char *>(from) + w * 8;
  if constexpr (unit < 4) return gather_small<unit>(at, n * sizeof(T) - w * 8);
  else return gather_word<unit>(at, n * sizeof(T) - w * 8);
}

template <typename T> RUSHMEM_DEVICE void set_word(T *to, size_t n, size_t w, uint64_t value) {
  constexpr size_t unit = part_of<T>::value;
  char *at = reinterpret_cast<char *>(to) + w * 8;
  if constexpr (unit < 4) scatter_small<unit>(at, value, n * sizeof(T) - w * 8);
  else scatter_word<unit>(at, value, n * sizeof(T) - w * 8);
}

/* Where it is known that the word is whole, and aligned: the one `past` words behind word w, which the store
 * itself adds where it is a constant. */
template <typename T> RUSHMEM_DEVICE void leave_whole(T *to, size_t w, uint32_t past, uint64_t value) {
  store_part<8>(fixed_address(reinterpret_cast<char *>(to) + w * 8) + past * 8, value);
}

/* What goes to the members: n elements, the same to all, or to each a block of them. */
template <typename T, bool blocks> struct words_from {
  static constexpr bool plain = true, same = !blocks;
  const T *src;
  size_t n;
  RUSHMEM_DEVICE const T *of(int member) const { return blocks ? src + static_cast<size_t>(member) * n : src; }
  RUSHMEM_DEVICE uint64_t word(int member, size_t w) const { return word_at(of(member), n, w); }
  RUSHMEM_DEVICE uint64_t whole(int member, size_t w) const {
    return load_part<8>(reinterpret_cast<const char *>(of(member)) + w * 8);
  }
  /* Whether all words of all members are whole, and aligned. */
  RUSHMEM_DEVICE bool are_whole(const void *dst) const {
    return ((reinterpret_cast<uint64_t>(src) | reinterpret_cast<uint64_t>(dst) | n * sizeof(T)) & 7) == 0;
  }
  /* Whether they are, or consist of elements of 4 bytes, of which the last one may be alone. */
  RUSHMEM_DEVICE bool are_halves(const void *dst) const { return part_of<T>::value >= 4 || are_whole(dst); }
};

/* The same by any function of member and word. */
template <typename F> struct words_by {
  static constexpr bool plain = false, same = false;
  F of;
  RUSHMEM_DEVICE uint64_t word(int member, size_t w) const { return of(member, w); }
};
template <typename F> RUSHMEM_DEVICE words_by<F> words_of_each(F of) { return {of}; }

/* Words of a thread that are sent and received together in calls of several chunks, where all are whole. */
constexpr uint32_t words_together = 8;

/* How the threads of a group share out the words of a channel of which all are whole: tiles of a warp, of
 * which each lane has U words, `apart` from one another. Where a place is whose does not depend on how many
 * words there are. */
template <typename Group, uint32_t U> struct tiles {
  /* What `apart` is unless there are warps of fewer threads. */
  static constexpr uint32_t known = is_alone<Group>::value ? 1 : 32;
  /* `first`: this thread's first word; `step`: to that in its next tile; `whole`: so many of the words are in
   * tiles of which all words are, at distances that the compiler knows. */
  uint32_t apart, first, step, whole;

  RUSHMEM_DEVICE tiles(uint32_t words) : apart(known), first(Group::rank()), step(U * Group::size()), whole(words) {
    if (RUSHMEM_LIKELY(Group::size() % known == 0)) {
      first += (first - first % known) * (U - 1);
      whole -= words % (U * known);
    } else {
      apart = Group::size();
      whole = 0;
    }
  }
};

/* A thread's words of a tile for a member: those that are among the next `left` ones; `whole`: all. */
template <bool whole, uint32_t U, typename Source>
RUSHMEM_DEVICE void load_tile(uint64_t (&to)[U], const Source &source, int member, size_t w, uint32_t apart, uint32_t left) {
  RUSHMEM_UNROLL
  for (uint32_t u = 0; u < U; ++u) {
    if (whole || u == 0 || u * apart < left) to[u] = source.whole(member, w + u * apart);
  }
}

/* To packets at a member, the first one `there`. */
template <bool whole, uint32_t U>
RUSHMEM_DEVICE void store_tile(packet *there, const uint64_t (&word_)[U], uint64_t number, uint32_t apart, uint32_t left) {
  RUSHMEM_UNROLL
  for (uint32_t u = 0; u < U; ++u) {
    if (whole || u == 0 || u * apart < left) store_packet(there + u * apart, word_[u], number);
  }
}

/* Element u of what is in registers: a loop that is not unrolled must not put it into memory. */
template <uint32_t U> RUSHMEM_DEVICE uint64_t nth(const uint64_t (&all)[U], uint32_t u) {
  uint64_t value = all[0];
  RUSHMEM_UNROLL
  for (uint32_t k = 1; k < U; ++k) value = k == u ? all[k] : value;
  return value;
}

/* Such words go to all other members, of which `word_` has those for the first one to the right. `slot` is
 * the first word's packet. */
template <bool whole, typename Scope, typename Source, uint32_t U>
RUSHMEM_DEVICE void send_tile(const call<Scope> &c, const Source &source, packet *slot, uint64_t (&word_)[U], size_t w,
                              uint32_t apart, uint32_t left) {
  const int members = c.t.raw.n_pes;
  const uint64_t number = c.number(c.next);
  RUSHMEM_ROLLED
  for (int s = 1; s < members; ++s) {
    const int member = c.right(s);
    if (s != 1 && !Source::same) load_tile<whole>(word_, source, member, w, apart, left);
    if (RUSHMEM_LIKELY(c.t.raw.all_near)) {
      store_tile<whole>(c.near_at(slot, member), word_, number, apart, left);
      continue;
    }
    RUSHMEM_ROLLED
    for (uint32_t u = 0; u < U && (whole || u * apart < left); ++u) {
      c.send(slot + u * apart, nth(word_, u), c.next, member);
    }
  }
}

/* And those of all members are received, their packets from `slot` on. */
template <bool whole, uint32_t U, typename Scope, typename Source, typename Sink>
RUSHMEM_DEVICE void receive_tile(const call<Scope> &c, const Source &source, const Sink &sink, const packet *slot,
                                 uint64_t phase, size_t w, uint32_t apart, uint32_t left) {
  const int members = c.t.raw.n_pes, me = c.t.raw.my_pe;
  uint64_t own[U] = {};
  load_tile<whole>(own, source, me, w, apart, left);
  struct {
    Sink of;
  } sinks[U];
  RUSHMEM_UNROLL
  for (uint32_t u = 0; u < U; ++u) sinks[u].of = sink;
  RUSHMEM_ROLLED
  for (int member = 0; member < members; ++member) {
    typename call<Scope>::template words<U> got;
    if (member == me) {
      RUSHMEM_UNROLL
      for (uint32_t u = 0; u < U; ++u) got.at[u] = own[u];
    } else {
      got = c.template receive_some<U, whole>(slot, apart, left, phase, member);
    }
    RUSHMEM_UNROLL
    for (uint32_t u = 0; u < U; ++u) {
      if (whole || u == 0 || u * apart < left) sinks[u].of.take_whole(member, w, u * apart, got.at[u]);
    }
    slot += c.t.raw.packets;
  }
  RUSHMEM_UNROLL
  for (uint32_t u = 0; u < U; ++u) {
    if (whole || u == 0 || u * apart < left) sinks[u].of.done_whole(w, u * apart);
  }
}

/* The same of one word of any kind: that of this thread's, `slot` its packet. */
template <typename Scope, typename Source>
RUSHMEM_DEVICE void send_word(const call<Scope> &c, const Source &source, packet *slot, size_t w) {
  uint64_t value = 0;
  RUSHMEM_ROLLED
  for (int s = 1; s < c.t.raw.n_pes; ++s) {
    const int member = c.right(s);
    if (s == 1 || !Source::same) value = source.word(member, w);
    c.send(slot, value, c.next, member);
  }
}
template <typename Scope, typename Source, typename Sink>
RUSHMEM_DEVICE void receive_word(const call<Scope> &c, const Source &source, Sink sink, const packet *slot, uint64_t phase,
                                 size_t w) {
  const int members = c.t.raw.n_pes, me = c.t.raw.my_pe;
  RUSHMEM_ROLLED
  for (int member = 0; member < members; ++member) {
    const uint64_t value = member == me ? source.word(me, w) : c.receive(slot, phase, member);
    sink.take(member, w, value);
    slot += c.t.raw.packets;
  }
  sink.done(w);
}

/* How the words of a call are shared out. */
struct chunks {
  size_t words;
  uint32_t each;   /* words of this channel in a chunk, */
  uint32_t step;   /* of all channels, */
  uint32_t offset; /* and of those in front of this one */

  /* This channel's words of the chunk that begins with word `from`. */
  RUSHMEM_DEVICE uint32_t count(size_t from) const {
    const size_t at = from + offset;
    if (at >= words) return 0;
    return words - at < each ? static_cast<uint32_t>(words - at) : each;
  }
};
template <typename Scope> RUSHMEM_DEVICE chunks chunks_of(const call<Scope> &c, size_t words) {
  uint32_t each = c.room;
  if constexpr (!call<Scope>::blocks) return {words, each, each, 0};
  const uint32_t channels = c.channels();
  if (words < size_t(each) * channels) each = (static_cast<uint32_t>(words) + channels - 1) / channels;
  return {words, each, each * channels, each * block_in_grid()};
}

/* A packet to every other member that says nothing else. */
template <typename Scope> RUSHMEM_DEVICE void say_here(const call<Scope> &c) {
  packet *own = c.packets(c.next, c.t.raw.my_pe);
  for (int s = 1; s < c.t.raw.n_pes; ++s) c.send(own, 0, c.next, c.right(s));
}

/* Waits for the channel's first packet of all other members but `but`. */
template <typename Scope> RUSHMEM_DEVICE void hear_all(const call<Scope> &c, uint64_t phase, int but) {
  for (int s = 1; s < c.t.raw.n_pes; ++s) {
    if (c.right(s) != but) c.receive(c.packets(phase, c.right(s)), phase, c.right(s));
  }
}

/* This channel's part of the chunk that begins with word `from` is sent, in the phase to come. */
template <bool whole, typename Scope, typename Source>
RUSHMEM_DEVICE void send_chunk(call<Scope> &c, const Source &source, const chunks &shares, size_t from) {
  using group = typename call<Scope>::group;
  const uint32_t n = shares.count(from);
  const size_t first = from + shares.offset;
  packet *const slot = c.packets(c.next, c.t.raw.my_pe);
  if (call<Scope>::blocks && n == 0 && group::rank() == 0) say_here(c);
  if constexpr (whole) {
    using share = tiles<group, words_together>;
    const share mine(n);
    const int right = c.right(1);
    uint64_t word_[words_together] = {};
    uint32_t i = mine.first;
    RUSHMEM_ROLLED
    for (; i < mine.whole; i += mine.step) {
      load_tile<true>(word_, source, right, first + i, share::known, 0);
      send_tile<true>(c, source, slot + i, word_, first + i, share::known, 0);
    }
    RUSHMEM_ROLLED
    for (; i < n; i += mine.step) {
      load_tile<false>(word_, source, right, first + i, mine.apart, n - i);
      send_tile<false>(c, source, slot + i, word_, first + i, mine.apart, n - i);
    }
  } else {
    RUSHMEM_ROLLED
    for (uint32_t i = group::rank(); i < n; i += group::size()) send_word(c, source, slot + i, first + i);
  }
  c.check_busy();
}

/* And that of a phase is received. */
template <bool whole, typename Scope, typename Source, typename Sink>
RUSHMEM_DEVICE void receive_chunk(const call<Scope> &c, const Source &source, const Sink &sink, const chunks &shares,
                                  size_t from, uint64_t phase) {
  using group = typename call<Scope>::group;
  constexpr uint32_t U = words_together;
  const uint32_t n = shares.count(from);
  const size_t first = from + shares.offset;
  const packet *const slot = c.packets(phase, 0);
  if (call<Scope>::blocks && n == 0 && group::rank() == 0) hear_all(c, phase, c.t.raw.my_pe);
  if constexpr (whole) {
    using share = tiles<group, U>;
    const share mine(n);
    uint32_t i = mine.first;
    RUSHMEM_ROLLED
    for (; i < mine.whole; i += mine.step) {
      receive_tile<true, U>(c, source, sink, slot + i, phase, first + i, share::known, 0);
    }
    RUSHMEM_ROLLED
    for (; i < n; i += mine.step) {
      receive_tile<false, U>(c, source, sink, slot + i, phase, first + i, mine.apart, n - i);
    }
  } else {
    RUSHMEM_ROLLED
    for (uint32_t i = group::rank(); i < n; i += group::size()) receive_word(c, source, sink, slot + i, phase, first + i);
  }
}

/* Any number of chunks. Out of line, and all by value: its registers are not those of calls that have one.
 * Gives what the call has come to. */
template <bool whole, typename Scope, typename Source, typename Sink>
RUSHMEM_OUTLINED typename call<Scope>::state_of exchange_chunks(team t, typename call<Scope>::state_of so_far, size_t words,
                                                                Source source, Sink sink) {
  call<Scope> c(t, so_far);
  const chunks shares = chunks_of(c, words);
  /* Where the chunk to send begins. To receive is the same one if it is the first, else the one before. */
  size_t sent = 0;
  RUSHMEM_ROLLED
  for (;;) {
    if (sent < words) send_chunk<whole>(c, source, shares, sent);
    const bool only = sent == 0;
    if (only || sent != shares.step) {
      const size_t from = only ? 0 : sent - shares.step;
      receive_chunk<whole>(c, source, sink, shares, from, only ? c.next : c.next - 1);
      if (words <= shares.step || (!only && words - from <= shares.step)) break;
    }
    sent += shares.step;
    ++c.next;
  }
  /* Of several the last was received a round after it was sent. */
  if (words <= shares.step) ++c.next;
  c.behind = words <= shares.step ? 2 : words <= 2 * size_t(shares.step) ? 3 : 4;
  return c.so_far();
}

/* `source.word(member, w)`: word w for that member, or this one's own. `sink.take(member, w, word)`: for each
 * w the members in the order of their numbers, this one among them; then `sink.done(w)`. */
template <typename Scope, typename Source, typename Sink>
RUSHMEM_DEVICE void exchange(call<Scope> &c, size_t words, Source source, Sink sink) {
  if (c.is_idle()) return;
  c.make_room();
  const chunks shares = chunks_of(c, words);
  bool whole = false;
  if constexpr (Source::plain) whole = source.are_whole(sink.dst);
  if (!short_path || words > shares.step || whole) {
    typename call<Scope>::state_of after;
    if constexpr (Source::plain) {
      after = whole ? exchange_chunks<true, Scope>(c.t, c.so_far(), words, source, sink)
                    : exchange_chunks<false, Scope>(c.t, c.so_far(), words, source, sink);
    } else {
      after = exchange_chunks<false, Scope>(c.t, c.so_far(), words, source, sink);
    }
    c.next = after.next;
    c.behind = after.behind;
    c.busy = after.busy;
    c.idle = after.idle;
    /* Its last packets do not say that their senders have ended the phase before; calls by wide packets
     * ask. */
    if constexpr (!call<Scope>::blocks) {
      if (c.behind > 2 && c.t.raw.wide != 0 && c.t.raw.all_near) {
        call<Scope>::group::sync();
        c.show(c.next - 1);
      }
    }
  } else if constexpr (short_path) {
    send_chunk<false>(c, source, shares, 0);
    receive_chunk<false>(c, source, sink, shares, 0, c.next);
    ++c.next;
    c.behind = 2;
  }
}

}  // namespace impl
}  // namespace rushmem

#endif
