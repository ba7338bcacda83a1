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
  const size_t room = c.t.raw.packets, rank = Scope::rank(), size = Scope::size();
  const uint64_t begin = c.next;

  auto send = [&](size_t chunk) {
    const size_t from = chunk * room, count = words - from < room ? words - from : room;
    packet *slot = c.packets(begin + chunk, me);
    for (size_t i = rank; i < count; i += size) {
      for (int s = 1; s < n; ++s) {
        const int member = c.right(s);
        c.send(slot + i, source(member, from + i), begin + chunk, member);
      }
    }
  };
  auto receive = [&](size_t chunk) {
    const size_t from = chunk * room, count = words - from < room ? words - from : room;
    for (size_t i = rank; i < count; i += size) {
      for (int member = 0; member < n; ++member) {
        const uint64_t word_ = member == me ? source(me, from + i)
                                            : c.receive(c.packets(begin + chunk, member) + i, begin + chunk, member);
        sink.take(member, from + i, word_);
      }
      sink.done(from + i);
    }
  };

  const size_t chunks = (words + room - 1) / room;
  for (size_t k = 0; k < chunks; ++k) {
    send(k);
    c.check_busy();
    if (k != 1) receive(k == 0 ? 0 : k - 1);
  }
  if (chunks > 1) receive(chunks - 1);
  if (chunks == 0) return;
  const uint64_t last = begin + chunks - 1;
  c.known = last > begin + 1 ? last - 3 : begin - 1;
  c.next = last + 1;
}

/* Words of n elements at `from`, of which the last may be part of one. */
template <typename T> RUSHMEM_DEVICE size_t words_of(size_t n) { return packets<T>(n); }

template <typename T> RUSHMEM_DEVICE uint64_t word_at(const T *from, size_t n, size_t w) {
  return gather_word<part_of<T>::value>(reinterpret_cast<const char *>(from) + w * 8, n * sizeof(T) - w * 8);
}

template <typename T> RUSHMEM_DEVICE void set_word(T *to, size_t n, size_t w, uint64_t value) {
  scatter_word<part_of<T>::value>(reinterpret_cast<char *>(to) + w * 8, value, n * sizeof(T) - w * 8);
}

}  // namespace impl
}  // namespace rushmem

#endif
