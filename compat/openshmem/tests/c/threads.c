/* SHMEM_THREAD_MULTIPLE: threads that transfer, signal, wait and meet in teams of their own, all at once. */
#include <pthread.h>

#include "check.h"

enum { THREADS = 4, ROUNDS = 25, MOST = 600 };
static shmem_team_t teams[THREADS];
static long inbox[THREADS][MOST], sums[THREADS], parts[THREADS], shared;
static uint64_t arrived[THREADS], taken[THREADS];

static void *thread(void *argument)
{
  const int t = *(int *) argument;
  long out[MOST], back[MOST];
  shmem_ctx_t ctx;
  CHECK(shmem_ctx_create(t % 2 ? SHMEM_CTX_PRIVATE : 0, &ctx) == 0, "a context");
  for (int round = 1; round <= ROUNDS; round++) {
    const size_t length = (size_t) number(me, round, t) * 6;
    for (size_t i = 0; i < length; i++) out[i] = number(me, (int) i, round * THREADS + t);
    /* The next PE's thread of this number has taken what it had. */
    shmem_signal_wait_until(&taken[t], SHMEM_CMP_GE, (uint64_t) round - 1);
    shmem_ctx_long_put_signal_nbi(ctx, inbox[t], out, length, &arrived[t], 1, SHMEM_SIGNAL_ADD, next);
    shmem_long_atomic_add(&shared, 1, (me + t) % n);
    shmem_signal_wait_until(&arrived[t], SHMEM_CMP_GE, (uint64_t) round);
    const size_t theirs = (size_t) number(prev, round, t) * 6;
    for (size_t i = 0; i < theirs; i++)
      CHECK(inbox[t][i] == number(prev, (int) i, round * THREADS + t), "thread %d, round %d, place %zu", t,
            round, i);
    shmem_ctx_long_get(ctx, back, inbox[t], theirs, me);
    CHECK(!memcmp(back, inbox[t], theirs * sizeof *back), "thread %d, round %d: got", t, round);
    shmem_ctx_quiet(ctx);
    shmem_signal_add(&taken[t], 1, prev);
    parts[t] = me + round + t;
    CHECK(shmem_long_sum_reduce(teams[t], &sums[t], &parts[t], 1) == 0, "reduce");
    CHECK(sums[t] == (long) n * (n - 1) / 2 + (long) n * (round + t), "thread %d, round %d: sum %ld", t,
          round, sums[t]);
  }
  shmem_ctx_destroy(ctx);
  return NULL;
}

int main(void)
{
  int level;
  shmem_init_thread(SHMEM_THREAD_MULTIPLE, &level);
  begin();
  for (int t = 0; t < THREADS; t++)
    CHECK(shmem_team_split_strided(SHMEM_TEAM_WORLD, 0, 1, n, NULL, 0, &teams[t]) == 0, "a team");
  pthread_t threads[THREADS];
  int numbers[THREADS];
  for (int t = 0; t < THREADS; t++) {
    numbers[t] = t;
    pthread_create(&threads[t], NULL, thread, &numbers[t]);
  }
  for (int t = 0; t < THREADS; t++) pthread_join(threads[t], NULL);
  shmem_barrier_all();
  CHECK(shared == THREADS * ROUNDS, "the counter is %ld", shared);
  for (int t = 0; t < THREADS; t++) shmem_team_destroy(teams[t]);
  shmem_finalize();
  return end();
}
