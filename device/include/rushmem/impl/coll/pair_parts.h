/* Calls of few words between two members that are near, by a grid: each thread has one word at most. What
 * pair.h has for one block at most, in channels (call.h): a thread of each block finds out which phase it is,
 * and begins for all of them; the rest is worked out before a kernel on a stream has its turn. A block
 * without a word sends a packet that says nothing, and waits for one. */
#ifndef RUSHMEM_IMPL_COLL_PAIR_PARTS_H
#define RUSHMEM_IMPL_COLL_PAIR_PARTS_H

#include <rushmem/impl/coll/pair.h>

namespace rushmem {
namespace impl {

/* Whether calls of so many bytes for each member, or from the root, are such ones; none of 0 bytes is. */
template <typename Scope, typename Source>
RUSHMEM_DEVICE bool is_of_pair_by_parts(const team &t, size_t bytes, const Source &source, const void *dst) {
  if (bytes - 1 >= t.raw.pair_bytes || !is_by_words<Scope>(t, bytes) || !source.are_halves(dst)) return false;
  return (bytes + 7) / 8 <= static_cast<size_t>(blocks_in_grid()) * block::size();
}

/* This thread's part of such a call: word `w` of the array, if it `has` one. */
template <typename Scope> struct part_of_pair {
  call<Scope> c;
  uint32_t place; /* of its packet */
  of_pair<Scope> one;
  phases_of_block answer; /* of the slot set, in the first thread */
  bool has, second; /* second: the word is whole */
  bool none;        /* no thread of the block has one, and this is the first */
  uint32_t w;

  /* The threads of the block enter. */
  RUSHMEM_DEVICE part_of_pair(const team &t, uint64_t tag, uint32_t bytes)
      : c(t, {0, 0, call<Scope>::tag_of_blocks(tag), 0, call<Scope>::room_of(t), 0}),
        place(block_in_grid() * c.room + block::rank()), one(t, place) {
    const chunks shares = chunks_of(c, (bytes + 7) / 8);
    const uint32_t rank = block::rank(), count = shares.count(0);
    has = rank < count;
    none = count == 0 && rank == 0;
    w = shares.offset + rank;
    second = w * 8 + 4 < bytes;
    answer = c.enter_by_blocks();
  }

  /* All threads, behind the loads of what they send. Those that send have room then. */
  RUSHMEM_DEVICE void begin(bool sends) {
    c.begin_by_blocks(answer);
    one.number = c.number(c.next);
    if (RUSHMEM_UNLIKELY(sends && c.behind > RUSHMEM_TEAM_PHASES)) await_room<Scope>(c.t, one.number);
    one.to += one.place(c.t);
  }
  RUSHMEM_DEVICE void send(uint64_t value) const { store_packet(reinterpret_cast<packet *>(one.to), value, one.number); }
  RUSHMEM_DEVICE uint64_t receive() {
    one.look(c.t, place);
    const uint64_t value = receive_of_other(c.t, one);
    heard_of_all();
    return value;
  }
  /* The wait for the other's packet ends where the slot set was in use. */
  RUSHMEM_DEVICE void take() {
    if (!call<Scope>::is_first()) return;
    c.take();
    one.busy = c.busy;
  }
  RUSHMEM_DEVICE void end() {
    loads_before_later();
    if (call<Scope>::is_first()) c.check_busy();
    block::sync();
    if (block::rank() == 0) {
      store_relaxed_word(c.ended_by_blocks() + block_in_grid(), c.next);
      ++c.next;
      if (block_in_grid() == 0) c.leave(answer.last.alone, answer.last.of_grid);
    }
    if constexpr (has_blocks<Scope>::meet) c.sync();
  }
};

/* The whole call: from `source` to `sink` (exchange.h). */
template <typename Scope, typename Source, typename Sink>
RUSHMEM_DEVICE void exchange_of_parts(const team &t, uint32_t collective, size_t bytes_, uint64_t more, Source source, Sink sink) {
  const uint32_t bytes = static_cast<uint32_t>(bytes_);
  part_of_pair<Scope> part(t, tag_of(collective, bytes, more), bytes);
  const int me = t.raw.my_pe;
  uint64_t own = 0, sent = 0;
  if (part.has) {
    own = load_halves(at_word(source.of(me), part.w), part.second);
    sent = Source::same ? own : load_halves(at_word(source.of(1 - me), part.w), part.second);
  }
  const bool any = part.has || part.none;
  part.begin(any);
  if (any) part.send(sent);
  part.take();
  if (any) {
    const uint64_t theirs = part.receive();
    sink.dst = at_word(sink.dst, part.w);
    if (part.has) sink.take_both(part.second, me == 0 ? own : theirs, me == 0 ? theirs : own);
  }
  part.end();
}

/* A broadcast. The first thread of each block sends a packet whether it has a word or not, as in each phase a
 * block hears of every member (call.h). */
template <typename Scope, typename T>
RUSHMEM_DEVICE void broadcast_of_parts(const team &t, T *dst, const T *src, size_t n, int root) {
  const uint32_t bytes = static_cast<uint32_t>(n * sizeof(T));
  const bool is_root = t.raw.my_pe == root;
  part_of_pair<Scope> part(t, tag_of(RUSHMEM_COLLECTIVE_BROADCAST, bytes, static_cast<uint64_t>(root) * 2), bytes);
  const bool first = block::rank() == 0, sends = is_root && part.has, gets = !is_root && part.has;
  const uint64_t value = sends ? load_halves(at_word(src, part.w), part.second) : 0;
  part.begin(sends || first);
  if (sends || first) part.send(value);
  part.take();
  if (sends && dst != src) leave_halves(at_word(dst, part.w), part.second, value);
  if (gets || first) {
    const uint64_t got = part.receive();
    if (gets) leave_halves(at_word(dst, part.w), part.second, got);
  }
  part.end();
}

/* Calls of few words between two members, of any scope. */
template <typename Scope, typename Source>
RUSHMEM_DEVICE bool is_of_pair(const team &t, size_t bytes, const Source &source, const void *dst) {
  if constexpr (has_blocks<Scope>::value) return is_of_pair_by_parts<Scope>(t, bytes, source, dst);
  else return is_of_pair_alone<Scope>(t, bytes, source, dst);
}
template <typename Scope, typename Source, typename Sink>
RUSHMEM_DEVICE void pair_exchange(const team &t, uint32_t collective, size_t bytes, uint64_t more, Source source, Sink sink) {
  if constexpr (has_blocks<Scope>::value) exchange_of_parts<Scope>(t, collective, bytes, more, source, sink);
  else exchange_of_pair<Scope>(t, collective, bytes, more, source, sink);
}
template <typename Scope, typename T> RUSHMEM_DEVICE void pair_broadcast(const team &t, T *dst, const T *src, size_t n, int root) {
  if constexpr (has_blocks<Scope>::value) broadcast_of_parts<Scope>(t, dst, src, n, root);
  else broadcast_of_pair<Scope>(t, dst, src, n, root);
}

}  // namespace impl
}  // namespace rushmem

#endif
