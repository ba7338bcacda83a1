/* Atomics from C, each type and each operation, on one PE's word by all PEs at once. */
#include "check.h"

enum { ROUNDS = 500 };

#define ATOMICS_OF(NAME, T, KIND)                                                                             \
  static void atomics_of_##NAME(rushmem_world_t *w, T *word)                                                  \
  {                                                                                                           \
    const int last = n - 1;                                                                                   \
    T old, before = 0;                                                                                        \
    CHECK((KIND) >= RUSHMEM_INT32 && (KIND) <= RUSHMEM_UINT64);                                               \
    for (int i = 0; i < ROUNDS; i++) {                                                                        \
      OK(rushmem_##NAME##_atomic_fetch_inc(w, &word[0], last, &old));                                         \
      CHECK(i == 0 || old > before);                                                                          \
      before = old;                                                                                           \
      OK(rushmem_##NAME##_atomic_inc(w, &word[1], last));                                                     \
      OK(rushmem_##NAME##_atomic_add(w, &word[1], (T)-2, last));                                              \
      OK(rushmem_##NAME##_atomic_fetch_add(w, &word[1], (T)1, last, &old));                                   \
      OK(rushmem_##NAME##_atomic_xor(w, &word[2], (T)1 << me, last));                                         \
      OK(rushmem_##NAME##_atomic_or(w, &word[3], (T)1 << me, last));                                          \
      OK(rushmem_##NAME##_atomic_fetch_or(w, &word[3], (T)0, last, &old));                                    \
      CHECK(old & ((T)1 << me));                                                                              \
      OK(rushmem_##NAME##_atomic_fetch_xor(w, &word[2], (T)1 << me, last, &old));                             \
      CHECK(old & ((T)1 << me));                                                                              \
      /* a lock, and a plain counter that it guards */ \
      do OK(rushmem_##NAME##_atomic_compare_swap(w, &word[4], 0, (T)(me + 1), last, &old));                   \
      while (old != 0);                                                                                       \
      T count;                                                                                                \
      OK(rushmem_##NAME##_g(w, &word[5], last, &count));                                                      \
      OK(rushmem_##NAME##_p(w, &word[5], (T)(count + 1), last));                                              \
      OK(rushmem_fence(w));                                                                                   \
      OK(rushmem_##NAME##_atomic_swap(w, &word[4], 0, last, &old));                                           \
      CHECK(old == (T)(me + 1));                                                                              \
    }                                                                                                         \
    OK(rushmem_barrier_all(w));                                                                               \
    OK(rushmem_##NAME##_atomic_and(w, &word[3], (T)~((T)1 << me), last));                                     \
    OK(rushmem_barrier_all(w));                                                                               \
    const T want[6] = {(T)(n * ROUNDS), 0, 0, 0, 0, (T)(n * ROUNDS)};                                         \
    for (int i = 0; i < 6; i++) {                                                                             \
      OK(rushmem_##NAME##_atomic_fetch(w, &word[i], last, &old));                                             \
      CHECK(old == want[i]);                                                                                  \
    }                                                                                                         \
    OK(rushmem_barrier_all(w));                                                                               \
    OK(rushmem_##NAME##_atomic_set(w, &word[6], (T)-1, (me + 1) % n));                                        \
    OK(rushmem_barrier_all(w));                                                                               \
    OK(rushmem_##NAME##_atomic_fetch_and(w, &word[6], (T)12, me, &old));                                      \
    T pair[2];                                                                                                \
    look(w, pair, word + 6, sizeof pair);                                                                     \
    CHECK(old == (T)-1 && pair[0] == (T)12 && pair[1] == 0);                                                  \
    OK(rushmem_barrier_all(w));                                                                               \
    for (int i = 0; i < 8; i++) OK(rushmem_##NAME##_atomic_set(w, &word[i], 0, me));                          \
    OK(rushmem_barrier_all(w));                                                                               \
  }
RUSHMEM_INTEGER_TYPES(ATOMICS_OF)

#define FLOATS_OF(NAME, T, KIND)                                                                              \
  static void atomics_of_##NAME(rushmem_world_t *w, T *word)                                                  \
  {                                                                                                           \
    const int right = (me + 1) % n, left = (me + n - 1) % n;                                                  \
    T old;                                                                                                    \
    OK(rushmem_##NAME##_atomic_set(w, word, (T)1.5 * (T)me, right));                                          \
    OK(rushmem_barrier_all(w));                                                                               \
    OK(rushmem_##NAME##_atomic_fetch(w, word, me, &old));                                                     \
    CHECK(old == (T)1.5 * (T)left);                                                                           \
    OK(rushmem_##NAME##_atomic_swap(w, word, (T)-0.25, me, &old));                                            \
    T now;                                                                                                    \
    look(w, &now, word, sizeof now);                                                                          \
    CHECK(old == (T)1.5 * (T)left && now == (T)-0.25);                                                        \
    FAILS(rushmem_atomic(w, RUSHMEM_ATOMIC_ADD, KIND, word, 1, 0, right, NULL), RUSHMEM_ERR_INVALID_ARGUMENT, \
          #T);                                                                                                \
    OK(rushmem_barrier_all(w));                                                                               \
  }
RUSHMEM_FLOAT_TYPES(FLOATS_OF)

int main(void)
{
  rushmem_world_t *w = start();
  void *words;
  OK(rushmem_alloc(w, 8 * sizeof(uint64_t), 0, &words));
#define RUN(NAME, T, KIND)                                  \
  atomics_of_##NAME(w, (T *)words);                         \
  blank(w, words, 8 * sizeof(uint64_t));                    \
  OK(rushmem_barrier_all(w));
  RUSHMEM_INTEGER_TYPES(RUN)
  RUSHMEM_FLOAT_TYPES(RUN)
  OK(rushmem_free(w, words));
  return finish(w);
}
