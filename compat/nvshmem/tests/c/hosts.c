/* The teams of hosts. Arguments: the number of each PE's host, and `apart` where no PE maps another one's
 * memory. Numbers in NVSHMEMX_TEAM_NODE are by host all the same, as programs choose their GPU by them. */
#include <stdbool.h>

#include "check.h"

int main(int argc, char **argv)
{
  nvshmem_init();
  const int me = nvshmem_my_pe(), n = nvshmem_n_pes();
  const bool apart = argc > n + 1 && !strcmp(argv[n + 1], "apart");
  if (argc <= n) return 2;
  int mine = 0, size = 0, before = 0;
  for (int pe = 0; pe < n; pe++) {
    if (strcmp(argv[1 + pe], argv[1 + me])) continue;
    if (pe == me) mine = size;
    CHECK(nvshmem_team_translate_pe(NVSHMEMX_TEAM_NODE, size, NVSHMEM_TEAM_WORLD) == pe);
    size++;
    CHECK((nvshmem_team_translate_pe(NVSHMEM_TEAM_WORLD, pe, NVSHMEM_TEAM_SHARED) >= 0) == (pe == me || !apart));
  }
  CHECK(nvshmem_team_my_pe(NVSHMEMX_TEAM_NODE) == mine && nvshmem_team_n_pes(NVSHMEMX_TEAM_NODE) == size);
  CHECK(nvshmem_team_n_pes(NVSHMEM_TEAM_SHARED) == (apart ? 1 : size));
  /* Of each host the PE with this one's number. */
  for (int pe = 0; pe < n; pe++) {
    int number = 0;
    for (int i = 0; i < pe; i++) number += !strcmp(argv[1 + i], argv[1 + pe]);
    if (number != mine) continue;
    CHECK(nvshmem_team_translate_pe(NVSHMEMX_TEAM_SAME_MYPE_NODE, before, NVSHMEM_TEAM_WORLD) == pe);
    before++;
  }
  CHECK(nvshmem_team_n_pes(NVSHMEMX_TEAM_SAME_MYPE_NODE) == before);
  /* It is a team like others. */
  int *words = nvshmem_malloc(2 * sizeof *words), sum = 0;
  nvshmem_int_p(words, me + 5, me);
  CHECK(nvshmem_int_sum_reduce(NVSHMEMX_TEAM_NODE, words + 1, words, 1) == 0);
  for (int pe = 0; pe < n; pe++)
    if (!strcmp(argv[1 + pe], argv[1 + me])) sum += pe + 5;
  CHECK(nvshmem_int_g(words + 1, me) == sum);
  nvshmem_barrier_all();
  nvshmem_free(words);
  all_well();
  nvshmem_finalize();
  return 0;
}
