/* What works on a heap in a GPU's memory (RUSHMEM_DEVICE=cuda): all that is asked of the library, and no load
 * or store of C's own. On a heap in host memory the same program has to say the same. With heaps in GPU
 * memory variables are not symmetric, so all that is symmetric here is allocated. */
#include <stdint.h>

#include "check.h"

enum { MOST = 1 << 20, WORDS = 64 };

static int on_gpu;

/* Bytes of this PE's heap, by the library. */
static void fill(void *at, const void *values, size_t bytes)
{
  shmem_putmem(at, values, bytes, me);
  shmem_quiet();
}
static long word_of(const long *at)
{
  return shmem_long_g(at, me);
}

static void bytes_of(char *to, size_t bytes, int pe, int salt)
{
  for (size_t i = 0; i < bytes; i++) to[i] = (char) number(pe, (int) (i % 4093), salt + (int) (i / 4093));
}

static void puts_and_gets(char *heap)
{
  static char source[MOST], back[MOST], expected[MOST];
  const size_t sizes[] = {1, 2, 3, 8, 31, 511, 512, 513, 4096, 4097, 8193, 65536, MOST};
  for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
    const size_t bytes = sizes[k];
    bytes_of(source, bytes, me, (int) k);
    if (k % 2)
      shmem_putmem(heap, source, bytes, next);
    else
      shmem_putmem_nbi(heap, source, bytes, next);
    shmem_barrier_all();
    bytes_of(expected, bytes, prev, (int) k);
    memset(back, 0, bytes);
    shmem_getmem(back, heap, bytes, me);
    CHECK(!memcmp(back, expected, bytes), "a put of %zu bytes", bytes);
    memset(back, 0, bytes);
    shmem_getmem_nbi(back, heap, bytes, next);
    shmem_quiet();
    CHECK(!memcmp(back, source, bytes), "a get of %zu bytes", bytes);
    shmem_barrier_all();
  }
  /* From one place of the heap to another one. */
  shmem_putmem(heap + 4096, heap, 1000, next);
  shmem_barrier_all();
  bytes_of(expected, 1000, (me + 2 * n - 2) % n, (int) (sizeof sizes / sizeof *sizes) - 1);
  shmem_getmem(back, heap + 4096, 1000, me);
  CHECK(!memcmp(back, expected, 1000), "a put from heap to heap");
  shmem_barrier_all();
}

static void strides_and_words(long *heap)
{
  long source[40], back[40], zeros[80] = {0};
  fill(heap, zeros, sizeof zeros);
  shmem_barrier_all();
  for (int i = 0; i < 40; i++) source[i] = number(me, i, 40);
  shmem_long_iput(heap, source, 2, 1, 40, next);
  shmem_barrier_all();
  for (int i = 0; i < 80; i++) {
    const long expected = i % 2 ? 0 : number(prev, i / 2, 40);
    CHECK(word_of(&heap[i]) == expected, "element %d of an iput", i);
  }
  shmem_long_iget(back, heap, 1, 2, 40, next);
  for (int i = 0; i < 40; i++) CHECK(back[i] == source[i], "element %d of an iget", i);
  shmem_barrier_all();
  shmem_double_p((double *) heap, 0.5 * me, next);
  shmem_short_p((short *) &heap[1] + 1, (short) (me + 3), next);
  shmem_char_p((char *) &heap[2] + 5, (char) (me + 5), next);
  shmem_barrier_all();
  CHECK(shmem_double_g((double *) heap, me) == 0.5 * prev, "a double");
  CHECK(shmem_short_g((short *) &heap[1] + 1, me) == prev + 3, "a short");
  CHECK(shmem_char_g((char *) &heap[2] + 5, me) == prev + 5, "a char");
  shmem_barrier_all();
}

static void atomics(long *heap)
{
  const long zeros[8] = {0};
  fill(heap, zeros, sizeof zeros);
  shmem_barrier_all();
  enum { ROUNDS = 50 };
  long tickets = -1;
  for (int i = 0; i < ROUNDS; i++) {
    const long ticket = shmem_long_atomic_fetch_inc(&heap[0], 0);
    CHECK(ticket > tickets, "tickets");
    tickets = ticket;
    shmem_int_atomic_add((int *) &heap[1], me + 1, 0);
    shmem_uint64_atomic_xor((uint64_t *) &heap[2], 1ull << me, 0);
    while (shmem_long_atomic_compare_swap(&heap[3], 0, me + 1, 0) != 0) {}
    shmem_long_p(&heap[4], shmem_long_g(&heap[4], 0) + 1, 0);
    shmem_quiet();
    CHECK(shmem_long_atomic_swap(&heap[3], 0, 0) == me + 1, "the lock");
  }
  shmem_barrier_all();
  CHECK(shmem_long_atomic_fetch(&heap[0], 0) == (long) n * ROUNDS, "the tickets");
  CHECK(shmem_int_atomic_fetch((int *) &heap[1], 0) == n * (n + 1) / 2 * ROUNDS, "the sum");
  CHECK(shmem_uint64_g((uint64_t *) &heap[2], 0) == 0, "bits that were turned an even number of times");
  CHECK(shmem_long_g(&heap[4], 0) == (long) n * ROUNDS, "the counter in the lock");
  shmem_barrier_all();
  if (me == 0) shmem_float_atomic_set((float *) &heap[5], 1.5f, n - 1);
  shmem_barrier_all();
  CHECK(shmem_float_atomic_fetch((float *) &heap[5], n - 1) == 1.5f, "a float");
  shmem_barrier_all();
}

static void signals_and_waits(char *heap, uint64_t *signals)
{
  static char source[70000], back[70000], expected[70000];
  const uint64_t zeros[WORDS] = {0};
  fill(signals, zeros, sizeof zeros);
  shmem_barrier_all();
  const size_t sizes[] = {8, 512, 513, 4096, 70000};
  for (int k = 0; k < 5; k++) {
    bytes_of(source, sizes[k], me, 70 + k);
    if (k % 2)
      shmem_putmem_signal(heap, source, sizes[k], signals, 1, SHMEM_SIGNAL_ADD, next);
    else
      shmem_putmem_signal_nbi(heap, source, sizes[k], signals, (uint64_t) k + 1, SHMEM_SIGNAL_SET, next);
    CHECK(shmem_signal_wait_until(signals, SHMEM_CMP_GE, (uint64_t) k + 1) == (uint64_t) k + 1, "%d", k);
    bytes_of(expected, sizes[k], prev, 70 + k);
    shmem_getmem(back, heap, sizes[k], me);
    CHECK(!memcmp(back, expected, sizes[k]), "%zu bytes that a signal announces", sizes[k]);
    shmem_barrier_all();
  }
  CHECK(shmem_signal_fetch(signals) == 5, "the signal");
  for (int i = 1; i < 5; i++) shmem_uint64_p(&signals[i], (uint64_t) (me + i), next);
  for (int i = 1; i < 5; i++) shmem_uint64_wait_until(&signals[i], SHMEM_CMP_EQ, (uint64_t) (prev + i));
  CHECK(shmem_uint64_test_all(&signals[1], 4, NULL, SHMEM_CMP_GE, (uint64_t) prev + 1), "all");
  size_t which[4];
  CHECK(shmem_uint64_wait_until_some(&signals[1], 4, which, NULL, SHMEM_CMP_EQ, (uint64_t) prev + 2) == 1 &&
            which[0] == 1,
        "the second");
  shmem_ushort_wait_until((unsigned short *) &signals[1], SHMEM_CMP_EQ, (unsigned short) (prev + 1));
  shmem_barrier_all();
}

static void contexts_and_locks(long *heap)
{
  const long zeros[4] = {0};
  fill(heap, zeros, sizeof zeros);
  shmem_barrier_all();
  shmem_ctx_t ctx;
  CHECK(shmem_ctx_create(SHMEM_CTX_SERIALIZED, &ctx) == 0, "a context");
  for (long i = 1; i <= 20; i++) {
    shmem_ctx_long_put_nbi(ctx, &heap[0], &i, 1, next);
    shmem_ctx_fence(ctx);
    shmem_ctx_long_atomic_add(ctx, &heap[1], i, next);
    shmem_ctx_quiet(ctx);
    CHECK(shmem_ctx_long_g(ctx, &heap[0], next) == i, "round %ld", i);
  }
  shmem_ctx_destroy(ctx);
  shmem_barrier_all();
  CHECK(word_of(&heap[1]) == 210, "the sum");
  for (int i = 0; i < 10; i++) {
    shmem_set_lock(&heap[2]);
    shmem_long_p(&heap[3], shmem_long_g(&heap[3], 0) + 1, 0);
    shmem_clear_lock(&heap[2]);
  }
  shmem_barrier_all();
  CHECK(shmem_long_g(&heap[3], 0) == 10 * n, "what the lock guards");
  shmem_barrier_all();
}

static void collectives(long *heap)
{
  enum { N = 1000 };
  long *source = heap, *dest = heap + 8 * N, values[N], back[8 * N];
  CHECK(n <= 8, "there is room for 8 PEs");
  const int counts[] = {1, 4, 100, N};
  for (int k = 0; k < 4; k++) {
    const size_t count = (size_t) counts[k];
    for (int i = 0; i < N; i++) values[i] = number(me, i, 90 + k);
    fill(source, values, sizeof values);
    shmem_barrier_all();
    shmem_long_broadcast(SHMEM_TEAM_WORLD, dest, source, count, n - 1);
    shmem_getmem(back, dest, count * sizeof *back, me);
    for (int i = 0; i < counts[k]; i++) CHECK(back[i] == number(n - 1, i, 90 + k), "broadcast, %d", i);
    shmem_barrier_all();
    shmem_long_fcollect(SHMEM_TEAM_WORLD, dest, source, count);
    shmem_getmem(back, dest, (size_t) n * count * sizeof *back, me);
    for (int i = 0; i < n * counts[k]; i++)
      CHECK(back[i] == number(i / counts[k], i % counts[k], 90 + k), "fcollect, %d", i);
    shmem_barrier_all();
    shmem_long_sum_reduce(SHMEM_TEAM_WORLD, dest, source, count);
    shmem_getmem(back, dest, count * sizeof *back, me);
    for (int i = 0; i < counts[k]; i++) {
      long sum = 0;
      for (int pe = 0; pe < n; pe++) sum += number(pe, i, 90 + k);
      CHECK(back[i] == sum, "sum, %d", i);
    }
    shmem_barrier_all();
    shmem_long_max_reduce(SHMEM_TEAM_WORLD, dest, source, count);
    shmem_long_sum_inscan(SHMEM_TEAM_WORLD, dest + N, source, count);
    shmem_getmem(back, dest + N, count * sizeof *back, me);
    for (int i = 0; i < counts[k]; i++) {
      long sum = 0;
      for (int pe = 0; pe <= me; pe++) sum += number(pe, i, 90 + k);
      CHECK(back[i] == sum, "inscan, %d", i);
    }
    shmem_barrier_all();
    const size_t block = count / (size_t) n;
    shmem_long_alltoall(SHMEM_TEAM_WORLD, dest, source, block);
    shmem_getmem(back, dest, (size_t) n * block * sizeof *back, me);
    const int each = (int) block;
    for (int i = 0; i < n * each; i++)
      CHECK(back[i] == number(i / each, me * each + i % each, 90 + k), "alltoall, %d", i);
    shmem_barrier_all();
  }
  /* Of a team of less than all. */
  shmem_team_t even;
  shmem_team_split_strided(SHMEM_TEAM_WORLD, 0, 2, (n + 1) / 2, NULL, 0, &even);
  if (even != SHMEM_TEAM_INVALID) {
    shmem_long_sum_reduce(even, dest, source, 10);
    for (int i = 0; i < 10; i++) {
      long sum = 0;
      for (int pe = 0; pe < n; pe += 2) sum += number(pe, i, 93);
      CHECK(word_of(&dest[i]) == sum, "sum of the even PEs, %d", i);
    }
    shmem_team_destroy(even);
  }
  shmem_barrier_all();
  /* Long doubles are combined by the library, on the host. */
  long double wide[3], sum[3];
  for (int i = 0; i < 3; i++) wide[i] = (long double) number(me, i, 99) / 8;
  fill(source, wide, sizeof wide);
  shmem_barrier_all();
  shmem_longdouble_sum_reduce(SHMEM_TEAM_WORLD, (long double *) dest, (long double *) source, 3);
  shmem_getmem(sum, dest, sizeof sum, me);
  for (int i = 0; i < 3; i++) {
    long double expected = 0;
    for (int pe = 0; pe < n; pe++) expected += (long double) number(pe, i, 99) / 8;
    CHECK(sum[i] == expected, "long double %d", i);
  }
  shmem_barrier_all();
}

static void allocations(void)
{
  long values[100], back[100];
  for (int i = 0; i < 100; i++) values[i] = number(me, i, 110);
  long *at = shmem_calloc(100, sizeof *at);
  shmem_getmem(back, at, sizeof back, me);
  for (int i = 0; i < 100; i++) CHECK(back[i] == 0, "calloc, %d", i);
  fill(at, values, sizeof values);
  at = shmem_realloc(at, 100000);
  shmem_getmem(back, at, sizeof back, me);
  CHECK(!memcmp(back, values, sizeof values), "realloc");
  shmem_free(at);
  long *aligned = shmem_align(4096, 64);
  CHECK((uintptr_t) aligned % 4096 == 0, "%p", (void *) aligned);
  shmem_free(aligned);
}

int main(void)
{
  begin();
  const char *device = getenv("RUSHMEM_DEVICE");
  on_gpu = device && !strncmp(device, "cuda", 4);
  char *heap = shmem_malloc(MOST + 8192);
  long *words = shmem_calloc(32 * 1000, sizeof *words);
  uint64_t *signals = shmem_malloc_with_hints(WORDS * sizeof *signals, SHMEM_MALLOC_SIGNAL_REMOTE);
  CHECK(heap && words && signals, "allocation");
  CHECK(shmem_addr_accessible(heap, next), "the heap");
  CHECK(!on_gpu || !shmem_addr_accessible(&on_gpu, next), "variables are not symmetric");
  puts_and_gets(heap);
  strides_and_words(words);
  atomics(words);
  signals_and_waits(heap, signals);
  contexts_and_locks(words);
  collectives(words);
  allocations();
  shmem_free(signals);
  shmem_free(words);
  shmem_free(heap);
  if (me == 0) printf("heaps in %s memory\n", on_gpu ? "GPU" : "host");
  return end();
}
