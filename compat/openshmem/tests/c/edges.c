/* Edges of the specification's transfers, waits and collectives: nothing to move and null pointers, extreme
 * values of each type, comparisons, masks, fairness, roots, teams of one. Chapters are those of 1.6. */
#include <limits.h>
#include <math.h>

#include "check.h"

/* Annex C: "len is 0, pointer is null: supported", and so is a pointer that is not null. */
static void nothing_of_memory(shmem_ctx_t ctx, void *any)
{
  static uint64_t sig;
#define NOTHING(T, N)                                                                                        \
  shmem_##N##_put((T *) any, (T *) any, 0, next), shmem_ctx_##N##_put(ctx, (T *) any, (T *) any, 0, next);   \
  shmem_##N##_get((T *) any, (T *) any, 0, next), shmem_ctx_##N##_get(ctx, (T *) any, (T *) any, 0, next);   \
  shmem_##N##_put_nbi((T *) any, (T *) any, 0, next), shmem_##N##_get_nbi((T *) any, (T *) any, 0, next);    \
  shmem_##N##_iput((T *) any, (T *) any, 1, 2, 0, next);                                                     \
  shmem_##N##_iget((T *) any, (T *) any, 2, 1, 0, next);                                                     \
  shmem_##N##_ibput((T *) any, (T *) any, 4, 4, 4, 0, next);                                                 \
  shmem_##N##_ibget((T *) any, (T *) any, 4, 4, 0, 4, next);                                                 \
  shmem_##N##_put_signal((T *) any, (T *) any, 0, &sig, 1, SHMEM_SIGNAL_ADD, next), signals++;               \
  shmem_ctx_##N##_put_signal_nbi(ctx, (T *) any, (T *) any, 0, &sig, 1, SHMEM_SIGNAL_ADD, next), signals++;
  static uint64_t signals;
  FOR_RMA(NOTHING)
  shmem_putmem(any, any, 0, next), shmem_getmem_nbi(any, any, 0, next), shmem_put128(any, any, 0, next);
  shmem_iput16(any, any, 1, 1, 0, next), shmem_ibget64(any, any, 1, 1, 1, 0, next);
  /* The signal goes without data, too. */
  CHECK(shmem_signal_wait_until(&sig, SHMEM_CMP_GE, signals) == signals, "signals");
  shmem_barrier_all();
}

static void nothing_of_collectives(shmem_team_t team, void *any)
{
  const int last = shmem_team_n_pes(team) - 1;
#define MOVES_NOTHING(T, N)                                                                                  \
  CHECK(!shmem_##N##_broadcast(team, (T *) any, (T *) any, 0, last), #N);                                    \
  CHECK(!shmem_##N##_collect(team, (T *) any, (T *) any, 0), #N);                                            \
  CHECK(!shmem_##N##_fcollect(team, (T *) any, (T *) any, 0), #N);                                           \
  CHECK(!shmem_##N##_alltoall(team, (T *) any, (T *) any, 0), #N);                                           \
  CHECK(!shmem_##N##_alltoalls(team, (T *) any, (T *) any, 2, 3, 0), #N);
  FOR_RMA(MOVES_NOTHING)
#define ADDS_NOTHING(T, N)                                                                                   \
  CHECK(!shmem_##N##_sum_reduce(team, (T *) any, (T *) any, 0), #N);                                         \
  CHECK(!shmem_##N##_prod_reduce(team, (T *) any, (T *) any, 0), #N);                                        \
  CHECK(!shmem_##N##_sum_inscan(team, (T *) any, (T *) any, 0), #N);                                         \
  CHECK(!shmem_##N##_sum_exscan(team, (T *) any, (T *) any, 0), #N);
  FOR_REDUCE_ARITHMETIC(ADDS_NOTHING)
#define ORDERS_NOTHING(T, N) CHECK(!shmem_##N##_max_reduce(team, (T *) any, (T *) any, 0), #N);
  FOR_REDUCE_ORDER(ORDERS_NOTHING)
  CHECK(!shmem_alltoallmem(team, any, any, 0) && !shmem_broadcastmem(team, any, any, 0, 0), "mem");
  /* 9.10: some give nothing, and then everyone does. */
  static int all[64], mine[8];
  const int members = last + 1, me_ = shmem_team_my_pe(team);
  for (int i = 0; i < 8; i++) mine[i] = number(me_, i, 4);
  for (int odd = 0; odd < 2; odd++) {
    const size_t gives = me_ % 2 == odd ? (size_t) me_ % 3 + 1 : 0;
    CHECK(!shmem_int_collect(team, all, gives ? mine : NULL, gives), "collect");
    int at = 0;
    for (int m = 0; m < members; m++)
      for (int i = 0; m % 2 == odd && i < m % 3 + 1; i++) CHECK(all[at++] == number(m, i, 4), "member %d", m);
    CHECK(!shmem_team_sync(team), "sync");
  }
}

static void nothing_of_active_sets(void *any)
{
  static long psync[2][SHMEM_SYNC_SIZE];
  for (int size = 1; size <= n; size += n > 1 ? n - 1 : 1) {
    if (me < size) {
      shmem_broadcast64(any, any, 0, size - 1, 0, 0, size, psync[0]);
      shmem_collect32(any, any, 0, 0, 0, size, psync[1]), shmem_barrier(0, 0, size, psync[0]);
      shmem_fcollect64(any, any, 0, 0, 0, size, psync[1]), shmem_barrier(0, 0, size, psync[0]);
      shmem_alltoall32(any, any, 0, 0, 0, size, psync[1]), shmem_barrier(0, 0, size, psync[0]);
      shmem_alltoalls64(any, any, 1, 2, 0, 0, 0, size, psync[1]), shmem_barrier(0, 0, size, psync[0]);
      shmem_int_sum_to_all(any, any, 0, 0, 0, size, any, psync[1]), shmem_barrier(0, 0, size, psync[0]);
      shmem_longdouble_max_to_all(any, any, 0, 0, 0, size, any, psync[1]);
    }
    shmem_barrier_all();
  }
}

/* 9.11: no words, or none that count. */
#define WAITS_FOR_NOTHING(T, N)                                                                              \
  for (int k = 0; k < 3; k++) {                                                                              \
    static T words[4];                                                                                       \
    const int masked[4] = {1, -1, 2, INT_MIN};                                                               \
    const T values[4] = {5, 5, 5, 5};                                                                        \
    size_t indices[4];                                                                                       \
    const size_t count = k == 2 ? 4 : 0;                                                                     \
    T *at = k ? words : NULL;                                                                                \
    const int *mask = k == 2 ? masked : NULL;                                                                \
    const T *wanted = k ? values : NULL;                                                                     \
    size_t *into = k ? indices : NULL;                                                                       \
    shmem_##N##_wait_until_all(at, count, mask, SHMEM_CMP_EQ, 5);                                            \
    shmem_##N##_wait_until_all_vector(at, count, mask, SHMEM_CMP_EQ, wanted);                                \
    CHECK(shmem_##N##_wait_until_any(at, count, mask, SHMEM_CMP_EQ, 5) == SIZE_MAX, #N);                     \
    CHECK(shmem_##N##_wait_until_any_vector(at, count, mask, SHMEM_CMP_EQ, wanted) == SIZE_MAX, #N);         \
    CHECK(shmem_##N##_wait_until_some(at, count, into, mask, SHMEM_CMP_EQ, 5) == 0, #N);                     \
    CHECK(shmem_##N##_wait_until_some_vector(at, count, into, mask, SHMEM_CMP_EQ, wanted) == 0, #N);         \
    CHECK(shmem_##N##_test_all(at, count, mask, SHMEM_CMP_EQ, 5) == 1, #N);                                  \
    CHECK(shmem_##N##_test_all_vector(at, count, mask, SHMEM_CMP_EQ, wanted) == 1, #N);                      \
    CHECK(shmem_##N##_test_any(at, count, mask, SHMEM_CMP_EQ, 5) == SIZE_MAX, #N);                           \
    CHECK(shmem_##N##_test_any_vector(at, count, mask, SHMEM_CMP_EQ, wanted) == SIZE_MAX, #N);               \
    CHECK(shmem_##N##_test_some(at, count, into, mask, SHMEM_CMP_EQ, 5) == 0, #N);                           \
    CHECK(shmem_##N##_test_some_vector(at, count, into, mask, SHMEM_CMP_EQ, wanted) == 0, #N);               \
  }

/* The least and the greatest value of an integer's type. */
#define LEAST(T) ((T) -1 < (T) 1 ? (T) (1ull << (8 * sizeof(T) - 1)) : (T) 0)
#define GREATEST(T) ((T) ~LEAST(T))

/* 9.11: each comparison of values below, at and above, at both ends of the type. */
#define COMPARES(T, N)                                                                                       \
  {                                                                                                          \
    static T word;                                                                                           \
    const T values[] = {LEAST(T), (T) (LEAST(T) + 1), (T) -1, 0, 1, (T) (GREATEST(T) - 1), GREATEST(T)};     \
    for (int a = 0; a < 7; a++)                                                                              \
      for (int b = 0; b < 7; b++) {                                                                          \
        const T is = values[a], to = values[b];                                                              \
        const int wanted[] = {is == to, is != to, is > to, is >= to, is < to, is <= to};                     \
        const int how[] = {SHMEM_CMP_EQ, SHMEM_CMP_NE, SHMEM_CMP_GT, SHMEM_CMP_GE, SHMEM_CMP_LT,             \
                           SHMEM_CMP_LE};                                                                    \
        shmem_##N##_p(&word, is, me);                                                                        \
        shmem_quiet();                                                                                       \
        for (int c = 0; c < 6; c++) {                                                                        \
          CHECK(shmem_##N##_test(&word, how[c], to) == wanted[c], #N " %d %d %d", a, b, c);                  \
          if (wanted[c]) shmem_##N##_wait_until(&word, how[c], to);                                          \
        }                                                                                                    \
      }                                                                                                      \
  }
#define COMPARES_MANY(T, N)                                                                                  \
  {                                                                                                          \
    static T words[3];                                                                                       \
    const T values[] = {LEAST(T), (T) -1, GREATEST(T)};                                                      \
    for (int i = 0; i < 3; i++) shmem_##N##_atomic_set(&words[i], values[i], me);                            \
    shmem_quiet();                                                                                           \
    size_t at[3];                                                                                            \
    const T middle = GREATEST(T) / 2;                                                                        \
    int above = 0;                                                                                           \
    for (int i = 0; i < 3; i++) above += values[i] > middle;                                                 \
    CHECK(shmem_##N##_test_some(words, 3, at, NULL, SHMEM_CMP_GT, middle) == (size_t) above, #N);            \
    CHECK(shmem_##N##_test_all_vector(words, 3, NULL, SHMEM_CMP_LE, values) == 1, #N);                       \
    CHECK(shmem_##N##_test_any_vector(words, 3, NULL, SHMEM_CMP_GT, values) == SIZE_MAX, #N);                \
    CHECK(shmem_##N##_test_any(words, 3, (int[]){0, 1, 1}, SHMEM_CMP_LT, values[1]) ==                       \
              (values[0] < values[1] ? 0 : SIZE_MAX), #N);                                                   \
  }

/* 9.11: "a series of calls must eventually return i", of words that all satisfy. */
static void fairness(void)
{
  enum { WORDS = 5, CALLS = 500 };
  static long words[WORDS];
  const int masked[WORDS] = {0, 0, 0, 1, 0};
  const long values[WORDS] = {1, 1, 1, 1, 1};
  for (int i = 0; i < WORDS; i++) shmem_long_atomic_set(&words[i], 1, me);
  shmem_quiet();
  for (int form = 0; form < 4; form++) {
    int seen[WORDS] = {0}, all = 0;
    for (int call = 0; call < CALLS && all < WORDS - 1; call++) {
      const size_t at =
          form == 0   ? shmem_long_wait_until_any(words, WORDS, masked, SHMEM_CMP_EQ, 1)
          : form == 1 ? shmem_long_test_any(words, WORDS, masked, SHMEM_CMP_EQ, 1)
          : form == 2 ? shmem_long_wait_until_any_vector(words, WORDS, masked, SHMEM_CMP_EQ, values)
                      : shmem_long_test_any_vector(words, WORDS, masked, SHMEM_CMP_EQ, values);
      CHECK(at < WORDS && at != 3, "%zu", at);
      all += !seen[at];
      seen[at] = 1;
    }
    CHECK(all == WORDS - 1, "form %d has returned %d of %d words", form, all, WORDS - 1);
  }
  for (int form = 0; form < 4; form++) {
    int seen[WORDS] = {0}, all = 0;
    for (int call = 0; call < CALLS && all < WORDS - 1; call++) {
      size_t at[WORDS];
      const size_t some =
          form == 0   ? shmem_long_wait_until_some(words, WORDS, at, masked, SHMEM_CMP_EQ, 1)
          : form == 1 ? shmem_long_test_some(words, WORDS, at, masked, SHMEM_CMP_EQ, 1)
          : form == 2 ? shmem_long_wait_until_some_vector(words, WORDS, at, masked, SHMEM_CMP_EQ, values)
                      : shmem_long_test_some_vector(words, WORDS, at, masked, SHMEM_CMP_EQ, values);
      CHECK(some >= 1 && some < WORDS, "%zu", some);
      for (size_t i = 0; i < some; i++) {
        CHECK(at[i] < WORDS && at[i] != 3, "%zu", at[i]);
        for (size_t k = 0; k < i; k++) CHECK(at[k] != at[i], "unique");
        all += !seen[at[i]];
        seen[at[i]] = 1;
      }
    }
    CHECK(all == WORDS - 1, "form %d", form);
  }
}

/* 9.7 and 9.8: words wrap; a signal in the heap with data in a variable, and the reverse. */
static void words(void)
{
  static struct {
    uint64_t sig;
    long data[3];
  } variable;
  uint64_t *heap = shmem_calloc(4, sizeof *heap), largest = UINT64_MAX;
  const long source[3] = {LONG_MIN, -1, LONG_MAX};
  shmem_long_put_signal(variable.data, source, 3, &heap[3], largest, SHMEM_SIGNAL_SET, next);
  shmem_long_put_signal_nbi((long *) heap, source, 3, &variable.sig, largest - 1, SHMEM_SIGNAL_ADD, next);
  CHECK(shmem_signal_wait_until(&heap[3], SHMEM_CMP_GT, largest - 1) == largest, "unsigned");
  CHECK(!memcmp(variable.data, source, sizeof source), "data in a variable");
  CHECK(shmem_signal_wait_until(&variable.sig, SHMEM_CMP_NE, 0) == largest - 1, "unsigned");
  CHECK(!memcmp(heap, source, sizeof source), "data in the heap");
  shmem_barrier_all();
  shmem_signal_add(&variable.sig, 3, next);
  CHECK(shmem_signal_wait_until(&variable.sig, SHMEM_CMP_LT, 9) == 1, "it wraps");
  CHECK(shmem_signal_fetch(&variable.sig) == 1, "it wraps");
  shmem_barrier_all();
#define WRAPS(T, N)                                                                                          \
  {                                                                                                          \
    static T word, fetched;                                                                                  \
    word = GREATEST(T);                                                                                      \
    shmem_barrier_all();                                                                                     \
    CHECK(shmem_##N##_atomic_fetch_inc(&word, next) == GREATEST(T), #N);                                     \
    CHECK(shmem_##N##_atomic_fetch_add(&word, (T) -2, next) == LEAST(T), #N);                                \
    const T now = (T) (GREATEST(T) - 1);                                                                     \
    CHECK(shmem_##N##_atomic_compare_swap(&word, LEAST(T), 0, next) == now, #N);                             \
    CHECK(shmem_##N##_atomic_compare_swap(&word, now, LEAST(T), next) == now, #N);                           \
    shmem_##N##_atomic_fetch_add_nbi(&fetched, &word, GREATEST(T), next);                                    \
    shmem_quiet();                                                                                           \
    CHECK(fetched == LEAST(T) && shmem_##N##_atomic_fetch(&word, next) == (T) -1, #N);                       \
    shmem_barrier_all();                                                                                     \
  }
  FOR_AMO(WRAPS)
  static double real;
  real = -0.0;
  shmem_barrier_all();
  const double old = shmem_double_atomic_swap(&real, -INFINITY, next);
  CHECK(old == 0 && signbit(old), "a negative zero is one");
  CHECK(shmem_double_atomic_fetch(&real, next) == -INFINITY, "as it is");
  shmem_free(heap);
}

/* 9.10: member `m` gives the extreme values in turn. */
#define EXTREME(T, m, i)                                                                                     \
  (((m) + (i)) % 4 == 0 ? LEAST(T) : ((m) + (i)) % 4 == 1 ? GREATEST(T) : (T) ((i) - 2))
#define REDUCES_INTEGERS(T, N)                                                                               \
  {                                                                                                          \
    enum { COUNT = 5 };                                                                                      \
    static T from[COUNT], least[COUNT], most[COUNT], sum[COUNT], product[COUNT], before[COUNT];              \
    for (int i = 0; i < COUNT; i++) from[i] = before[i] = EXTREME(T, t_me, i);                               \
    CHECK(!shmem_##N##_min_reduce(team, least, from, COUNT), #N);                                            \
    CHECK(!shmem_##N##_max_reduce(team, most, from, COUNT), #N);                                             \
    CHECK(!shmem_##N##_sum_reduce(team, sum, from, COUNT), #N);                                              \
    CHECK(!shmem_##N##_prod_reduce(team, product, from, COUNT), #N);                                         \
    CHECK(!shmem_##N##_sum_exscan(team, before, before, COUNT), #N);                                         \
    CHECK(!shmem_##N##_sum_inscan(team, from, from, COUNT), #N);                                             \
    for (int i = 0; i < COUNT; i++) {                                                                        \
      T low = EXTREME(T, 0, i), high = low, scan = t_me ? low : 0;                                           \
      unsigned long long total = (unsigned long long) low, times = (unsigned long long) low;                 \
      for (int m = 1; m < t_n; m++) {                                                                        \
        const T value = EXTREME(T, m, i);                                                                    \
        low = value < low ? value : low, high = value > high ? value : high;                                 \
        total += (unsigned long long) value, times *= (unsigned long long) value;                            \
        if (m < t_me) scan = (T) ((unsigned long long) scan + (unsigned long long) value);                   \
      }                                                                                                      \
      CHECK(least[i] == low && most[i] == high, #N " place %d", i);                                          \
      CHECK(sum[i] == (T) total && product[i] == (T) times, #N " place %d", i);                              \
      CHECK(before[i] == scan, #N " exscan in place, %d", i);                                                \
      CHECK(from[i] == (T) ((unsigned long long) scan + (unsigned long long) EXTREME(T, t_me, i)),           \
            #N " inscan in place, %d", i);                                                                   \
    }                                                                                                        \
    CHECK(!shmem_team_sync(team), "sync");                                                                   \
  }
#define REDUCES_REALS(T, N)                                                                                  \
  {                                                                                                          \
    static T from[3], to[3];                                                                                 \
    from[0] = (T) (t_me == t_n - 1 ? -INFINITY : -1 - t_me);                                                 \
    from[1] = (T) -0.5, from[2] = (T) (1e30 + t_me);                                                         \
    CHECK(!shmem_##N##_min_reduce(team, to, from, 3) && to[0] == (T) -INFINITY && to[1] == (T) -0.5,         \
          #N);                                                                                               \
    CHECK(!shmem_##N##_max_reduce(team, to, from, 3) && to[1] == (T) -0.5, #N);                              \
    CHECK(to[0] == (t_n > 1 ? (T) -1 : (T) -INFINITY) && to[2] == (T) (1e30 + t_n - 1), #N);                 \
    CHECK(!shmem_##N##_sum_exscan(team, to, from, 3), #N);                                                   \
    CHECK(to[1] == (T) (t_me * -0.5), #N " exscan");                                                         \
    CHECK(!shmem_team_sync(team), "sync");                                                                   \
  }
#define REDUCES_COMPLEX(T, N)                                                                                \
  {                                                                                                          \
    static T from[1], to[1];                                                                                 \
    from[0] = (T) (t_me + 1) - 2.0f * (T) 1.0fi;                                                             \
    CHECK(!shmem_##N##_sum_reduce(team, to, from, 1), #N);                                                   \
    CHECK(to[0] == (T) (t_n * (t_n + 1) / 2) - (T) (2 * t_n) * (T) 1.0fi, #N);                               \
    CHECK(!shmem_##N##_sum_exscan(team, from, from, 1), #N);                                                 \
    CHECK(from[0] == (T) (t_me * (t_me + 1) / 2) - (T) (2 * t_me) * (T) 1.0fi, #N);                          \
    CHECK(!shmem_team_sync(team), "sync");                                                                   \
  }

/* 9.10: each root, whose dest is updated with the others'; strides leave what is between alone. */
static void roots_and_strides(shmem_team_t team)
{
  const int t_me = shmem_team_my_pe(team), t_n = shmem_team_n_pes(team);
  enum { COUNT = 3, ROOM = 8 * COUNT * 3 };
  static short dest[ROOM], from[ROOM];
  for (int root = 0; root < t_n; root++) {
    for (int i = 0; i < ROOM; i++) dest[i] = -1, from[i] = (short) number(t_me, i, root);
    CHECK(!shmem_team_sync(team), "sync");
    CHECK(!shmem_short_broadcast(team, dest, from, COUNT, root), "broadcast");
    for (int i = 0; i < ROOM; i++) {
      CHECK(dest[i] == (i < COUNT ? number(root, i, root) : -1), "root %d, place %d: %d", root, i, dest[i]);
      CHECK(from[i] == number(t_me, i, root), "the source");
    }
    CHECK(!shmem_team_sync(team), "sync");
  }
  for (int dst = 1; dst <= 3; dst++)
    for (int sst = 1; sst <= 3; sst++) {
      for (int i = 0; i < ROOM; i++) dest[i] = -1, from[i] = (short) number(t_me, i, dst);
      CHECK(!shmem_team_sync(team), "sync");
      CHECK(!shmem_short_alltoalls(team, dest, from, dst, sst, COUNT), "alltoalls");
      for (int i = 0; i < ROOM; i++) {
        const int at = i / dst, whole = i % dst == 0 && at < COUNT * t_n;
        const int model = whole ? number(at / COUNT, sst * (t_me * COUNT + at % COUNT), dst) : -1;
        CHECK(dest[i] == model, "strides %d, %d, place %d: %d", dst, sst, i, dest[i]);
      }
      CHECK(!shmem_team_sync(team), "sync");
    }
}

static void collectives(shmem_team_t team)
{
  const int t_me = shmem_team_my_pe(team), t_n = shmem_team_n_pes(team);
  static char any[64];
  nothing_of_collectives(team, NULL);
  nothing_of_collectives(team, any);
  REDUCES_INTEGERS(char, char)
  REDUCES_INTEGERS(signed char, schar)
  REDUCES_INTEGERS(short, short)
  REDUCES_INTEGERS(unsigned char, uchar)
  REDUCES_INTEGERS(unsigned short, ushort)
  REDUCES_INTEGERS(int8_t, int8)
  REDUCES_INTEGERS(int16_t, int16)
  REDUCES_INTEGERS(uint8_t, uint8)
  REDUCES_INTEGERS(uint16_t, uint16)
  FOR_AMO(REDUCES_INTEGERS)
  REDUCES_REALS(float, float)
  REDUCES_REALS(double, double)
  REDUCES_REALS(long double, longdouble)
  REDUCES_COMPLEX(float _Complex, complexf)
  REDUCES_COMPLEX(double _Complex, complexd)
  roots_and_strides(team);
}

int main(void)
{
  begin();
  static char any[64];
  shmem_ctx_t ctx;
  CHECK(shmem_ctx_create(0, &ctx) == 0, "a context");
  nothing_of_memory(ctx, NULL);
  nothing_of_memory(ctx, any);
  nothing_of_active_sets(NULL);
  nothing_of_active_sets(any);
  FOR_AMO(WAITS_FOR_NOTHING)
  FOR_WAIT(COMPARES)
  FOR_AMO(COMPARES_MANY)
  fairness();
  words();
  collectives(SHMEM_TEAM_WORLD);
  shmem_team_t alone, back;
  CHECK(shmem_team_split_strided(SHMEM_TEAM_WORLD, n - 1, -1, n, NULL, 0, &back) == 0, "reversed");
  collectives(back);
  shmem_team_t of_one;
  CHECK(shmem_team_split_2d(back, 1, NULL, 0, &of_one, NULL, 0, &alone) == 0, "of one");
  collectives(of_one);
  return end();
}
