/* Statements of the specification's chapters that no other program here tells: bindings, constants, handles,
 * beginning and end, memory, teams, contexts, sessions, order and locks. Chapters are those of 1.6. */
#include <limits.h>
#include <mpp/shmem.h>
#include <mpp/shmemx.h>
#include <shmemx.h>
#include <stddef.h>
#include <unistd.h>

#include "check.h"

enum { LARGE = 1 << 16 };
static long word, inbox[LARGE], source[LARGE];

/* 6 and 7: constant expressions where C wants them, and handles in initialisers. */
static const shmem_team_t team_handles[] = {SHMEM_TEAM_WORLD, SHMEM_TEAM_SHARED, SHMEM_TEAM_INVALID};
static const shmem_ctx_t context_handles[] = {SHMEM_CTX_DEFAULT, SHMEM_CTX_INVALID};
_Static_assert(SHMEM_THREAD_SINGLE < SHMEM_THREAD_FUNNELED &&
                   SHMEM_THREAD_FUNNELED < SHMEM_THREAD_SERIALIZED &&
                   SHMEM_THREAD_SERIALIZED < SHMEM_THREAD_MULTIPLE,
               "increasing");
_Static_assert(sizeof SHMEM_VENDOR_STRING <= SHMEM_MAX_NAME_LEN, "with its null character");
_Static_assert(SHMEM_SYNC_SIZE >= SHMEM_BARRIER_SYNC_SIZE && SHMEM_SYNC_SIZE >= SHMEM_BCAST_SYNC_SIZE &&
                   SHMEM_SYNC_SIZE >= SHMEM_COLLECT_SYNC_SIZE && SHMEM_SYNC_SIZE >= SHMEM_REDUCE_SYNC_SIZE &&
                   SHMEM_SYNC_SIZE >= SHMEM_ALLTOALL_SYNC_SIZE &&
                   SHMEM_SYNC_SIZE >= SHMEM_ALLTOALLS_SYNC_SIZE,
               "for any collective");
#if SHMEM_MAJOR_VERSION != 1 || _SHMEM_MINOR_VERSION != SHMEM_MINOR_VERSION
#error "versions are for the preprocessor, too"
#endif

static void constants(void)
{
  for (int cmp = 0; cmp < 1; cmp++) switch (cmp) {
    case SHMEM_CMP_EQ:
    case SHMEM_CMP_NE:
    case SHMEM_CMP_GT:
    case SHMEM_CMP_GE:
    case SHMEM_CMP_LT:
    case SHMEM_CMP_LE: break;
    }
  switch (SHMEM_SIGNAL_ADD) {
  case SHMEM_SIGNAL_SET: CHECK(0, "two operators");
  case SHMEM_SIGNAL_ADD: break;
  }
  const long options[] = {SHMEM_CTX_SERIALIZED, SHMEM_CTX_PRIVATE, SHMEM_CTX_NOSTORE};
  CHECK(!(options[0] & options[1]) && !(options[0] & options[2]) && !(options[1] & options[2]), "bits");
  CHECK(!(SHMEM_MALLOC_ATOMICS_REMOTE & SHMEM_MALLOC_SIGNAL_REMOTE), "bits");
  CHECK(team_handles[0] != team_handles[1] && team_handles[0] != team_handles[2] &&
            team_handles[1] != team_handles[2] && context_handles[0] != context_handles[1],
        "handles");
  const long sync[] = {_SHMEM_SYNC_VALUE, _SHMEM_BARRIER_SYNC_SIZE, _SHMEM_BCAST_SYNC_SIZE,
                       _SHMEM_COLLECT_SYNC_SIZE, _SHMEM_REDUCE_SYNC_SIZE, _SHMEM_REDUCE_MIN_WRKDATA_SIZE};
  CHECK(sync[0] == SHMEM_SYNC_VALUE && sync[5] == SHMEM_REDUCE_MIN_WRKDATA_SIZE, "old names");
  CHECK(_SHMEM_CMP_EQ == SHMEM_CMP_EQ && _SHMEM_CMP_LE == SHMEM_CMP_LE &&
            _SHMEM_MAX_NAME_LEN == SHMEM_MAX_NAME_LEN && _SHMEM_MAJOR_VERSION == SHMEM_MAJOR_VERSION &&
            !strcmp(_SHMEM_VENDOR_STRING, SHMEM_VENDOR_STRING),
        "old names");
}

/* A large put and a nonblocking one, which are there behind a barrier: whether `what` is one. */
#define COMPLETES(what)                                                                                      \
  do {                                                                                                       \
    round++;                                                                                                 \
    for (int i = 0; i < LARGE; i++) source[i] = number(me, i, round), inbox[i] = 0;                          \
    shmem_barrier_all();                                                                                     \
    shmem_ctx_long_put_nbi(by, inbox, source, LARGE - 1, next);                                              \
    shmem_ctx_long_p(by, &inbox[LARGE - 1], source[LARGE - 1], next);                                        \
    what;                                                                                                    \
    shmem_long_get(back, inbox, LARGE, me);                                                                  \
    for (int i = 0; i < LARGE; i++)                                                                          \
      CHECK(back[i] == number(prev, i, round), "%s completes what was put: %d", #what, i);                   \
    shmem_barrier_all();                                                                                     \
  } while (0)

/* 9.1: initialisations and finalisations but the last are barriers. 9.3: so are memory's routines. */
static void barriers(void)
{
  static long back[LARGE];
  static int round;
  long *block, *other = shmem_malloc(64);
  shmem_ctx_t ctx, by = SHMEM_CTX_DEFAULT;
  int level, again;
  shmem_query_thread(&level);
  COMPLETES(shmem_init());
  COMPLETES(CHECK(shmem_init_thread(SHMEM_THREAD_SINGLE, &again) == 0, "again"));
  CHECK(again == level, "the level is %d, and was %d", again, level);
  COMPLETES(shmem_finalize());
  COMPLETES(start_pes(7); shmem_finalize());
  COMPLETES(block = shmem_malloc(40));
  COMPLETES(shmem_free(block));
  COMPLETES(block = shmem_calloc(3, 5));
  COMPLETES(block = shmem_realloc(block, 4000));
  COMPLETES(CHECK(shmem_realloc(block, 0) == NULL, "freed"));
  COMPLETES(block = shmem_align(128, 40));
  COMPLETES(shmem_free(block));
  COMPLETES(block = shmem_malloc_with_hints(8, SHMEM_MALLOC_SIGNAL_REMOTE));
  COMPLETES(shfree(block));
  COMPLETES(shmem_barrier_all());
  /* Other contexts' operations, too: docs/openshmem.md. */
  CHECK(shmem_ctx_create(0, &ctx) == 0, "a context");
  by = ctx;
  COMPLETES(shmem_barrier_all());
  by = SHMEM_CTX_DEFAULT;
  shmem_ctx_destroy(ctx);
  COMPLETES(shmem_quiet(); shmem_sync_all());
  COMPLETES(shmem_pe_quiet((int[]){next, next}, 2); CHECK(shmem_team_sync(SHMEM_TEAM_WORLD) == 0, "sync"));
  static long psync[SHMEM_BARRIER_SYNC_SIZE];
  COMPLETES(shmem_barrier(0, 0, n, psync));
  shmem_free(other);
}

/* 9.1 and 3: what is symmetric, and where loads reach it. */
static void addresses(void)
{
  long here = 0, *heap = shmem_malloc(1);
  CHECK((uintptr_t) heap % _Alignof(max_align_t) == 0, "%p", (void *) heap);
  for (int pe = -1; pe <= n; pe++) {
    const int there = pe >= 0 && pe < n;
    CHECK(shmem_pe_accessible(pe) == there, "PE %d", pe);
    CHECK(shmem_addr_accessible(&word, pe) == there && shmem_addr_accessible(heap, pe) == there, "PE %d", pe);
    CHECK(!shmem_addr_accessible(&here, pe) && !shmem_addr_accessible(NULL, pe), "PE %d", pe);
    CHECK(!shmem_addr_accessible(stdout, pe), "PE %d", pe);
  }
  const shmem_team_t world = SHMEM_TEAM_WORLD, shared = SHMEM_TEAM_SHARED;
  word = 100 + me, *(char *) heap = (char) (3 + me);
  shmem_barrier_all();
  for (int pe = 0; pe < n; pe++) {
    const int in_shared = shmem_team_translate_pe(world, pe, shared);
    const long *theirs = shmem_ptr(&word, pe);
    const char *there = shmem_ptr(heap, pe);
    CHECK((there != NULL) == (in_shared >= 0) && (theirs != NULL) == (in_shared >= 0), "PE %d", pe);
    CHECK(shmem_team_ptr(world, &word, pe) == theirs && shmem_ptr(&here, pe) == NULL, "PE %d", pe);
    CHECK(shmem_ptr(NULL, pe) == NULL, "PE %d", pe);
    if (!theirs) continue;
    CHECK(*theirs == 100 + pe && *there == 3 + pe, "PE %d has %ld, %d", pe, *theirs, *there);
    CHECK(shmem_team_ptr(shared, &word, in_shared) == theirs, "PE %d", pe);
    CHECK(shmem_team_translate_pe(shared, in_shared, world) == pe, "PE %d", pe);
  }
  CHECK(shmem_ptr(&word, me) == &word, "its own");
  shmem_free(heap);
}

/* 9.3: what does nothing waits for nobody. 9.6 and 9.12: nor do operations of nothing. */
static void by_one_pe_alone(void)
{
  if (me != n - 1) return;
  CHECK(!shmem_malloc(0) && !shmem_calloc(0, 8) && !shmem_calloc(8, 0) && !shmem_align(64, 0), "nothing");
  CHECK(!shmem_malloc_with_hints(0, SHMEM_MALLOC_ATOMICS_REMOTE) && !shmem_realloc(NULL, 0), "nothing");
  shmem_free(NULL);
  shmem_pe_quiet(NULL, 0);
  shmem_fence();
}

static void team_is(shmem_team_t team, shmem_team_t parent, int start, int stride, int size)
{
  const int mine = shmem_team_my_pe(parent);
  int index = -1;
  for (int i = 0; i < size; i++)
    if (start + i * stride == mine) index = i;
  CHECK((team == SHMEM_TEAM_INVALID) == (index < 0), "%d, %d, %d", start, stride, size);
  CHECK(shmem_team_my_pe(team) == index, "%d, %d, %d: %d", start, stride, size, shmem_team_my_pe(team));
  CHECK(shmem_team_n_pes(team) == (index < 0 ? -1 : size), "%d, %d, %d", start, stride, size);
  if (index < 0) return;
  /* At once, with no synchronisation between: a collective of it and of its parent. */
  static long sum, part;
  part = mine;
  CHECK(shmem_long_sum_reduce(team, &sum, &part, 1) == 0, "a reduction");
  CHECK(sum == (long) size * start + (long) stride * size * (size - 1) / 2, "sum %ld", sum);
  for (int pe = -2; pe <= size + 1; pe++) {
    const int there = pe >= 0 && pe < size;
    CHECK(shmem_team_translate_pe(team, pe, parent) == (there ? start + pe * stride : -1), "PE %d", pe);
  }
  for (int pe = 0; pe < shmem_team_n_pes(parent); pe++) {
    const int distance = pe - start;
    const int at = stride == 0 ? distance == 0 ? 0 : -1 : distance % stride == 0 ? distance / stride : -1;
    CHECK(shmem_team_translate_pe(parent, pe, team) == (at >= 0 && at < size ? at : -1), "PE %d", pe);
  }
}

/* 9.4: every triplet around each boundary, of the world or a team of it. */
static void split_strided(shmem_team_t parent)
{
  const int p = shmem_team_n_pes(parent);
  const int starts[] = {0, 1, p / 2, p - 1, p, -1}, strides[] = {1, 2, 3, 0, -1, -2, INT_MAX, INT_MIN};
  const int sizes[] = {1, 2, (p + 1) / 2, p, p + 1, 0, -1, INT_MAX};
  for (int a = 0; a < 6; a++)
    for (int b = 0; b < 8; b++)
      for (int c = 0; c < 8; c++) {
        const long start = starts[a], stride = strides[b], size = sizes[c];
        const long last = start + stride * (size - 1);
        const int valid = start >= 0 && start < p && size >= 1 && size <= p && last >= 0 && last < p &&
                          (stride != 0 || size == 1);
        shmem_team_t made = SHMEM_TEAM_WORLD;
        const int code = shmem_team_split_strided(parent, (int) start, (int) stride, (int) size, NULL, 0,
                                                  &made);
        CHECK((code == 0) == valid, "%ld, %ld, %ld of %d gives %d", start, stride, size, p, code);
        if (valid)
          team_is(made, parent, (int) start, (int) stride, (int) size);
        else
          CHECK(made == SHMEM_TEAM_INVALID, "%ld, %ld, %ld of %d", start, stride, size, p);
        shmem_team_destroy(made);
      }
}

static void split_2d(shmem_team_t parent)
{
  const int p = shmem_team_n_pes(parent), mine = shmem_team_my_pe(parent);
  const int ranges[] = {1, 2, 3, p - 1, p, p + 1, INT_MAX, 0, -1, INT_MIN};
  for (int i = 0; i < 10; i++) {
    shmem_team_t x = SHMEM_TEAM_WORLD, y = SHMEM_TEAM_WORLD;
    const int code = shmem_team_split_2d(parent, ranges[i], NULL, 0, &x, NULL, 0, &y);
    CHECK((code == 0) == (ranges[i] > 0), "xrange %d of %d gives %d", ranges[i], p, code);
    if (ranges[i] <= 0) {
      CHECK(x == SHMEM_TEAM_INVALID && y == SHMEM_TEAM_INVALID, "xrange %d", ranges[i]);
      continue;
    }
    const int width = ranges[i] < p ? ranges[i] : p, row = mine / width, column = mine % width;
    const int in_row = (row + 1) * width <= p ? width : p - row * width;
    team_is(x, parent, row * width, 1, in_row);
    team_is(y, parent, column, width, (p - column + width - 1) / width);
    shmem_team_destroy(y);
    shmem_team_destroy(x);
  }
}

static void teams(void)
{
  shmem_team_t back, odd, half, none = SHMEM_TEAM_WORLD, other = SHMEM_TEAM_WORLD;
  shmem_team_config_t config = {.num_contexts = 9}, got = {.num_contexts = -7};
  CHECK(shmem_team_split_strided(SHMEM_TEAM_WORLD, n - 1, -1, n, &config, 0, &back) == 0, "reversed");
  /* Without its bit in the mask the default is taken. */
  CHECK(shmem_team_get_config(back, SHMEM_TEAM_NUM_CONTEXTS, &got) == 0 && got.num_contexts == 0, "%d",
        got.num_contexts);
  got.num_contexts = -7;
  CHECK(shmem_team_get_config(back, 0, NULL) == 0 && shmem_team_get_config(back, 0, &got) == 0 &&
            got.num_contexts == -7,
        "no bits");
  CHECK(shmem_team_get_config(SHMEM_TEAM_WORLD, SHMEM_TEAM_NUM_CONTEXTS, &got) == 0, "the world's");
  CHECK(shmem_team_get_config(SHMEM_TEAM_INVALID, SHMEM_TEAM_NUM_CONTEXTS, &got) != 0, "of none");
  CHECK(shmem_team_split_2d(SHMEM_TEAM_INVALID, 1, NULL, 0, &none, NULL, 0, &other) != 0 &&
            none == SHMEM_TEAM_INVALID && other == SHMEM_TEAM_INVALID,
        "of none");
  CHECK(shmem_team_translate_pe(SHMEM_TEAM_INVALID, 0, SHMEM_TEAM_WORLD) == -1, "of none");
  split_strided(SHMEM_TEAM_WORLD);
  split_2d(SHMEM_TEAM_WORLD);
  split_2d(back);
  split_2d(SHMEM_TEAM_SHARED);
  /* Teams of teams, and operations in their numbers: every other one of the reversed world, then a half. */
  CHECK(shmem_team_split_strided(back, 0, 2, (n + 1) / 2, NULL, 0, &odd) == 0, "every other one");
  if (odd != SHMEM_TEAM_INVALID) {
    const int size = shmem_team_n_pes(odd), mine = shmem_team_my_pe(odd);
    split_strided(odd);
    CHECK(shmem_team_split_strided(odd, size / 2, 1, size - size / 2, NULL, 0, &half) == 0, "a half");
    shmem_ctx_t ctx = SHMEM_CTX_DEFAULT;
    shmem_team_t of;
    CHECK(shmem_team_create_ctx(odd, SHMEM_CTX_SERIALIZED | SHMEM_CTX_NOSTORE, &ctx) == 0, "a context");
    CHECK(shmem_ctx_get_team(ctx, &of) == 0 && of == odd, "its team");
    static long slots[8];
    memset(slots, 0, sizeof slots);
    CHECK(shmem_team_sync(odd) == 0, "sync");
    for (int pe = 0; pe < size; pe++) shmem_ctx_long_atomic_add(ctx, &slots[mine], 5 + pe, pe);
    shmem_ctx_pe_quiet(ctx, (int[]){0, size - 1}, 2);
    shmem_ctx_quiet(ctx);
    CHECK(shmem_team_sync(odd) == 0, "sync");
    for (int pe = 0; pe < size; pe++) CHECK(slots[pe] == 5 + mine, "from %d: %ld", pe, slots[pe]);
    CHECK(shmem_ctx_long_g(ctx, &slots[0], size - 1) == 5 + size - 1, "the last one's");
    CHECK(shmem_team_sync(odd) == 0, "sync");
    shmem_team_destroy(half);
  }
  /* With the context that is left of it. */
  shmem_team_destroy(odd);
  shmem_team_destroy(back);
}

/* 9.5 and 9.9. */
static void contexts(void)
{
  shmem_ctx_t ctx = SHMEM_CTX_DEFAULT;
  CHECK(shmem_ctx_create(1L << 40, &ctx) != 0 && ctx == SHMEM_CTX_INVALID, "an option that is none");
  ctx = SHMEM_CTX_DEFAULT;
  CHECK(shmem_team_create_ctx(SHMEM_TEAM_INVALID, 0, &ctx) != 0 && ctx == SHMEM_CTX_INVALID, "of no team");
  shmem_ctx_fence(SHMEM_CTX_INVALID);
  shmem_ctx_quiet(SHMEM_CTX_INVALID);
  shmem_ctx_destroy(SHMEM_CTX_INVALID);
  shmem_ctx_session_start(SHMEM_CTX_INVALID, ~0L, NULL, 0);
  shmem_ctx_session_stop(SHMEM_CTX_INVALID);
  const shmem_ctx_session_config_t ops = {.total_ops = 3};
  static long slot;
  for (int i = 0; i < 3; i++) {
    CHECK(i == 2 ? (ctx = SHMEM_CTX_DEFAULT, 1)
                 : (i ? shmem_team_create_ctx(SHMEM_TEAM_SHARED, 0, &ctx) : shmem_ctx_create(0, &ctx)) == 0,
          "context %d", i);
    const int to = i == 1 ? shmem_team_n_pes(SHMEM_TEAM_SHARED) - 1 : n - 1;
    shmem_ctx_session_stop(ctx);
    shmem_ctx_session_start(ctx, SHMEM_CTX_SESSION_BATCH, &ops, SHMEM_CTX_SESSION_TOTAL_OPS);
    shmem_ctx_session_start(ctx, ~0L, NULL, 0);
    shmem_ctx_long_atomic_inc(ctx, &slot, to);
    shmem_ctx_session_stop(ctx);
    shmem_ctx_session_stop(ctx);
    if (i < 2) shmem_ctx_destroy(ctx);
  }
  shmem_barrier_all();
  const int shared = shmem_team_n_pes(SHMEM_TEAM_SHARED);
  CHECK(slot == (me == n - 1 ? 2 * n : 0) + (shmem_team_my_pe(SHMEM_TEAM_SHARED) == shared - 1 ? shared : 0),
        "%ld", slot);
}

/* 9.13: a lock keeps order in memory, too: what its holder put without waiting, the next one gets. */
static void locks(void)
{
  enum { PART = 500, ROUNDS = 6 };
  long *lock = shmem_calloc(3, sizeof *lock), *shared = shmem_calloc(PART + 1, sizeof *shared);
  long part[PART + 1];
  const int owner = n / 2;
  for (int round = 0; round < ROUNDS; round++) {
    shmem_set_lock(&lock[1]);
    shmem_long_get(part, shared, PART + 1, owner);
    for (int i = 1; i <= PART; i++) CHECK(part[i] == part[0], "place %d is %ld of %ld", i, part[i], part[0]);
    for (int i = 0; i <= PART; i++) part[i]++;
    shmem_long_put_nbi(shared, part, PART + 1, owner);
    shmem_clear_lock(&lock[1]);
  }
  shmem_barrier_all();
  if (me == owner) CHECK(shared[PART] == (long) ROUNDS * n, "%ld", shared[PART]);
  /* Set by one, it is 1 for all others; two locks at once are two. */
  if (me == owner) {
    CHECK(shmem_test_lock(&lock[0]) == 0, "a free lock");
    shmem_set_lock(&lock[2]);
  }
  shmem_barrier_all();
  if (me != owner)
    CHECK(shmem_test_lock(&lock[0]) == 1 && shmem_test_lock(&lock[2]) == 1, "locks that are set");
  shmem_barrier_all();
  if (me == owner) shmem_clear_lock(&lock[2]), shmem_clear_lock(&lock[0]);
  shmem_barrier_all();
  CHECK(lock[0] == 0 && lock[2] == 0, "as it was");
}

int main(void)
{
  int lives = 7;
  shmem_query_initialized(&lives);
  CHECK(lives == 0, "not yet");
  begin();
  constants();
  by_one_pe_alone();
  addresses();
  barriers();
  teams();
  contexts();
  locks();
  return end();
}
