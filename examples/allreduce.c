/* A ring allreduce from C: the kernel of allreduce.cu, read at run time, on every PE; three rounds, each
 * element compared with a serial sum.
 *
 *     cc -std=c11 allreduce.c -o allreduce $(pkg-config --cflags --libs rushmem)
 *     rushmem-run -n 4 -- ./allreduce allreduce.cu 100000
 */
#include <rushmem.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 3 };

static rushmem_world_t *world;

/* Ends this PE and, by rushmem_abort, the others' waits, with the reason. */
static void die(const char *what, const char *why) {
  fprintf(stderr, "allreduce: %s: %s\n", what, why);
  if (world) rushmem_abort(world, what);
  exit(1);
}

static void ok(int32_t code, const char *what) {
  if (code != RUSHMEM_OK) die(what, rushmem_last_error());
}

static char *read_file(const char *path, size_t *bytes) {
  FILE *file = fopen(path, "rb");
  if (!file || fseek(file, 0, SEEK_END) != 0)
    die(path, "cannot be read; usage: allreduce KERNEL-FILE [LENGTH [BLOCKS [THREADS]]]");
  const long size = ftell(file);
  rewind(file);
  char *text = malloc((size_t)size + 1);
  if (!text || fread(text, 1, (size_t)size, file) != (size_t)size) die(path, "cannot be read");
  fclose(file);
  *bytes = (size_t)size;
  return text;
}

static uint64_t number(int argc, char **argv, int at, uint64_t otherwise, uint64_t least, uint64_t most) {
  char *end = NULL;
  const uint64_t value = argc > at ? strtoull(argv[at], &end, 10) : otherwise;
  if (value < least || value > most || (end && *end)) die(argv[at], "is no number that makes sense here");
  return value;
}

/* What a PE adds in a round. */
static int64_t part(int32_t pe, uint64_t i, uint64_t round) {
  return (int64_t)(i % 1000 * 3 + round) * (pe + 1) - (int64_t)i;
}

int main(int argc, char **argv) {
  const uint64_t len = number(argc, argv, 2, 100000, 1, 1u << 28);
  const uint64_t blocks = number(argc, argv, 3, 2, 1, 1024), threads = number(argc, argv, 4, 64, 1, 1024);
  size_t bytes = 0;
  char *source = read_file(argc > 1 ? argv[1] : "allreduce.cu", &bytes);

  ok(rushmem_init(NULL, &world), "joining the job");
  const int32_t me = rushmem_my_pe(world), n = rushmem_n_pes(world);
  int64_t *data, *inbox;
  uint64_t *arrived;
  ok(rushmem_alloc(world, len * sizeof *data, 0, (void **)&data), "memory for the data");
  ok(rushmem_alloc(world, len * sizeof *inbox, 0, (void **)&inbox), "memory for what comes in");
  /* Fresh symmetric memory is zero. With one PE there is no step, and no word is needed. */
  const size_t words = n > 1 ? (size_t)blocks * 2 * (size_t)(n - 1) : 1;
  ok(rushmem_alloc(world, words * sizeof *arrived, 0, (void **)&arrived), "signals");

  rushmem_module_t *module;
  rushmem_kernel_t *kernel;
  ok(rushmem_module_load(world, source, bytes, "allreduce.cu", NULL, 0, &module), "compiling allreduce.cu");
  ok(rushmem_module_kernel(module, "allreduce", &kernel), "the kernel");
  free(source);
  rushmem_launch_t launch;
  memset(&launch, 0, sizeof launch);
  launch.size = sizeof launch;
  launch.grid[0] = (uint32_t)blocks;
  launch.block[0] = (uint32_t)threads;
  launch.grid[1] = launch.grid[2] = launch.block[1] = launch.block[2] = 1;

  int64_t *copy = malloc(len * sizeof *copy);
  if (!copy) die("memory", "there is none left");
  for (uint64_t round = 1; round <= ROUNDS; round++) {
    /* The heap may be in a GPU's memory, which only the library reaches: data goes in by put, out by get. */
    for (uint64_t i = 0; i < len; i++) copy[i] = part(me, i, round);
    ok(rushmem_int64_put(world, data, copy, len, me), "filling the array");
    /* All arrays are filled, and the last round is over. */
    ok(rushmem_barrier_all(world), "waiting for the others");

    const void *args[] = {&data, &inbox, &arrived, &len, &round};
    ok(rushmem_launch(kernel, &launch, args, NULL, 5), "the launch");
    ok(rushmem_synchronize(world), "the kernel");

    ok(rushmem_int64_get(world, copy, data, len, me), "reading the sums");
    for (uint64_t i = 0; i < len; i++) {
      int64_t sum = 0;
      for (int32_t pe = 0; pe < n; pe++) sum += part(pe, i, round);
      if (copy[i] != sum) {
        fprintf(stderr, "PE %d, round %d: element %llu is %lld, not %lld\n", (int)me, (int)round,
                (unsigned long long)i, (long long)copy[i], (long long)sum);
        die("wrong sum", "see above");
      }
    }
  }
  ok(rushmem_barrier_all(world), "waiting for the others"); /* nobody has found anything wrong */
  free(copy);

  const char *device;
  ok(rushmem_device_name(world, &device), "the device");
  if (me == 0) {
    printf("allreduce: %llu numbers on %d PEs x %d blocks, %d rounds, every sum as in a serial run\n",
           (unsigned long long)len, (int)n, (int)blocks, ROUNDS);
    printf("allreduce: device: %s (%d threads a block)\n", strcmp(device, "the CPU") ? device : "CPU",
           (int)threads);
  }
  ok(rushmem_finalize(world), "leaving");
  return 0;
}
