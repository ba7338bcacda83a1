/* The bytes of put and get. All tuning of bulk copies happens in this header: the rest of the library calls
 * `copy` and `copy_strided`, and relies only on what they promise.
 *
 * On the GPU: 16-byte stores to an aligned destination, several loads in flight before the first store, head
 * and tail peeled off in units of the element's alignment. Where source and destination are not aligned
 * alike, the source is still read 16 bytes at a time, aligned, and shifted into place; each vector once. No
 * byte outside the source is ever read. On the CPU: memcpy of one contiguous share per thread.
 *
 * Promises: each byte of the destination is written once, by some thread of the scope. Nothing is
 * synchronised, before or after. With `fresh`, loads see what was in memory when they were made (never a
 * stale line of the L1 cache), which is what a get from a PE that writes needs; without, the source is
 * ordinary local memory of any kind (shared too). `signals` says that the caller has an update to make
 * afterwards.
 */
#ifndef RUSHMEM_IMPL_COPY_H
#define RUSHMEM_IMPL_COPY_H

#include <rushmem/impl/platform.h>
#include <rushmem/impl/tiles.h>
#include <rushmem/scope.h>

namespace rushmem {
namespace impl {

#if defined(RUSHMEM_CPU)

template <size_t unit> RUSHMEM_DEVICE bool in_line(const void *, const void *, size_t) { return true; }

template <typename Scope, size_t unit> RUSHMEM_DEVICE bool are_few(size_t) { return false; }
template <typename Scope, size_t unit, bool fresh> RUSHMEM_DEVICE void copy_few(char *, const char *, size_t) {}
template <typename Scope> RUSHMEM_DEVICE bool are_served(size_t) { return false; }
template <typename Scope, bool fresh, bool signals> RUSHMEM_DEVICE void copy_whole(char *, const char *, size_t) {}
RUSHMEM_DEVICE bool are_vectors(const void *, const void *, size_t) { return false; }
template <typename Scope, size_t unit, bool fresh, bool shifted, bool signals>
RUSHMEM_DEVICE void copy_vectors(char *, const char *, uint32_t, size_t) {}

/* Shares are whole cache lines, so that no two threads write to one; a few bytes go to one thread. */
template <typename Scope, size_t unit, bool fresh, bool signals>
RUSHMEM_DEVICE void copy_in_line(char *to, const char *from, size_t bytes) {
  size_t begin = 0, end = bytes;
  if (Scope::size() > 1) {
    size_t lines = bytes / 64 + (bytes % 64 != 0), size = Scope::size(), rank = Scope::rank();
    size_t each = lines / size, more = lines % size;
    begin = 64 * (rank * each + (rank < more ? rank : more));
    end = begin + 64 * (each + (rank < more ? 1 : 0));
    if (end > bytes) end = bytes;
  }
  if (begin < end) {
    __builtin_memcpy(to + begin, from + begin, end - begin);
  }
}

template <typename Scope, size_t unit, bool fresh>
RUSHMEM_DEVICE size_t copy_up_to_vectors(char *to, const char *from, size_t bytes) {
  copy_in_line<Scope, unit, fresh, false>(to, from, bytes);
  return 0;
}

template <typename Scope, size_t unit, bool fresh, bool signals>
RUSHMEM_DEVICE void copy_askew(char *, const char *, size_t) {}

template <typename Scope, typename T, bool fresh>
RUSHMEM_DEVICE void copy_strided(T *to, const T *from, int64_t to_stride, int64_t from_stride, size_t n) {
  for (size_t i = Scope::rank(); i < n; i += Scope::size()) {
    int64_t at = static_cast<int64_t>(i);
    __builtin_memcpy(to + at * to_stride, from + at * from_stride, sizeof(T));
  }
}

/* N bytes of this PE's memory, 1, 2, 4 or 8, at an address aligned to as many. */
template <size_t N> RUSHMEM_DEVICE uint64_t load_part(const char *from) {
  word<char[N]> value;
  __builtin_memcpy(&value, from, N);
  return value;
}
template <size_t N> RUSHMEM_DEVICE void store_part(char *to, uint64_t value) {
  word<char[N]> part = static_cast<word<char[N]>>(value);
  __builtin_memcpy(to, &part, N);
}

#else

template <size_t N> RUSHMEM_DEVICE uint64_t load_part(const char *from) {
  return access<N>::template load<false>(from);
}
template <size_t N> RUSHMEM_DEVICE void store_part(char *to, uint64_t value) {
  access<N>::template store<true>(to, static_cast<typename access<N>::value>(value));
}

/* Whole vectors, which need no question about edges. One condition without a branch, as all warps of a scope
 * pass it (performance-log.md, 9). */
RUSHMEM_DEVICE bool are_vectors(const void *to, const void *from, size_t bytes) {
  return (reinterpret_cast<uint64_t>(to) | reinterpret_cast<uint64_t>(from) | bytes) % 16 == 0;
}

/* Whether copy_whole takes so many of them: one for each lane of a warp, which would not have registers for a
 * second way through its tiles, and any number for full warps of a block. */
template <typename Scope> RUSHMEM_DEVICE bool are_served(size_t bytes) {
  return is_one_warp<Scope>::value ? bytes <= Scope::size() * 16 : Scope::size() % 32 == 0;
}

/* are_vectors that are_served: a vector for each thread where that is enough, or else rounds of tiles. */
template <typename Scope, bool fresh, bool signals>
RUSHMEM_DEVICE void copy_whole(char *to, const char *from, size_t bytes) {
  const uint32_t rank = Scope::rank(), size = Scope::size();
  if constexpr (!is_one_warp<Scope>::value) {
    /* Opaque: else copies of them for what follows are made in front of this question. */
    if (RUSHMEM_UNLIKELY(bytes > size * 16)) {
      return copy_by_block<fresh, true>(opaque(to), opaque(from), opaque(bytes), rank, size * 16);
    }
  }
  if (rank * 16 >= static_cast<uint32_t>(bytes)) return;
  access<16>::store<fresh>(to + rank * 16, access<16>::load<fresh>(from + rank * 16));
}

/* ---- what no vector serves ---- */

/* At most a unit for each thread: counted in units, as the scope's size is there already and its product with
 * one is not. */
template <typename Scope, size_t unit> RUSHMEM_DEVICE bool are_few(size_t bytes) {
  return bytes / unit <= Scope::size();
}
template <typename Scope, size_t unit, bool fresh>
RUSHMEM_DEVICE void copy_few(char *to, const char *from, size_t bytes) {
  const uint32_t at = Scope::rank() * static_cast<uint32_t>(unit);
  if (at < bytes) access<unit>::template store<fresh>(to + at, access<unit>::template load<fresh>(from + at));
}

/* `count` units, U of them in flight for each thread, as long as there are so many. */
template <int U, bool many, size_t unit, bool fresh>
RUSHMEM_DEVICE void copy_units(char *to, const char *from, size_t count, size_t rank, size_t size) {
  RUSHMEM_ROLLED
  while (count >= U * size) {
    typename access<unit>::value v[U];
    RUSHMEM_UNROLL
    for (int u = 0; u < U; ++u) v[u] = access<unit>::template load<fresh>(from + (rank + u * size) * unit);
    RUSHMEM_UNROLL
    for (int u = 0; u < U; ++u) access<unit>::template store<fresh>(to + (rank + u * size) * unit, v[u]);
    from += U * size * unit;
    to += U * size * unit;
    count -= U * size;
    if constexpr (!many) break;
  }
  if constexpr (U > 1) {
    copy_units<U / 2, false, unit, fresh>(to, from, count, rank, size);
  } else if (rank < count) {
    access<unit>::template store<fresh>(to + rank * unit, access<unit>::template load<fresh>(from + rank * unit));
  }
}

/* `bytes`, a multiple of unit. */
template <typename Scope, size_t unit, bool fresh>
RUSHMEM_DEVICE void copy_bytes(char *to, const char *from, size_t bytes) {
  copy_units<(is_alone<Scope>::value ? 8 : 1), true, unit, fresh>(to, from, bytes / unit, Scope::rank(), Scope::size());
}

/* The bytes before the first 16-byte boundary and those after the last, on both sides alike, by one thread:
 * each is a sum of 1, 2, 4 and 8 bytes, aligned. All loads before all stores. */
template <size_t unit, bool fresh>
RUSHMEM_DEVICE void copy_edges(char *to, const char *from, uint32_t head, size_t tail_at, uint32_t tail) {
  typename access<1>::value head1 = 0, tail1 = 0;
  typename access<2>::value head2 = 0, tail2 = 0;
  typename access<4>::value head4 = 0, tail4 = 0;
  typename access<8>::value head8 = 0, tail8 = 0;
  char *to_tail = to + tail_at;
  const char *tail_from = from + tail_at;
  if (unit <= 1 && head & 1) head1 = access<1>::load<fresh>(from);
  if (unit <= 2 && head & 2) head2 = access<2>::load<fresh>(from + (head & 1));
  if (unit <= 4 && head & 4) head4 = access<4>::load<fresh>(from + (head & 3));
  if (head & 8) head8 = access<8>::load<fresh>(from + (head & 7));
  if (tail & 8) tail8 = access<8>::load<fresh>(tail_from);
  if (unit <= 4 && tail & 4) tail4 = access<4>::load<fresh>(tail_from + (tail & 8));
  if (unit <= 2 && tail & 2) tail2 = access<2>::load<fresh>(tail_from + (tail & 12));
  if (unit <= 1 && tail & 1) tail1 = access<1>::load<fresh>(tail_from + (tail & 14));
  if (unit <= 1 && head & 1) access<1>::store<fresh>(to, head1);
  if (unit <= 2 && head & 2) access<2>::store<fresh>(to + (head & 1), head2);
  if (unit <= 4 && head & 4) access<4>::store<fresh>(to + (head & 3), head4);
  if (head & 8) access<8>::store<fresh>(to + (head & 7), head8);
  if (tail & 8) access<8>::store<fresh>(to_tail, tail8);
  if (unit <= 4 && tail & 4) access<4>::store<fresh>(to_tail + (tail & 8), tail4);
  if (unit <= 2 && tail & 2) access<2>::store<fresh>(to_tail + (tail & 12), tail2);
  if (unit <= 1 && tail & 1) access<1>::store<fresh>(to_tail + (tail & 14), tail1);
}

/* Both sides are aligned alike, and there is at least one whole vector. One condition without a branch: all
 * warps of the scope pass what comes before a copy's first load, and nothing is in flight meanwhile. */
template <size_t unit> RUSHMEM_DEVICE bool in_line(const void *to, const void *from, size_t bytes) {
  if constexpr (unit == 16) return true;
  const uint64_t apart = reinterpret_cast<uint64_t>(to) ^ reinterpret_cast<uint64_t>(from);
  return (bytes >= 32) & (apart % 16 == 0);
}

/* Threads that copy_pieces takes for `n` vectors: of a block whole warps, as the two branches of a warp would
 * wait for each other's loads. */
template <typename Scope> RUSHMEM_DEVICE size_t for_vectors(size_t n) {
  return is_one_warp<Scope>::value ? n : (n + 31) / 32 * 32;
}

/* A thread for each of `n` vectors and for each unit before and behind them. */
template <typename Scope, size_t unit, bool fresh>
RUSHMEM_DEVICE void copy_pieces(char *to, const char *from, uint32_t head, uint32_t n, uint32_t tail) {
  const uint32_t others = static_cast<uint32_t>(for_vectors<Scope>(n));
  uint32_t at = Scope::rank();
  if (at < others) {
    if (at >= n) return;
    at = head + at * 16;
    access<16>::store<fresh>(to + at, access<16>::load<fresh>(from + at));
    return;
  }
  at = (at - others) * static_cast<uint32_t>(unit);
  if (at >= head + tail) return;
  if (at >= head) at += n * 16;
  access<unit>::template store<fresh>(to + at, access<unit>::template load<fresh>(from + at));
}

/* What is in_line, by a warp, but for its vectors: their number, and where they begin. */
template <typename Scope, size_t unit, bool fresh>
RUSHMEM_DEVICE size_t copy_up_to_vectors(char *&to, const char *&from, size_t bytes) {
  if constexpr (unit == 16) return bytes / 16;
  const uint32_t head = static_cast<uint32_t>(-reinterpret_cast<uint64_t>(to)) & 15;
  const size_t n = (bytes - head) / 16, tail_at = head + n * 16;
  const uint32_t tail = static_cast<uint32_t>(bytes - tail_at);
  /* Large copies pass one comparison here, as all lanes do before the first load. */
  if (bytes < static_cast<size_t>(Scope::size()) * 16 + 32) {
    if (n + (head + tail) / unit <= Scope::size()) {
      copy_pieces<Scope, unit, fresh>(to, from, head, static_cast<uint32_t>(n), tail);
      return 0;
    }
  }
  /* A warp has no registers to keep the edges for later. */
  if (RUSHMEM_UNLIKELY((head | tail) != 0)) {
    copy_bytes<Scope, unit, fresh>(to, from, head);
    copy_bytes<Scope, unit, fresh>(to + tail_at, from + tail_at, tail);
  }
  to += head;
  from += head;
  return n;
}

/* What is in_line. */
template <typename Scope, size_t unit, bool fresh, bool signals>
RUSHMEM_DEVICE void copy_in_line(char *to, const char *from, size_t bytes) {
  if constexpr (unit == 16 || is_one_warp<Scope>::value) {
    const size_t n = copy_up_to_vectors<Scope, unit, fresh>(to, from, bytes);
    return copy_vectors<Scope, unit, fresh, false, signals>(to, from, 0, n);
  }
  const uint32_t head = static_cast<uint32_t>(-reinterpret_cast<uint64_t>(to)) & 15;
  const size_t n = (bytes - head) / 16, tail_at = head + n * 16;
  const uint32_t tail = static_cast<uint32_t>(bytes - tail_at);
  if constexpr (is_alone<Scope>::value) {
    /* One question for the usual case, for eight. */
    if (RUSHMEM_UNLIKELY((head | tail) != 0)) copy_edges<unit, fresh>(to, from, head, tail_at, tail);
    copy_vectors<Scope, unit, fresh, false, signals>(to + head, from + head, 0, n);
  } else {
    if (bytes < static_cast<size_t>(Scope::size()) * 16 + 32) {
      if (for_vectors<Scope>(n) + (head + tail) / unit <= Scope::size())
        return copy_pieces<Scope, unit, fresh>(to, from, head, static_cast<uint32_t>(n), tail);
    }
    /* A block has registers to keep the edges for later, and few rounds, so it gains from every load that
     * starts earlier. Where there are edges, what lies in front of the other PE's first line is one. */
    const bool edges = (head | tail) != 0;
    const uint32_t there = static_cast<uint32_t>(reinterpret_cast<uint64_t>(fresh ? from : to)) + head;
    const uint32_t begin = head + ((edges & (bytes >= 4 * line_bytes)) ? (-there & (line_bytes - 1)) : 0);
    copy_vectors<Scope, unit, fresh, false, signals>(to + begin, from + begin, 0, (tail_at - begin) / 16);
    if (RUSHMEM_UNLIKELY(edges)) {
      copy_bytes<Scope, unit, fresh>(to, from, begin);
      copy_bytes<Scope, unit, fresh>(to + tail_at, from + tail_at, tail);
    }
  }
}

/* What is not in_line. */
template <typename Scope, size_t unit, bool fresh, bool signals>
RUSHMEM_DEVICE void copy_shifted(char *to, const char *from, size_t bytes) {
  if constexpr (unit == 16) return;
  /* No vector, or a unit for each thread: one latency. */
  if ((bytes < 32) | (bytes / unit <= Scope::size())) return copy_bytes<Scope, unit, fresh>(to, from, bytes);
  uint32_t head = static_cast<uint32_t>(-reinterpret_cast<uint64_t>(to)) & 15;
  const uint32_t shift = static_cast<uint32_t>(reinterpret_cast<uint64_t>(from) + head) & 15;
  /* The first vector starts `shift` bytes before from + head: that must not be before the source. The
   * last one ends past what it serves: that must not be past the source. (head stays under 32, so under
   * `bytes`.) */
  if (head < shift) head += 16;
  const size_t have = (bytes - (head - shift)) / 16, n = have > 0 ? have - 1 : 0, tail_at = head + n * 16;
  copy_bytes<Scope, unit, fresh>(to, from, head);
  copy_bytes<Scope, unit, fresh>(to + tail_at, from + tail_at, bytes - tail_at);
  copy_vectors<Scope, unit, fresh, true, signals>(to + head, from + head - shift, shift, n);
}

/* The same, of a block by a call: with all of it in a caller's loop the compiler keeps the loop's own
 * variables in local memory, which 32 warps load and store in each round (performance-log.md, 16). A warp's
 * kernels would have more than 64 registers of it. */
template <typename Scope, size_t unit, bool fresh, bool signals>
RUSHMEM_OUTLINED_LARGE void copy_apart_shifted(char *to, const char *from, size_t bytes) {
  copy_shifted<Scope, unit, fresh, signals>(to, from, bytes);
}
template <typename Scope, size_t unit, bool fresh, bool signals>
RUSHMEM_DEVICE void copy_askew(char *to, const char *from, size_t bytes) {
  if constexpr (unit == 16) return;
  /* One whole vector, which in_line does not take. */
  if constexpr (is_alone<Scope>::value) {
    if (are_vectors(to, from, bytes)) {
      if (bytes != 0) copy_vector<unit, fresh, false>(to, from, 0);
      return;
    }
  }
  if constexpr (is_alone<Scope>::value || is_one_warp<Scope>::value) {
    copy_shifted<Scope, unit, fresh, signals>(to, from, bytes);
  } else {
    copy_apart_shifted<Scope, unit, fresh, signals>(to, from, bytes);
  }
}

template <typename Scope, typename T, bool fresh>
RUSHMEM_DEVICE void copy_strided(T *to, const T *from, int64_t to_stride, int64_t from_stride, size_t n) {
  constexpr size_t unit = unit_of<T>::value;
  constexpr int U = 4;
  int64_t rank = Scope::rank(), size = Scope::size(), count = static_cast<int64_t>(n);
  if (sizeof(T) == unit) {
    const char *source = reinterpret_cast<const char *>(from);
    char *target = reinterpret_cast<char *>(to);
    int64_t from_step = from_stride * static_cast<int64_t>(unit),
            to_step = to_stride * static_cast<int64_t>(unit);
    int64_t i = rank;
    for (; i + (U - 1) * size < count; i += U * size) {
      typename access<unit>::value v[U];
      RUSHMEM_UNROLL
      for (int u = 0; u < U; ++u)
        v[u] = access<unit>::template load<fresh>(source + (i + u * size) * from_step);
      RUSHMEM_UNROLL
      for (int u = 0; u < U; ++u) access<unit>::template store<fresh>(target + (i + u * size) * to_step, v[u]);
    }
    for (; i < count; i += size) {
      access<unit>::template store<fresh>(target + i * to_step, access<unit>::template load<fresh>(source + i * from_step));
    }
  } else {
    for (int64_t i = rank; i < count; i += size) {
      copy_bytes<thread, unit, fresh>(reinterpret_cast<char *>(to + i * to_stride),
                                      reinterpret_cast<const char *>(from + i * from_stride), sizeof(T));
    }
  }
}

#endif

/* `bytes` and both addresses are multiples of `unit`, the alignment of the element type (up to 16). */
template <typename Scope, size_t unit, bool fresh, bool signals = false>
RUSHMEM_DEVICE void copy(void *to_, const void *from_, size_t bytes) {
  char *to = static_cast<char *>(to_);
  const char *from = static_cast<const char *>(from_);
#if !defined(RUSHMEM_CPU)
  /* One element, by a thread: what else there is to ask takes longer than its load. */
  if constexpr (is_alone<Scope>::value) {
    if (bytes == unit) return access<unit>::template store<fresh>(to, access<unit>::template load<fresh>(from));
  }
#endif
  if (in_line<unit>(to, from, bytes)) return copy_in_line<Scope, unit, fresh, signals>(to, from, bytes);
  copy_askew<Scope, unit, fresh, signals>(to, from, bytes);
}

}  // namespace impl
}  // namespace rushmem

#endif
