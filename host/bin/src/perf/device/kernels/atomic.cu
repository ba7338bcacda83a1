/* Atomic operations: each thread of a block has words of its own, one operation on each in a round; nobody
 * else is at them. So what a word holds before each round is known, and what is fetched is compared with it:
 * a comparison of two registers, and a fetched value must be used anyway or there would be no need to fetch
 * it. */

DEV uint64_t bit(uint64_t round) { return uint64_t(1) << (round & 63); }
DEV uint64_t low_bits(uint64_t n) { return n < 64 ? (uint64_t(1) << n) - 1 : ~uint64_t(0); }

/* The operation's name, the operation on `word`, whose index is `i`, and what is there before it. */
#define NON_FETCHING(X)                                                           \
  X(set, rushmem::atomic_set(word, j.salt + i, j.peer))                           \
  X(inc, rushmem::atomic_inc(word, j.peer))                                       \
  X(add, rushmem::atomic_add(word, j.salt, j.peer))                               \
  X(and_, rushmem::atomic_and(word, ~bit(round), j.peer))                         \
  X(or_, rushmem::atomic_or(word, bit(round), j.peer))                            \
  X(xor_, rushmem::atomic_xor(word, j.salt, j.peer))
#define FETCHING(X)                                                               \
  X(fetch, rushmem::atomic_fetch(word, j.peer), j.salt)                           \
  X(swap, rushmem::atomic_swap(word, j.salt + i, j.peer), round == 0 ? 0 : j.salt + i)            \
  X(compare_swap, rushmem::atomic_compare_swap(word, round, round + 1, j.peer), round)            \
  X(fetch_inc, rushmem::atomic_fetch_inc(word, j.peer), round)                    \
  X(fetch_add, rushmem::atomic_fetch_add(word, j.salt, j.peer), j.salt * round)   \
  X(fetch_and, rushmem::atomic_fetch_and(word, ~bit(round), j.peer), ~low_bits(round))            \
  X(fetch_or, rushmem::atomic_fetch_or(word, bit(round), j.peer), low_bits(round))                \
  X(fetch_xor, rushmem::atomic_fetch_xor(word, j.salt, j.peer), round % 2 == 1 ? j.salt : 0)

template <typename Operation> DEV void atomic_bw(const job &j, Operation operation) {
  const part my = part_of<rushmem::block>(j.bytes);
  uint64_t *to = reinterpret_cast<uint64_t *>(j.to);
  const uint64_t end = (my.begin + my.size) / 8;
  uint64_t wrong = 0;
  timed<true>(j, [&](uint64_t round) {
    for (uint64_t i = my.begin / 8 + threadIdx.x; i < end; i += blockDim.x) wrong |= operation(to + i, i, round);
  });
  if (wrong != 0) j.stamps[0] = 1;
}

/* One word, one thread, one after another; what fetches nothing is completed by quiet. */
template <bool fetches, typename Operation> DEV void atomic_latency(const job &j, Operation operation) {
  uint64_t *to = reinterpret_cast<uint64_t *>(j.to);
  uint64_t wrong = 0;
  timed<false>(j, [&](uint64_t round) {
    wrong |= operation(fresh(to), 0, round);
    if (!fetches) rushmem::quiet();
  });
  if (wrong != 0) j.stamps[0] = 1;
}

#define KERNELS(name, fetches, ...)                                                \
  KERNEL(atomic_bw_##name) { atomic_bw(j, __VA_ARGS__); }                          \
  SMALL_KERNEL(atomic_latency_##name) { atomic_latency<fetches>(j, __VA_ARGS__); }
#define NON_FETCHING_KERNELS(name, operation)                                      \
  KERNELS(name, false, [&](uint64_t *word, uint64_t i, uint64_t round) {           \
    operation;                                                                     \
    static_cast<void>(i), static_cast<void>(round);                                \
    return uint64_t(0);                                                            \
  })
#define FETCHING_KERNELS(name, operation, before)                                  \
  KERNELS(name, true, [&](uint64_t *word, uint64_t i, uint64_t round) {            \
    static_cast<void>(i), static_cast<void>(round);                                \
    return (operation) ^ (before);                                                 \
  })
NON_FETCHING(NON_FETCHING_KERNELS)
FETCHING(FETCHING_KERNELS)
