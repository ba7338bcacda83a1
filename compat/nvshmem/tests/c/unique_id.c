/* A start by unique ID: rank 0 leaves it in a file. The attributes of the others are of no initialiser, as
 * PyTorch's: whatever was there before. Arguments: rank, number of PEs, the file. */
#include <unistd.h>

#include "check.h"

int main(int argc, char **argv)
{
  if (argc < 4) return 2;
  const int rank = atoi(argv[1]), n = atoi(argv[2]);
  nvshmemx_uniqueid_t id = NVSHMEMX_UNIQUEID_INITIALIZER;
  nvshmemx_init_attr_t attr = NVSHMEMX_INIT_ATTR_INITIALIZER;
  char new[4096];
  snprintf(new, sizeof new, "%s.new", argv[3]);
  if (rank == 0) {
    if (nvshmemx_get_uniqueid(&id) != 0) return 3;
    FILE *file = fopen(new, "w");
    if (!file || fwrite(&id, sizeof id, 1, file) != 1 || fclose(file) != 0 || rename(new, argv[3]) != 0) return 4;
  } else {
    FILE *file = NULL;
    for (int turn = 0; turn < 3000 && !(file = fopen(argv[3], "r")); turn++) usleep(10000);
    if (!file || fread(&id, sizeof id, 1, file) != 1) return 5;
    fclose(file);
  }
  if (rank > 0)
    for (size_t i = 0; i < sizeof attr / sizeof(int); i++) ((int *) &attr)[i] = rank;
  if (nvshmemx_set_attr_uniqueid_args(n, n, &id, &attr) == 0) return 6; /* no such rank */
  if (nvshmemx_set_attr_uniqueid_args(rank, n, &id, &attr) != 0) return 7;
  if (nvshmemx_init_attr(NVSHMEMX_INIT_WITH_UNIQUEID | NVSHMEMX_INIT_WITH_MPI_COMM, &attr) == 0) return 8;
  if (nvshmemx_init_attr(NVSHMEMX_INIT_WITH_SHMEM, &attr) == 0) return 10; /* in no job of OpenSHMEM's */
  if (nvshmemx_init_attr(NVSHMEMX_INIT_WITH_UNIQUEID, &attr) != 0) return 9;
  CHECK(nvshmem_my_pe() == rank && nvshmem_n_pes() == n);
  int *word = nvshmem_malloc(sizeof *word);
  nvshmem_int_p(word, rank + 1, (rank + 1) % n);
  nvshmem_barrier_all();
  CHECK(nvshmem_int_g(word, rank) == (rank + n - 1) % n + 1);
  all_well();
  nvshmem_free(word);
  nvshmem_finalize();
  return 0;
}
