/* MPI and OpenSHMEM in one program. The first argument says which of them begins and which ends: "mpi" and
 * "shmem" ask MPI_Initialized before they begin MPI, "plain" does not ask, "inside" and "threads" do not
 * either and end MPI first. Where OpenSHMEM begins it has started MPI to find the other PEs. */
#include <mpi.h>

#include "check.h"

static long from = -1;

static void rounds(void)
{
  for (int i = 0; i < 20; i++) {
    shmem_long_p(&from, me + i, next);
    shmem_barrier_all();
    long sum = 0;
    MPI_Allreduce(&from, &sum, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    CHECK(from == prev + i && sum == (long) n * (n - 1) / 2 + (long) n * i, "round %d: %ld", i, sum);
    shmem_barrier_all();
  }
}

int main(int argc, char **argv)
{
  const char *order = argc > 1 ? argv[1] : "shmem";
  const int plain = !strcmp(order, "plain"), inside = !strcmp(order, "inside");
  const int threads = !strcmp(order, "threads");
  if (!strcmp(order, "mpi")) MPI_Init(&argc, &argv);
  begin();
  int is_up;
  MPI_Initialized(&is_up);
  if (threads) {
    int level = -1;
    CHECK(MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &level) == MPI_SUCCESS, "MPI's beginning");
    CHECK(level >= MPI_THREAD_SERIALIZED && level <= MPI_THREAD_MULTIPLE, "level %d", level);
  } else if (plain || inside || !is_up)
    MPI_Init(&argc, &argv);
  int rank, ranks;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  CHECK(rank == me && ranks == n, "rank %d of %d is PE %d of %d", rank, ranks, me, n);
  rounds();
  if (inside || threads) {
    MPI_Finalize();
    shmem_barrier_all();
    return end();
  }
  /* MPI outlives OpenSHMEM. */
  const int failed = end();
  int is_over;
  MPI_Finalized(&is_over);
  if (!is_over) {
    long sum = 0, one = 1;
    MPI_Allreduce(&one, &sum, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    if (sum != ranks) return 4;
    MPI_Finalize();
  }
  return failed;
}
