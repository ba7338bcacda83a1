/* Collectives from C: each of them once on symmetric and on ordinary memory, the typed reductions, and
 * arguments that are wrong. */
#include "check.h"

#define MANY 30000

static void moves(rushmem_world_t *w, rushmem_team_t *team)
{
  int *to, *from;
  OK(rushmem_alloc(w, (size_t)n * MANY * sizeof *to, 0, (void **)&to));
  OK(rushmem_alloc(w, (size_t)n * MANY * sizeof *from, 0, (void **)&from));
  const size_t sizes[] = {0, 1, 17, MANY};
  for (int k = 0; k < 4; k++) {
    const size_t size = sizes[k], all = size * (size_t)n;
    for (size_t i = 0; i < all; i++) from[i] = me * 1000000 + (int)i;
    OK(rushmem_barrier_all(w));
    OK(rushmem_team_broadcast(team, to, from, size * sizeof *to, n - 1));
    for (size_t i = 0; i < size; i++) CHECK(to[i] == (n - 1) * 1000000 + (int)i);
    OK(rushmem_team_fcollect(team, to, from, size * sizeof *to));
    for (size_t i = 0; i < all; i++) CHECK(to[i] == (int)(i / size) * 1000000 + (int)(i % size));
    OK(rushmem_team_alltoall(team, to, from, size * sizeof *to));
    for (size_t i = 0; i < all; i++) CHECK(to[i] == (int)(i / size) * 1000000 + me * (int)size + (int)(i % size));

    /* As much of each as its number says, into ordinary memory. */
    size_t received = 7;
    int *own = malloc(all * sizeof *own + 1);
    OK(rushmem_team_collect(team, own, all * sizeof *own, from, (size_t)me * size / (size_t)n * sizeof *from, &received));
    size_t at = 0;
    for (int pe = 0; pe < n; pe++) {
      for (size_t i = 0; i < (size_t)pe * size / (size_t)n; i++) CHECK(own[at++] == pe * 1000000 + (int)i);
    }
    CHECK(received == at * sizeof *own);
    free(own);
  }

  /* Columns become rows. */
  OK(rushmem_team_alltoalls(team, to, from, 1, n, sizeof *to, 100));
  for (int i = 0; i < n * 100; i++) CHECK(to[i] == i / 100 * 1000000 + (me * 100 + i % 100) * n);

  /* Member j gets j + 1 elements of each; the last one of them lies first. */
  size_t to_at[8], from_at[8], bytes[8], came[8];
  for (int j = 0; j < n; j++) {
    bytes[j] = (size_t)(j + 1) * sizeof *from;
    from_at[j] = (size_t)j * 10 * sizeof *from;
    to_at[j] = (size_t)((n - 1 - j) * (me + 1)) * sizeof *to;
  }
  OK(rushmem_team_alltoallv(team, to, to_at, SIZE_MAX, came, from, from_at, bytes));
  for (int pe = 0; pe < n; pe++) {
    CHECK(came[pe] == (size_t)(me + 1) * sizeof *to);
    for (int i = 0; i <= me; i++) CHECK(to[(n - 1 - pe) * (me + 1) + i] == pe * 1000000 + me * 10 + i);
  }
  OK(rushmem_team_alltoallv(team, to, to_at, SIZE_MAX, NULL, from, from_at, bytes));
  OK(rushmem_free(w, from));
  OK(rushmem_free(w, to));
}

static void reductions(rushmem_world_t *w, rushmem_team_t *team)
{
  double *x, sums[3];
  OK(rushmem_alloc(w, MANY * sizeof *x, 0, (void **)&x));
  for (int i = 0; i < MANY; i++) x[i] = me + i;
  OK(rushmem_barrier_all(w));
  OK(rushmem_double_sum_reduce(team, x, x, MANY));
  for (int i = 0; i < MANY; i++) CHECK(x[i] == n * (n - 1) / 2.0 + (double)n * i);
  const double mine[3] = {me, 1, -me};
  OK(rushmem_double_min_reduce(team, sums, mine, 3));
  CHECK(sums[0] == 0 && sums[1] == 1 && sums[2] == 1 - n);

  /* Of what is no double, by the numbers of type and operator. */
  const uint16_t halves[2] = {0x3c00, 0x4000};
  uint16_t half_sums[2];
  OK(rushmem_team_reduce(team, half_sums, halves, 2, RUSHMEM_HALF, RUSHMEM_SUM));
  CHECK(half_sums[0] == (n == 4 ? 0x4400 : 0x3c00));
  const float complex[4] = {0, 1, 0, 1};
  float product[4];
  OK(rushmem_team_reduce(team, product, complex, 2, RUSHMEM_COMPLEX_FLOAT, RUSHMEM_PROD));
  CHECK(n != 4 || (product[0] == 1 && product[1] == 0 && product[2] == 1));

  const int one[4] = {1 << me, 1 << me, 1 << me, 1 << me};
  int bits[4] = {-1, -1, -1, -1};
  OK(rushmem_int_or_reduce(team, bits, one, 4));
  CHECK(bits[0] == (1 << n) - 1 && bits[3] == bits[0]);
  OK(rushmem_int_sum_reducescatter(team, bits, one, 1));
  CHECK(bits[0] == (1 << n) - 1);
  OK(rushmem_int_sum_inscan(team, bits, one, 4));
  CHECK(bits[0] == (2 << me) - 1);
  OK(rushmem_int_sum_exscan(team, bits, one, 4));
  CHECK(bits[0] == (1 << me) - 1);
  OK(rushmem_free(w, x));
}

static void mistakes(rushmem_team_t *team)
{
  int x[8] = {5, 5}, y[8] = {0};
  FAILS(rushmem_team_reduce(team, x, y, 1, RUSHMEM_FLOAT, RUSHMEM_AND), RUSHMEM_ERR_INVALID_ARGUMENT, "floats have");
  FAILS(rushmem_team_reduce(team, x, y, 1, 99, RUSHMEM_SUM), RUSHMEM_ERR_INVALID_ARGUMENT, "no element type");
  FAILS(rushmem_team_reduce(team, x, x + 1, 2, RUSHMEM_INT32, RUSHMEM_SUM), RUSHMEM_ERR_INVALID_ARGUMENT, "overlap");
  FAILS(rushmem_team_reduce(team, NULL, y, 1, RUSHMEM_INT32, RUSHMEM_SUM), RUSHMEM_ERR_INVALID_ARGUMENT, "null");
  FAILS(rushmem_team_broadcast(team, x, y, 8, n), RUSHMEM_ERR_BAD_PE, "the root");
  FAILS(rushmem_team_broadcast(team, x, y, 4 + 4 * (size_t)(me == 1), 0), RUSHMEM_ERR_MISMATCH, "on PE 1");
  FAILS(rushmem_team_alltoallv(team, x, NULL, 0, NULL, y, NULL, NULL), RUSHMEM_ERR_INVALID_ARGUMENT, "is null");
  FAILS(rushmem_team_alltoalls(team, x, y, 0, 1, 4, 1), RUSHMEM_ERR_INVALID_ARGUMENT, "stride");
  FAILS(rushmem_team_collect(team, x, 4, y, 4, NULL), RUSHMEM_ERR_OUT_OF_BOUNDS, "has room for 4");
  FAILS(rushmem_team_reduce(NULL, x, y, 1, RUSHMEM_INT32, RUSHMEM_SUM), RUSHMEM_ERR_BAD_HANDLE, "null");
  CHECK(x[0] == 5 && x[1] == 5);
  OK(rushmem_team_sync(team));
}

int main(void)
{
  rushmem_world_t *w = start();
  rushmem_team_t *team;
  OK(rushmem_team_world(w, &team));
  CHECK(n == 4);
  moves(w, team);
  reductions(w, team);
  mistakes(team);
  return finish(w);
}
