/* Atomic operations: each thread of a block has words of its own, one operation on each in a round; nobody
 * else is at them. So what a word holds before each round is known, and what is fetched is compared with it:
 * a comparison of two registers, and a fetched value must be used anyway or there would be no need to fetch
 * it. */

DEV uint64_t bit(uint64_t round) { return uint64_t(1) << (round & 63); }
DEV uint64_t low_bits(uint64_t n) { return n < 64 ? (uint64_t(1) << n) - 1 : ~uint64_t(0); }

/* The operation's name, the operation on `word`, whose index is `i`, the bare instruction on it, `there`, and
 * what is there before it. */
#define NON_FETCHING(X)                                                                                    \
  X(set, rushmem::atomic_set(word, j.salt + i, j.peer), store_relaxed_word(there, j.salt + i))             \
  X(inc, rushmem::atomic_inc(word, j.peer), add_word(there, uint64_t(1)))                                  \
  X(add, rushmem::atomic_add(word, j.salt, j.peer), add_word(there, j.salt))                               \
  X(and_, rushmem::atomic_and(word, ~bit(round), j.peer), and_word(there, ~bit(round)))                    \
  X(or_, rushmem::atomic_or(word, bit(round), j.peer), or_word(there, bit(round)))                         \
  X(xor_, rushmem::atomic_xor(word, j.salt, j.peer), xor_word(there, j.salt))
#define FETCHING(X)                                                                                        \
  X(fetch, rushmem::atomic_fetch(word, j.peer), load_relaxed_word(there), j.salt)                          \
  X(swap, rushmem::atomic_swap(word, j.salt + i, j.peer), swap_word(there, j.salt + i),                    \
    round == 0 ? 0 : j.salt + i)                                                                           \
  X(compare_swap, rushmem::atomic_compare_swap(word, round, round + 1, j.peer),                            \
    compare_swap_word(there, round, round + 1), round)                                                     \
  X(fetch_inc, rushmem::atomic_fetch_inc(word, j.peer), fetch_add_word(there, uint64_t(1)), round)         \
  X(fetch_add, rushmem::atomic_fetch_add(word, j.salt, j.peer), fetch_add_word(there, j.salt),             \
    j.salt * round)                                                                                        \
  X(fetch_and, rushmem::atomic_fetch_and(word, ~bit(round), j.peer), fetch_and_word(there, ~bit(round)),   \
    ~low_bits(round))                                                                                      \
  X(fetch_or, rushmem::atomic_fetch_or(word, bit(round), j.peer), fetch_or_word(there, bit(round)),        \
    low_bits(round))                                                                                       \
  X(fetch_xor, rushmem::atomic_fetch_xor(word, j.salt, j.peer), fetch_xor_word(there, j.salt),             \
    round % 2 == 1 ? j.salt : 0)

/* `to`: what the operation takes, this PE's words, or where the other PE's are mapped. */
template <typename Operation> DEV void atomic_bw(const job &j, uint64_t *to, Operation operation) {
  const part my = part_of<rushmem::block>(j.bytes);
  const uint64_t end = (my.begin + my.size) / 8;
  uint64_t wrong = 0;
  timed<true>(j, [&](uint64_t round) {
    uint64_t *words = fresh(to);
    for (uint64_t i = my.begin / 8 + threadIdx.x; i < end; i += blockDim.x) wrong |= operation(words + i, i, round);
  });
  if (wrong != 0) j.stamps[0] = 1;
}

/* One word, one thread, one after another: the next one's address needs what this one has fetched, and what
 * fetches nothing is completed by `complete`. */
template <typename Operation, typename Complete>
DEV void atomic_latency(const job &j, uint64_t *to, Operation operation, Complete complete) {
  const uint64_t none = j.both >> 1; /* 0, of which no compiler knows */
  uint64_t wrong = 0;
  timed<false>(j, [&](uint64_t round) {
    const uint64_t differs = operation(fresh(to), 0, round);
    wrong |= differs;
    to += differs & none;
    complete();
  });
  if (wrong != 0) j.stamps[0] = 1;
}

/* This PE's words, their address in a register as that of the other PE's is: an argument of the kernel would
 * be loaded in each round. What is added is 0 until a kernel ends. */
DEV uint64_t *own_words(const job &j) {
  return reinterpret_cast<uint64_t *>(j.to) + rushmem::impl::load_relaxed_word(j.stamps);
}
DEV uint64_t *their_words(const job &j) { return rushmem::ptr(reinterpret_cast<uint64_t *>(j.to), j.peer); }

/* `operation` on `word`; its value is what differs from what is expected. */
#define OPERATION(word, ...)                                             \
  [&](uint64_t *word, uint64_t i, uint64_t round) {                      \
    static_cast<void>(i), static_cast<void>(round);                      \
    __VA_ARGS__;                                                         \
  }
#define KERNELS(name, complete, bare_complete, ours, bare)                                                 \
  KERNEL(atomic_bw_##name) { atomic_bw(j, own_words(j), ours); }                                           \
  KERNEL(probe_atomic_bw_##name) { atomic_bw(j, their_words(j), bare); }                                   \
  SMALL_KERNEL(atomic_latency_##name) { atomic_latency(j, own_words(j), ours, [] { complete; }); }         \
  SMALL_KERNEL(probe_atomic_latency_##name) { atomic_latency(j, their_words(j), bare, [] { bare_complete; }); }
#define NON_FETCHING_KERNELS(name, operation, bare)                                                        \
  KERNELS(name, rushmem::quiet(), rushmem::impl::fence_sc(), OPERATION(word, operation; return uint64_t(0)), \
          OPERATION(there, rushmem::impl::bare; return uint64_t(0)))
#define FETCHING_KERNELS(name, operation, bare, before)                                                    \
  KERNELS(name, , , OPERATION(word, return (operation) ^ (before)),                                        \
          OPERATION(there, return (rushmem::impl::bare) ^ (before)))
NON_FETCHING(NON_FETCHING_KERNELS)
FETCHING(FETCHING_KERNELS)
