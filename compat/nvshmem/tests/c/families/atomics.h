/* Atomics. */
#ifndef NVSHMEM_TESTS_FAMILIES_ATOMICS_H
#define NVSHMEM_TESTS_FAMILIES_ATOMICS_H

#include "host.h"

#define AMO(NAME, T)                                                                        \
  static void amo_##NAME(char *a)                                                           \
  {                                                                                         \
    T *word = (T *) a;                                                                      \
    nvshmem_##NAME##_atomic_add(word, (T) (me + 1), 0);                                     \
    CHECK(nvshmem_##NAME##_atomic_fetch_add(word + 1, (T) 2, 0) < (T) (2 * n));             \
    nvshmem_##NAME##_atomic_inc(word + 2, 0);                                               \
    CHECK(nvshmem_##NAME##_atomic_fetch_inc(word + 2, 0) < (T) (2 * n));                    \
    nvshmem_##NAME##_atomic_set(word + 4, VALUE(T, me, 4), right);                          \
    CHECK(nvshmem_##NAME##_atomic_swap(word + 5, VALUE(T, me, 5), right) == (T) 0);         \
    CHECK(nvshmem_##NAME##_atomic_fetch(word + 5, right) == VALUE(T, me, 5));               \
    CHECK(nvshmem_##NAME##_atomic_compare_swap(word + 6, (T) 0, (T) (me + 7), right) == (T) 0); \
    CHECK(nvshmem_##NAME##_atomic_compare_swap(word + 6, (T) 0, (T) 1, right) == (T) (me + 7)); \
    nvshmem_barrier_all();                                                                  \
    if (me == 0) {                                                                          \
      CHECK(nvshmem_##NAME##_g(word, 0) == (T) (n * (n + 1) / 2));                          \
      CHECK(nvshmem_##NAME##_g(word + 1, 0) == (T) (2 * n) && nvshmem_##NAME##_g(word + 2, 0) == (T) (2 * n)); \
    }                                                                                       \
    CHECK(nvshmem_##NAME##_g(word + 4, me) == VALUE(T, left, 4));                           \
    nvshmem_barrier_all();                                                                  \
    static const char zeroes[128];                                                          \
    nvshmem_putmem(a, zeroes, sizeof zeroes, me);                                           \
    nvshmem_barrier_all();                                                                  \
  }
FOR_AMO(AMO)

#define BITWISE(NAME, T)                                                                    \
  static void bits_##NAME(char *a)                                                          \
  {                                                                                         \
    T *word = (T *) a;                                                                      \
    nvshmem_##NAME##_atomic_or(word, (T) 12, right);                                        \
    nvshmem_quiet();                                                                        \
    CHECK(nvshmem_##NAME##_atomic_fetch_or(word, (T) 3, right) == (T) 12);                  \
    nvshmem_##NAME##_atomic_and(word, (T) 7, right);                                        \
    nvshmem_quiet();                                                                        \
    CHECK(nvshmem_##NAME##_atomic_fetch_and(word, (T) 14, right) == (T) 7);                 \
    nvshmem_##NAME##_atomic_xor(word, (T) 5, right);                                        \
    nvshmem_quiet();                                                                        \
    CHECK(nvshmem_##NAME##_atomic_fetch_xor(word, (T) 9, right) == (T) 3);                  \
    /* All PEs at one word, each at a bit of its own. */                                    \
    nvshmem_##NAME##_atomic_or(word + 1, (T) ((T) 1 << me), 0);                             \
    nvshmem_##NAME##_atomic_xor(word + 2, (T) ((T) 5 << 2 * me), 0);                        \
    nvshmem_barrier_all();                                                                  \
    CHECK(nvshmem_##NAME##_g(word, me) == (T) 10);                                          \
    T every = 0, mixed = 0;                                                                 \
    for (int pe = 0; pe < n; pe++) every |= (T) 1 << pe, mixed ^= (T) 5 << 2 * pe;          \
    CHECK(nvshmem_##NAME##_g(word + 1, 0) == every && nvshmem_##NAME##_g(word + 2, 0) == mixed); \
    nvshmem_barrier_all();                                                                  \
    clear(a);                                                                               \
  }
FOR_BITWISE_AMO(BITWISE)

#define SUMS(NAME, T)                                                                       \
  static void sum_##NAME(char *a)                                                           \
  {                                                                                         \
    T *word = (T *) a;                                                                      \
    nvshmemx_##NAME##_atomic_add(word, (T) (me + 0.5), 0);                                  \
    CHECK(nvshmemx_##NAME##_atomic_fetch_add(word + 1, (T) 1, 0) < (T) n);                  \
    nvshmem_barrier_all();                                                                  \
    if (me == 0) CHECK(nvshmem_##NAME##_g(word, 0) == (T) (n * n / 2.0) && nvshmem_##NAME##_g(word + 1, 0) == (T) n); \
    nvshmem_barrier_all();                                                                  \
    static const char zeroes[128];                                                          \
    nvshmem_putmem(a, zeroes, sizeof zeroes, me);                                           \
    nvshmem_barrier_all();                                                                  \
  }
SUMS(float, float)
SUMS(double, double)

/* 16-bit floats by their bits: 1.0 is 0x3c00, 3.5 is 0x4300. */
static void sum_half(char *a)
{
  __half *word = (__half *) a + 1, one = {0x3c00};
  __half half = {0x3800};
  for (int i = 0; i < 3; i++) nvshmemx_half_atomic_add(word, one, right);
  CHECK(nvshmemx_half_atomic_fetch_add(word, half, right).x == 0x4200);
  nvshmem_barrier_all();
  /* The other half of the word is another's. */
  nvshmem_half_atomic_set(word + 2, half, right);
  CHECK(nvshmem_half_atomic_swap(word + 2, one, right).x == half.x);
  CHECK(nvshmem_half_atomic_fetch(word + 2, right).x == one.x && nvshmem_half_atomic_fetch(word + 1, right).x == 0);
  nvshmem_barrier_all();
  CHECK(nvshmem_half_g(word, me).x == 0x4300 && nvshmem_ushort_g((unsigned short *) a, me) == 0);
  nvshmem_barrier_all();
}

#endif
