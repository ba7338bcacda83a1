/* The bulk of a copy on the GPU: whole vectors of 16 bytes, several in flight for each thread (copy.h has the
 * rest, and what is promised).
 */
#ifndef RUSHMEM_IMPL_TILES_H
#define RUSHMEM_IMPL_TILES_H

#include <rushmem/impl/platform.h>
#include <rushmem/scope.h>

#if !defined(RUSHMEM_CPU)

namespace rushmem {
namespace impl {

/* 16 bytes as four words; a plain struct, since vector types' names belong to the program. */
struct quad {
  uint32_t x, y, z, w;
};

/* Loads and stores of N bytes at addresses aligned to N, kept in the order written below. `fresh` says which
 * side is another PE's, and so in global memory: the source (a get) or the destination (a put). The other
 * side is any memory of this PE, shared memory too, and has a generic address. */
template <size_t N> struct access;

#define RUSHMEM_ACCESS(bytes, word, letter, type)                                                    \
  template <> struct access<bytes> {                                                                 \
    using value = word;                                                                              \
    template <bool fresh> RUSHMEM_DEVICE static value load(const char *from) {                       \
      value v;                                                                                       \
      if (fresh) asm volatile("ld.relaxed.sys.global." type " %0, [%1];" : "=" letter(v) : "l"(from) : "memory"); \
      else asm volatile("ld." type " %0, [%1];" : "=" letter(v) : "l"(from) : "memory");             \
      return v;                                                                                      \
    }                                                                                                \
    template <bool fresh> RUSHMEM_DEVICE static void store(char *to, value v) {                      \
      if (fresh) asm volatile("st." type " [%0], %1;" ::"l"(to), letter(v) : "memory");              \
      else asm volatile("st.global." type " [%0], %1;" ::"l"(to), letter(v) : "memory");             \
    }                                                                                                \
  };
RUSHMEM_ACCESS(1, uint32_t, "r", "u8")
RUSHMEM_ACCESS(2, uint16_t, "h", "u16")
RUSHMEM_ACCESS(4, uint32_t, "r", "u32")
RUSHMEM_ACCESS(8, uint64_t, "l", "u64")
#undef RUSHMEM_ACCESS

template <> struct access<16> {
  using value = quad;
  template <bool fresh> RUSHMEM_DEVICE static value load(const char *from) {
    value v;
    if (fresh) {
      asm volatile("ld.relaxed.sys.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                   : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                   : "l"(from)
                   : "memory");
    } else {
      asm volatile("ld.v4.u32 {%0, %1, %2, %3}, [%4];"
                   : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                   : "l"(from)
                   : "memory");
    }
    return v;
  }
  template <bool fresh> RUSHMEM_DEVICE static void store(char *to, value v) {
    if (fresh) {
      asm volatile("st.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
                   : "memory");
    } else {
      asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
                   : "memory");
    }
  }
};

/* The 16 bytes that start `shift` bytes into the 32 of a and b; shift is 0 .. 15 and a multiple of `unit`. */
template <size_t unit> RUSHMEM_DEVICE quad funnel(quad a, quad b, uint32_t shift) {
  uint32_t w0 = a.x, w1 = a.y, w2 = a.z, w3 = a.w, w4 = b.x, w5 = b.y, w6 = b.z;
  if (shift & 8) {
    w0 = w2, w1 = w3, w2 = w4, w3 = w5, w4 = w6, w5 = b.w;
  }
  if (unit < 8 && (shift & 4)) {
    w0 = w1, w1 = w2, w2 = w3, w3 = w4, w4 = w5;
  }
  if (unit < 4) {
    uint32_t bits = (shift & 3) * 8;
    w0 = __funnelshift_r(w0, w1, bits);
    w1 = __funnelshift_r(w1, w2, bits);
    w2 = __funnelshift_r(w2, w3, bits);
    w3 = __funnelshift_r(w3, w4, bits);
  }
  return quad{w0, w1, w2, w3};
}

/* ---- the bulk: rounds of tiles ----
 *
 * A *worker* is a thread (one lane) or a whole warp (32). Its tile is V vectors of 16 bytes for each lane,
 * side by side, so that a vector's address is the tile's plus a constant: no arithmetic between two accesses.
 * All loads of a tile are made before its first store. In a round each worker of the scope has one tile; what
 * is left when there is no more for a whole round is done in rounds of smaller tiles: few of them, where
 * loops over single vectors would pay a latency for each. (Tiles that are cut by predicates would do with
 * one, but registers that are loaded under a condition are in use ever since the function's beginning, to the
 * compiler.)
 */
template <int lanes, int V, size_t unit, bool fresh, bool shifted> struct tile {
  /* This lane's; where source and destination are not aligned alike, then the vector after the tile's last,
   * which lane 0 holds. */
  quad v[V + (shifted ? 1 : 0)];

  RUSHMEM_DEVICE void load(const char *from, uint32_t lane) {
    RUSHMEM_UNROLL
    for (int u = 0; u < V; ++u) v[u] = access<16>::template load<fresh>(from + u * lanes * 16);
    if constexpr (shifted && lanes == 1) v[V] = access<16>::template load<fresh>(from + V * 16);
    else if constexpr (shifted) v[V] = access<16>::template load<fresh>(from + (lane == 0 ? V : 0) * lanes * 16);
  }

  /* The vector that follows v[u] in the source. The next lane has it, and for the last lane lane 0: a
   * shuffle, where a second load would double what a get takes from the link. */
  RUSHMEM_DEVICE quad next(int u, uint32_t lane) const {
    if (lanes == 1) return v[u + 1];
    quad mine = lane == 0 ? v[u + 1] : v[u];
    int from = static_cast<int>(lane) + 1;
    return quad{__shfl_sync(0xffffffffu, mine.x, from), __shfl_sync(0xffffffffu, mine.y, from),
                __shfl_sync(0xffffffffu, mine.z, from), __shfl_sync(0xffffffffu, mine.w, from)};
  }

  RUSHMEM_DEVICE void store(char *to, uint32_t lane, uint32_t shift) const {
    RUSHMEM_UNROLL
    for (int u = 0; u < V; ++u) {
      quad whole = v[u];
      if constexpr (shifted) whole = funnel<unit>(v[u], next(u, lane), shift);
      access<16>::template store<fresh>(to + u * lanes * 16, whole);
    }
  }
};

/* Which thread of a copy this is. */
struct place {
  uint32_t lane, worker, workers;
};

/* The last vectors of a copy, one for each thread at most, to `to` from `from`. Where `shifted`, from `shift`
 * bytes past `from`, and the two vectors from there on are the source's. */
template <size_t unit, bool fresh, bool shifted>
RUSHMEM_DEVICE void copy_vector(char *to, const char *from, uint32_t shift) {
  quad v = access<16>::load<fresh>(from);
  if constexpr (shifted) v = funnel<unit>(v, access<16>::load<fresh>(from + 16), shift);
  access<16>::store<fresh>(to, v);
}

/* Fewer than four vectors, by a thread alone: no branch between two of them. */
template <bool fresh> RUSHMEM_DEVICE void copy_three(char *to, const char *from, uint32_t n) {
  quad v[3];
  RUSHMEM_UNROLL
  for (uint32_t u = 0; u < 3; ++u) {
    if (u < n) v[u] = access<16>::template load<fresh>(from + u * 16);
  }
  RUSHMEM_UNROLL
  for (uint32_t u = 0; u < 3; ++u) {
    if (u < n) access<16>::template store<fresh>(to + u * 16, v[u]);
  }
}

/* The largest power of two that is less: of tiles of so many vectors there is at most one more round. */
template <int V> struct less_than {
  static constexpr int value = V > 8 ? 8 : V > 4 ? 4 : V > 2 ? 2 : 1;
};

/* `n` vectors to `to`, aligned to 16, from `shift` bytes past `from`, aligned to 16 too: where `shifted`,
 * vectors 0 .. n of the source are read, n included. Called by all lanes of a worker, each with both
 * addresses moved on by its lane's vectors. */
template <int lanes, int V, bool many, size_t unit, bool fresh, bool shifted>
RUSHMEM_DEVICE void copy_rounds(char *to, const char *from, uint32_t shift, size_t n, place me) {
  constexpr uint32_t each = lanes * V * 16;
  const uint32_t round = me.workers * each, mine = me.worker * each;
  RUSHMEM_ROLLED
  while (n >= round / 16) {
    tile<lanes, V, unit, fresh, shifted> t;
    t.load(from + mine, me.lane);
    t.store(to + mine, me.lane, shift);
    from += round;
    to += round;
    n -= round / 16;
    if constexpr (!many) break;
  }
  /* After a scope's last store the other threads wait at the barrier for each further instruction, of which
   * smaller tiles have twenty each, where they move nothing, too. */
  if constexpr (many || V >= 4) {
    if (n == 0) return;
  }
  if constexpr (lanes == 1 && V == 4 && !shifted) {
    copy_three<fresh>(to, from, static_cast<uint32_t>(n));
  } else if constexpr (V > 1) {
    copy_rounds<lanes, less_than<V>::value, false, unit, fresh, shifted>(to, from, shift, n, me);
  } else if ((mine + me.lane * 16) / 16 < n) {
    copy_vector<unit, fresh, shifted>(to + mine, from + mine, shift);
  }
}

/* A block's tiles begin at a multiple of so many bytes of the other PE's address: a warp's 512 bytes that
 * begin elsewhere than a sector of 32 bytes are 17 of them for 16, which takes 5 % of a link
 * (performance-log.md, 25). */
constexpr uint32_t line_bytes = 128;

/* Bytes up to the first line at `there` where tiles are to begin at it, else 0: where the rest of a copy, a
 * vector for each thread being `each` bytes, is less than that, it would be another round. That is known at
 * once for powers of two, as blocks mostly are; of other blocks all tiles begin where the copy does. */
RUSHMEM_DEVICE uint32_t before_line(uint32_t there, size_t bytes, uint32_t each) {
  const uint32_t head = -there & (line_bytes - 1);
  const bool more = (static_cast<uint32_t>(bytes) & (each - 1)) < head;
  return (more | ((each & (each - 1)) != 0) | (bytes >> 31 != 0)) ? 0 : head;
}

/* A block's round of tiles, a thread's `mine` bytes on; both addresses move on behind it. */
template <int V, bool fresh>
RUSHMEM_DEVICE void copy_round(char *&to, const char *&from, size_t &bytes, uint32_t mine, uint32_t round) {
  tile<32, V, 16, fresh, false> t;
  t.load(from + mine, 0);
  t.store(to + mine, 0, 0);
  from += round;
  to += round;
  bytes -= round;
}

/* Where `bytes` more are to be put: where so many blocks put that the link is what limits them, those whose
 * warps drift apart are up to 1.5 % slower than those whose warps meet after each round
 * (performance-log.md, 42). */
RUSHMEM_DEVICE void keep_warps_in_step(size_t bytes) {
  constexpr size_t many = 128 << 10;
  constexpr uint32_t fill_link = 16;
  if (bytes >= many && gridDim.x >= fill_link && block::size() % 32 == 0) block::sync();
}

/* Whole vectors by a block's full warps, `each` bytes being one for each thread: rounds of four for each,
 * then two for each that has two left, then one. Where it `wraps`, tiles begin `head` bytes on, at a line,
 * and the vectors before that follow the last ones: what would be past the end is `whole` bytes before.
 *
 * A block's 32 warps all execute what stands in front of the first load and behind the last store, 4.5 ns an
 * instruction. So there are few questions, and those about lines are behind one that copies at lines pass
 * (performance-log.md, 26). */
template <bool fresh, bool wraps>
RUSHMEM_DEVICE void copy_by_block(char *to, const char *from, size_t bytes, uint32_t rank, uint32_t each) {
  const uint32_t whole = static_cast<uint32_t>(bytes);
  uint32_t first = rank * 16, head = 0;
  if constexpr (wraps) {
    const uint32_t there = static_cast<uint32_t>(reinterpret_cast<uint64_t>(fresh ? from : to));
    if (RUSHMEM_UNLIKELY(there % line_bytes != 0)) {
      head = opaque(before_line(there, bytes, each));
      first += head;
    }
  }
  if (bytes >= 4 * each) {
    RUSHMEM_ROLLED
    do {
      copy_round<4, fresh>(to, from, bytes, first + rank / 32 * 1536, 4 * each);
      if constexpr (!fresh) keep_warps_in_step(bytes);
    } while (bytes >= 4 * each);
    if (bytes == 0) return;
  }
  const uint32_t rest = static_cast<uint32_t>(bytes), end = rest + head;
  /* Offsets that wrap are negative. */
  RUSHMEM_ROLLED
  while (first + each < end) {
    uint32_t second = first + each;
    if (wraps && second >= rest) second -= whole;
    const int32_t other = static_cast<int32_t>(second);
    const quad one = access<16>::load<fresh>(from + first), two = access<16>::load<fresh>(from + other);
    access<16>::store<fresh>(to + first, one);
    access<16>::store<fresh>(to + other, two);
    first += 2 * each;
  }
  if (first < end) {
    if (wraps && first >= rest) first -= whole;
    const int32_t only = static_cast<int32_t>(first);
    copy_vector<16, fresh, false>(to + only, from + only, 0);
  }
}

/* Vectors of one tile and lane: loads in flight, and four registers each, of which a kernel of 1024 threads
 * has 64 and must not need more by itself (scripts/check-device looks). A thread alone has nothing else that
 * would hide the latency: 14 are all that fit, 12 where a signal's address and value are kept meanwhile; of a
 * warp 12, and 8. Of a block of 1024 four each are the 64 KiB that an SM's 48 GB/s need at a link's latency,
 * 0.92 us. */
template <typename Scope, bool fresh, bool signals> struct vectors_held;
template <bool fresh, bool signals> struct vectors_held<thread, fresh, signals> {
  static constexpr int value = signals ? 12 : 14;
};
template <bool fresh, bool signals> struct vectors_held<warp, fresh, signals> {
  static constexpr int value = signals ? 8 : 12;
};
template <bool fresh, bool signals> struct vectors_held<block, fresh, signals> {
  static constexpr int value = 4;
};

/* 16 vectors, by a thread alone. */
template <size_t unit, bool fresh> RUSHMEM_DEVICE void copy_two_tiles(char *to, const char *from) {
  RUSHMEM_UNROLL
  for (int i = 0; i < 2; ++i) {
    tile<1, 8, unit, fresh, false> t;
    t.load(from + i * 128, 0);
    t.store(to + i * 128, 0, 0);
  }
}

template <typename Scope, size_t unit, bool fresh, bool shifted, bool signals>
RUSHMEM_DEVICE void copy_vectors(char *to, const char *from, uint32_t shift, size_t n) {
  constexpr int held = vectors_held<Scope, fresh, signals>::value;
  constexpr int V = !shifted ? held : held > 8 ? 8 : 4;
  if constexpr (is_alone<Scope>::value) {
    /* A put's few vectors first, as two of them behind the tiles take it longer than four. A get's come
     * behind them: the question costs those of 8 vectors more than it saves (performance-log.md, 24). */
    if constexpr (!shifted && !fresh) {
      if (n < 4) return copy_three<fresh>(to, from, static_cast<uint32_t>(n));
    }
    /* The rest first: the loop then has one register to count its rounds, and nothing to keep for later. */
    uint32_t rounds = 0;
    if (n >= V) {
      /* Two tiles of 8 have half the instructions of 14 and 2. */
      if (!shifted && n == 16) return copy_two_tiles<unit, fresh>(to, from);
      rounds = static_cast<uint32_t>(n / V);
      n -= static_cast<size_t>(rounds) * V;
    }
    copy_rounds<1, less_than<V>::value, false, unit, fresh, shifted>(to, from, shift, n, place{0, 0, 1});
    to += n * 16;
    from += n * 16;
    RUSHMEM_ROLLED
    while (rounds-- != 0) {
      tile<1, V, unit, fresh, shifted> t;
      t.load(from, 0);
      t.store(to, 0, shift);
      from += V * 16;
      to += V * 16;
    }
  } else {
    const uint32_t rank = Scope::rank(), size = Scope::size();
    if (size < 32) {
      RUSHMEM_ROLLED
      for (size_t i = rank; i < n; i += size) {
        copy_vector<unit, fresh, shifted>(to + i * 16, from + i * 16, shift);
      }
    } else if (is_one_warp<Scope>::value || rank / 32 < size / 32) {
      /* A last warp that is not full has nothing to do. */
      const uint32_t lane = rank % 32;
      const place me = is_one_warp<Scope>::value ? place{lane, 0, 1} : place{lane, rank / 32, size / 32};
      if constexpr (!shifted && !is_one_warp<Scope>::value) {
        return copy_by_block<fresh, false>(to, from, n * 16, rank, size / 32 * 512);
      }
      copy_rounds<32, V, true, unit, fresh, shifted>(to + lane * 16, from + lane * 16, shift, n, me);
    }
  }
}

}  // namespace impl
}  // namespace rushmem

#endif
#endif
