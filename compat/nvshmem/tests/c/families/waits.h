/* Waits and tests of words. */
#ifndef NVSHMEM_TESTS_FAMILIES_WAITS_H
#define NVSHMEM_TESTS_FAMILIES_WAITS_H

#include "host.h"

#define WAIT(NAME, T)                                                                       \
  static void wait_##NAME(char *a)                                                          \
  {                                                                                         \
    T *word = (T *) a, wanted[4] = {1, 2, 3, 4};                                            \
    const int status[4] = {0, 0, 1, 0};                                                     \
    size_t at[4];                                                                           \
    CHECK(nvshmem_##NAME##_test(word, NVSHMEM_CMP_EQ, 0) == 1);                             \
    nvshmem_barrier_all();                                                                  \
    for (int i = 3; i >= 0; i--) if (i != 2) nvshmem_##NAME##_p(word + i, (T) (i + 1), right); \
    nvshmem_##NAME##_wait_until(word, NVSHMEM_CMP_GE, 1);                                   \
    CHECK(nvshmem_##NAME##_wait_until_any(word, 4, status, NVSHMEM_CMP_NE, 0) < 4);         \
    CHECK(nvshmem_##NAME##_wait_until_some(word, 4, at, status, NVSHMEM_CMP_GT, 0) > 0);    \
    nvshmem_##NAME##_wait_until_all(word, 4, status, NVSHMEM_CMP_GE, 1);                    \
    nvshmem_##NAME##_wait_until_all_vector(word, 4, status, NVSHMEM_CMP_EQ, wanted);        \
    CHECK(nvshmem_##NAME##_wait_until_any_vector(word, 4, status, NVSHMEM_CMP_EQ, wanted) != 2); \
    CHECK(nvshmem_##NAME##_wait_until_some_vector(word, 4, at, status, NVSHMEM_CMP_EQ, wanted) == 3); \
    CHECK(nvshmem_##NAME##_test_all(word, 4, status, NVSHMEM_CMP_LE, 4) == 1);              \
    CHECK(nvshmem_##NAME##_test_all_vector(word, 4, NULL, NVSHMEM_CMP_EQ, wanted) == 0);    \
    CHECK(nvshmem_##NAME##_test_any(word, 4, NULL, NVSHMEM_CMP_LT, 1) == 2);                \
    CHECK(nvshmem_##NAME##_test_any_vector(word, 4, status, NVSHMEM_CMP_NE, wanted) == SIZE_MAX); \
    CHECK(nvshmem_##NAME##_test_some(word, 4, at, NULL, NVSHMEM_CMP_GE, 2) == 2 && at[0] == 1 && at[1] == 3); \
    CHECK(nvshmem_##NAME##_test_some_vector(word, 4, at, NULL, NVSHMEM_CMP_LT, wanted) == 1 && at[0] == 2); \
    nvshmemx_##NAME##_wait_until_on_stream(word, NVSHMEM_CMP_EQ, 1, stream);                \
    nvshmemx_##NAME##_wait_until_all_on_stream(word, 4, status, NVSHMEM_CMP_GE, 1, stream); \
    nvshmemx_##NAME##_wait_until_all_vector_on_stream(word, 4, status, NVSHMEM_CMP_EQ, wanted, stream); \
    /* A stream that waits, for a value with the type's sign, holds up no call of this PE's. */ \
    nvshmemx_##NAME##_wait_until_on_stream(word + 5, NVSHMEM_CMP_GT, (T) -2, stream);       \
    nvshmemx_##NAME##_wait_until_on_stream(word + 4, (T) -1 < (T) 1 ? NVSHMEM_CMP_LT : NVSHMEM_CMP_GT, 0, stream); \
    nvshmemx_##NAME##_wait_until_all_vector_on_stream(word, 4, status, NVSHMEM_CMP_EQ, wanted, stream); \
    nvshmem_##NAME##_p(word + 5, (T) -1, right);                                            \
    nvshmem_##NAME##_p(word + 4, (T) -3, right);                                            \
    static const char zeroes[128];                                                          \
    meet();                                                                                 \
    nvshmem_putmem(a, zeroes, sizeof zeroes, me);                                           \
    nvshmem_barrier_all();                                                                  \
  }
FOR_WAIT(WAIT)

#endif
