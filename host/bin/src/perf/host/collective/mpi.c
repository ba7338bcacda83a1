/* The collectives of an MPI, as pe.rs beside this file measures ours: the same sizes, the same batches.
 * Arguments: the number of ranks that are to be there, samples, then sizes. Rank 0 prints a line for each:
 * its name, bytes, and the nanoseconds of one call in each batch. */
#include <mpi.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static int rank, ranks;
static void *to, *from;

static double now(void)
{
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void allreduce(size_t bytes, int i)
{
  (void)i;
  MPI_Allreduce(from, to, (int)(bytes / sizeof(float)), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static void bcast(size_t bytes, int i)
{
  MPI_Bcast(to, (int)bytes, MPI_BYTE, i % ranks, MPI_COMM_WORLD);
}

static void alltoall(size_t bytes, int i)
{
  (void)i;
  const int block = (int)(bytes / (size_t)ranks);
  MPI_Alltoall(from, block, MPI_BYTE, to, block, MPI_BYTE, MPI_COMM_WORLD);
}

static void allgather(size_t bytes, int i)
{
  (void)i;
  const int part = (int)(bytes / (size_t)ranks);
  MPI_Allgather(from, part, MPI_BYTE, to, part, MPI_BYTE, MPI_COMM_WORLD);
}

static void barrier(size_t bytes, int i)
{
  (void)bytes;
  (void)i;
  MPI_Barrier(MPI_COMM_WORLD);
}

/* As pe.rs has it. */
static int calls_of(size_t bytes)
{
  return bytes <= 4096 ? 200 : bytes <= 65536 ? 50 : bytes <= (1 << 20) ? 8 : 2;
}

static int samples_of(size_t bytes, int samples)
{
  const int share = bytes <= 4096 ? 1 : bytes <= 65536 ? 2 : bytes <= (1 << 20) ? 8 : 40;
  return samples / share < 3 ? 3 : samples / share;
}

static void measure(const char *name, void (*call)(size_t, int), size_t bytes, int samples)
{
  const int calls = calls_of(bytes), batches = samples_of(bytes, samples);
  double *times = malloc((size_t)batches * sizeof *times);
  for (int i = 0; i < calls; i++) call(bytes, i);
  for (int k = 0; k < batches; k++) {
    MPI_Barrier(MPI_COMM_WORLD);
    const double start = now();
    for (int i = 0; i < calls; i++) call(bytes, i);
    times[k] = (now() - start) / calls;
  }
  if (rank == 0) {
    printf("%s %zu", name, bytes);
    for (int k = 0; k < batches; k++) printf(" %.1f", times[k]);
    printf("\n");
  }
  free(times);
}

int main(int argc, char **argv)
{
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (argc < 4 || ranks != atoi(argv[1])) {
    fprintf(stderr, "%d ranks where there are to be %s\n", ranks, argc > 1 ? argv[1] : "some");
    return 1;
  }
  const int samples = atoi(argv[2]);
  size_t most = 0;
  for (int k = 3; k < argc; k++) most = (size_t)atoll(argv[k]) > most ? (size_t)atoll(argv[k]) : most;
  to = malloc(most + 64);
  from = malloc(most + 64);
  if (to == NULL || from == NULL) {
    fprintf(stderr, "there is no memory for arrays of %zu bytes\n", most);
    return 1;
  }
  /* What ours has. Of memory that holds nothing but zeros a compiler makes a calloc, whose pages are all one
   * page of the kernel's until they are written: it was read out of the first cache. */
  memset(to, 1, most + 64);
  for (size_t i = 0; i < most / sizeof(float); i++) ((float *)from)[i] = (float)((size_t)rank * 31 + i % 1000);
  measure("barrier", barrier, 0, samples);
  for (int k = 3; k < argc; k++) {
    const size_t bytes = (size_t)atoll(argv[k]);
    measure("allreduce", allreduce, bytes, samples);
    measure("broadcast", bcast, bytes, samples);
    measure("alltoall", alltoall, bytes, samples);
    measure("allgather", allgather, bytes, samples);
  }
  MPI_Finalize();
  return 0;
}
