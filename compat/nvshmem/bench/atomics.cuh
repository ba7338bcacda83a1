/* Atomic operations in bench.cu: rushmem-perf's loops (kernels/atomic.cu), with nvshmem.h's functions in
 * them. Each thread of a block has words of its own, so what is fetched is known before. */
#ifndef NVSHMEM_BENCH_ATOMICS_H
#define NVSHMEM_BENCH_ATOMICS_H

#include "kernels.cuh"

DEV uint64_t bit(uint64_t round) { return uint64_t(1) << (round & 63); }
DEV uint64_t low_bits(uint64_t n) { return n < 64 ? (uint64_t(1) << n) - 1 : ~uint64_t(0); }

/* The operation's name, the operation on `word`, whose index is `i`, and what is there before it. */
#define NON_FETCHING(X)                                                                                      \
  X(set, nvshmem_uint64_atomic_set(word, j.salt + i, j.peer))                                                \
  X(inc, nvshmem_uint64_atomic_inc(word, j.peer))                                                            \
  X(add, nvshmem_uint64_atomic_add(word, j.salt, j.peer))                                                    \
  X(and_, nvshmem_uint64_atomic_and(word, ~bit(round), j.peer))                                              \
  X(or_, nvshmem_uint64_atomic_or(word, bit(round), j.peer))                                                 \
  X(xor_, nvshmem_uint64_atomic_xor(word, j.salt, j.peer))
#define FETCHING(X)                                                                                          \
  X(fetch, nvshmem_uint64_atomic_fetch(word, j.peer), j.salt)                                                \
  X(swap, nvshmem_uint64_atomic_swap(word, j.salt + i, j.peer), round == 0 ? 0 : j.salt + i)                 \
  X(compare_swap, nvshmem_uint64_atomic_compare_swap(word, round, round + 1, j.peer), round)                 \
  X(fetch_inc, nvshmem_uint64_atomic_fetch_inc(word, j.peer), round)                                         \
  X(fetch_add, nvshmem_uint64_atomic_fetch_add(word, j.salt, j.peer), j.salt * round)                        \
  X(fetch_and, nvshmem_uint64_atomic_fetch_and(word, ~bit(round), j.peer), ~low_bits(round))                 \
  X(fetch_or, nvshmem_uint64_atomic_fetch_or(word, bit(round), j.peer), low_bits(round))                     \
  X(fetch_xor, nvshmem_uint64_atomic_fetch_xor(word, j.salt, j.peer), round % 2 == 1 ? j.salt : 0)

/* This PE's words, their address in a register, as rushmem-perf has it: an argument of the kernel would be
 * loaded in each round. What is added is 0 until a kernel ends. */
DEV uint64_t *own_words_of(const job &j) { return to_of(j) + *static_cast<volatile uint64_t *>(j.bad); }

template <typename Operation> DEV void atomic_bw(const job &j, uint64_t *to, Operation operation) {
  const part my = part_of<block>(j.bytes);
  const uint64_t end = (my.begin + my.size) / 8;
  uint64_t wrong = 0;
  timed<true>(j, [&](uint64_t round) {
    uint64_t *words = fresh(to);
    for (uint64_t i = my.begin / 8 + threadIdx.x; i < end; i += blockDim.x) wrong |= operation(words + i, i, round);
  });
  if (wrong != 0) *j.bad = 1;
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
  if (wrong != 0) *j.bad = 1;
}

/* `operation` on `word`; its value is what differs from what is expected. */
#define OPERATION(...)                                                                                       \
  [&](uint64_t *word, uint64_t i, uint64_t round) {                                                          \
    static_cast<void>(i), static_cast<void>(round);                                                          \
    __VA_ARGS__;                                                                                             \
  }
#define ATOMIC_KERNELS(name, complete, operation)                                                            \
  __global__ void __launch_bounds__(1024, 1) atomic_bw_##name(const __grid_constant__ job j) {               \
    atomic_bw(j, own_words_of(j), operation);                                                                \
  }                                                                                                          \
  __global__ void __launch_bounds__(32) atomic_latency_##name(const __grid_constant__ job j) {               \
    atomic_latency(j, own_words_of(j), operation, [] { complete; });                                         \
  }
#define NON_FETCHING_KERNELS(name, operation) \
  ATOMIC_KERNELS(name, nvshmem_quiet(), OPERATION(operation; return uint64_t(0)))
#define FETCHING_KERNELS(name, operation, before) ATOMIC_KERNELS(name, , OPERATION(return (operation) ^ (before)))
NON_FETCHING(NON_FETCHING_KERNELS)
FETCHING(FETCHING_KERNELS)
/* rushmem-perf's file of the same has macros of these names. */
#undef NON_FETCHING
#undef FETCHING
#undef OPERATION
#undef ATOMIC_KERNELS
#undef NON_FETCHING_KERNELS
#undef FETCHING_KERNELS

#endif
