/* Large collectives: no staging, each byte travels once. Members meet, read or write one another's arrays,
 * and meet again. The first meeting says that every member's arrays are ready, and may be written; the second
 * that all have been read and written. Nothing is waited for in between, so the two meetings are all that
 * orders the accesses: loads of another member's memory see it as it is since the first (they bypass the L1
 * cache), and the second releases the stores, of all threads, as a barrier of the block or grid comes before
 * it.
 *
 * A grid shares the bytes out to its blocks in whole lines. Its blocks meet in pairs, block b of one member
 * and block b of the others; that all of them have met is what the grid's barriers around the call, or the
 * launch's begin and end, add to it.
 *
 * Members on other nodes are written to by puts, which go through the network while this PE writes to near
 * ones. The second meeting has a fence in front of it, so a member that has met another one has its data. A
 * put's source is free when the network says so, for which the call waits at its end.
 *
 * How much is on its way counts: an SM has 46 GB/s over NVLink with 64 KiB in flight. What goes to this PE's
 * own memory is written beside what goes to others, by the same threads. Members that do not keep one order
 * would meet at the same target: each begins with its right neighbour. */
#ifndef RUSHMEM_IMPL_COLL_DIRECT_H
#define RUSHMEM_IMPL_COLL_DIRECT_H

#include <rushmem/impl/coll/call.h>
#include <rushmem/impl/coll/limits.h>
#include <rushmem/impl/copy.h>

namespace rushmem {
namespace impl {

/* Whether an array is in this PE's symmetric memory. */
RUSHMEM_DEVICE bool is_symmetric(const void *at, size_t bytes) {
  const uint64_t offset = reinterpret_cast<uint64_t>(at) - state().heap_base;
  return offset < state().stride && bytes <= state().stride - offset;
}

/* Who the members are, by value: what a function that is out of line needs of a call. */
struct roster {
  const int32_t *table;
  int start, stride, me, n;
  template <typename T> RUSHMEM_DEVICE T *at(T *local, int member) const {
    return run_address(local, RUSHMEM_LIKELY(!table) ? start + member * stride : table[member]);
  }
};
template <typename Scope> RUSHMEM_DEVICE roster roster_of(const call<Scope> &c) {
  return {c.t.raw.table, c.t.raw.start, c.t.raw.stride, c.t.raw.my_pe, c.t.raw.n_pes};
}

/* Bytes [begin, end) of an array. */
struct span {
  size_t begin, end;
};

/* The part of [begin, end) that is this block's: whole lines of 128 bytes from `begin` on. */
template <typename Scope> RUSHMEM_DEVICE span block_part(const call<Scope> &c, size_t begin, size_t end) {
  if constexpr (!call<Scope>::blocks) return {begin, end};
  if (c.is_idle()) return {end, end};
  const size_t channels = c.channels(), each = ((end - begin + 127) / 128 + channels - 1) / channels * 128;
  const size_t first = begin + each * block_in_grid();
  if (first >= end) return {end, end};
  return {first, end - first < each ? end : first + each};
}

/* This PE's array as `member` has it. */
template <typename Scope, typename T> RUSHMEM_DEVICE T *of_member(const call<Scope> &c, T *local, int member) {
  return c.near_at(local, member);
}

/* A copy to a member, or within this PE. Out of line: what it keeps in flight would be added to what the
 * collective around it keeps. */
template <typename Scope, size_t unit> RUSHMEM_OUTLINED void copy_apart(char *to, const char *from, size_t bytes) {
  copy<Scope, unit, false>(to, from, bytes);
}

/* The same of what others have written. */
template <typename Scope, size_t unit> RUSHMEM_OUTLINED void copy_fresh(char *to, const char *from, size_t bytes) {
  copy<Scope, unit, true>(to, from, bytes);
}

/* The same to a PE that is not in the run around this one. Out of line as well. */
template <typename Scope, size_t unit> RUSHMEM_OUTLINED void put_apart(char *to, const char *from, size_t bytes, int pe) {
  const route way = route_to(pe);
  if (way.is_far()) far_put<Scope>(to, from, bytes, pe, 0);
  else copy<Scope, unit, false>(way.at(to), from, bytes);
}

/* The end of a call that has written to members which may be far. */
template <typename Scope> RUSHMEM_DEVICE void written(const call<Scope> &c) {
  if (RUSHMEM_LIKELY(c.t.raw.all_near)) return;
  note(noted_quiet);
  if (call<Scope>::group::rank() == 0 && state().ring != nullptr) far_quiet();
  call<Scope>::group::sync();
}

/* This block's part of n elements, to a member or within this PE. */
template <typename Scope, typename T> RUSHMEM_DEVICE void copy_part(const call<Scope> &c, T *to, const T *from, size_t n) {
  const span mine = block_part(c, 0, n * sizeof(T));
  if (to == from || mine.begin == mine.end) return;
  copy_apart<typename call<Scope>::group, unit_of<T>::value>(reinterpret_cast<char *>(to) + mine.begin,
                                                             reinterpret_cast<const char *>(from) + mine.begin,
                                                             mine.end - mine.begin);
}
template <typename Scope, typename T>
RUSHMEM_DEVICE void copy_to_member(const call<Scope> &c, T *dst, const T *src, size_t n, int member) {
  if (RUSHMEM_LIKELY(c.t.raw.all_near)) return copy_part(c, of_member(c, dst, member), src, n);
  const span mine = block_part(c, 0, n * sizeof(T));
  if (mine.begin == mine.end) return;
  put_apart<typename call<Scope>::group, unit_of<T>::value>(reinterpret_cast<char *>(dst) + mine.begin,
                                                            reinterpret_cast<const char *>(src) + mine.begin,
                                                            mine.end - mine.begin, c.t.world_pe(member));
}
template <typename Scope, typename T> RUSHMEM_DEVICE void copy_own(const call<Scope> &c, T *dst, const T *src, size_t n) {
  copy_part(c, dst, src, n);
}

/* Whether all of these addresses are whole vectors'. */
RUSHMEM_DEVICE bool whole_vectors(const void *a, const void *b) {
  return ((reinterpret_cast<uint64_t>(a) | reinterpret_cast<uint64_t>(b)) & 15) == 0;
}

#if !defined(RUSHMEM_CPU)
template <int N> struct constant {
  static constexpr int value = N;
};

/* Vectors that a lane of a block has in flight on their way to members. */
constexpr int vectors_written = 8;

/* Whole vectors by a block's full warps: a warp's tiles have `held` vectors of each lane at distances that
 * the compiler knows; what is less than a tile is dealt out vector by vector. */
template <int held, typename Move> RUSHMEM_DEVICE void move_tiles(size_t bytes, Move move) {
  constexpr uint32_t each = held * 32 * 16;
  const uint32_t rank = block::rank(), warps = block::size() / 32;
  const size_t whole = bytes / each * each;
  RUSHMEM_ROLLED
  for (size_t at = rank / 32 * each; at < whole; at += warps * each) move(at + rank % 32 * 16, constant<held>{});
  RUSHMEM_ROLLED
  for (size_t at = whole + rank * 16; at < bytes; at += block::size() * 16) move(at, constant<1>{});
}

/* The same bytes to every member and, beside them, to this PE's `dst`, where that is not the source. Out of
 * line, as copy_apart. */
template <int held> RUSHMEM_OUTLINED void write_tiles_to_all(roster members, char *dst, const char *src, size_t bytes) {
  move_tiles<held>(bytes, [=](size_t at, auto vectors) {
    constexpr int V = decltype(vectors)::value;
    tile<32, V, 16, false, false> t;
    t.load(src + at, 0);
    RUSHMEM_ROLLED
    for (int s = 1; s < members.n; ++s) {
      const int to = members.me + s;
      t.store(members.at(dst, to < members.n ? to : to - members.n) + at, 0, 0);
    }
    if (dst != src) t.store(dst + at, 0, 0);
  });
}

/* Bytes to one member. */
template <int held> RUSHMEM_OUTLINED void write_tiles(char *there, const char *from, size_t bytes) {
  move_tiles<held>(bytes, [=](size_t at, auto vectors) {
    tile<32, decltype(vectors)::value, 16, false, false> t;
    t.load(from + at, 0);
    t.store(there + at, 0, 0);
  });
}

/* Bytes to one member, and beside them other bytes to this PE's own memory: a store to a member waits for the
 * link, one to memory does not. */
template <int held> RUSHMEM_OUTLINED void write_tiles_beside(char *there, const char *from, char *dst, const char *own, size_t bytes) {
  move_tiles<held>(bytes, [=](size_t at, auto vectors) {
    constexpr int V = decltype(vectors)::value;
    tile<32, V, 16, false, false> leaves, stays;
    leaves.load(from + at, 0);
    stays.load(own + at, 0);
    leaves.store(there + at, 0, 0);
    stays.store(dst + at, 0, 0);
  });
}
#endif

/* `bytes` to a near member, or within this PE. */
template <size_t unit, typename Group> RUSHMEM_DEVICE void write_to_one(char *there, const char *from, size_t bytes) {
#if !defined(RUSHMEM_CPU)
  if constexpr (!is_alone<Group>::value && !is_one_warp<Group>::value) {
    if (RUSHMEM_LIKELY(Group::size() % 32 == 0 && are_vectors(there, from, bytes))) {
      return write_tiles<vectors_written>(there, from, bytes);
    }
  }
#endif
  copy_apart<Group, unit>(there, from, bytes);
}

/* As write_to_all, for whole vectors between near members, by full warps of a block. Whether it was. */
template <typename Scope>
RUSHMEM_DEVICE bool all_by_tiles(const call<Scope> &c, char *dst, const char *src, size_t apart, const char *own, size_t count) {
#if !defined(RUSHMEM_CPU)
  using group = typename call<Scope>::group;
  if constexpr (!is_alone<group>::value && !is_one_warp<group>::value) {
    if (!c.t.raw.all_near || c.t.raw.n_pes < 2 || group::size() % 32 != 0) return false;
    if (!are_vectors(dst, src, apart | count)) return false;
    if (apart == 0) {
      write_tiles_to_all<vectors_written>(roster_of(c), dst, src, count);
      return true;
    }
    RUSHMEM_ROLLED
    for (int s = 1; s < c.t.raw.n_pes; ++s) {
      const int to = c.right(s);
      const char *from = src + static_cast<size_t>(to) * apart;
      char *const there = of_member(c, dst, to);
      if (s == 1 && own != dst) write_tiles_beside<vectors_written>(there, from, dst, own, count);
      else write_tiles<vectors_written>(there, from, count);
    }
    return true;
  }
#endif
  return false;
}

/* `bytes` to `dst` on every member, this one too, each from what lies `apart` bytes behind what goes to the
 * member before it; 0: the same to all. */
template <size_t unit, typename Scope>
RUSHMEM_DEVICE void write_to_all(const call<Scope> &c, char *dst, const char *src, size_t apart, size_t bytes) {
  using group = typename call<Scope>::group;
  const int n = c.t.raw.n_pes, me = c.t.raw.my_pe;
  const span mine = block_part(c, 0, bytes);
  const size_t count = mine.end - mine.begin;
  if (count == 0) return;
  const bool near = c.t.raw.all_near != 0;
  dst += mine.begin;
  src += mine.begin;
  const char *own = src + static_cast<size_t>(me) * apart;
  if (all_by_tiles(c, dst, src, apart, own, count)) return;
  RUSHMEM_ROLLED
  for (int s = 1; s < n; ++s) {
    const int to = c.right(s);
    const char *from = src + static_cast<size_t>(to) * apart;
    if (near) copy_apart<group, unit>(of_member(c, dst, to), from, count);
    else put_apart<group, unit>(dst, from, count, c.t.world_pe(to));
  }
  if (own != dst) copy_apart<group, unit>(dst, own, count);
}

}  // namespace impl
}  // namespace rushmem

#endif
