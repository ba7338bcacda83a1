/* shmem_global_exit by one PE while the others are anywhere, each with text in a file that is not written out
 * yet; and the ends of a program without shmem_finalize. */
#include <pthread.h>
#include <unistd.h>

#include "check.h"

static long word, lock, count, sink;
static volatile long *heap;
static long inbox[1 << 15], source[1 << 15];

static void at_exit(void)
{
  printf("PE %d runs its exit handlers\n", me);
}

/* Memory is there, and what needs the other PEs ends the process as it was to end. */
static void late(void)
{
  usleep(100000);
  heap[0]++;
  printf("PE %d has come late\n", shmem_my_pe());
  shmem_finalize();
  printf("PE %d has come back\n", me);
}

/* Calls of each kind, and the heap itself, while another thread ends the job. */
static void *busy(void *which)
{
  for (;;) switch (*(int *) which) {
    case 0: shmem_long_wait_until(&word, SHMEM_CMP_EQ, 7); break;
    case 1: shmem_long_atomic_inc(&count, next); break;
    case 2: shmem_set_lock(&lock), shmem_clear_lock(&lock); break;
    case 3: shmem_long_get(&sink, &count, 1, next), shmem_quiet(); break;
    case 4: heap[1]++; break;
    case 5: usleep(50000), shmem_global_exit(9); break;
    }
}

int main(int argc, char **argv)
{
  const char *where = argc > 1 ? argv[1] : "", *folder = argc > 2 ? argv[2] : "";
  const int status = argc > 3 ? atoi(argv[3]) : 0;
  if (!strcmp(where, "start_pes")) {
    /* Returns without finalising: what was put is there before any PE's memory goes. */
    start_pes(0);
    me = shmem_my_pe(), n = shmem_n_pes();
    for (int i = 0; i < 1 << 15; i++) source[i] = i;
    shmem_long_put_nbi(inbox, source, 1 << 15, (me + 1) % n);
    shmem_long_p(&word, 1, (me + 1) % n);
    printf("PE %d of %d: all well\n", me, n);
    return 0;
  }
  const int threads = !strcmp(where, "threads") || !strcmp(where, "thread");
  int level;
  if (threads) shmem_init_thread(SHMEM_THREAD_MULTIPLE, &level);
  begin();
  char path[4096];
  snprintf(path, sizeof path, "%s/%d", folder, me);
  FILE *file = fopen(path, "w");
  CHECK(file && atexit(at_exit) == 0, "%s", path);
  fprintf(file, "written by PE %d", me);
  printf("a line without an end");
  heap = shmem_malloc(64);
  shmem_barrier_all();
  if (threads) {
    static const int kinds[] = {0, 1, 2, 3, 4, 5};
    const int by_thread = !strcmp(where, "thread") && me == n - 1;
    atexit(late);
    pthread_t thread;
    for (int i = 0; i < 5 + by_thread; i++) pthread_create(&thread, NULL, busy, (void *) &kinds[i]);
    if (by_thread) busy((void *) &kinds[0]);
  }
  const int ends = me == n - 1 || (!strcmp(where, "twice") && me == 0);
  if (ends) {
    usleep(50000);
    shmem_global_exit(status + (me == 0));
  }
  if (!strcmp(where, "barrier")) shmem_barrier_all();
  if (!strcmp(where, "wait")) shmem_long_wait_until(&word, SHMEM_CMP_EQ, 1);
  if (!strcmp(where, "malloc")) shmem_malloc(8);
  if (!strcmp(where, "finalize")) shmem_finalize();
  if (!strcmp(where, "input")) getchar();
  if (!strcmp(where, "lock"))
    for (;;) shmem_set_lock(&lock), shmem_clear_lock(&lock);
  for (volatile unsigned long i = 0;; i++) {}
}
