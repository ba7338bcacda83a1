/* Collectives of the world and of a team of every other PE: each type, each operator, in place and not. */
#include "check.h"

enum { COUNT = 5, PES = 8 };
static shmem_team_t team;
static int t_me, t_n;

/* Number `i` of a team's member `m`. */
#define OF(T, m, i) ((T) number(shmem_team_translate_pe(team, m, SHMEM_TEAM_WORLD), i, 7))

#define MOVES(T, N)                                                                                          \
  static T N##_dest[2 * COUNT * PES], N##_source[2 * COUNT * PES];                                           \
  static void moves_##N(void)                                                                                \
  {                                                                                                          \
    T *dest = N##_dest, *source = N##_source;                                                                \
    for (int i = 0; i < 2 * COUNT * PES; i++) source[i] = OF(T, t_me, i);                                    \
    const int root = t_n - 1;                                                                                \
    CHECK(shmem_##N##_broadcast(team, dest, source, COUNT, root) == 0, #N);                                  \
    for (int i = 0; i < COUNT; i++) CHECK(dest[i] == OF(T, root, i), #N " broadcast");                       \
    CHECK(shmem_##N##_fcollect(team, dest, source, COUNT) == 0, #N);                                         \
    for (int i = 0; i < COUNT * t_n; i++) CHECK(dest[i] == OF(T, i / COUNT, i % COUNT), #N " fcollect");     \
    CHECK(shmem_##N##_collect(team, dest, source, (size_t) t_me + 1) == 0, #N);                              \
    for (int m = 0, at = 0; m < t_n; m++)                                                                    \
      for (int i = 0; i <= m; i++) CHECK(dest[at++] == OF(T, m, i), #N " collect");                          \
    CHECK(shmem_##N##_alltoall(team, dest, source, COUNT) == 0, #N);                                         \
    for (int m = 0; m < t_n; m++)                                                                            \
      for (int i = 0; i < COUNT; i++)                                                                        \
        CHECK(dest[m * COUNT + i] == OF(T, m, t_me * COUNT + i), #N " alltoall");                            \
    CHECK(shmem_##N##_alltoalls(team, dest, source, 1, 2, COUNT) == 0, #N);                                  \
    for (int m = 0; m < t_n; m++)                                                                            \
      for (int i = 0; i < COUNT; i++)                                                                        \
        CHECK(dest[m * COUNT + i] == OF(T, m, 2 * (t_me * COUNT + i)), #N " alltoalls");                     \
    shmem_team_sync(team);                                                                                   \
  }
FOR_RMA(MOVES)

/* The operators as the specification has them, in the order of the members. */
#define STEP_sum(T, a, b) ((T) ((a) + (b)))
#define STEP_prod(T, a, b) ((T) ((a) * (b)))
#define STEP_min(T, a, b) ((b) < (a) ? (b) : (a))
#define STEP_max(T, a, b) ((b) > (a) ? (b) : (a))
#define STEP_and(T, a, b) ((T) ((a) & (b)))
#define STEP_or(T, a, b) ((T) ((a) | (b)))
#define STEP_xor(T, a, b) ((T) ((a) ^ (b)))
#define REDUCE(T, N, op)                                                                                     \
  static void op##_##N(void)                                                                                 \
  {                                                                                                          \
    static T dest[COUNT], source[COUNT];                                                                     \
    for (int in_place = 0; in_place < 2; in_place++) {                                                       \
      for (int i = 0; i < COUNT; i++) source[i] = OF(T, t_me, i);                                            \
      CHECK(shmem_##N##_##op##_reduce(team, in_place ? source : dest, source, COUNT) == 0, #N);              \
      for (int i = 0; i < COUNT; i++) {                                                                      \
        T model = OF(T, 0, i);                                                                               \
        for (int m = 1; m < t_n; m++) model = STEP_##op(T, model, OF(T, m, i));                              \
        CHECK((in_place ? source : dest)[i] == model, #N " " #op ", in place %d", in_place);                 \
      }                                                                                                      \
      shmem_team_sync(team);                                                                                 \
    }                                                                                                        \
  }
#define SUM(T, N) REDUCE(T, N, sum)
#define PROD(T, N) REDUCE(T, N, prod)
#define MIN(T, N) REDUCE(T, N, min)
#define MAX(T, N) REDUCE(T, N, max)
#define AND(T, N) REDUCE(T, N, and)
#define OR(T, N) REDUCE(T, N, or)
#define XOR(T, N) REDUCE(T, N, xor)
FOR_REDUCE_ARITHMETIC(SUM)
FOR_REDUCE_ARITHMETIC(PROD)
FOR_REDUCE_ORDER(MIN)
FOR_REDUCE_ORDER(MAX)
FOR_REDUCE_BITS(AND)
FOR_REDUCE_BITS(OR)
FOR_REDUCE_BITS(XOR)

#define SCAN(T, N)                                                                                           \
  static void scan_##N(void)                                                                                 \
  {                                                                                                          \
    static T dest[COUNT], source[COUNT];                                                                     \
    for (int i = 0; i < COUNT; i++) source[i] = OF(T, t_me, i);                                              \
    for (int inclusive = 0; inclusive < 2; inclusive++) {                                                    \
      const int failed = inclusive ? shmem_##N##_sum_inscan(team, dest, source, COUNT)                       \
                                   : shmem_##N##_sum_exscan(team, dest, source, COUNT);                      \
      CHECK(!failed, #N);                                                                                    \
      for (int i = 0; i < COUNT; i++) {                                                                      \
        T model = 0;                                                                                         \
        for (int m = 0; m < t_me + inclusive; m++) model = STEP_sum(T, model, OF(T, m, i));                  \
        CHECK(dest[i] == model, #N " scan, inclusive %d", inclusive);                                        \
      }                                                                                                      \
      shmem_team_sync(team);                                                                                 \
    }                                                                                                        \
  }
FOR_REDUCE_ARITHMETIC(SCAN)

static void all(void)
{
  t_me = shmem_team_my_pe(team);
  t_n = shmem_team_n_pes(team);
#define RUN(T, N) moves_##N();
  FOR_RMA(RUN)
#define RUN_SUM(T, N) sum_##N(), prod_##N(), scan_##N();
  FOR_REDUCE_ARITHMETIC(RUN_SUM)
#define RUN_MIN(T, N) min_##N(), max_##N();
  FOR_REDUCE_ORDER(RUN_MIN)
#define RUN_AND(T, N) and_##N(), or_##N(), xor_##N();
  FOR_REDUCE_BITS(RUN_AND)
  CHECK(shmem_broadcastmem(team, int_dest, int_source, 7, 0) == 0, "broadcastmem");
  CHECK(shmem_fcollectmem(team, int_dest, int_source, 3) == 0, "fcollectmem");
  CHECK(shmem_collectmem(team, int_dest, int_source, 3) == 0, "collectmem");
  CHECK(shmem_alltoallmem(team, int_dest, int_source, 3) == 0, "alltoallmem");
  CHECK(shmem_alltoallsmem(team, int_dest, int_source, 2, 2, 3) == 0, "alltoallsmem");
}

/* More than goes round with a call. */
static void large(void)
{
  enum { LARGE = 40000 };
  static long double a[LARGE], b[LARGE];
  for (int i = 0; i < LARGE; i++) a[i] = number(me, i, 8);
  shmem_longdouble_sum_reduce(SHMEM_TEAM_WORLD, b, a, LARGE);
  for (int i = 0; i < LARGE; i += 997) {
    long double model = 0;
    for (int pe = 0; pe < n; pe++) model += number(pe, i, 8);
    CHECK(b[i] == model, "place %d", i);
  }
}

/* The Parallel Research Kernels give alltoall arrays that are not symmetric. */
static void private_arrays(void)
{
  enum { COUNT = 700 };
  const size_t all = (size_t) (COUNT * n);
  long *to = malloc(all * sizeof *to), *from = malloc(all * sizeof *from);
  long double *sum = malloc(COUNT * sizeof *sum), *part = malloc(COUNT * sizeof *part);
  CHECK(to && from && sum && part, "memory");
  for (size_t i = 0; i < all; i++) from[i] = number(me, (int) i, 11);
  for (int i = 0; i < COUNT; i++) part[i] = number(me, i, 12);
  shmem_long_alltoall(SHMEM_TEAM_WORLD, to, from, COUNT);
  for (int i = 0; i < COUNT * n; i++)
    CHECK(to[i] == number(i / COUNT, me * COUNT + i % COUNT, 11), "place %d", i);
  shmem_longdouble_sum_reduce(SHMEM_TEAM_WORLD, sum, part, COUNT);
  for (int i = 0; i < COUNT; i++) {
    long double model = 0;
    for (int pe = 0; pe < n; pe++) model += number(pe, i, 12);
    CHECK(sum[i] == model, "place %d", i);
  }
  free(to), free(from), free(sum), free(part);
}

int main(void)
{
  begin();
  team = SHMEM_TEAM_WORLD;
  all();
  shmem_team_t some;
  CHECK(shmem_team_split_strided(SHMEM_TEAM_WORLD, 0, 2, (n + 1) / 2, NULL, 0, &some) == 0, "a team");
  CHECK((some == SHMEM_TEAM_INVALID) == (me % 2 == 1), "members");
  team = some;
  if (some != SHMEM_TEAM_INVALID) all();
  shmem_team_destroy(some);
  large();
  private_arrays();
  shmem_sync_all();
  return end();
}
