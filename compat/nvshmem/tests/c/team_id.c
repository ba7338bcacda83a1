/* Teams by unique ID: random ones, whose members alone make them, one after the other, in orders that differ
 * from the PEs'. Nothing but the teams holds the PEs together, so they run ahead of each other. Argument: a
 * seed, the same on all PEs. */
#include "check.h"

enum { ROUNDS = 60, TOGETHER = 10 };

static unsigned long long state;

static unsigned draw(unsigned below)
{
  state = state * 6364136223846793005ull + 1442695040888963407ull;
  return (unsigned) (state >> 33) % below;
}

int main(int argc, char **argv)
{
  if (argc < 2) return 2;
  state = strtoull(argv[1], NULL, 0);
  nvshmem_init();
  const int me = nvshmem_my_pe(), n = nvshmem_n_pes();
  uint64_t *ids = nvshmem_calloc(ROUNDS, sizeof *ids);
  int *mine = nvshmem_calloc(2 * ROUNDS, sizeof *mine);
  nvshmem_team_config_t config = NVSHMEM_TEAM_CONFIG_INITIALIZER;
  const long mask = NVSHMEM_TEAM_CONFIG_MASK_UNIQUEID;
  int members[64], made = 0;
  nvshmem_team_t team, kept = NVSHMEM_TEAM_INVALID;
  for (int round = 0; round < ROUNDS; round++) {
    if (round % TOGETHER == 0) nvshmem_barrier_all();
    /* The first `size` of a shuffle; any PE makes the ID. */
    const int size = 1 + (int) draw((unsigned) n), maker = (int) draw((unsigned) n);
    for (int i = 0; i < n; i++) members[i] = i;
    for (int i = 0; i < n; i++) {
      const int other = i + (int) draw((unsigned) (n - i)), kept_one = members[i];
      members[i] = members[other];
      members[other] = kept_one;
    }
    int place = -1, sum = 0;
    for (int i = 0; i < size; i++) {
      if (members[i] == me) place = i;
      sum += members[i] + round;
    }
    if (me == maker) {
      uint64_t id = 0;
      CHECK(nvshmemx_team_get_uniqueid(&id) == 0 && id != 0);
      for (int i = 0; i < size; i++) nvshmem_uint64_p(ids + round, id, members[i]);
      nvshmem_quiet();
    }
    if (place < 0) continue;
    nvshmem_uint64_wait_until(ids + round, NVSHMEM_CMP_NE, 0);
    config.uniqueid = nvshmem_uint64_g(ids + round, me);
    CHECK(nvshmemx_team_init(&team, &config, mask, size, place) == 0);
    CHECK(nvshmem_team_my_pe(team) == place && nvshmem_team_n_pes(team) == size);
    for (int i = 0; i < size; i++) CHECK(nvshmem_team_translate_pe(team, i, NVSHMEM_TEAM_WORLD) == members[i]);
    nvshmem_int_p(mine + 2 * round, me + round, me);
    nvshmem_int_sum_reduce(team, mine + 2 * round + 1, mine + 2 * round, 1);
    CHECK(nvshmem_int_g(mine + 2 * round + 1, me) == sum);
    made++;
    /* An ID makes one team. */
    nvshmem_team_t again;
    nvshmem_barrier(team);
    CHECK(nvshmemx_team_init(&again, &config, mask, size, place) != 0 && again == NVSHMEM_TEAM_INVALID);
    /* One stays, beside the others. */
    if (round == 0) kept = team;
    else nvshmem_team_destroy(team);
  }
  if (kept != NVSHMEM_TEAM_INVALID) {
    nvshmem_team_sync(kept);
    nvshmem_team_destroy(kept);
  }
  config.uniqueid = 77;
  CHECK(nvshmemx_team_init(&team, &config, mask, 1, 0) != 0);
  CHECK(nvshmemx_team_init(&team, &config, 0, 1, 0) != 0);
  /* The runtime's part: tickets grow, and members alone take part. */
  rushmem_team_t *none;
  const int32_t alone = me, other = (me + 1) % n;
  if (made > 0) CHECK(rushmem_team_meet(world(), &alone, 1, 1, NULL, &none) == RUSHMEM_ERR_INVALID_ARGUMENT);
  if (n > 1) CHECK(rushmem_team_meet(world(), &other, 1, 1 << 20, NULL, &none) == RUSHMEM_ERR_INVALID_ARGUMENT);
  CHECK(rushmem_team_meet(world(), NULL, 1, 1 << 20, NULL, &none) == RUSHMEM_ERR_INVALID_ARGUMENT && !none);
  CHECK(rushmem_team_meet(world(), &alone, 1, 1 << 20, NULL, &none) == RUSHMEM_OK && none);
  CHECK(rushmem_team_free(none) == RUSHMEM_OK);
  all_well();
  nvshmem_free(mine);
  nvshmem_free(ids);
  nvshmem_finalize();
  return 0;
}
