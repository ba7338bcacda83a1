/* Costs of OpenSHMEM's calls, in the functions that 1.4 and later versions share, so that it builds with
 * every library. Arguments: the number of PEs that are to be there, samples, sizes of puts and gets, sizes of
 * collectives, and "corrupt", which makes data wrong before it is looked at. PE 0 prints a line for each
 * figure: its name, bytes, and the nanoseconds of one call in each batch. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <sched.h>
#include <shmem.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SYNCS = 8, WINDOW = 64, NOTHING = 0 };
static long psync[SYNCS][SHMEM_REDUCE_SYNC_SIZE + SHMEM_COLLECT_SYNC_SIZE + SHMEM_ALLTOALL_SYNC_SIZE];
static long word;
static int me, n, samples, corrupt;
static char *to, *from;
static long *work[2];

static double now(void)
{
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* The lowest of the CPUs that share a core with this one; itself where the system does not say. */
static int first_of_core(int cpu)
{
  char name[96];
  int first = cpu;
  snprintf(name, sizeof name, "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu);
  FILE *list = fopen(name, "r");
  if (list) {
    if (fscanf(list, "%d", &first) != 1) first = cpu;
    fclose(list);
  }
  return first;
}

/* A core for each PE, where there are enough: one that waits must not take another one's time. */
static void pin(void)
{
  cpu_set_t allowed, only;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
  int cores = 0;
  for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) cores += CPU_ISSET(cpu, &allowed) && first_of_core(cpu) == cpu;
  const int whole = cores >= n;
  int place = me % (whole ? cores : CPU_COUNT(&allowed));
  for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
    if (CPU_ISSET(cpu, &allowed) && (!whole || first_of_core(cpu) == cpu) && place-- == 0) {
      CPU_ZERO(&only);
      CPU_SET(cpu, &only);
      sched_setaffinity(0, sizeof only, &only);
      return;
    }
}

static void wrong(const char *name, size_t bytes)
{
  fprintf(stderr, "%s of %zu bytes moved other data than it should: its figures mean nothing\n", name, bytes);
  shmem_global_exit(1);
}

/* Calls of a batch, and batches. */
static int calls_of(size_t bytes)
{
  return bytes <= 4096 ? 1000 : bytes <= 65536 ? 128 : bytes <= (1 << 20) ? 16 : 4;
}

static int batches_of(size_t bytes)
{
  const int share = bytes <= 4096 ? 1 : bytes <= 65536 ? 2 : bytes <= (1 << 20) ? 4 : 8;
  return samples / share < 3 ? 3 : samples / share;
}

/* Calls of one PE; the other one waits in a barrier. */
static void put(size_t bytes, int i)
{
  (void)i;
  shmem_putmem(to, from, bytes, n - 1);
}

static void p(size_t bytes, int i)
{
  (void)bytes;
  shmem_long_p((long *)to, i, n - 1);
}

static void put_quiet(size_t bytes, int i)
{
  (void)i;
  shmem_putmem(to, from, bytes, n - 1);
  shmem_quiet();
}

static void put_window(size_t bytes, int i)
{
  shmem_putmem_nbi(to, from, bytes, n - 1);
  if (i % WINDOW == WINDOW - 1) shmem_quiet();
}

static void get(size_t bytes, int i)
{
  (void)i;
  shmem_getmem(to, from, bytes, n - 1);
}

static void get_window(size_t bytes, int i)
{
  shmem_getmem_nbi(to, from, bytes, n - 1);
  if (i % WINDOW == WINDOW - 1) shmem_quiet();
}

static void fetch_add(size_t bytes, int i)
{
  (void)bytes;
  (void)i;
  shmem_long_atomic_fetch_add(&word, 1, n - 1);
}

static void compare_swap(size_t bytes, int i)
{
  (void)bytes;
  shmem_long_atomic_compare_swap(&word, i, i + 1, n - 1);
}

/* Calls of all PEs. Eight arrays in turns: nobody is so far ahead that one is still in use. */
static void barrier(size_t bytes, int i)
{
  (void)bytes;
  (void)i;
  shmem_barrier_all();
}

static void broadcast(size_t bytes, int i)
{
  shmem_broadcast64(to, from, bytes / 8, i % n, 0, 0, n, psync[i % SYNCS]);
}

static void reduce(size_t bytes, int i)
{
  shmem_long_sum_to_all((long *)to, (long *)from, (int)(bytes / 8), 0, 0, n, work[i % 2], psync[i % SYNCS]);
}

static void fcollect(size_t bytes, int i)
{
  shmem_fcollect64(to, from, bytes / 8 / (size_t)n, 0, 0, n, psync[i % SYNCS]);
}

static void alltoall(size_t bytes, int i)
{
  shmem_alltoall64(to, from, bytes / 8 / (size_t)n, 0, 0, n, psync[i % SYNCS]);
}

static void measure(const char *name, void (*call)(size_t, int), size_t bytes, int all)
{
  const int calls = calls_of(bytes), batches = batches_of(bytes);
  double *times = malloc((size_t)batches * sizeof *times);
  shmem_barrier_all();
  if (all || me == 0) {
    for (int i = 0; i < calls; i++) call(bytes, i);
    shmem_quiet();
    for (int k = 0; k < batches; k++) {
      if (all) shmem_barrier_all();
      const double start = now();
      for (int i = 0; i < calls; i++) call(bytes, i);
      if (!all) shmem_quiet();
      times[k] = (now() - start) / calls;
    }
  }
  shmem_barrier_all();
  if (me == 0) {
    printf("%s %zu", name, bytes);
    for (int k = 0; k < batches; k++) printf(" %.2f", times[k]);
    printf("\n");
  }
  free(times);
}

/* What a PE has at place `i` of its source. */
static long value(int pe, size_t i)
{
  return pe * 1000003L + (long)i;
}

static void fill(size_t bytes)
{
  memset(to, 0, bytes);
  for (size_t i = 0; i < bytes / 8; i++) ((long *)from)[i] = value(me, i);
  shmem_barrier_all();
}

/* What `to` holds at place `i` after a collective. */
static long expected(const char *name, size_t words, size_t i)
{
  const size_t block = words / (size_t)n;
  if (!strcmp(name, "reduce")) {
    long sum = 0;
    for (int pe = 0; pe < n; pe++) sum += value(pe, i);
    return sum;
  }
  if (!strcmp(name, "fcollect")) return value((int)(i / block), i % block);
  return value((int)(i / block), (size_t)me * block + i % block);
}

static void collective(const char *name, void (*call)(size_t, int), size_t bytes)
{
  fill(bytes);
  measure(name, call, bytes, 1);
  if (corrupt) to[0] ^= 1;
  const size_t words = bytes / 8 / (size_t)n * (size_t)n;
  if (!strcmp(name, "broadcast")) {
    /* The root of the last call has no more than what others sent. */
    const int root = (calls_of(bytes) - 1) % n;
    for (size_t i = 0; me != root && i < bytes / 8; i++)
      if (((long *)to)[i] != value(root, i)) wrong(name, bytes);
  } else {
    for (size_t i = 0; i < words; i++)
      if (((long *)to)[i] != expected(name, words, i)) wrong(name, bytes);
  }
  shmem_barrier_all();
}

/* Puts and gets, and that they have moved what they should. */
static void rma(size_t bytes)
{
  fill(bytes + 8);
  if (bytes == 8) {
    measure("put", put, bytes, 0);
    measure("p", p, bytes, 0);
    measure("put_rate", put_window, bytes, 0);
  }
  measure("put_quiet", put_quiet, bytes, 0);
  measure("put_bandwidth", put_window, bytes, 0);
  if (me == n - 1) {
    if (corrupt) to[0] ^= 1;
    for (size_t i = 0; i < bytes / 8; i++)
      if (((long *)to)[i] != value(0, i)) wrong("put", bytes);
  }
  shmem_barrier_all();
  measure("get", get, bytes, 0);
  measure("get_bandwidth", get_window, bytes, 0);
  if (me == 0) {
    for (size_t i = 0; i < bytes / 8; i++)
      if (((long *)to)[i] != value(n - 1, i)) wrong("get", bytes);
  }
  shmem_barrier_all();
}

/* The next of numbers with commas between them; 0 behind the last. */
static size_t next(char **list)
{
  return **list ? (size_t)strtoul(*list + (**list == ','), list, 10) : 0;
}

int main(int argc, char **argv)
{
  shmem_init();
  me = shmem_my_pe();
  n = shmem_n_pes();
  if (argc < 5 || n != atoi(argv[1])) {
    fprintf(stderr, "%d PEs where there are to be %s\n", n, argc > 1 ? argv[1] : "some");
    shmem_global_exit(1);
  }
  pin();
  samples = atoi(argv[2]);
  corrupt = argc > 5;
  for (int i = 0; i < SYNCS; i++)
    for (size_t k = 0; k < sizeof psync[0] / sizeof psync[0][0]; k++) psync[i][k] = SHMEM_SYNC_VALUE;
  size_t most = 64, bytes;
  for (int k = 3; k < 5; k++)
    for (char *list = argv[k]; (bytes = next(&list));) most = bytes > most ? bytes : most;
  to = shmem_malloc(most + 64);
  from = shmem_malloc(most + 64);
  for (int i = 0; i < 2; i++)
    work[i] = shmem_malloc(most / 2 + 8 * (SHMEM_REDUCE_MIN_WRKDATA_SIZE + 1));
  if (!to || !from || !work[0] || !work[1]) {
    fprintf(stderr, "no symmetric memory for %zu bytes\n", most);
    shmem_global_exit(1);
  }
  /* Its pages lie one behind the other then, not as sizes come to need them. */
  memset(to, 0, most + 64);
  memset(from, 0, most + 64);
  shmem_barrier_all();
  if (n == 2) {
    for (char *list = argv[3]; (bytes = next(&list));) rma(bytes);
    measure("fetch_add", fetch_add, 8, 0);
    /* As often as batches say, and once to warm up. */
    if (me == n - 1 && word != (long)(batches_of(8) + 1) * calls_of(8)) wrong("fetch_add", 8);
    shmem_barrier_all();
    measure("compare_swap", compare_swap, 8, 0);
  }
  measure("barrier", barrier, NOTHING, 1);
  for (char *list = argv[4]; (bytes = next(&list));) {
    collective("broadcast", broadcast, bytes);
    collective("reduce", reduce, bytes);
    collective("fcollect", fcollect, bytes);
    collective("alltoall", alltoall, bytes);
  }
  /* Whatever a library's end does: Open MPI 4.1 over UCX 1.13 crashes in shmem_finalize. */
  if (me == 0) {
    printf("end 0\n");
    fflush(stdout);
  }
  shmem_finalize();
  return 0;
}
