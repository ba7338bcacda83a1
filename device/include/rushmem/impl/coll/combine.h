/* The work of direct reductions: part of all members' arrays, combined, to this PE or to all. */
#ifndef RUSHMEM_IMPL_COLL_COMBINE_H
#define RUSHMEM_IMPL_COLL_COMBINE_H

#include <rushmem/impl/coll/direct.h>
#include <rushmem/impl/coll/exchange.h>
#include <rushmem/impl/coll/operators.h>

namespace rushmem {
namespace impl {

/* Words [begin, end) of arrays of n elements at any address, one at a time. Out of line: for what has no
 * whole vectors. */
template <typename Group, typename T, typename Op>
RUSHMEM_OUTLINED void combine_words(roster members, T *dst, const T *src, size_t n, size_t begin, size_t end, bool to_all) {
  for (size_t w = begin + Group::rank(); w < end; w += Group::size()) {
    accumulator<T, Op> so_far;
    so_far.begin(word_at(members.at(src, 0), n, w));
    for (int member = 1; member < members.n; ++member) so_far.add(word_at(members.at(src, member), n, w));
    const uint64_t value = so_far.result();
    for (int member = 0; to_all && member < members.n; ++member) {
      if (member != members.me) set_word(members.at(dst, member), n, w, value);
    }
    set_word(dst, n, w, value);
  }
}

/* Vectors of 16 bytes that a thread combines together: those of 16-bit floats are twice as wide in f32. */
template <typename T> struct combined_together {
  static constexpr int value = sizeof(typename combined<T>::type) > sizeof(T) ? 4 : 8;
};

/* The members' arrays, of which this PE's begins at `src`. */
template <typename Scope> struct arrays_of_members {
  const call<Scope> &c;
  const char *src;
  RUSHMEM_DEVICE const char *at(size_t offset, int member) const { return of_member(c, src + offset, member); }
};

/* U vectors, a warp's vectors from one another, at `offset` of what `members` have. Those of the first two
 * members are in flight together. */
template <typename Op, bool to_all, int U, typename T, typename Scope, typename Members>
RUSHMEM_DEVICE void combine_vectors(const call<Scope> &c, char *dst, const Members &members, size_t offset) {
  constexpr int apart = 32 * 16;
  const int n = c.t.raw.n_pes;
  pair first[U], v[U];
  const char *from = members.at(offset, 0), *second = members.at(offset, n > 1 ? 1 : 0);
  RUSHMEM_UNROLL
  for (int u = 0; u < U; ++u) first[u] = load_pair(from + u * apart);
  RUSHMEM_UNROLL
  for (int u = 0; u < U; ++u) v[u] = load_pair(second + u * apart);
  struct {
    accumulator<T, Op> a, b;
  } so_far[U];
  RUSHMEM_UNROLL
  for (int u = 0; u < U; ++u) {
    so_far[u].a.begin(first[u].a);
    so_far[u].b.begin(first[u].b);
  }
  RUSHMEM_ROLLED
  for (int member = 1; member < n; ++member) {
    RUSHMEM_UNROLL
    for (int u = 0; u < U; ++u) {
      so_far[u].a.add(v[u].a);
      so_far[u].b.add(v[u].b);
    }
    if (member + 1 == n) break;
    from = members.at(offset, member + 1);
    RUSHMEM_UNROLL
    for (int u = 0; u < U; ++u) v[u] = load_pair(from + u * apart);
  }
  RUSHMEM_UNROLL
  for (int u = 0; u < U; ++u) v[u] = pair{so_far[u].a.result(), so_far[u].b.result()};
  RUSHMEM_ROLLED
  for (int s = 1; s < n && to_all; ++s) {
    char *there = of_member(c, dst, c.right(s));
    RUSHMEM_UNROLL
    for (int u = 0; u < U; ++u) store_pair(there + u * apart, v[u]);
  }
  RUSHMEM_UNROLL
  for (int u = 0; u < U; ++u) store_pair(dst + u * apart, v[u]);
}

/* `count` whole vectors of what `members` have, combined to `to`: tiles of a warp, of which each lane has U
 * vectors at constant distances; then a vector a thread. */
template <typename Op, bool to_all, typename T, typename Scope, typename Members>
RUSHMEM_DEVICE void combine_whole(const call<Scope> &c, char *to, const Members &members, size_t count) {
  using group = typename call<Scope>::group;
  constexpr int U = combined_together<T>::value;
  const size_t size = group::size(), rank = group::rank();
  size_t i = 0;
  if (size % 32 == 0) {
    const size_t tiles = count / (32 * U);
    RUSHMEM_ROLLED
    for (size_t tile = rank / 32; tile < tiles; tile += size / 32) {
      const size_t at = (tile * (32 * U) + rank % 32) * 16;
      combine_vectors<Op, to_all, U, T>(c, to + at, members, at);
    }
    i = tiles * (32 * U);
  }
  RUSHMEM_ROLLED
  for (i += rank; i < count; i += size) combine_vectors<Op, to_all, 1, T>(c, to + i * 16, members, i * 16);
}

/* Bytes [begin, end) of all members' `src`, arrays of n elements, combined, to this PE's `dst`, and to the
 * others' where `to_all`. `begin` is a multiple of 128, `end` is another or the arrays' end. The members have
 * met. */
template <typename Op, bool to_all, typename Scope, typename T>
RUSHMEM_DEVICE void combine(const call<Scope> &c, T *dst, const T *src, size_t n, size_t begin, size_t end) {
  using group = typename call<Scope>::group;
  const span mine = block_part(c, begin, end);
  size_t done = mine.begin;
  if (RUSHMEM_LIKELY(whole_vectors(dst, src))) {
    const size_t count = (mine.end - mine.begin) / 16;
    const arrays_of_members<Scope> from{c, reinterpret_cast<const char *>(src) + mine.begin};
    combine_whole<Op, to_all, T>(c, reinterpret_cast<char *>(dst) + mine.begin, from, count);
    done += count * 16;
  }
  if (done < mine.end) {
    combine_words<group, T, Op>(roster_of(c), dst, src, n, done / 8, (mine.end + 7) / 8, to_all);
  }
}

/* Each member combines its share of the bytes, and writes the result to all, between two meetings. In place,
 * a share is read by its member alone, before it is written. */
template <typename Op, typename Scope, typename T>
RUSHMEM_DEVICE void combine_share(const call<Scope> &c, T *dst, const T *src, size_t n) {
  const size_t bytes = n * sizeof(T), members = static_cast<size_t>(c.t.raw.n_pes);
  /* Shares begin at whole lines. */
  const size_t share = ((bytes + members - 1) / members + 127) / 128 * 128;
  const size_t begin = share * static_cast<size_t>(c.t.raw.my_pe), end = begin + share;
  combine<Op, true>(c, dst, src, n, begin < bytes ? begin : bytes, end < bytes ? end : bytes);
}

/* Elements [0, n) of this member's share: its own at `own`, and those of the others one after the other in
 * `pieces`, `share` elements apart. The result may replace the piece that lies where it goes: each word is
 * written by who has read it. It goes to `also`, too, where that is not null. */
template <typename Group, typename T, typename Op>
RUSHMEM_OUTLINED void combine_pieces(T *result, T *also, const T *own, const T *pieces, size_t share, int me, int members,
                                     size_t n, span words) {
  const auto piece = [=](int m) { return m == me ? own : pieces + static_cast<size_t>(m < me ? m : m - 1) * share; };
  for (size_t w = words.begin + Group::rank(); w < words.end; w += Group::size()) {
    accumulator<T, Op> so_far;
    so_far.begin(word_at(piece(0), n, w));
    for (int m = 1; m < members; ++m) so_far.add(word_at(piece(m), n, w));
    const uint64_t value = so_far.result();
    set_word(result, n, w, value);
    if (also != nullptr) set_word(also, n, w, value);
  }
}

/* Whether a reduction between near members that is direct goes by stores alone, and its tag says so. */
constexpr uint64_t stores_alone = uint64_t(1) << 41;
template <typename Scope>
RUSHMEM_DEVICE bool is_reduced_by_stores(const team &t, size_t bytes, const void *dst, const void *src) {
  if constexpr (!call<Scope>::blocks) return false;
  return t.raw.n_pes == 2 && bytes >= least_reduced_by_stores && dst != src && whole_vectors(dst, src);
}

/* Between two near members by stores alone, which the link moves faster than loads (docs/performance-log.md,
 * 27). Each sends the other the share that this one combines, to where its result will be, which is free as
 * long as it is not the source; and then its result, of which a vector is written by who has read what lay
 * there. Blocks meet in pairs, so both shares are shared out to them as if they were whole ones. */
struct two_arrays {
  const char *of[2];
  RUSHMEM_DEVICE const char *at(size_t offset, int member) const { return of[member] + offset; }
};
template <typename Op, typename Scope, typename T>
RUSHMEM_DEVICE void reduce_of_two(call<Scope> &c, T *dst, const T *src, size_t n) {
  using group = typename call<Scope>::group;
  const size_t bytes = n * sizeof(T), share = ((bytes + 1) / 2 + 127) / 128 * 128;
  const int me = c.t.raw.my_pe, other = 1 - me;
  const span part = block_part(c, 0, share);
  const auto of_share = [=](int m) {
    const size_t first = share * static_cast<size_t>(m), begin = first + part.begin, end = first + part.end;
    return span{begin < bytes ? begin : bytes, end < bytes ? end : bytes};
  };
  const span sent = of_share(other), mine = of_share(me);
  c.meet_first();
  if (sent.begin < sent.end) {
    write_to_one<unit_of<T>::value, group>(of_member(c, reinterpret_cast<char *>(dst) + sent.begin, other),
                                           reinterpret_cast<const char *>(src) + sent.begin, sent.end - sent.begin);
  }
  c.meet();
  const size_t count = (mine.end - mine.begin) / 16, done = mine.begin + count * 16;
  char *const result = reinterpret_cast<char *>(dst) + mine.begin;
  two_arrays from;
  from.of[me] = reinterpret_cast<const char *>(src) + mine.begin;
  from.of[other] = result;
  combine_whole<Op, true, T>(c, result, from, count);
  if (done < mine.end) {
    T *const also = of_member(c, dst, other);
    combine_pieces<group, T, Op>(dst, also, src, dst, 0, me, 2, n, {done / 8, (mine.end + 7) / 8});
  }
  c.meet();
}

/* The same where members may be far, which cannot be read from here. Each sends every other the share that
 * this one combines, into its destination, which has room for them as long as it is not the source; then its
 * result, when all have combined theirs, to where the pieces were. Blocks meet in pairs, so every share is
 * shared out to them as if it was a whole one: what block b of one member writes, block b of another has
 * read. */
template <typename Op, typename Scope, typename T>
RUSHMEM_DEVICE void reduce_by_puts(call<Scope> &c, T *dst, const T *src, size_t n) {
  using group = typename call<Scope>::group;
  const size_t members = static_cast<size_t>(c.t.raw.n_pes), me = static_cast<size_t>(c.t.raw.my_pe);
  const size_t share = ((n * sizeof(T) + members - 1) / members + 127) / 128 * 128 / sizeof(T);
  const auto begin = [=](size_t m) { return share * m < n ? share * m : n; };
  const auto length = [=](size_t m) { return (begin(m + 1) - begin(m)) * sizeof(T); };
  const span part = block_part(c, 0, share * sizeof(T));
  const auto within = [=](size_t bytes) {
    return span{part.begin < bytes ? part.begin : bytes, part.end < bytes ? part.end : bytes};
  };
  const auto send = [&](T *to, const T *from, size_t bytes, int member) {
    const span mine = within(bytes);
    if (mine.begin == mine.end) return;
    put_apart<group, unit_of<T>::value>(reinterpret_cast<char *>(to) + mine.begin,
                                        reinterpret_cast<const char *>(from) + mine.begin, mine.end - mine.begin,
                                        c.t.world_pe(member));
  };
  c.meet_first();
  RUSHMEM_ROLLED
  for (int s = 1; s < c.t.raw.n_pes; ++s) {
    const size_t to = static_cast<size_t>(c.right(s));
    send(dst + (me < to ? me : me - 1) * share, src + begin(to), length(to), static_cast<int>(to));
  }
  c.meet_behind_puts();
  T *own = dst + begin(me);
  const span mine = within(length(me));
  T *const nowhere = nullptr;
  combine_pieces<group, T, Op>(own, nowhere, src + begin(me), dst, share, c.t.raw.my_pe, c.t.raw.n_pes,
                               length(me) / sizeof(T), {mine.begin / 8, (mine.end + 7) / 8});
  c.meet();
  RUSHMEM_ROLLED
  for (int s = 1; s < c.t.raw.n_pes; ++s) send(own, own, length(me), c.right(s));
  c.meet_behind_puts();
  written(c);
}

}  // namespace impl
}  // namespace rushmem

#endif
