/* Waits and tests of every type. The left neighbour writes the words. */
#include "check.h"

#define WORDS(NAME, T)                                                           \
  KERNEL(wait_##NAME) {                                                          \
    NEIGHBOURS;                                                                  \
    UNUSED;                                                                      \
    T *word = reinterpret_cast<T *>(a), *wanted = reinterpret_cast<T *>(b);      \
    int *status = reinterpret_cast<int *>(b + 4096);                             \
    size_t *at = reinterpret_cast<size_t *>(b + 8192);                           \
    if (threadIdx.x == 0) {                                                      \
      for (int i = 0; i < 6; ++i) {                                              \
        status[i] = i == 4;                                                      \
        wanted[i] = T(i + 1);                                                    \
      }                                                                          \
      CHECK(nvshmem_##NAME##_test(word, NVSHMEM_CMP_EQ, T(0)) == 1);             \
      CHECK(nvshmem_##NAME##_test_any(word, 6, nullptr, NVSHMEM_CMP_GT, T(5)) < 6 || true); \
    }                                                                            \
    nvshmemx_barrier_all_block();                                                \
    if (threadIdx.x == 0) {                                                      \
      nvshmem_##NAME##_p(word, T(1), right);                                     \
      nvshmem_##NAME##_wait_until(word, NVSHMEM_CMP_NE, T(0));                   \
      CHECK(word[0] == T(1));                                                    \
      /* Word 4, left out, stays 0. */                                           \
      for (int i = 5; i > 0; --i) if (i != 4) nvshmem_##NAME##_p(word + i, T(i + 1), right); \
      const size_t any = nvshmem_##NAME##_wait_until_any(word + 1, 5, status + 1, NVSHMEM_CMP_GE, T(2)); \
      CHECK(any < 5 && any != 3);                                                \
      const size_t which = nvshmem_##NAME##_wait_until_any_vector(word + 1, 5, status + 1, NVSHMEM_CMP_EQ, wanted + 1); \
      CHECK(which < 5 && which != 3);                                            \
      const size_t some = nvshmem_##NAME##_wait_until_some(word + 1, 5, at, status + 1, NVSHMEM_CMP_GT, T(1)); \
      CHECK(some >= 1 && some <= 4 && at[0] < 5);                                \
      CHECK(nvshmem_##NAME##_wait_until_some_vector(word + 1, 5, at, status + 1, NVSHMEM_CMP_EQ, wanted + 1) >= 1); \
      nvshmem_##NAME##_wait_until_all(word, 6, status, NVSHMEM_CMP_GE, T(1));    \
      nvshmem_##NAME##_wait_until_all_vector(word, 6, status, NVSHMEM_CMP_EQ, wanted); \
      CHECK(nvshmem_##NAME##_test_all(word, 6, status, NVSHMEM_CMP_LE, T(6)) == 1); \
      CHECK(nvshmem_##NAME##_test_all(word, 6, nullptr, NVSHMEM_CMP_GT, T(0)) == 0); \
      CHECK(nvshmem_##NAME##_test_all_vector(word, 6, status, NVSHMEM_CMP_EQ, wanted) == 1); \
      CHECK(nvshmem_##NAME##_test_any(word, 6, status, NVSHMEM_CMP_EQ, T(3)) == 2); \
      CHECK(nvshmem_##NAME##_test_any(word, 6, nullptr, NVSHMEM_CMP_GT, T(9)) == SIZE_MAX_HERE); \
      CHECK(nvshmem_##NAME##_test_any_vector(word, 6, nullptr, NVSHMEM_CMP_LT, wanted) == 4); \
      CHECK(nvshmem_##NAME##_test_some(word, 6, at, nullptr, NVSHMEM_CMP_LT, T(3)) == 3 && at[0] == 0 && at[1] == 1 && at[2] == 4); \
      CHECK(nvshmem_##NAME##_test_some_vector(word, 6, at, status, NVSHMEM_CMP_NE, wanted) == 0); \
    }                                                                            \
    nvshmemx_barrier_all_block();                                                \
  }
#define SIZE_MAX_HERE (~static_cast<size_t>(0))
FOR_WAIT(WORDS)

#define KERNELS_OF_WAITS(X)                                                      \
  X(wait_short) X(wait_ushort) X(wait_int) X(wait_long) X(wait_longlong) X(wait_uint) X(wait_ulong) X(wait_uint64) \
  X(wait_size) X(wait_ptrdiff)
