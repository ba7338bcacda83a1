/* A process that is in a job already, as a Rust program's: this library takes part in it, and leaves it to
 * its owner. */
#include "check.h"

int main(void)
{
  rushmem_world_t *mine;
  if (rushmem_init(NULL, &mine) != RUSHMEM_OK) return 1;
  for (int turn = 0; turn < 3; turn++) {
    nvshmemx_init_attr_t attr = NVSHMEMX_INIT_ATTR_INITIALIZER;
    /* A job of OpenSHMEM's is such a one. */
    if (turn != 1) nvshmem_init();
    else if (nvshmemx_init_attr(NVSHMEMX_INIT_WITH_SHMEM, &attr) != 0) return 5;
    const int me = nvshmem_my_pe(), n = nvshmem_n_pes();
    CHECK(world() == mine && me == rushmem_my_pe(mine));
    int *word = NULL;
    CHECK(rushmem_alloc(mine, sizeof *word, 0, (void **) &word) == RUSHMEM_OK);
    nvshmem_int_p(word, me + turn, (me + 1) % n);
    nvshmem_barrier_all();
    CHECK(nvshmem_int_g(word, me) == (me + n - 1) % n + turn);
    CHECK(nvshmem_team_n_pes(NVSHMEMX_TEAM_NODE) >= 1);
    nvshmem_free(word);
    nvshmem_finalize();
    if (nvshmemx_init_status() != NVSHMEM_STATUS_NOT_INITIALIZED) return 2;
    if (rushmem_barrier_all(mine) != RUSHMEM_OK) return 3;
  }
  printf("PE %d of %d: all well\n", rushmem_my_pe(mine), rushmem_n_pes(mine));
  return rushmem_finalize(mine) == RUSHMEM_OK ? 0 : 4;
}
