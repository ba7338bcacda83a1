/* One mistake a run, by its number; PE 0 makes it, the others wait for what never comes. */
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include "check.h"

static long word, lock, array[64], psync[SHMEM_BCAST_SYNC_SIZE], used[SHMEM_BCAST_SYNC_SIZE] = {7};
static const char *const constants[] = {"in RELRO"};

static long large[4096];

static shmem_ctx_t own;

/* Behind two pages that are there nothing is. */
static void *unmapped(void)
{
  char *pages = mmap(NULL, 4 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  munmap(pages + 3 * 4096, 4096);
  return pages + 3 * 4096;
}

static void *read_only(void)
{
  return mmap(NULL, 4 * 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

static void *past_the_file(void)
{
  FILE *file = tmpfile();
  return mmap(NULL, 4096, PROT_READ, MAP_SHARED, fileno(file), 0);
}

static void *other_thread(void *nothing)
{
  (void) nothing;
  shmem_ctx_long_p(own, &word, 1, 0);
  return NULL;
}

int main(int argc, char **argv)
{
  const int which = argc > 1 ? atoi(argv[1]) : 0;
  long here = 0;
  if (which == 0) shmem_long_p(&word, 1, 0);
  begin();
  long *freed = shmem_malloc(8);
  shmem_free(freed);
  shmem_ctx_t ctx;
  shmem_ctx_create(0, &ctx);
  shmem_ctx_destroy(ctx);
  if (me == 0) switch (which) {
    case 1: shmem_long_p(&word, 1, n); break;
    case 2: shmem_long_put(freed, &here, 1, 0); break;
    case 3: shmem_long_get(&here, &here, 1, 0); break;
    case 4: shmem_ctx_long_p(ctx, &word, 1, 0); break;
    case 5: shmem_team_sync((shmem_team_t) 12345); break;
    case 6: shmem_putmem(&word, &here, SIZE_MAX / 2, 0); break;
    case 7: shmem_putmem((void *) constants, &here, 8, 0); break;
    case 8: shmem_clear_lock(&lock); break;
    case 9: shmem_long_atomic_inc((long *) ((char *) &word + 1), 0); break;
    case 10: shmem_long_wait_until(&word, 77, 1); break;
    case 11: shmem_barrier(5, 1, 3, &word); break;
    case 12: shmem_init_thread(9, NULL); break;
    case 13: shmem_global_exit(7); break;
    case 14: shmem_put64(NULL, &here, 1, 0); break;
    case 15: abort();
    case 16: shmem_putmem(array + 1, array, 64, 0); break;
    case 17: shmem_barrier(0, 0, n, used); break;
    case 18:
      /* Without waiting until the first one is over. */
      for (int i = 0; i < 3; i++) shmem_broadcast64(array, array + 8, 8, 0, 0, 0, 2, psync);
      shmem_long_p(&word, 18, 1);
      break;
    case 19: shmem_long_fcollect(SHMEM_TEAM_WORLD, array, array + 8, 4); break;
    case 22: {
      pthread_t thread;
      shmem_ctx_create(SHMEM_CTX_PRIVATE, &own);
      pthread_create(&thread, NULL, other_thread, NULL);
      pthread_join(thread, NULL);
      break;
    }
    case 20: shmem_long_broadcast(SHMEM_TEAM_WORLD, array, array + 1, 8, 0); break;
    case 26: shmem_long_alltoall(SHMEM_TEAM_WORLD, array, (long *) 64, 1); break;
    case 27: shmem_long_fcollect(SHMEM_TEAM_WORLD, (long *) constants, array, 1); break;
    case 28: shmem_long_atomic_fetch_add_nbi(NULL, &word, 1, 0); break;
    case 29: shmem_info_get_name(NULL); break;
    case 30: shmem_long_put(array, (long *) 16, 1, 1); break;
    case 31: shmem_long_get(read_only(), array, 1, 1); break;
    case 32: shmem_putmem(array, (char *) unmapped() - 100, 200, 1); break;
    case 33: shmem_getmem((char *) unmapped() - 9000, large, 10000, 1); break;
    case 34: shmem_long_wait_until_all(&word, 1, (int *) 8, SHMEM_CMP_EQ, 1); break;
    case 35: shmem_info_get_name(unmapped()); break;
    case 36: shmem_long_atomic_fetch_add_nbi((long *) 24, &word, 1, 1); break;
    case 37: shmem_long_put_nbi(large, unmapped(), 1000, 1); break;
    case 38: shmem_long_get_nbi(read_only(), large, 1000, 1); break;
    case 39: shmem_long_iput(array, (long *) unmapped() - 4, 1, 2, 4, 1); break;
    case 40: shmem_long_iget((long *) unmapped() - 4, array, 2, 1, 4, 1); break;
    case 41: shmem_long_wait_until_all(&word, 1, (int *) (1ull << 62), SHMEM_CMP_EQ, 1); break;
    case 42: shmem_init_thread(0, (int *) 4); break;
    case 43: shmem_long_wait_until_any_vector(array, 1, NULL, SHMEM_CMP_EQ, (long *) 32); break;
    case 44: shmem_putmem(array, past_the_file(), 8, 1); break;
    /* Addresses that wrap around, in steps of -2 and 0 bytes, and by their number. */
    case 45: shmem_ibput16(array, large, PTRDIFF_MAX, 3, 2, 1 << 30, 0); break;
    case 46: shmem_ibget64(large, array, PTRDIFF_MAX / 4 + 1, 3, 2, 5, 0); break;
    case 47: shmem_ibput32(array, large, 3, 5, 2, SIZE_MAX / 8, 0); break;
    case 48: shmem_ibput16((void *) -4096, large, 3, 3, 2, 4096, 0); break;
    }
  if (which == 18 && me == 1) {
    shmem_long_wait_until(&word, SHMEM_CMP_EQ, 18);
    shmem_broadcast64(array, array + 8, 8, 0, 0, 0, 2, psync);
  }
  if (which == 19) shmem_long_fcollect(SHMEM_TEAM_WORLD, array, array + 8, 3);
  for (int i = 0; which == 23 && i < 500; i++) {
    /* The other PE waits, and naps; PE 0 comes last, leaves at once, and uses the array again. */
    if (me == 0) usleep(10000);
    for (int k = 0; k < 2; k++) shmem_broadcast64(array, array + 8, 8, 0, 0, 0, n, psync);
    shmem_barrier_all();
  }
  if (which == 20) shmem_long_broadcast(SHMEM_TEAM_WORLD, array, array + 1, 8, 0);
  if (which == 21) {
    /* The one who has the lock dies. */
    if (me == 0) shmem_set_lock(&lock);
    shmem_barrier_all();
    if (me == 0) abort();
    shmem_set_lock(&lock);
  }
  if (which == 24) {
    /* The next one in the queue dies, and then the lock is given to it. */
    if (me == 0) shmem_set_lock(&lock);
    shmem_barrier_all();
    if (me == 1) alarm(1);
    if (me == 0) sleep(2), shmem_clear_lock(&lock);
    shmem_set_lock(&lock);
  }
  if (which == 25) {
    /* The one where the queue's end is dies; another has the lock. */
    if (me == 1) shmem_set_lock(&lock);
    shmem_barrier_all();
    if (me == 0) abort();
    if (me == 1) sleep(1), shmem_clear_lock(&lock);
    shmem_set_lock(&lock);
  }
  /* Computing, as the library sees it. */
  for (volatile unsigned long i = 0;; i++)
    if (which != 13) shmem_long_wait_until(&word, SHMEM_CMP_EQ, -1);
}
