/* Atomic operations: each thread of a block has words of its own, one operation on each in a round; nobody else is at them. */

#define OPERATIONS(X)                                                       \
  X(fetch, if (rushmem::atomic_fetch(word, j.peer) != j.salt) j.stamps[0] = 1) \
  X(set, rushmem::atomic_set(word, j.salt + i, j.peer))                     \
  X(swap, sum += rushmem::atomic_swap(word, j.salt + i, j.peer))            \
  X(compare_swap, sum += rushmem::atomic_compare_swap(word, round, round + 1, j.peer)) \
  X(inc, rushmem::atomic_inc(word, j.peer))                                 \
  X(fetch_inc, sum += rushmem::atomic_fetch_inc(word, j.peer))              \
  X(add, rushmem::atomic_add(word, j.salt, j.peer))                         \
  X(fetch_add, sum += rushmem::atomic_fetch_add(word, j.salt, j.peer))      \
  X(and_, rushmem::atomic_and(word, ~(uint64_t(1) << (round & 63)), j.peer))             \
  X(fetch_and, sum += rushmem::atomic_fetch_and(word, ~(uint64_t(1) << (round & 63)), j.peer)) \
  X(or_, rushmem::atomic_or(word, uint64_t(1) << (round & 63), j.peer))                  \
  X(fetch_or, sum += rushmem::atomic_fetch_or(word, uint64_t(1) << (round & 63), j.peer)) \
  X(xor_, rushmem::atomic_xor(word, j.salt, j.peer))                         \
  X(fetch_xor, sum += rushmem::atomic_fetch_xor(word, j.salt, j.peer))

/* What is fetched is used, or there would be no need to fetch it. */
#define ATOMIC(name, operation)                                                       \
  KERNEL(atomic_bw_##name) {                                                          \
    const part my = part_of<rushmem::block>(j.bytes);                                 \
    uint64_t *to = reinterpret_cast<uint64_t *>(j.to);                                \
    const uint64_t end = (my.begin + my.size) / 8;                                    \
    uint64_t sum = 0;                                                                 \
    timed<true>(j, [&](uint64_t round) {                                              \
      for (uint64_t i = my.begin / 8 + threadIdx.x; i < end; i += blockDim.x) {       \
        uint64_t *word = to + i;                                                      \
        operation;                                                                    \
      }                                                                               \
      static_cast<void>(round);                                                       \
    });                                                                               \
    if (sum == ~uint64_t(0)) j.stamps[1] = sum;                                       \
  }
OPERATIONS(ATOMIC)
