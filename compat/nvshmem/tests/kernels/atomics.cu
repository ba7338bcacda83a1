/* Atomics of every type, by single threads. */
#include "check.h"

/* All PEs at one word, whose end is known; then one PE at its neighbour's. */
#define NUMBERS(NAME, T)                                                         \
  KERNEL(amo_##NAME) {                                                           \
    NEIGHBOURS;                                                                  \
    UNUSED;                                                                      \
    T *word = reinterpret_cast<T *>(a);                                          \
    if (threadIdx.x == 0) {                                                      \
      nvshmem_##NAME##_atomic_add(word, T(me + 1), 0);                           \
      const T before = nvshmem_##NAME##_atomic_fetch_add(word + 1, T(2), 0);     \
      CHECK(before % 2 == 0 && before < T(2 * n_pes));                           \
      nvshmem_##NAME##_atomic_inc(word + 2, 0);                                  \
      CHECK(nvshmem_##NAME##_atomic_fetch_inc(word + 3, 0) < T(n_pes));          \
      nvshmem_##NAME##_atomic_compare_swap(word + 4, T(0), T(me + 1), 0);        \
      CHECK(nvshmem_##NAME##_atomic_compare_swap(word + 8, T(0), T(me + 7), right) == T(0)); \
      CHECK(nvshmem_##NAME##_atomic_compare_swap(word + 8, T(0), T(1), right) == T(me + 7)); \
    }                                                                            \
    nvshmemx_barrier_all_block();                                                \
    if (me == 0) {                                                               \
      CHECK(word[0] == T(n_pes * (n_pes + 1) / 2) && word[1] == T(2 * n_pes));   \
      CHECK(word[2] == T(n_pes) && word[3] == T(n_pes));                         \
      CHECK(word[4] >= T(1) && word[4] <= T(n_pes));                             \
    }                                                                            \
    CHECK(word[8] == T(left + 7));                                               \
    nvshmemx_barrier_all_block();                                                \
  }
#define EXCHANGES(NAME, T)                                                       \
  KERNEL(exchange_##NAME) {                                                      \
    NEIGHBOURS;                                                                  \
    UNUSED;                                                                      \
    T *word = reinterpret_cast<T *>(a);                                          \
    if (threadIdx.x == 0) {                                                      \
      nvshmem_##NAME##_atomic_set(word, value_of<T>(me, 1, salt), right);        \
      CHECK(nvshmem_##NAME##_atomic_swap(word + 1, value_of<T>(me, 2, salt), right) == T(0)); \
      CHECK(nvshmem_##NAME##_atomic_fetch(word + 1, right) == value_of<T>(me, 2, salt)); \
    }                                                                            \
    nvshmemx_barrier_all_block();                                                \
    CHECK(word[0] == value_of<T>(left, 1, salt) && word[1] == value_of<T>(left, 2, salt)); \
    nvshmemx_barrier_all_block();                                                \
  }
#define BITWISE(NAME, T)                                                         \
  KERNEL(bits_##NAME) {                                                          \
    NEIGHBOURS;                                                                  \
    UNUSED;                                                                      \
    T *word = reinterpret_cast<T *>(a);                                          \
    if (threadIdx.x == 0) {                                                      \
      nvshmem_##NAME##_atomic_or(word, T(12), right);                            \
      nvshmem_quiet();                                                           \
      CHECK(nvshmem_##NAME##_atomic_fetch_or(word, T(3), right) == T(12));       \
      nvshmem_##NAME##_atomic_and(word, T(7), right);                            \
      nvshmem_quiet();                                                           \
      CHECK(nvshmem_##NAME##_atomic_fetch_and(word, T(14), right) == T(7));      \
      nvshmem_##NAME##_atomic_xor(word, T(5), right);                            \
      nvshmem_quiet();                                                           \
      CHECK(nvshmem_##NAME##_atomic_fetch_xor(word, T(9), right) == T(3));       \
    }                                                                            \
    nvshmemx_barrier_all_block();                                                \
    CHECK(word[0] == T(10));                                                     \
    nvshmemx_barrier_all_block();                                                \
  }
FOR_AMO(NUMBERS)
FOR_EXTENDED_AMO(EXCHANGES)
FOR_BITWISE_AMO(BITWISE)

#define SUMS(NAME, T)                                                            \
  {                                                                              \
    T *word = reinterpret_cast<T *>(a);                                          \
    if (threadIdx.x == 0) {                                                      \
      nvshmemx_##NAME##_atomic_add(word, T(me + 0.5), 0);                        \
      CHECK(nvshmemx_##NAME##_atomic_fetch_add(word + 1, T(1), 0) < T(n_pes));   \
    }                                                                            \
    nvshmemx_barrier_all_block();                                                \
    if (me == 0) CHECK(word[0] == T(n_pes * n_pes / 2.0) && word[1] == T(n_pes)); \
    nvshmemx_barrier_all_block();                                                \
    if (threadIdx.x == 0) word[0] = word[1] = 0;                                 \
    nvshmemx_barrier_all_block();                                                \
  }
KERNEL(amo_floats) {
  NEIGHBOURS;
  UNUSED;
  SUMS(float, float)
  SUMS(double, double)
}

#define KERNELS_OF_ATOMICS(X)                                                    \
  X(amo_int) X(amo_long) X(amo_ulonglong) X(amo_uint32) X(amo_int64) X(amo_size) X(amo_ptrdiff) \
  X(exchange_float) X(exchange_double) X(exchange_uint64) X(bits_uint) X(bits_int64) X(amo_floats)
