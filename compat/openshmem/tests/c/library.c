/* Everything that is not a transfer: memory, teams, contexts, locks, threads, information. */
#include <pthread.h>

#include "check.h"

static int variable = 42;
static long lock, second_lock, guarded, tally;

static void memory(void)
{
  CHECK(shmem_malloc(0) == NULL && shmem_calloc(0, 8) == NULL && shmem_align(3, 8) == NULL, "no memory");
  CHECK(shmem_malloc(SIZE_MAX / 4) == NULL, "too much");
  char *aligned = shmem_align(4096, 100);
  CHECK(aligned && (uintptr_t) aligned % 4096 == 0, "%p", (void *) aligned);
  long *p = shmem_malloc_with_hints(10 * sizeof *p, SHMEM_MALLOC_ATOMICS_REMOTE | SHMEM_MALLOC_SIGNAL_REMOTE);
  for (int i = 0; i < 10; i++) p[i] = me + i;
  p = shmem_realloc(p, 1000 * sizeof *p);
  for (int i = 0; i < 10; i++) CHECK(p[i] == me + i, "realloc keeps %d", i);
  p = shmem_realloc(p, 5 * sizeof *p);
  shmem_barrier_all();
  for (int i = 0; i < 5; i++) CHECK(shmem_long_g(&p[i], next) == next + i, "realloc keeps %d", i);
  shmem_barrier_all();
  CHECK(shmem_realloc(p, 0) == NULL, "freed");
  shmem_free(aligned);
  shmem_free(NULL);
  int here;
  CHECK(shmem_addr_accessible(&variable, next) && !shmem_addr_accessible(&here, next), "accessible");
  CHECK(shmem_pe_accessible(next) && !shmem_pe_accessible(-1) && !shmem_pe_accessible(n), "accessible");
  CHECK(shmem_ptr(&variable, me) != NULL && shmem_ptr(&here, me) == NULL, "ptr");
  int *theirs = shmem_ptr(&variable, next);
  if (theirs) CHECK(*theirs == 42, "a neighbour's variable is %d", *theirs);
  CHECK(shmem_team_ptr(SHMEM_TEAM_WORLD, &variable, next) == theirs, "team_ptr");
  CHECK(shmem_team_ptr(SHMEM_TEAM_INVALID, &variable, 0) == NULL, "team_ptr");
}

static void teams(void)
{
  CHECK(shmem_team_my_pe(SHMEM_TEAM_WORLD) == me && shmem_team_n_pes(SHMEM_TEAM_WORLD) == n, "world");
  CHECK(shmem_team_my_pe(SHMEM_TEAM_INVALID) == -1 && shmem_team_n_pes(SHMEM_TEAM_INVALID) == -1, "none");
  const int shared = shmem_team_n_pes(SHMEM_TEAM_SHARED);
  for (int i = 0; i < shared; i++) CHECK(shmem_team_ptr(SHMEM_TEAM_SHARED, &variable, i) != NULL,
       "shared PE %d", i);
  shmem_team_config_t config = {.num_contexts = 3}, got = {0};
  shmem_team_t back, x, y, none;
  CHECK(shmem_team_split_strided(SHMEM_TEAM_WORLD, n - 1, -1, n, &config, SHMEM_TEAM_NUM_CONTEXTS,
        &back) == 0, "reversed");
  CHECK(shmem_team_get_config(back, SHMEM_TEAM_NUM_CONTEXTS, &got) == 0 && got.num_contexts == 3, "config");
  CHECK(shmem_team_my_pe(back) == n - 1 - me, "its number is %d", shmem_team_my_pe(back));
  CHECK(shmem_team_translate_pe(back, 0, SHMEM_TEAM_WORLD) == n - 1, "translated");
  CHECK(shmem_team_translate_pe(SHMEM_TEAM_WORLD, me, SHMEM_TEAM_INVALID) == -1, "translated");
  shmem_ctx_t ctx;
  CHECK(shmem_team_create_ctx(back, 0, &ctx) == 0, "a team's context");
  shmem_team_t of;
  CHECK(shmem_ctx_get_team(ctx, &of) == 0 && of == back, "its team");
  /* Numbers of PEs are those of the team. */
  static int from;
  shmem_ctx_int_p(ctx, &from, me + 1, shmem_team_translate_pe(SHMEM_TEAM_WORLD, next, back));
  shmem_ctx_quiet(ctx);
  shmem_barrier_all();
  CHECK(from == prev + 1, "it is from %d", from - 1);
  shmem_ctx_destroy(ctx);
  shmem_team_destroy(back);
  CHECK(shmem_team_split_2d(SHMEM_TEAM_WORLD, 2, NULL, 0, &x, NULL, 0, &y) == 0, "2d");
  CHECK(shmem_team_my_pe(x) == me % 2 && shmem_team_my_pe(y) == me / 2, "2d");
  shmem_team_sync(x);
  shmem_team_sync(y);
  shmem_team_destroy(x);
  shmem_team_destroy(y);
  CHECK(shmem_team_split_strided(SHMEM_TEAM_WORLD, 0, 1, n + 1, NULL, 0,
        &none) != 0 && none == SHMEM_TEAM_INVALID, "too large");
  CHECK(shmem_team_split_strided(SHMEM_TEAM_INVALID, 0, 1, 1, NULL, 0, &none) != 0, "of none");
  shmem_team_destroy(SHMEM_TEAM_INVALID);
}

static void contexts(void)
{
  enum { MANY = 3000 };
  static shmem_ctx_t ctx[MANY];
  for (int turn = 0; turn < 2; turn++) {
    for (int i = 0; i < MANY; i++) CHECK(shmem_ctx_create(i % 8, &ctx[i]) == 0, "context %d", i);
    for (int i = 0; i < MANY; i += 100) {
      shmem_ctx_long_p(ctx[i], &guarded, 0, next);
      shmem_ctx_fence(ctx[i]);
      shmem_ctx_session_start(ctx[i], SHMEM_CTX_SESSION_BATCH, NULL, 0);
      shmem_ctx_pe_quiet(ctx[i], &next, 1);
      shmem_ctx_session_stop(ctx[i]);
    }
    for (int i = 0; i < MANY; i++) shmem_ctx_destroy(ctx[i]);
  }
  shmem_team_t team;
  CHECK(shmem_ctx_get_team(SHMEM_CTX_DEFAULT, &team) == 0 && team == SHMEM_TEAM_WORLD, "the default's team");
  CHECK(shmem_ctx_get_team(SHMEM_CTX_INVALID, &team) != 0 && team == SHMEM_TEAM_INVALID, "no team");
  shmem_ctx_destroy(SHMEM_CTX_INVALID);
}

/* The counter is not atomic: the lock is what keeps it right. */
static void locked(int rounds)
{
  for (int i = 0; i < rounds; i++) {
    if (i % 5 == 0)
      while (shmem_test_lock(&lock)) shmem_fence();
    else
      shmem_set_lock(&lock);
    shmem_long_p(&guarded, shmem_long_g(&guarded, n - 1) + 1, n - 1);
    shmem_clear_lock(&lock);
  }
}

static void *thread(void *argument)
{
  const int which = *(int *) argument;
  shmem_ctx_t ctx;
  CHECK(shmem_ctx_create(SHMEM_CTX_PRIVATE, &ctx) == 0, "a thread's context");
  for (int i = 0; i < 200; i++) shmem_ctx_long_atomic_add(ctx, &tally, which + 1, next);
  shmem_ctx_destroy(ctx);
  locked(10);
  return NULL;
}

int main(void)
{
  int lives, level, major, minor;
  shmem_query_initialized(&lives);
  CHECK(!lives, "no job yet");
  CHECK(shmem_init_thread(SHMEM_THREAD_MULTIPLE, &level) == 0 && level == SHMEM_THREAD_MULTIPLE, "level %d",
        level);
  begin();
  shmem_query_thread(&level);
  CHECK(level == SHMEM_THREAD_MULTIPLE, "level %d", level);
  char name[SHMEM_MAX_NAME_LEN];
  shmem_info_get_name(name);
  shmem_info_get_version(&major, &minor);
  CHECK(!strcmp(name, SHMEM_VENDOR_STRING) && major == SHMEM_MAJOR_VERSION && minor == SHMEM_MINOR_VERSION,
        "%s", name);
  shmem_pcontrol(1, 2, "three");
  memory();
  teams();
  contexts();
  shmem_barrier_all();
  guarded = 0;
  shmem_barrier_all();
  locked(20);
  shmem_barrier_all();
  if (me == n - 1) CHECK(guarded == 20 * n, "the counter is %ld", guarded);
  CHECK(lock == 0, "the lock is as it was: %ld", lock);
  if (me == 0) {
    CHECK(shmem_test_lock(&second_lock) == 0, "a free lock");
    shmem_clear_lock(&second_lock);
  }
  shmem_barrier_all();
  guarded = 0;
  shmem_barrier_all();
  pthread_t threads[4];
  int numbers[4] = {0, 1, 2, 3};
  for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, thread, &numbers[i]);
  for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
  shmem_barrier_all();
  CHECK(tally == 200 * (1 + 2 + 3 + 4), "the tally is %ld", tally);
  if (me == n - 1) CHECK(guarded == 40 * n, "the counter is %ld", guarded);
  /* Two initialisations, two ends; then all of it again. */
  shmem_finalize();
  shmem_query_initialized(&lives);
  CHECK(lives, "the job lives");
  shmem_finalize();
  shmem_query_initialized(&lives);
  CHECK(!lives && variable == 42 && tally == 2000, "variables keep their values");
  begin();
  tally = me;
  shmem_barrier_all();
  CHECK(shmem_long_g(&tally, next) == next, "variables are symmetric again");
  return end();
}
