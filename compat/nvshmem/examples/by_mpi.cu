/* Starts of a program of MPI's: by its communicator, and with `--id` by a unique ID that MPI carries. Then
 * MPI and NVSHMEM say the same. */
#include <nvshmem.h>

__global__ void spread(long *table, long word) {
  for (int pe = threadIdx.x; pe < nvshmem_n_pes(); pe += blockDim.x) {
    nvshmem_long_p(table + nvshmem_my_pe(), word, pe);
  }
}

/* The host's part. */
#include "example.h"

#include <mpi.h>

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  int rank = 0, n = 0;
  MPI_Comm all = MPI_COMM_WORLD;
  MPI_Comm_rank(all, &rank);
  MPI_Comm_size(all, &n);
  nvshmemx_init_attr_t attr = NVSHMEMX_INIT_ATTR_INITIALIZER;
  int code = 0;
  if (argc > 1 && std::strcmp(argv[1], "--id") == 0) {
    nvshmemx_uniqueid_t id = NVSHMEMX_UNIQUEID_INITIALIZER;
    if (rank == 0) code = nvshmemx_get_uniqueid(&id);
    MPI_Bcast(&id, sizeof(id), MPI_BYTE, 0, all);
    if (code == 0) code = nvshmemx_set_attr_uniqueid_args(rank, n, &id, &attr);
    if (code == 0) code = nvshmemx_init_attr(NVSHMEMX_INIT_WITH_UNIQUEID, &attr);
  } else {
    attr.mpi_comm = &all;
    code = nvshmemx_init_attr(NVSHMEMX_INIT_WITH_MPI_COMM, &attr);
  }
  if (code != 0) MPI_Abort(all, code);
  const job j = joined();
  SAME(j.me, rank);
  SAME(j.n, n);
  const long word = value_of(j, rank, 0);
  long *table = symmetric<long>(static_cast<size_t>(n));
  spread<<<1, 32, 0, j.stream>>>(table, word);
  nvshmemx_barrier_all_on_stream(j.stream);
  const std::vector<long> got = look<long>(j, table, static_cast<size_t>(n));
  std::vector<long> wanted(static_cast<size_t>(n));
  MPI_Allgather(&word, 1, MPI_LONG, wanted.data(), 1, MPI_LONG, all);
  for (int pe = 0; pe < n; ++pe) SAME(got[static_cast<size_t>(pe)], wanted[static_cast<size_t>(pe)]);
  nvshmem_free(table);
  end(j);
  MPI_Finalize();
  return 0;
}
