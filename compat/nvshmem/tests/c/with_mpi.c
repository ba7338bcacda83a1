/* A start by a communicator of MPI's. */
#include <mpi.h>

#include "check.h"

int main(int argc, char **argv)
{
  MPI_Init(&argc, &argv);
  int rank, n;
  MPI_Comm comm = MPI_COMM_WORLD;
  MPI_Comm_rank(comm, &rank);
  MPI_Comm_size(comm, &n);
  nvshmemx_init_attr_t attr = NVSHMEMX_INIT_ATTR_INITIALIZER;
  if (nvshmemx_set_attr_mpi_comm_args(&comm, &attr) != 0 || attr.mpi_comm != &comm) MPI_Abort(comm, 2);
  if (nvshmemx_init_attr(NVSHMEMX_INIT_WITH_MPI_COMM, &attr) != 0) MPI_Abort(comm, 1);
  CHECK(nvshmem_my_pe() == rank && nvshmem_n_pes() == n);
  int *word = nvshmem_malloc(sizeof *word);
  nvshmem_int_p(word, rank + 1, (rank + 1) % n);
  nvshmem_barrier_all();
  CHECK(nvshmem_int_g(word, rank) == (rank + n - 1) % n + 1);
  nvshmem_free(word);
  all_well();
  nvshmem_finalize();
  MPI_Finalize();
  return 0;
}
