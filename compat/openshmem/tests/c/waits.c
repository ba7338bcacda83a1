/* Waits and tests: one word, all, any, some, and with a value for each word; signals. */
#include "check.h"

enum { WORDS = 8 };

/* Words become 1 (or in vectors their number) one after the other, by the previous PE's atomics. */
#define TEST(T, N)                                                                                           \
  static T N##_words[WORDS];                                                                                 \
  static void test_##N(void)                                                                                 \
  {                                                                                                          \
    T *words = N##_words, values[WORDS];                                                                     \
    int status[WORDS] = {0};                                                                                 \
    size_t indices[WORDS];                                                                                   \
    CHECK(!shmem_##N##_test(words, SHMEM_CMP_NE, 0), #N);                                                    \
    CHECK(!shmem_##N##_test_all(words, WORDS, NULL, SHMEM_CMP_EQ, 1), #N);                                   \
    CHECK(shmem_##N##_test_any(words, WORDS, NULL, SHMEM_CMP_GT, 0) == SIZE_MAX, #N);                        \
    CHECK(shmem_##N##_test_some(words, WORDS, indices, NULL, SHMEM_CMP_GT, 0) == 0, #N);                     \
    shmem_barrier_all();                                                                                     \
    for (int i = 0; i < WORDS; i++) shmem_##N##_atomic_set(&words[i], 1, next);                              \
    shmem_##N##_wait_until(&words[0], SHMEM_CMP_EQ, 1);                                                      \
    shmem_##N##_wait_until(&words[1], SHMEM_CMP_NE, 0);                                                      \
    shmem_##N##_wait_until_all(words, WORDS, NULL, SHMEM_CMP_GE, 1);                                         \
    CHECK(shmem_##N##_test_all(words, WORDS, status, SHMEM_CMP_EQ, 1), #N);                                  \
    CHECK(shmem_##N##_test(words, SHMEM_CMP_LE, 1), #N);                                                     \
    shmem_barrier_all();                                                                                     \
    for (int i = 0; i < WORDS; i++) shmem_##N##_atomic_set(&words[i], (T) (i + 2), next);                    \
    for (int left = WORDS; left > 0;) {                                                                      \
      size_t at = shmem_##N##_wait_until_any(words, WORDS, status, SHMEM_CMP_GT, 1);                         \
      CHECK(at < WORDS && !status[at], #N);                                                                  \
      status[at] = 1, left--;                                                                                \
      if (left == 0) break;                                                                                  \
      size_t some = shmem_##N##_wait_until_some(words, WORDS, indices, status, SHMEM_CMP_GT, 1);             \
      CHECK(some > 0, #N);                                                                                   \
      for (size_t i = 0; i < some; i++) status[indices[i]] = 1, left--;                                      \
    }                                                                                                        \
    CHECK(shmem_##N##_wait_until_any(words, WORDS, status, SHMEM_CMP_GT, 1) == SIZE_MAX, #N);                \
    CHECK(shmem_##N##_test_some(words, WORDS, indices, status, SHMEM_CMP_GT, 1) == 0, #N);                   \
    shmem_barrier_all();                                                                                     \
    memset(status, 0, sizeof status);                                                                        \
    for (int i = 0; i < WORDS; i++) values[i] = (T) (i + 20);                                                \
    CHECK(!shmem_##N##_test_all_vector(words, WORDS, status, SHMEM_CMP_EQ, values), #N);                     \
    CHECK(shmem_##N##_test_any_vector(words, WORDS, status, SHMEM_CMP_EQ, values) == SIZE_MAX, #N);          \
    shmem_barrier_all();                                                                                     \
    for (int i = 0; i < WORDS; i++) shmem_##N##_atomic_add(&words[i], 18, next);                             \
    CHECK(shmem_##N##_wait_until_any_vector(words, WORDS, status, SHMEM_CMP_EQ, values) < WORDS, #N);        \
    CHECK(shmem_##N##_wait_until_some_vector(words, WORDS, indices, status, SHMEM_CMP_EQ, values) > 0, #N);  \
    shmem_##N##_wait_until_all_vector(words, WORDS, status, SHMEM_CMP_EQ, values);                           \
    CHECK(shmem_##N##_test_some_vector(words, WORDS, indices, NULL, SHMEM_CMP_EQ, values) == WORDS, #N);     \
    CHECK(shmem_##N##_test_all_vector(words, 0, NULL, SHMEM_CMP_EQ, values), #N);                            \
    shmem_barrier_all();                                                                                     \
  }
FOR_AMO(TEST)

#define WAIT(T, N)                                                                                           \
  static void wait_##N(void)                                                                                 \
  {                                                                                                          \
    static T word;                                                                                           \
    CHECK(!shmem_##N##_test(&word, SHMEM_CMP_GT, (T) 0), #N);                                                \
    shmem_barrier_all();                                                                                     \
    shmem_##N##_p(&word, (T) 7, next);                                                                       \
    shmem_##N##_wait_until(&word, SHMEM_CMP_GE, (T) 7);                                                      \
    CHECK(shmem_##N##_test(&word, SHMEM_CMP_LT, (T) 8), #N);                                                 \
  }
FOR_WAIT(WAIT)

#define OLD_WAIT(T, N)                                                                                       \
  static void old_wait_##N(void)                                                                             \
  {                                                                                                          \
    static T word = 3;                                                                                       \
    shmem_##N##_p(&word, (T) -4, next);                                                                      \
    shmem_##N##_wait(&word, (T) 3);                                                                          \
    CHECK(word == (T) -4 && shmem_##N##_test(&word, SHMEM_CMP_LT, (T) 0), #N);                               \
  }
FOR_OLD_WAIT(OLD_WAIT)

int main(void)
{
  begin();
#define RUN(T, N) test_##N();
  FOR_AMO(RUN)
#define RUN_WAIT(T, N) wait_##N();
  FOR_WAIT(RUN_WAIT)
#define RUN_OLD(T, N) old_wait_##N();
  FOR_OLD_WAIT(RUN_OLD)
  static uint64_t sig;
  static long word;
  shmem_signal_set(&sig, 40, next);
  shmem_ctx_signal_add(SHMEM_CTX_DEFAULT, &sig, 2, next);
  CHECK(shmem_signal_wait_until(&sig, SHMEM_CMP_EQ, 42) == 42 && shmem_signal_fetch(&sig) == 42, "a signal");
  shmem_long_p(&word, 1, next);
  (shmem_wait_until)(&word, SHMEM_CMP_EQ, 1);
  shmem_wait(&word, 0);
  return end();
}
