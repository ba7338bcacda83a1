/* A bare copy, for probes: 16-byte loads and stores, 8 in flight for each thread of the scope, 4 where it is
 * a whole block. What the machine does without any library; both sides are multiples of 16, and what the size
 * is more than one goes as a word and bytes. */
struct alignas(16) sixteen {
  uint64_t a, b;
};

#if !defined(RUSHMEM_CPU)
template <bool remote> DEV sixteen load_sixteen(const sixteen *from) {
  sixteen v;
  if (remote) {
    asm volatile("ld.relaxed.sys.global.v2.u64 {%0, %1}, [%2];" : "=l"(v.a), "=l"(v.b) : "l"(from) : "memory");
  } else {
    asm volatile("ld.global.v2.u64 {%0, %1}, [%2];" : "=l"(v.a), "=l"(v.b) : "l"(from) : "memory");
  }
  return v;
}
DEV void store_sixteen(sixteen *to, sixteen v) {
  asm volatile("st.global.v2.u64 [%0], {%1, %2};" ::"l"(to), "l"(v.a), "l"(v.b) : "memory");
}
#endif

/* A word of a peer's, never out of a cache of this SM. */
DEV uint64_t load_word(const volatile uint64_t *from) {
#if defined(RUSHMEM_CPU)
  return *from;
#else
  uint64_t v;
  asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(v) : "l"(from) : "memory");
  return v;
#endif
}

template <typename Scope> struct in_flight {
  static constexpr int value = 8;
};
template <> struct in_flight<rushmem::block> {
  static constexpr int value = 4;
};

/* `remote`: what is read is a peer's, and nothing of it may come out of a cache of this SM. */
template <typename Scope, bool remote> DEV void bare_copy(char *to, const char *from, uint64_t bytes) {
#if defined(RUSHMEM_CPU)
  const uint64_t each = bytes / Scope::size(), begin = Scope::rank() * each;
  __builtin_memcpy(to + begin, from + begin, Scope::rank() + 1 == Scope::size() ? bytes - begin : each);
  rushmem::impl::breathe();
#else
  constexpr int U = in_flight<Scope>::value;
  const uint64_t n = bytes / 16, size = Scope::size();
  sixteen *out = reinterpret_cast<sixteen *>(to);
  const sixteen *in = reinterpret_cast<const sixteen *>(from);
  uint64_t i = Scope::rank();
  for (; i + (U - 1) * size < n; i += U * size) {
    sixteen v[U];
#pragma unroll
    for (int k = 0; k < U; ++k) v[k] = load_sixteen<remote>(in + i + k * size);
#pragma unroll
    for (int k = 0; k < U; ++k) store_sixteen(out + i + k * size, v[k]);
  }
  for (; i < n; i += size) store_sixteen(out + i, load_sixteen<remote>(in + i));
  if (bytes % 16 >= 8 && Scope::rank() == 0) {
    const uint64_t *word = reinterpret_cast<const uint64_t *>(in + n);
    *reinterpret_cast<volatile uint64_t *>(out + n) = remote ? load_word(word) : rushmem::impl::load_plain_word(word);
  }
  for (uint64_t at = bytes / 8 * 8 + Scope::rank(); at < bytes; at += size) {
    reinterpret_cast<volatile char *>(to)[at] = reinterpret_cast<const volatile char *>(from)[at];
  }
#endif
}
