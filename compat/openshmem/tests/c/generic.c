/* C11: type-generic forms, with and without a context, nested and with qualified pointers. */
#include "forms.h"

int main(void)
{
  begin();
  every_form();
  shmem_ctx_t ctx = SHMEM_CTX_DEFAULT;
  static long a[4];
  static double d[4];
  static size_t s;
  static long double ld;
  static int8_t small[2];
  static volatile int flag;
  const double source[2] = {1.5, 2.5};
  shmem_put(d, source, 2, next);
  shmem_put(ctx, d + 2, source, 2, next);
  shmem_p(&ld, (long double) 0.25, next);
  shmem_p(ctx, &a[0], 5L, next);
  shmem_p(&a[1], shmem_g(&a[3], shmem_g(&a[3], next)) + 1, next);
  shmem_iput(a + 2, a + 3, 1, 1, 1, next);
  const int8_t two[2] = {1, 2};
  shmem_put_nbi(small, two, 2, next);
  shmem_atomic_inc(&s, next);
  shmem_atomic_add(ctx, &s, (size_t) 2, next);
  shmem_barrier_all();
  CHECK(d[1] == 2.5 && d[3] == 2.5 && ld == 0.25L && a[0] == 5 && a[1] == 1 && small[1] == 2 && s == 3,
        "values");
  CHECK(shmem_atomic_fetch(&s, next) == 3 && shmem_atomic_swap(ctx, &d[0], 9.0, me) == 1.5, "atomics");
  CHECK(shmem_atomic_compare_swap(&a[0], 5L, 6L, me) == 5 && shmem_atomic_fetch_add(&a[0], 1L, me) == 6,
        "atomics");
  shmem_atomic_set((int *) &flag, 3, next);
  shmem_wait_until((int *) &flag, SHMEM_CMP_EQ, 3);
  CHECK(shmem_test((int *) &flag, SHMEM_CMP_GT, 2), "a test");
  CHECK(shmem_wait_until_any(a, 1, NULL, SHMEM_CMP_EQ, 7) == 0, "any");
  static uint64_t sig;
  shmem_put_signal(ctx, a + 3, (long[]){me}, 1, &sig, 1, SHMEM_SIGNAL_ADD, next);
  shmem_signal_add(&sig, 1, next);
  shmem_signal_add(ctx, &sig, 1, next);
  shmem_signal_wait_until(&sig, SHMEM_CMP_EQ, 3);
  CHECK(a[3] == prev, "%ld", a[3]);
  static float sums[2], sum[2];
  sums[0] = (float) me, sums[1] = 1;
  CHECK(shmem_sum_reduce(SHMEM_TEAM_WORLD, sum, sums, 2) == 0 && sum[1] == (float) n, "a reduction");
  CHECK(shmem_or_reduce(SHMEM_TEAM_WORLD, small, small, 2) == 0 && small[0] == 1, "a reduction");
  CHECK(shmem_sync(SHMEM_TEAM_WORLD) == 0, "a team's sync");
  static long psync[SHMEM_BARRIER_SYNC_SIZE];
  shmem_sync(0, 0, n, psync);
  CHECK(shmem_finc(&a[2], me) == 0, "an old name");
  return end();
}
