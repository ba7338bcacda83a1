/* MPI and OpenSHMEM in one program: the first argument says which of them begins. Where OpenSHMEM does, it
 * has started MPI to find the other PEs, and ends it. */
#include <mpi.h>

#include "check.h"

static long from = -1;

int main(int argc, char **argv)
{
  const int mpi_first = argc > 1 && !strcmp(argv[1], "mpi");
  if (mpi_first) MPI_Init(&argc, &argv);
  begin();
  int is_up;
  MPI_Initialized(&is_up);
  if (!is_up) MPI_Init(&argc, &argv);
  int rank, ranks;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  CHECK(rank == me && ranks == n, "rank %d of %d is PE %d of %d", rank, ranks, me, n);
  for (int i = 0; i < 20; i++) {
    shmem_long_p(&from, me + i, next);
    shmem_barrier_all();
    long sum = 0;
    MPI_Allreduce(&from, &sum, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    CHECK(from == prev + i && sum == (long) n * (n - 1) / 2 + (long) n * i, "round %d: %ld", i, sum);
    shmem_barrier_all();
  }
  const int failed = end();
  int is_over;
  MPI_Finalized(&is_over);
  if (!is_over) MPI_Finalize();
  return failed;
}
