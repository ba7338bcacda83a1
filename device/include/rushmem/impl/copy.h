/* The bytes of put and get. All tuning of bulk copies happens in this header: the rest of the library calls
 * `copy` and `copy_strided`, and relies only on what they promise.
 *
 * On the GPU: 16-byte stores to an aligned destination, several loads in flight before the first store, head
 * and tail peeled off in units of the element's alignment. Where source and destination are not aligned
 * alike, the source is still read 16 bytes at a time, aligned, and shifted into place. No byte outside the
 * source is ever read. On the CPU: memcpy of one contiguous share per thread.
 *
 * Promises: each byte of the destination is written once, by some thread of the scope. Nothing is
 * synchronised, before or after. With `fresh`, loads see what was in memory when they were made (never a
 * stale line of the L1 cache), which is what a get from a PE that writes needs; without, the source is
 * ordinary local memory of any kind (shared too).
 */
#ifndef RUSHMEM_IMPL_COPY_H
#define RUSHMEM_IMPL_COPY_H

#include <rushmem/impl/platform.h>
#include <rushmem/scope.h>

namespace rushmem {
namespace impl {

#if defined(RUSHMEM_CPU)

/* Shares are whole cache lines, so that threads do not meet in one, and few bytes are one thread's. */
template <typename Scope, size_t unit, bool fresh>
RUSHMEM_DEVICE void copy(void *to, const void *from, size_t bytes) {
  size_t begin = 0, end = bytes;
  if (Scope::size() > 1) {
    size_t lines = bytes / 64 + (bytes % 64 != 0), size = Scope::size(), rank = Scope::rank();
    size_t each = lines / size, more = lines % size;
    begin = 64 * (rank * each + (rank < more ? rank : more));
    end = begin + 64 * (each + (rank < more ? 1 : 0));
    if (end > bytes) end = bytes;
  }
  if (begin < end) {
    __builtin_memcpy(static_cast<char *>(to) + begin, static_cast<const char *>(from) + begin, end - begin);
  }
}

template <typename Scope, typename T, bool fresh>
RUSHMEM_DEVICE void copy_strided(T *to, const T *from, int64_t to_stride, int64_t from_stride, size_t n) {
  for (size_t i = Scope::rank(); i < n; i += Scope::size()) {
    int64_t at = static_cast<int64_t>(i);
    __builtin_memcpy(to + at * to_stride, from + at * from_stride, sizeof(T));
  }
}

#else

/* 16 bytes as four words; a plain struct, since vector types' names belong to the program. */
struct quad {
  uint32_t x, y, z, w;
};

/* Loads and stores of N bytes at addresses aligned to N, kept in the order written below. Generic addresses
 * where the memory is this PE's, as a put's source and a get's destination may be shared memory. */
template <size_t N> struct access;

template <> struct access<1> {
  using value = uint32_t;
  template <bool fresh> RUSHMEM_DEVICE static value load(const char *from) {
    value v;
    if (fresh) asm volatile("ld.relaxed.sys.global.u8 %0, [%1];" : "=r"(v) : "l"(from) : "memory");
    else asm volatile("ld.u8 %0, [%1];" : "=r"(v) : "l"(from) : "memory");
    return v;
  }
  RUSHMEM_DEVICE static void store(char *to, value v) {
    asm volatile("st.u8 [%0], %1;" ::"l"(to), "r"(v) : "memory");
  }
};
template <> struct access<2> {
  using value = uint16_t;
  template <bool fresh> RUSHMEM_DEVICE static value load(const char *from) {
    value v;
    if (fresh) asm volatile("ld.relaxed.sys.global.u16 %0, [%1];" : "=h"(v) : "l"(from) : "memory");
    else asm volatile("ld.u16 %0, [%1];" : "=h"(v) : "l"(from) : "memory");
    return v;
  }
  RUSHMEM_DEVICE static void store(char *to, value v) {
    asm volatile("st.u16 [%0], %1;" ::"l"(to), "h"(v) : "memory");
  }
};
template <> struct access<4> {
  using value = uint32_t;
  template <bool fresh> RUSHMEM_DEVICE static value load(const char *from) {
    value v;
    if (fresh) asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(v) : "l"(from) : "memory");
    else asm volatile("ld.u32 %0, [%1];" : "=r"(v) : "l"(from) : "memory");
    return v;
  }
  RUSHMEM_DEVICE static void store(char *to, value v) {
    asm volatile("st.u32 [%0], %1;" ::"l"(to), "r"(v) : "memory");
  }
};
template <> struct access<8> {
  using value = uint64_t;
  template <bool fresh> RUSHMEM_DEVICE static value load(const char *from) {
    value v;
    if (fresh) asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(v) : "l"(from) : "memory");
    else asm volatile("ld.u64 %0, [%1];" : "=l"(v) : "l"(from) : "memory");
    return v;
  }
  RUSHMEM_DEVICE static void store(char *to, value v) {
    asm volatile("st.u64 [%0], %1;" ::"l"(to), "l"(v) : "memory");
  }
};
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
  RUSHMEM_DEVICE static void store(char *to, value v) {
    asm volatile("st.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
                 : "memory");
  }
};

/* Vectors that one thread loads before it stores the first. A thread alone needs them to hide the latency, a
 * block has its other warps. */
template <typename Scope> struct in_flight {
  static constexpr int value = 8;
};
template <> struct in_flight<block> {
  static constexpr int value = 4;
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

/* `bytes` (a multiple of unit) in units. */
template <size_t unit, bool fresh>
RUSHMEM_DEVICE void copy_units(char *to, const char *from, size_t bytes, size_t rank, size_t size) {
  for (size_t at = rank * unit; at < bytes; at += size * unit) {
    access<unit>::store(to + at, access<unit>::template load<fresh>(from + at));
  }
}

/* `n` vectors, both sides aligned to 16. */
template <int U, bool fresh>
RUSHMEM_DEVICE void copy_vectors(char *to, const char *from, size_t n, size_t rank, size_t size) {
  size_t i = rank;
  for (; i + (U - 1) * size < n; i += U * size) {
    quad v[U];
    RUSHMEM_UNROLL
    for (int u = 0; u < U; ++u) v[u] = access<16>::load<fresh>(from + (i + u * size) * 16);
    RUSHMEM_UNROLL
    for (int u = 0; u < U; ++u) access<16>::store(to + (i + u * size) * 16, v[u]);
  }
  for (; i < n; i += size) access<16>::store(to + i * 16, access<16>::load<fresh>(from + i * 16));
}

/* The same where `from` is `shift` bytes past the aligned address `blocks`; reads vectors 0 .. n of it. */
template <int U, size_t unit, bool fresh>
RUSHMEM_DEVICE void copy_shifted(char *to, const char *blocks, uint32_t shift, size_t n, size_t rank,
                                 size_t size) {
  size_t i = rank;
  for (; i + (U - 1) * size < n; i += U * size) {
    quad a[U], b[U];
    RUSHMEM_UNROLL
    for (int u = 0; u < U; ++u) {
      a[u] = access<16>::load<fresh>(blocks + (i + u * size) * 16);
      b[u] = access<16>::load<fresh>(blocks + (i + u * size) * 16 + 16);
    }
    RUSHMEM_UNROLL
    for (int u = 0; u < U; ++u) access<16>::store(to + (i + u * size) * 16, funnel<unit>(a[u], b[u], shift));
  }
  for (; i < n; i += size) {
    quad a = access<16>::load<fresh>(blocks + i * 16), b = access<16>::load<fresh>(blocks + i * 16 + 16);
    access<16>::store(to + i * 16, funnel<unit>(a, b, shift));
  }
}

/* `bytes` and both addresses are multiples of `unit`, the alignment of the element type (up to 16). */
template <typename Scope, size_t unit, bool fresh>
RUSHMEM_DEVICE void copy(void *to_, const void *from_, size_t bytes) {
  constexpr int U = in_flight<Scope>::value;
  char *to = static_cast<char *>(to_);
  const char *from = static_cast<const char *>(from_);
  size_t rank = Scope::rank(), size = Scope::size();
  if (unit == 16) {
    copy_vectors<U, fresh>(to, from, bytes / 16, rank, size);
  } else if (bytes < 32) {
    copy_units<unit, fresh>(to, from, bytes, rank, size);
  } else {
    size_t head = -reinterpret_cast<uint64_t>(to) & 15;
    uint32_t shift = static_cast<uint32_t>(reinterpret_cast<uint64_t>(from) + head) & 15;
    if (shift == 0) {
      size_t n = (bytes - head) / 16;
      copy_units<unit, fresh>(to, from, head, rank, size);
      copy_vectors<U, fresh>(to + head, from + head, n, rank, size);
      head += n * 16;
    } else {
      /* The first vector starts `shift` bytes before from + head: that must not be before the source. The
       * last one ends past what it serves: that must not be past the source. (head stays under 32, so under
       * `bytes`.) */
      if (head < shift) head += 16;
      const char *blocks = from + head - shift;
      size_t have = (bytes - (head - shift)) / 16, n = have > 0 ? have - 1 : 0;
      copy_units<unit, fresh>(to, from, head, rank, size);
      copy_shifted<U, unit, fresh>(to + head, blocks, shift, n, rank, size);
      head += n * 16;
    }
    copy_units<unit, fresh>(to + head, from + head, bytes - head, rank, size);
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
      for (int u = 0; u < U; ++u) access<unit>::store(target + (i + u * size) * to_step, v[u]);
    }
    for (; i < count; i += size) {
      access<unit>::store(target + i * to_step, access<unit>::template load<fresh>(source + i * from_step));
    }
  } else {
    for (int64_t i = rank; i < count; i += size) {
      copy_units<unit, fresh>(reinterpret_cast<char *>(to + i * to_stride),
                              reinterpret_cast<const char *>(from + i * from_stride), sizeof(T), 0, 1);
    }
  }
}

#endif

}  // namespace impl
}  // namespace rushmem

#endif
