/* As many teams as there are numbers for. One more is an error on all members of the parent, also where only
 * some of them have run out of numbers, and the job goes on. */
#include "check.h"

enum { MOST = 64 };

static int me, n;
static nvshmem_team_t mine[MOST];

/* Splits the first `size` PEs off until there are no numbers left; how many teams this PE got. */
static int fill_up(int size)
{
  int count = 0, code;
  for (;;) {
    nvshmem_team_t made = 1234;
    code = nvshmem_team_split_strided(NVSHMEM_TEAM_WORLD, 0, 1, size, NULL, 0, &made);
    CHECK((made != NVSHMEM_TEAM_INVALID) == (code == 0 && me < size));
    if (code != 0) return count;
    CHECK(count < MOST);
    if (me < size) mine[count++] = made;
  }
}

static void give_back(int count)
{
  for (int i = 0; i < count; i++) nvshmem_team_destroy(mine[i]);
  nvshmem_barrier_all();
}

int main(void)
{
  nvshmem_init();
  me = nvshmem_my_pe(), n = nvshmem_n_pes();
  nvshmem_team_t team, other;

  /* All PEs alike. */
  CHECK(fill_up(n) == MOST - NVSHMEM_TEAMS_MIN);
  CHECK(nvshmem_team_split_2d(NVSHMEM_TEAM_WORLD, 1, NULL, 0, &team, NULL, 0, &other) != 0);
  CHECK(team == NVSHMEM_TEAM_INVALID && other == NVSHMEM_TEAM_INVALID);
  /* A number that is free again. Two teams need two. */
  nvshmem_team_destroy(mine[7]);
  CHECK(nvshmem_team_split_2d(NVSHMEM_TEAM_WORLD, 1, NULL, 0, &team, NULL, 0, &other) != 0);
  CHECK(nvshmem_team_split_strided(NVSHMEM_TEAM_WORLD, 0, 1, n, NULL, 0, &team) == 0 && team == mine[7]);
  CHECK(nvshmem_barrier(team) == 0);
  give_back(MOST - NVSHMEM_TEAMS_MIN);

  /* PE 0 alone has run out of numbers. */
  const int all = fill_up(1);
  CHECK(all == (me == 0 ? MOST - NVSHMEM_TEAMS_MIN : 0));
  CHECK(nvshmem_team_split_strided(NVSHMEM_TEAM_WORLD, 0, 1, n, NULL, 0, &team) != 0 && team == NVSHMEM_TEAM_INVALID);
  CHECK(nvshmem_team_split_2d(NVSHMEM_TEAM_WORLD, 1, NULL, 0, &team, NULL, 0, &other) != 0);
  CHECK(team == NVSHMEM_TEAM_INVALID && other == NVSHMEM_TEAM_INVALID);
  if (n > 1) {
    CHECK(nvshmem_team_split_strided(NVSHMEM_TEAM_WORLD, 1, 1, n - 1, NULL, 0, &team) == 0);
    CHECK(nvshmem_team_n_pes(team) == (me == 0 ? -1 : n - 1));
    nvshmem_team_destroy(team);
  }
  /* By unique ID, of which each member learns. */
  nvshmem_team_config_t config = NVSHMEM_TEAM_CONFIG_INITIALIZER;
  for (int turn = 0; turn < 2; turn++) {
    nvshmemx_team_uniqueid_t id = 0;
    if (me == 0) CHECK(nvshmemx_team_get_uniqueid(&id) == 0);
    nvshmem_uint64_broadcast(NVSHMEM_TEAM_WORLD, &id, &id, 1, 0);
    config.uniqueid = id;
    const int code = nvshmemx_team_init(&team, &config, NVSHMEM_TEAM_CONFIG_MASK_UNIQUEID, n, me);
    CHECK((code == 0) == (turn == 1) && (team != NVSHMEM_TEAM_INVALID) == (turn == 1));
    if (turn == 0) give_back(all);
  }
  CHECK(nvshmem_team_sync(team) == 0);
  nvshmem_team_destroy(team);
  all_well();
  nvshmem_finalize();
  return 0;
}
