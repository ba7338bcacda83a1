/* Words between every two members of a team, by packets: data and flag in one store, nobody waits twice.
 *
 * The words of a call go in chunks of as many as a slot set has packets for, each a phase. Word w of all
 * members is the same thread's, in every chunk. A chunk is sent before the one in front of it is received,
 * from the second on: `send(k)` comes after this thread has received word k - 2, so that its sender has
 * received k - 4, whose place k takes (call.h). The first two chunks do not overlap: members may have come
 * from another call, in which other threads had these words. */
#ifndef RUSHMEM_IMPL_COLL_EXCHANGE_H
#define RUSHMEM_IMPL_COLL_EXCHANGE_H

#include <rushmem/impl/coll/call.h>

namespace rushmem {
namespace impl {

/* `source(member, w)`: word w for that member, or this one's own. `sink.take(member, w, word)`: for each w
 * the members in the order of their numbers, this one among them; then `sink.done(w)`. */
template <typename Scope, typename Source, typename Sink>
RUSHMEM_DEVICE void exchange(call<Scope> &c, size_t words, Source source, Sink sink) {
  const int n = c.t.raw.n_pes, me = c.t.raw.my_pe;
  const size_t room = c.t.raw.packets;
  c.make_room();
  const uint64_t begin = c.next;
  const bool several = words > room;
  /* Where the chunks to send and to receive begin: the same for the first, then that one and the one
   * before. */
  size_t sent = 0;
  RUSHMEM_ROLLED
  for (;;) {
    if (sent < words) {
      packet *slot = c.packets(c.next, me);
      const size_t end = words - sent < room ? words : sent + room;
      RUSHMEM_ROLLED
      for (size_t w = sent + Scope::rank(); w < end; w += Scope::size()) {
        RUSHMEM_ROLLED
        for (int s = 1; s < n; ++s) {
          const int member = c.right(s);
          c.send(slot + (w - sent), source(member, w), c.next, member);
        }
      }
      c.check_busy();
    }
    const bool first = sent == 0;
    if (first || sent != room) {
      const size_t from = first ? 0 : sent - room, end = words - from < room ? words : from + room;
      const uint64_t phase = first ? begin : c.next - 1;
      const packet *slot = c.packets(phase, 0);
      RUSHMEM_ROLLED
      for (size_t w = from + Scope::rank(); w < end; w += Scope::size()) {
        RUSHMEM_ROLLED
        for (int member = 0; member < n; ++member) {
          const packet *at = slot + static_cast<size_t>(member) * room + (w - from);
          sink.take(member, w, member == me ? source(me, w) : c.receive(at, phase, member));
        }
        sink.done(w);
      }
      if (!several || (!first && end == words)) break;
    }
    sent += room;
    ++c.next;
  }
  const uint64_t last = several ? begin + (words - 1) / room : begin;
  c.known = last > begin + 1 ? last - 3 : begin - 1;
  c.next = last + 1;
}

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

}  // namespace impl
}  // namespace rushmem

#endif
