/* Compiles a file of tests/kernels for the PE's device, launches each of its kernels on all PEs, and looks at
 * what they report. Arguments: the file, and options of the compiler; with `load` in front of them it is
 * compiled and not run, so that processes to come find it in the cache. */
#include <stdbool.h>
#include <time.h>

#include "check.h"

enum { ROOM = 1 << 16, SIGNALS = 64 };

static void fine(int32_t code, const char *what)
{
  if (code == RUSHMEM_OK) return;
  fprintf(stderr, "%s: %s\n", what, rushmem_last_error());
  nvshmem_global_exit(5);
}

int main(int argc, char **argv)
{
  static char text[1 << 20];
  const bool run = argc < 2 || strcmp(argv[1], "load") != 0;
  if (!run) argc--, argv++;
  FILE *file = argc > 1 ? fopen(argv[1], "r") : NULL;
  if (!file) return 2;
  const size_t length = fread(text, 1, sizeof text, file);
  fclose(file);

  nvshmem_init();
  const int me = nvshmem_my_pe(), n = nvshmem_n_pes();
  char *a = nvshmem_malloc(ROOM), *b = nvshmem_malloc(ROOM);
  uint64_t *sig = nvshmem_calloc(SIGNALS, sizeof *sig);
  unsigned *bad = nvshmem_calloc(1, sizeof *bad);
  uint64_t salt = (uint64_t) time(NULL);
  nvshmem_uint64_broadcast(NVSHMEM_TEAM_WORLD, &salt, &salt, 1, 0);
  /* Every other PE. */
  nvshmem_team_t even, odd = NVSHMEM_TEAM_INVALID;
  CHECK(nvshmem_team_split_strided(NVSHMEM_TEAM_WORLD, 0, 2, (n + 1) / 2, NULL, 0, &even) == 0);
  if (n > 1) CHECK(nvshmem_team_split_strided(NVSHMEM_TEAM_WORLD, 1, 2, n / 2, NULL, 0, &odd) == 0);
  nvshmem_team_t team = me % 2 == 0 ? even : odd;

  struct timespec begin, end;
  clock_gettime(CLOCK_MONOTONIC, &begin);
  rushmem_module_t *module;
  fine(rushmem_module_load(world(), text, length, argv[1], (const char *const *) argv + 2, (size_t) argc - 2, &module),
       argv[1]);
  clock_gettime(CLOCK_MONOTONIC, &end);
  if (me == 0) {
    printf("%s: compiled and loaded in %.1f s\n", argv[1],
           (double) (end.tv_sec - begin.tv_sec) + (double) (end.tv_nsec - begin.tv_nsec) * 1e-9);
    fflush(stdout);
  }
  static const char zeroes[ROOM];
  const char *name;
  size_t count = 0;
  for (; rushmem_module_kernel_names(module, count, &name) == RUSHMEM_OK; count++) {
    if (!run) continue;
    rushmem_kernel_t *kernel;
    if (me == 0) printf("%s\n", name);
    fflush(stdout);
    fine(rushmem_module_kernel(module, name, &kernel), name);
    nvshmem_putmem(a, zeroes, ROOM, me);
    nvshmem_putmem(b, zeroes, ROOM, me);
    nvshmem_putmem(sig, zeroes, SIGNALS * sizeof *sig, me);
    nvshmem_barrier_all();
    const rushmem_launch_t shape = {.size = sizeof shape, .grid = {1, 1, 1}, .block = {64, 1, 1}};
    const void *arguments[] = {&a, &b, &sig, &bad, &salt, &team};
    fine(rushmem_launch(kernel, &shape, arguments, NULL, 6), name);
    fine(rushmem_synchronize(world()), name);
    unsigned line = nvshmem_uint_g(bad, me);
    if (line) {
      fprintf(stderr, "%s, seed %llu: PE %d: %s is wrong at line %u\n", argv[1], (unsigned long long) salt, me, name, line);
      nvshmem_global_exit(3);
    }
    nvshmem_barrier_all();
  }
  if (count == 0) {
    fprintf(stderr, "%s has no kernels\n", argv[1]);
    nvshmem_global_exit(6);
  }
  if (me == 0) printf("%zu kernels of %s\n", count, argv[1]);
  nvshmem_team_destroy(me % 2 == 0 ? even : odd);
  nvshmem_free(bad);
  nvshmem_free(sig);
  nvshmem_free(b);
  nvshmem_free(a);
  all_well();
  nvshmem_finalize();
  return 0;
}
