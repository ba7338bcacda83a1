/* The host's functions, for every type, from the host and on a stream, on heaps of either kind: what a PE
 * puts into its right neighbour's memory is a formula of it. sets.h has the lists of types.
 *
 *   families [PART...]        rma collectives reductions atomics waits words teams rest; all of them without
 *                             arguments
 *   families prepare TYPE...  compiles the kernels of the reductions of that type, for runs to come: each
 *                             takes seconds, which several processes may spend at once
 *
 * PE 0 says each family as it begins, so that a run that hangs or is killed shows where. */
#include "check.h"

#include <stdbool.h>
#include <time.h>

#include "sets.h"

static int me, n, right, left, turns_of_reductions = 1;
static cudaStream_t stream;
static uint64_t salt;

static void say(const char *part, const char *what)
{
  static double begin;
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  const double seconds = (double) now.tv_sec + (double) now.tv_nsec * 1e-9;
  if (begin == 0) begin = seconds;
  if (me == 0) printf("%7.2f s: %s %s\n", seconds - begin, part, what);
  fflush(stdout);
}

#define VALUE(T, pe, i) ((T) (((uint64_t) (pe) * 37 + (uint64_t) (i) * 11 + salt) % 101))

/* The PE's own symmetric memory. */
#define LOAD(to, from, count) nvshmem_getmem(to, from, (count) * sizeof *(to), me)

static void meet(void)
{
  finish(stream);
  nvshmem_barrier_all();
}

#define RMA(NAME, T)                                                                        \
  static void rma_##NAME(char *a, uint64_t *sig)                                            \
  {                                                                                         \
    T *at = (T *) a, from[24], got[64];                                                     \
    for (int i = 0; i < 24; i++) from[i] = VALUE(T, me, i);                                 \
    nvshmem_##NAME##_put(at, from, 5, right);                                               \
    nvshmem_##NAME##_put_nbi(at + 5, from + 5, 5, right);                                   \
    nvshmem_##NAME##_p(at + 10, from[10], right);                                           \
    nvshmem_##NAME##_iput(at + 12, from, 2, 3, 4, right);                                   \
    nvshmem_##NAME##_put_signal(at + 20, from, 2, sig, 3, NVSHMEM_SIGNAL_SET, right);       \
    CHECK(nvshmem_signal_wait_until(sig, NVSHMEM_CMP_GE, 3) >= 3);                          \
    nvshmem_##NAME##_put_signal_nbi(at + 22, from, 2, sig, 2, NVSHMEM_SIGNAL_ADD, right);   \
    CHECK(nvshmem_signal_wait_until(sig, NVSHMEM_CMP_GT, 4) == 5);                          \
    nvshmemx_##NAME##_put_on_stream(at + 24, from, 4, right, stream);                       \
    nvshmemx_##NAME##_put_nbi_on_stream(at + 28, from, 4, right, stream);                   \
    nvshmemx_##NAME##_p_on_stream(at + 32, from[7], right, stream);                         \
    nvshmemx_##NAME##_iput_on_stream(at + 34, from, 3, 2, 3, right, stream);                \
    nvshmemx_##NAME##_put_signal_on_stream(at + 44, from, 3, sig + 1, 7, NVSHMEM_SIGNAL_SET, right, stream); \
    nvshmemx_signal_wait_until_on_stream(sig + 1, NVSHMEM_CMP_GE, 7, stream);               \
    nvshmemx_##NAME##_put_signal_nbi_on_stream(at + 48, from, 3, sig + 1, 1, NVSHMEM_SIGNAL_ADD, right, stream); \
    nvshmemx_signal_wait_until_on_stream(sig + 1, NVSHMEM_CMP_EQ, 8, stream);               \
    nvshmemx_quiet_on_stream(stream);                                                       \
    meet();                                                                                 \
    LOAD(got, at, 52);                                                                      \
    for (int i = 0; i < 11; i++) CHECK(got[i] == VALUE(T, left, i));                        \
    for (int i = 0; i < 4; i++) CHECK(got[12 + 2 * i] == VALUE(T, left, 3 * i));            \
    for (int i = 0; i < 8; i++) CHECK(got[24 + i] == VALUE(T, left, i % 4));                \
    CHECK(got[20] == VALUE(T, left, 0) && got[23] == VALUE(T, left, 1));                    \
    CHECK(got[32] == VALUE(T, left, 7) && got[11] == (T) 0 && got[33] == (T) 0);            \
    for (int i = 0; i < 3; i++) CHECK(got[34 + 3 * i] == VALUE(T, left, 2 * i));            \
    for (int i = 0; i < 3; i++) CHECK(got[44 + i] == VALUE(T, left, i) && got[48 + i] == VALUE(T, left, i)); \
    memset(got, 0, sizeof got);                                                             \
    nvshmem_##NAME##_get(got, at, 5, right);                                                \
    nvshmem_##NAME##_get_nbi(got + 5, at + 5, 5, right);                                    \
    nvshmem_quiet();                                                                        \
    got[10] = nvshmem_##NAME##_g(at + 10, right);                                           \
    nvshmem_##NAME##_iget(got + 12, at + 12, 1, 2, 4, right);                               \
    nvshmemx_##NAME##_get_on_stream(got + 20, at, 4, right, stream);                        \
    nvshmemx_##NAME##_get_nbi_on_stream(got + 24, at + 4, 4, right, stream);                \
    nvshmemx_##NAME##_iget_on_stream(got + 30, at + 12, 2, 2, 4, right, stream);            \
    got[40] = nvshmemx_##NAME##_g_on_stream(at + 3, right, stream);                         \
    finish(stream);                                                                         \
    for (int i = 0; i < 11; i++) CHECK(got[i] == VALUE(T, me, i));                          \
    for (int i = 0; i < 4; i++) CHECK(got[12 + i] == VALUE(T, me, 3 * i) && got[30 + 2 * i] == VALUE(T, me, 3 * i)); \
    for (int i = 0; i < 8; i++) CHECK(got[20 + i] == VALUE(T, me, i));                      \
    CHECK(got[40] == VALUE(T, me, 3));                                                      \
    static const char zeroes[1024];                                                         \
    meet();                                                                                 \
    nvshmem_putmem(a, zeroes, sizeof zeroes, me);                                           \
    nvshmem_putmem(sig, zeroes, 64, me);                                                    \
    meet();                                                                                 \
  }
FOR_RMA(RMA)

#define REDUCE(NAME, T)                                                                     \
  static void reduce_##NAME(char *a, char *b)                                               \
  {                                                                                         \
    T *to = (T *) a, *from = (T *) b, got[48], mine[48];                                    \
    for (int i = 0; i < 4 * n; i++) mine[i] = (T) ((int) VALUE(T, me, i) % 7);                    \
    nvshmem_putmem(from, mine, 4 * (size_t) n * sizeof(T), me);                             \
    nvshmem_barrier_all();                                                                  \
    for (int on = 0; on < (sizeof(T) == sizeof(int) ? 2 : turns_of_reductions); on++) {                                                        \
      if (on) {                                                                             \
        CHECK(nvshmemx_##NAME##_sum_reduce_on_stream(NVSHMEM_TEAM_WORLD, to, from, 4, stream) == 0); \
        CHECK(nvshmemx_##NAME##_max_reduce_on_stream(NVSHMEM_TEAM_WORLD, to + 4, from, 4, stream) == 0); \
        CHECK(nvshmemx_##NAME##_sum_reducescatter_on_stream(NVSHMEM_TEAM_WORLD, to + 8, from, 4, stream) == 0); \
        finish(stream);                                                                     \
      } else {                                                                              \
        CHECK(nvshmem_##NAME##_sum_reduce(NVSHMEM_TEAM_WORLD, to, from, 4) == 0);           \
        CHECK(nvshmem_##NAME##_max_reduce(NVSHMEM_TEAM_WORLD, to + 4, from, 4) == 0);       \
        CHECK(nvshmem_##NAME##_sum_reducescatter(NVSHMEM_TEAM_WORLD, to + 8, from, 4) == 0); \
      }                                                                                     \
      LOAD(got, to, 12);                                                                    \
      for (int i = 0; i < 4; i++) {                                                         \
        T sum = 0, most = 0, part = 0;                                                      \
        for (int pe = 0; pe < n; pe++) {                                                    \
          const T v = (T) ((int) VALUE(T, pe, i) % 7);                                      \
          sum = (T) (sum + v);                                                              \
          part = (T) (part + (T) ((int) VALUE(T, pe, 4 * me + i) % 7));                     \
          most = v > most ? v : most;                                                       \
        }                                                                                   \
        CHECK(got[i] == sum && got[4 + i] == most && got[8 + i] == part);                   \
      }                                                                                     \
      meet();                                                                               \
    }                                                                                       \
  }
#define WHOLE(X)                                                                            \
  X(char, t_char) X(short, t_short) X(int, t_int) X(long, t_long) X(ulonglong, t_ulonglong) X(uint8, t_uint8)     \
  X(int64, t_int64)
WHOLE(REDUCE)

#define COLLECT(NAME, T)                                                                    \
  static void collect_##NAME(char *a, char *b)                                              \
  {                                                                                         \
    T *to = (T *) a, *from = (T *) b, got[64], mine[64];                                    \
    for (int i = 0; i < 3 * n; i++) mine[i] = VALUE(T, me, i);                              \
    nvshmem_putmem(from, mine, 3 * (size_t) n * sizeof(T), me);                             \
    nvshmem_barrier_all();                                                                  \
    for (int on = 0; on < 2; on++) {                                                        \
      if (on) {                                                                             \
        CHECK(nvshmemx_##NAME##_broadcast_on_stream(NVSHMEM_TEAM_WORLD, to, from, 3, n - 1, stream) == 0); \
        CHECK(nvshmemx_##NAME##_fcollect_on_stream(NVSHMEM_TEAM_WORLD, to + 3, from, 3, stream) == 0); \
        CHECK(nvshmemx_##NAME##_alltoall_on_stream(NVSHMEM_TEAM_WORLD, to + 3 + 3 * n, from, 3, stream) == 0); \
        finish(stream);                                                                     \
      } else {                                                                              \
        CHECK(nvshmem_##NAME##_broadcast(NVSHMEM_TEAM_WORLD, to, from, 3, n - 1) == 0);     \
        CHECK(nvshmem_##NAME##_fcollect(NVSHMEM_TEAM_WORLD, to + 3, from, 3) == 0);         \
        CHECK(nvshmem_##NAME##_alltoall(NVSHMEM_TEAM_WORLD, to + 3 + 3 * n, from, 3) == 0); \
      }                                                                                     \
      LOAD(got, to, 3 + 6 * (size_t) n);                                                    \
      for (int i = 0; i < 3; i++) {                                                         \
        CHECK(got[i] == VALUE(T, n - 1, i));                                                \
        for (int pe = 0; pe < n; pe++) {                                                    \
          CHECK(got[3 + 3 * pe + i] == VALUE(T, pe, i));                                    \
          CHECK(got[3 + 3 * n + 3 * pe + i] == VALUE(T, pe, 3 * me + i));                   \
        }                                                                                   \
      }                                                                                     \
      meet();                                                                               \
    }                                                                                       \
  }
FOR_RMA(COLLECT)

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

static void bits(char *a, uint64_t *sig)
{
  uint64_t from[4], got[4];
  for (int i = 0; i < 4; i++) from[i] = VALUE(uint64_t, me, i);
#define WIDTH(S)                                                                            \
  nvshmem_put##S(a, from, 1, right);                                       \
  nvshmemx_put##S##_on_stream(a + 64, from, 1, right, stream);                              \
  meet();                                                                                   \
  memset(got, 0, sizeof got);                                                               \
  nvshmemx_get##S##_on_stream(got, a, 1, me, stream);                                       \
  finish(stream);                                                                           \
  CHECK(memcmp(got, (uint64_t[]){VALUE(uint64_t, left, 0), VALUE(uint64_t, left, 1)}, S / 8) == 0); \
  nvshmem_get##S(got, a + 64, 1, me);                                                       \
  CHECK(memcmp(got, (uint64_t[]){VALUE(uint64_t, left, 0), VALUE(uint64_t, left, 1)}, S / 8) == 0); \
  meet();
  WIDTH(8)
  WIDTH(16)
  WIDTH(32)
  WIDTH(64)
  WIDTH(128)
  nvshmemx_putmem_signal_on_stream(a, from, 32, sig + 5, 9, NVSHMEM_SIGNAL_SET, right, stream);
  nvshmemx_signal_wait_until_on_stream(sig + 5, NVSHMEM_CMP_EQ, 9, stream);
  nvshmemx_signal_op_on_stream(sig + 6, 4, NVSHMEM_SIGNAL_ADD, right, stream);
  meet();
  CHECK(nvshmem_signal_fetch(sig + 6) == 4);
  nvshmem_getmem(got, a, 32, me);
  for (int i = 0; i < 4; i++) CHECK(got[i] == VALUE(uint64_t, left, i));
  nvshmem_barrier_all();
  nvshmemx_signal_op(sig + 6, 1, NVSHMEM_SIGNAL_SET, right);
  CHECK(nvshmem_signal_wait_until(sig + 6, NVSHMEM_CMP_LE, 1) == 1);
  nvshmemx_signal_counted_reset(sig + 6);
  CHECK(nvshmem_signal_fetch(sig + 6) == 0);
  nvshmem_barrier_all();
}

static void teams(void)
{
  CHECK(nvshmem_team_my_pe(NVSHMEM_TEAM_WORLD) == me && nvshmem_team_n_pes(NVSHMEM_TEAM_WORLD) == n);
  CHECK(nvshmem_team_my_pe(NVSHMEM_TEAM_INVALID) == -1);
  nvshmem_team_config_t config = NVSHMEM_TEAM_CONFIG_INITIALIZER, said;
  config.num_contexts = 3;
  nvshmem_team_t team, row, column;
  CHECK(nvshmem_team_split_strided(NVSHMEM_TEAM_WORLD, n - 1, -1, n, &config, NVSHMEM_TEAM_NUM_CONTEXTS, &team) == 0);
  CHECK(nvshmem_team_my_pe(team) == n - 1 - me && nvshmem_team_translate_pe(team, 0, NVSHMEM_TEAM_WORLD) == n - 1);
  nvshmem_team_get_config(team, &said);
  CHECK(said.num_contexts == 3);
  CHECK(nvshmem_barrier(team) == 0 && nvshmem_team_sync(team) == 0);
  CHECK(nvshmemx_barrier_on_stream(team, stream) == 0 && nvshmemx_team_sync_on_stream(team, stream) == 0);
  meet();
  nvshmem_team_destroy(team);
  CHECK(nvshmem_team_split_2d(NVSHMEM_TEAM_WORLD, 2, NULL, 0, &row, NULL, 0, &column) == 0);
  CHECK(nvshmem_team_my_pe(row) == me % 2 && nvshmem_team_my_pe(column) == me / 2);
  nvshmem_team_destroy(row);
  nvshmem_team_destroy(column);
  CHECK(nvshmem_team_split_strided(NVSHMEM_TEAM_WORLD, 0, 1, n + 1, NULL, 0, &team) != 0 && team == NVSHMEM_TEAM_INVALID);
  nvshmemx_team_uniqueid_t id = 0;
  if (me == 0) CHECK(nvshmemx_team_get_uniqueid(&id) == 0 && id != 0);
  nvshmem_uint64_broadcast(NVSHMEM_TEAM_WORLD, &id, &id, 1, 0);
  config.uniqueid = id;
  CHECK(nvshmemx_team_init(&team, &config, NVSHMEM_TEAM_CONFIG_MASK_UNIQUEID, n, right) == 0);
  CHECK(nvshmem_team_my_pe(team) == right && nvshmem_team_n_pes(team) == n);
  nvshmem_team_destroy(team);
  say("teams", "again and again");
  /* Numbers are used again. */
  for (int i = 0; i < 100; i++) {
    CHECK(nvshmem_team_split_strided(NVSHMEM_TEAM_WORLD, 0, 1, n, NULL, 0, &team) == 0 && team == NVSHMEM_TEAMS_MIN);
    nvshmem_team_destroy(team);
  }
}

static void rest(char *a)
{
  int major, minor, patch;
  char name[NVSHMEM_MAX_NAME_LEN];
  nvshmem_info_get_version(&major, &minor);
  CHECK(major == NVSHMEM_MAJOR_VERSION && minor == NVSHMEM_MINOR_VERSION);
  nvshmemx_vendor_get_version_info(&major, &minor, &patch);
  CHECK(major == 3);
  nvshmem_info_get_name(name);
  CHECK(!strcmp(name, NVSHMEM_VENDOR_STRING));
  CHECK(nvshmemx_init_status() == NVSHMEM_STATUS_IS_INITIALIZED);
  nvshmem_query_thread(&major);
  CHECK(major == NVSHMEM_THREAD_MULTIPLE);
  CHECK(nvshmem_ptr(a, me) == a && nvshmemx_mc_ptr(NVSHMEM_TEAM_WORLD, a) == NULL);
  CHECK(nvshmem_ptr(&major, me) == NULL && nvshmem_malloc(0) == NULL);
  char *aligned = nvshmem_align(4096, 100);
  CHECK(aligned && (uintptr_t) aligned % 4096 == 0);
  nvshmem_free(aligned);
  char local[64] = "";
  CHECK(nvshmemx_buffer_register(local, sizeof local) == 0 && nvshmemx_buffer_unregister(local) == 0);
  nvshmemx_buffer_unregister_all();
  CHECK(nvshmemx_buffer_register(NULL, 0) != 0);
  nvshmemx_qp_handle_t *queues = NULL;
  CHECK(nvshmemx_qp_create(2, &queues) == 0 && queues);
  free(queues);
  nvshmemx_region_handle_t region;
  CHECK(nvshmemx_region_start(&region, NULL) == 0 && nvshmemx_region_stop(region) == 0);
  CHECK(nvshmemx_cumodule_init(NULL) != 0);
  CHECK(!strcmp(nvshmemx_status_string(NVSHMEMX_SUCCESS), "success"));
  nvshmem_fence();
  nvshmemx_flush();
  nvshmemx_flush_on_stream(stream);
  nvshmemx_sync_all_on_stream(stream);
  nvshmemx_barrier_all_on_stream(stream);
  meet();
  nvshmem_sync_all();
}

static void clear(char *a)
{
  static const char zeroes[8192];
  nvshmem_putmem(a, zeroes, sizeof zeroes, me);
  nvshmem_barrier_all();
}

static bool is_asked(int argc, char **argv, const char *part)
{
  for (int i = 1; i < argc; i++)
    if (!strcmp(argv[i], part)) return true;
  return argc < 2;
}

/* The runtime's type of whole numbers. */
#define WHOLE_OF(T)                                                                         \
  (sizeof(T) == 1 ? ONE_OF(T, 8) : sizeof(T) == 2 ? ONE_OF(T, 16) : sizeof(T) == 4 ? ONE_OF(T, 32) : ONE_OF(T, 64))
#define ONE_OF(T, bits) ((T) -1 < (T) 1 ? RUSHMEM_INT##bits : RUSHMEM_UINT##bits)

static void prepare(int count, char **types)
{
  rushmem_team_t *team;
  CHECK(rushmem_team_world(world(), &team) == RUSHMEM_OK);
#define PREPARE(NAME, T)                                                                    \
  if (is_asked(count, types, #NAME)) {                                                      \
    say("prepare", #NAME);                                                                  \
    CHECK(rushmem_team_prepare(team, "reduce", WHOLE_OF(T), RUSHMEM_SUM) == RUSHMEM_OK);    \
    CHECK(rushmem_team_prepare(team, "reduce", WHOLE_OF(T), RUSHMEM_MAX) == RUSHMEM_OK);    \
    CHECK(rushmem_team_prepare(team, "reducescatter", WHOLE_OF(T), RUSHMEM_SUM) == RUSHMEM_OK); \
  }
  WHOLE(PREPARE)
}

int main(int argc, char **argv)
{
  if (nvshmemx_init_status() != NVSHMEM_STATUS_NOT_INITIALIZED) return 1;
  int provided;
  if (nvshmem_init_thread(NVSHMEM_THREAD_SERIALIZED, &provided) != 0) return 1;
  nvshmem_init(); /* counted */
  me = nvshmem_my_pe(), n = nvshmem_n_pes();
  right = (me + 1) % n, left = (me + n - 1) % n;
  if (argc > 2 && !strcmp(argv[1], "prepare")) {
    prepare(argc - 1, argv + 1);
    all_well();
    nvshmem_finalize();
    nvshmem_finalize();
    return 0;
  }
  CHECK(rushmem_stream_create(world(), (void **) &stream) == RUSHMEM_OK);
  char *a = nvshmem_calloc(1, 8192), *b = nvshmem_calloc(1, 8192);
  uint64_t *sig = nvshmem_calloc(16, sizeof *sig);
  CHECK(a && b && sig);
  /* On streams each type and operator is a kernel that is compiled first: those of words of an int do. */
  if (getenv("RUSHMEM_TEST_ROUNDS")) turns_of_reductions = 2;
  /* Each PE's clock is another one. */
  salt = (uint64_t) time(NULL);
  nvshmem_uint64_broadcast(NVSHMEM_TEAM_WORLD, &salt, &salt, 1, 0);
#define SAID(part, name, call) say(part, #name), call;
#define CALL_RMA(NAME, T) SAID("rma", NAME, rma_##NAME(a, sig))
#define CALL_COLLECT(NAME, T) SAID("collectives", NAME, collect_##NAME(a, b))
#define CALL_REDUCE(NAME, T) SAID("reductions", NAME, reduce_##NAME(a, b))
#define CALL_AMO(NAME, T) SAID("atomics", NAME, amo_##NAME(a))
#define CALL_WAIT(NAME, T) SAID("waits", NAME, wait_##NAME(a))
  if (is_asked(argc, argv, "rma")) {
    FOR_RMA(CALL_RMA)
  }
  if (is_asked(argc, argv, "collectives")) {
    FOR_RMA(CALL_COLLECT)
    clear(a);
  }
  if (is_asked(argc, argv, "reductions")) {
    WHOLE(CALL_REDUCE)
    clear(a);
  }
  if (is_asked(argc, argv, "atomics")) {
    FOR_AMO(CALL_AMO)
    SAID("atomics", float, sum_float(a))
    SAID("atomics", double, sum_double(a))
    SAID("atomics", half, sum_half(a))
    clear(a);
  }
  if (is_asked(argc, argv, "waits")) {
    FOR_WAIT(CALL_WAIT)
  }
  if (is_asked(argc, argv, "words")) SAID("words", by width, bits(a, sig))
  if (is_asked(argc, argv, "teams")) SAID("teams", of all kinds, teams())
  if (is_asked(argc, argv, "rest")) SAID("rest", of the interface, rest(a))
  say("end", "");
  CHECK(rushmem_stream_destroy(world(), stream) == RUSHMEM_OK);
  nvshmem_free(sig);
  nvshmem_free(b);
  nvshmem_free(a);
  nvshmem_finalize();
  all_well();
  nvshmem_finalize();
  return 0;
}
