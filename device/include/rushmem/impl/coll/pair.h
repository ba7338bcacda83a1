/* Calls of few words between two members that are near: each thread of the scope has one word at most. One
 * phase of the protocol in call.h, on the same packets, in as few instructions as it takes. A thread needs
 * some five cycles for one, so those between the phase's arrival and the packet's departure, and between the
 * other packet's and the end, are what a call costs beside the link (docs/performance-log.md, 34):
 *
 * - Which phase it is, and whether there is room for its packets, comes in one word, from the L1 cache in a
 *   row of calls (rushmem_team_slots::ended). A packet's place and number take few instructions more.
 * - What is not needed before the packet leaves is worked out while it is on its way, and the word that says
 *   that the slot set is in use is taken then.
 * - A thread asks for its number again, and addresses are in registers before the scope's threads meet: what
 *   is the same in each round of a loop the compiler keeps in memory, or among the kernel's constants.
 * - Polls do nothing but poll. What a call seldom needs is out of line.
 *
 * Other calls go by small.h, few.h, or through `call`. Each member may take another way. */
#ifndef RUSHMEM_IMPL_COLL_PAIR_H
#define RUSHMEM_IMPL_COLL_PAIR_H

#include <rushmem/impl/coll/exchange.h>
#include <rushmem/impl/coll/limits.h>

namespace rushmem {
namespace impl {

/* A call that has not asked yet. Not by a grid. */
template <typename Scope> RUSHMEM_DEVICE call<Scope> small_call(const team &t, uint64_t tag) {
  return {t, {0, 0, static_cast<uint32_t>(tag), 0, t.raw.packets, 0}};
}

/* This thread's number in the scope, asked for again; whether one instruction lets the scope's threads meet,
 * and that. */
template <typename Scope> RUSHMEM_DEVICE uint32_t rank_again() {
  if constexpr (is_alone<Scope>::value) return 0;
  else if constexpr (is_one_warp<Scope>::value) return lane_again();
  else return thread_in_block_again();
}
template <typename Scope> RUSHMEM_DEVICE bool meets_at_once() {
  if constexpr (is_one_warp<Scope>::value) return threads_in_block() % 32 == 0;
  return true;
}
template <typename Scope> RUSHMEM_DEVICE void meet_at_once() {
  if constexpr (is_one_warp<Scope>::value) meet_lanes();
  else Scope::sync();
}

/* Whether calls of so many bytes for each member, or from the root, are such ones; none of 0 bytes is. Not of
 * a grid. */
template <typename Scope, typename Source> RUSHMEM_DEVICE bool is_of_pair_alone(const team &t, size_t bytes, const Source &source, const void *dst) {
  return bytes - 1 < t.raw.pair_bytes && bytes <= Scope::size() * 8 && meets_at_once<Scope>() && source.are_halves(dst);
}

/* A word of which the second half may be missing: where elements have 4 bytes. */
template <typename T> RUSHMEM_DEVICE uint64_t load_halves(const T *from, bool second) {
  const char *const at = reinterpret_cast<const char *>(from);
  if constexpr (part_of<T>::value != 4) return load_part<8>(at);
  uint64_t value = load_part<4>(at);
  if (second) value |= load_part<4>(at + 4) << 32;
  return value;
}
template <typename T> RUSHMEM_DEVICE void leave_halves(T *to, bool second, uint64_t value) {
  char *const at = reinterpret_cast<char *>(to);
  if constexpr (part_of<T>::value != 4) return store_part<8>(at, value);
  store_part<4>(at, value);
  if (second) store_part<4>(at + 4, value >> 32);
}
template <typename T> RUSHMEM_DEVICE T *at_word(T *array, uint32_t w) {
  return reinterpret_cast<T *>(reinterpret_cast<uint64_t>(array) + w * 8);
}

/* One thread of such a call. */
template <typename Scope> struct of_pair {
  uint64_t to, from; /* its packet at the other member, and that one's here; from begin() on in this phase */
  uint64_t number;   /* of this phase's packets */
  uint64_t busy, idle; /* in the first thread: call::busy, idle */

  RUSHMEM_DEVICE static rushmem_team_slots *slots_of(const team &t) {
    return reinterpret_cast<rushmem_team_slots *>(t.raw.slots);
  }
  /* Where a member's packets of phase 0 are, behind `slots`. */
  RUSHMEM_DEVICE static uint32_t first_packet(const team &t, int from_) {
    constexpr uint32_t front = sizeof(rushmem_team_slots) + 2 * sizeof(rushmem_sync_line);
    return front + static_cast<uint32_t>(from_) * t.raw.packets * static_cast<uint32_t>(sizeof(packet));
  }
  /* Before the threads meet. */
  RUSHMEM_DEVICE of_pair(const team &t, uint32_t w)
      : to(opaque(opaque(t.raw.right) + t.raw.slots + (first_packet(t, t.raw.my_pe) + w * static_cast<uint32_t>(sizeof(packet))))),
        from(0), number(0), busy(0), idle(0) {}

  /* Whether a packet may be sent: not if it would replace one that may not be read yet. */
  RUSHMEM_DEVICE bool begin(const team &t, uint32_t tag, uint64_t ended) {
    number = ((ended | 0xffff) + 1) | tag;
    to += place(t);
    return (ended & RUSHMEM_TEAM_PHASES) == 0;
  }
  RUSHMEM_DEVICE uint32_t place(const team &t) const {
    return (static_cast<uint32_t>(number) >> 16) % RUSHMEM_TEAM_PHASES * (t.raw.packets * 2 * static_cast<uint32_t>(sizeof(packet)));
  }
  /* Once the packet is on its way. */
  RUSHMEM_DEVICE void look(const team &t, uint32_t w) {
    const uint32_t behind = first_packet(t, 1 - t.raw.my_pe) + w * static_cast<uint32_t>(sizeof(packet)) + place(t);
    from = opaque(t.raw.slots) + behind;
  }
  /* By the first thread. */
  RUSHMEM_DEVICE void take(const team &t, uint64_t ended) {
    rushmem_team_slots *const slots = slots_of(t);
    idle = ended;
    busy = swap_word(&slots->busy, uint64_t(RUSHMEM_TEAM_BUSY));
    store_relaxed_word(&slots->current, number);
    note_call(t.raw.slots - t.raw.heap_base, number >> 16, static_cast<uint16_t>(number), t.world_pe(0));
  }
  /* By the first thread: the phase goes into this PE's line at the other member. */
  RUSHMEM_DEVICE void show(const team &t) const {
    rushmem_sync_line *const own = reinterpret_cast<rushmem_sync_line *>(slots_of(t) + 1) + t.raw.my_pe;
    uint64_t *const there = reinterpret_cast<uint64_t *>(reinterpret_cast<uint64_t>(&own->epoch) + t.raw.right);
    store_relaxed_word(there, number);
  }
  /* By the first thread, once the answer has come. */
  RUSHMEM_DEVICE void check(const team &t) const {
    if (RUSHMEM_UNLIKELY(busy != idle)) call<Scope>(t, {number >> 16, 0, static_cast<uint16_t>(number), busy, 0, idle}).check_busy();
  }
  /* By the first thread, once all threads have loaded what this changes: the phase has ended, and so many
   * phases before it at all members. */
  RUSHMEM_DEVICE void end(const team &t, uint32_t ago) const {
    call<Scope>::leave_alone(slots_of(t), (number & ~uint64_t(0xffff)) | ago);
  }
};

/* The value of a packet that is late. */
template <typename Scope> RUSHMEM_OUTLINED uint64_t receive_late(team t, of_pair<Scope> one) {
  const call<Scope> c(t, {one.number >> 16, 0, static_cast<uint16_t>(one.number), one.busy, t.raw.packets, one.idle});
  return c.receive(reinterpret_cast<const packet *>(one.from), c.next, 1 - t.raw.my_pe);
}
template <typename Scope> RUSHMEM_DEVICE uint64_t receive_of_other(const team &t, const of_pair<Scope> &one) {
  const packet *const from = reinterpret_cast<const packet *>(one.from);
  packet seen = load_packet(from);
  uint32_t polls = polls_before_help;
  RUSHMEM_ROLLED
  while (seen.sequence != one.number) {
    pause(polls == polls_before_help);
    if (RUSHMEM_UNLIKELY(--polls == 0)) return receive_late<Scope>(t, one);
    seen = load_packet(from);
  }
  return seen.value;
}

/* Waits, each thread for itself, until packets of that number may be sent. */
template <typename Scope> RUSHMEM_OUTLINED void await_room(team t, uint64_t number) {
  const call<Scope> c(t, {number >> 16, 0, static_cast<uint16_t>(number), 0, t.raw.packets, 0});
  for (int s = 1; s < t.raw.n_pes; ++s) c.await_line(c.right(s), c.next - RUSHMEM_TEAM_PHASES + 1, false);
}

/* The whole call: from `source` to `sink` (exchange.h). */
template <typename Scope, typename Source, typename Sink>
RUSHMEM_DEVICE void exchange_of_pair(const team &t, uint32_t collective, size_t bytes_, uint64_t more, Source source, Sink sink) {
  const uint32_t w = rank_again<Scope>(), bytes = static_cast<uint32_t>(bytes_);
  small_call<Scope>(t, 0).check_team();
  of_pair<Scope> one(t, w);
  const uint64_t *const ended_at = in_register(&one.slots_of(t)->ended, w);
  await_turn();
  meet_at_once<Scope>();
  if (w * 8 < bytes) {
    const uint64_t ended = load_plain_word(ended_at);
    const int me = t.raw.my_pe;
    const bool second = w * 8 + 4 < bytes;
    const uint64_t own = load_halves(at_word(source.of(me), w), second);
    const uint64_t sent = Source::same ? own : load_halves(at_word(source.of(1 - me), w), second);
    const uint32_t tag = opaque(static_cast<uint32_t>(tag_of(collective, bytes, more)));
    if (RUSHMEM_UNLIKELY(!one.begin(t, tag, ended))) await_room<Scope>(t, one.number);
    store_packet(reinterpret_cast<packet *>(one.to), sent, one.number);
    one.look(t, w);
    if (w == 0) one.take(t, ended);
    sink.dst = opaque(at_word(sink.dst, w));
    const uint64_t theirs = receive_of_other(t, one);
    heard_of_all();
    sink.take_both(second, me == 0 ? own : theirs, me == 0 ? theirs : own);
    one.check(t);
  }
  meet_at_once<Scope>();
  if (w == 0) one.end(t, 1);
}

/* A broadcast: packets go one way, and the members show that they are done with them, as after any phase
 * whose packets do (call.h). Nobody waits for that here. */
template <typename Scope, typename T>
RUSHMEM_DEVICE void broadcast_of_pair(const team &t, T *dst, const T *src, size_t n, int root) {
  const uint32_t w = rank_again<Scope>(), bytes = static_cast<uint32_t>(n * sizeof(T));
  small_call<Scope>(t, 0).check_team();
  of_pair<Scope> one(t, w);
  const uint64_t *const ended_at = in_register(&one.slots_of(t)->ended, w);
  await_turn();
  meet_at_once<Scope>();
  uint32_t ago = 1;
  if (w * 8 < bytes) {
    const uint64_t ended = load_plain_word(ended_at);
    const bool second = w * 8 + 4 < bytes, sends = t.raw.my_pe == root;
    const uint64_t value = sends ? load_halves(at_word(src, w), second) : 0;
    const uint32_t tag = opaque(static_cast<uint32_t>(tag_of(RUSHMEM_COLLECTIVE_BROADCAST, bytes, static_cast<uint64_t>(root) * 2)));
    const bool has_room = one.begin(t, tag, ended);
    if (sends) {
      if (RUSHMEM_UNLIKELY(!has_room)) await_room<Scope>(t, one.number);
      store_packet(reinterpret_cast<packet *>(one.to), value, one.number);
      if (w == 0) one.take(t, ended);
      heard_of_all();
      if (dst != src) leave_halves(at_word(dst, w), second, value);
      /* One more than before; as much as there is room for behind await_room. */
      ago = has_room ? ended_ago(ended) + 1 : RUSHMEM_TEAM_PHASES;
    } else {
      one.look(t, w);
      if (w == 0) one.take(t, ended);
      T *const to = opaque(at_word(dst, w));
      const uint64_t received = receive_of_other(t, one);
      heard_of_all();
      leave_halves(to, second, received);
      loads_before_later();
    }
    one.check(t);
  }
  meet_at_once<Scope>();
  if (w == 0) {
    one.show(t);
    one.end(t, ago);
  }
}

}  // namespace impl
}  // namespace rushmem

#endif
