/* Signals, waits and tests from C. A token goes round the PEs; each hop uses another form of wait. */
#include "check.h"

#define WAITS_OF(NAME, T, KIND)                                                                               \
  static void waits_of_##NAME(rushmem_world_t *w, T *v)                                                       \
  {                                                                                                           \
    const int right = (me + 1) % n;                                                                           \
    const int32_t status[4] = {0, 1, 0, 0};                                                                   \
    const T values[4] = {(T)1, (T)99, (T)2, (T)3};                                                            \
    const T minus = (T)-1;                                                                                    \
    size_t index = 77, indices[4], count = 77;                                                                \
    int32_t result = 77;                                                                                      \
    CHECK((KIND) == rushmem_kind_of_##NAME);                                                                  \
    OK(rushmem_##NAME##_test(w, &v[0], RUSHMEM_CMP_NE, (T)0, &result));                                       \
    CHECK(result == 0);                                                                                       \
    OK(rushmem_##NAME##_test_all(w, v, 4, status, RUSHMEM_CMP_EQ, (T)0, &result));                            \
    CHECK(result == 1);                                                                                       \
    OK(rushmem_##NAME##_test_any_vector(w, v, 4, NULL, RUSHMEM_CMP_EQ, values, &index));                      \
    CHECK(index == SIZE_MAX);                                                                                 \
    OK(rushmem_##NAME##_test_some(w, v, 4, status, RUSHMEM_CMP_LE, (T)0, indices, &count));                   \
    CHECK(count == 3 && indices[0] == 0 && indices[1] == 2 && indices[2] == 3);                               \
    OK(rushmem_barrier_all(w));                                                                               \
    /* 1, then 2 and 3, to the right; the excluded word stays 0 */ \
    OK(rushmem_##NAME##_p(w, &v[0], (T)1, right));                                                            \
    OK(rushmem_##NAME##_wait_until(w, &v[0], RUSHMEM_CMP_EQ, (T)1));                                          \
    OK(rushmem_##NAME##_wait_until_any(w, v, 4, status, RUSHMEM_CMP_GT, (T)0, &index));                       \
    CHECK(index == 0 || index == 2 || index == 3);                                                            \
    OK(rushmem_##NAME##_atomic_set(w, &v[2], (T)2, right));                                                   \
    OK(rushmem_##NAME##_atomic_add(w, &v[3], (T)3, right));                                                   \
    OK(rushmem_##NAME##_wait_until_all(w, v, 4, status, RUSHMEM_CMP_GE, (T)1));                               \
    OK(rushmem_##NAME##_wait_until_all_vector(w, v, 4, status, RUSHMEM_CMP_EQ, values));                      \
    OK(rushmem_##NAME##_wait_until_some(w, v, 4, status, RUSHMEM_CMP_LT, (T)3, indices, &count));             \
    CHECK(count == 2 && indices[0] == 0 && indices[1] == 2);                                                  \
    OK(rushmem_##NAME##_wait_until_some_vector(w, v, 4, status, RUSHMEM_CMP_EQ, values, indices, &count));    \
    CHECK(count == 3);                                                                                        \
    OK(rushmem_##NAME##_wait_until_any_vector(w, v, 2, status, RUSHMEM_CMP_EQ, values, &index));              \
    CHECK(index == 0);                                                                                        \
    OK(rushmem_##NAME##_test_all_vector(w, v, 4, NULL, RUSHMEM_CMP_EQ, values, &result));                     \
    CHECK(result == 0);                                                                                       \
    OK(rushmem_##NAME##_test_some_vector(w, v, 4, NULL, RUSHMEM_CMP_NE, values, indices, &count));            \
    CHECK(count == 1 && indices[0] == 1);                                                                     \
    OK(rushmem_##NAME##_test_any(w, v, 4, NULL, RUSHMEM_CMP_EQ, (T)3, &index));                               \
    CHECK(index == 3);                                                                                        \
    /* the sign of the type counts: all ones is less than zero, or the largest */ \
    OK(rushmem_##NAME##_atomic_set(w, &v[1], minus, me));                                                     \
    OK(rushmem_##NAME##_test(w, &v[1], RUSHMEM_CMP_GT, (T)1, &result));                                       \
    CHECK(result == (minus > (T)1));                                                                          \
    OK(rushmem_barrier_all(w));                                                                               \
  }

enum {
#define KIND_OF(NAME, T, KIND) rushmem_kind_of_##NAME = (KIND),
  RUSHMEM_INTEGER_TYPES(KIND_OF)
};
RUSHMEM_INTEGER_TYPES(WAITS_OF)

static void signals(rushmem_world_t *w)
{
  enum { LAPS = 300, WORDS = 64 };
  const int right = (me + 1) % n, left = (me + n - 1) % n;
  uint64_t *data, *sig, seen;
  OK(rushmem_alloc(w, WORDS * sizeof *data, 0, (void **)&data));
  OK(rushmem_alloc(w, 2 * sizeof *sig, 0, (void **)&sig));
  for (uint64_t lap = 1; lap <= LAPS; lap++) {
    uint64_t out[WORDS];
    for (uint64_t i = 0; i < WORDS; i++) out[i] = (uint64_t)me << 48 | lap << 16 | i;
    if (lap % 2)
      OK(rushmem_put_signal(w, data, out, sizeof out, sig, 1, RUSHMEM_SIGNAL_ADD, right));
    else
      OK(rushmem_put_signal_nbi(w, data, out, sizeof out, sig, lap, RUSHMEM_SIGNAL_SET, right));
    OK(rushmem_quiet(w));
    OK(rushmem_signal_wait_until(w, sig, RUSHMEM_CMP_GE, lap, &seen));
    CHECK(seen == lap);
    uint64_t in[WORDS];
    look(w, in, data, sizeof in);
    for (uint64_t i = 0; i < WORDS; i++) CHECK(in[i] == ((uint64_t)left << 48 | lap << 16 | i));
    /* the word back to the left is the leave to write again */
    OK(rushmem_signal_op(w, sig + 1, 1, RUSHMEM_SIGNAL_ADD, left));
    OK(rushmem_signal_wait_until(w, sig + 1, RUSHMEM_CMP_EQ, lap, NULL));
    OK(rushmem_signal_fetch(w, sig + 1, &seen));
    CHECK(seen == lap);
  }
  OK(rushmem_sync_all(w));
  OK(rushmem_free(w, sig));
  OK(rushmem_free(w, data));
}

int main(void)
{
  rushmem_world_t *w = start();
  void *words;
  OK(rushmem_alloc(w, 4 * sizeof(uint64_t), 0, &words));
#define RUN(NAME, T, KIND)                                  \
  waits_of_##NAME(w, (T *)words);                           \
  blank(w, words, 4 * sizeof(uint64_t));                    \
  OK(rushmem_barrier_all(w));
  RUSHMEM_INTEGER_TYPES(RUN)
  signals(w);
  OK(rushmem_free(w, words));
  return finish(w);
}
