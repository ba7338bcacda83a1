/* Teams from C: every kind of split, what a team says of itself, mistakes. */
#include "check.h"

#include <rushmem/abi.h>

/* What PE `me` should see of a team of `size` PEs, the world's PE start + i * stride as member i. */
static void check_steps(rushmem_team_t *team, int start, int stride, int size)
{
  int at = -1;
  for (int i = 0; i < size; i++) {
    if (start + i * stride == me) at = i;
  }
  CHECK((team == NULL) == (at < 0));
  if (!team) {
    FAILS(rushmem_team_my_pe(team), RUSHMEM_ERR_BAD_HANDLE, "null");
    FAILS(rushmem_team_sync(team), RUSHMEM_ERR_BAD_HANDLE, "no member");
    return;
  }
  rushmem_team_info_t info;
  OK(rushmem_team_info(team, &info));
  CHECK(rushmem_team_my_pe(team) == at && info.my_pe == at);
  CHECK(rushmem_team_n_pes(team) == size && info.n_pes == size);
  CHECK(info.slot_sets == 1 && info.bytes > 0 && info.number > 0);
  for (int i = 0; i < size; i++) {
    CHECK((info.members ? info.members[i] : info.start + i * info.stride) == start + i * stride);
  }
  struct rushmem_team device;
  OK(rushmem_team_device(team, &device));
  CHECK(device.my_pe == at && device.n_pes == size && device.id == (uint32_t)info.number);
  OK(rushmem_team_sync(team));
  OK(rushmem_team_barrier(team));
}

static void splits(rushmem_team_t *world)
{
  rushmem_team_t *team, *other;
  OK(rushmem_team_split_strided(world, 0, 2, (n + 1) / 2, NULL, &team));
  check_steps(team, 0, 2, (n + 1) / 2);
  if (team) OK(rushmem_team_free(team));
  OK(rushmem_team_split_strided(world, n - 1, -1, n, NULL, &team));
  check_steps(team, n - 1, -1, n);

  /* A team of a team: the numbers are the parent's. */
  OK(rushmem_team_split_strided(team, 0, 1, 2, NULL, &other));
  check_steps(other, n - 1, -1, n < 2 ? n : 2);
  if (other) OK(rushmem_team_free(other));

  int32_t found = 7;
  OK(rushmem_team_translate_pe(team, 0, world, &found));
  CHECK(found == n - 1);
  OK(rushmem_team_compare(team, world, &found));
  CHECK(found == RUSHMEM_TEAM_REORDERED);
  OK(rushmem_team_compare(world, world, &found));
  CHECK(found == RUSHMEM_TEAM_IDENTICAL);
  OK(rushmem_team_free(team));

  rushmem_team_t *x, *y;
  OK(rushmem_team_split_2d(world, 2, NULL, &x, &y));
  check_steps(x, me - me % 2, 1, 2);
  check_steps(y, me % 2, 2, n / 2);
  OK(rushmem_team_compare(x, y, &found));
  CHECK(found == RUSHMEM_TEAM_DIFFERENT);
  OK(rushmem_team_translate_pe(x, 1 - rushmem_team_my_pe(x), y, &found));
  CHECK(found == -1);
  OK(rushmem_team_free(x));
  OK(rushmem_team_free(y));

  const int32_t pes[] = {3, 1, 2};
  OK(rushmem_team_split_list(world, pes, 3, NULL, &team));
  CHECK((team != NULL) == (me != 0));
  if (team) {
    CHECK(rushmem_team_my_pe(team) == (me == 3 ? 0 : me));
    OK(rushmem_team_sync(team));
    OK(rushmem_team_free(team));
  }
  OK(rushmem_team_split_list(world, NULL, 0, NULL, &team));
  CHECK(team == NULL);

  rushmem_team_config_t config = {sizeof config, 5};
  OK(rushmem_team_split(world, me == 1 ? RUSHMEM_TEAM_NO_COLOUR : 3, -me, &config, &team));
  CHECK((team != NULL) == (me != 1));
  if (team) {
    rushmem_team_info_t info;
    OK(rushmem_team_info(team, &info));
    CHECK(info.slot_sets == 5 && info.my_pe == (me == 0 ? 2 : 3 - me));
    OK(rushmem_team_free(team));
  }
}

static void mistakes(rushmem_world_t *w, rushmem_team_t *world)
{
  rushmem_team_t *team, *again;
  int32_t found;
  FAILS(rushmem_team_world(w, NULL), RUSHMEM_ERR_INVALID_ARGUMENT, "null");
  FAILS(rushmem_team_world((rushmem_world_t *)world, &team), RUSHMEM_ERR_BAD_HANDLE, "world");
  FAILS(rushmem_team_free(world), RUSHMEM_ERR_INVALID_ARGUMENT, "world");
  FAILS(rushmem_team_split_list(world, NULL, 2, NULL, &team), RUSHMEM_ERR_INVALID_ARGUMENT, "null");
  FAILS(rushmem_team_translate_pe(world, n, world, &found), RUSHMEM_ERR_BAD_PE, "no member");
  rushmem_team_config_t config = {1, 1};
  FAILS(rushmem_team_split(world, 0, 0, &config, &team), RUSHMEM_ERR_INVALID_ARGUMENT, "size");
  FAILS(rushmem_team_split_strided(world, me == 1, 1, 1, NULL, &team), RUSHMEM_ERR_MISMATCH, "PE 1");
  FAILS(rushmem_team_split_strided(world, 0, 1, n + 1, NULL, &team), RUSHMEM_ERR_INVALID_ARGUMENT, "the world");

  /* Stale, wild and other handles. */
  OK(rushmem_team_split_strided(world, 0, 1, n, NULL, &team));
  rushmem_team_t *stale = team;
  OK(rushmem_team_free(team));
  for (int i = 0; i < 100; i++) {
    OK(rushmem_team_split_strided(world, 0, 1, n, NULL, &team));
    CHECK(team != stale);
    FAILS(rushmem_team_sync(stale), RUSHMEM_ERR_BAD_HANDLE, "freed");
    FAILS(rushmem_team_free(stale), RUSHMEM_ERR_BAD_HANDLE, "freed");
    OK(rushmem_team_free(team));
  }
  const uintptr_t own = (uintptr_t)world;
  const uintptr_t wrong[] = {1, 8, 4096, UINTPTR_MAX, (uintptr_t)w, (uintptr_t)&found, (uintptr_t)&mistakes, own + 1, own + 8,
                             own + 31, own - 32, own + (1 << 20)};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    FAILS(rushmem_team_my_pe((rushmem_team_t *)wrong[i]), RUSHMEM_ERR_BAD_HANDLE, "not a team");
    FAILS(rushmem_team_free((rushmem_team_t *)wrong[i]), RUSHMEM_ERR_BAD_HANDLE, "not a team");
  }

  /* The team of the world is one; the node's is of those that map each other. */
  OK(rushmem_team_world(w, &again));
  CHECK(again == world);
  OK(rushmem_team_node(w, NULL, &team));
  rushmem_near_t near;
  OK(rushmem_near(w, &near));
  CHECK(rushmem_team_n_pes(team) == near.count);
  OK(rushmem_team_free(team));
  /* That of the host has others besides, where they are not mapped. */
  OK(rushmem_team_host(w, NULL, &team));
  CHECK(rushmem_team_n_pes(team) >= near.count);
  OK(rushmem_team_sync(team));
  OK(rushmem_team_free(team));
  /* What members agree upon. */
  int64_t least = 0;
  OK(rushmem_team_least(world, 5 - 7 * me, &least));
  CHECK(least == 5 - 7 * (n - 1));
  OK(rushmem_team_least(world, INT64_MIN + me, &least));
  CHECK(least == INT64_MIN);
  FAILS(rushmem_team_least(world, 1, NULL), RUSHMEM_ERR_INVALID_ARGUMENT, "out");
}

int main(void)
{
  rushmem_world_t *w = start();
  rushmem_team_t *world, *left;
  OK(rushmem_team_world(w, &world));
  CHECK(n == 4 && rushmem_team_my_pe(world) == me && rushmem_team_n_pes(world) == n);
  OK(rushmem_team_sync(world));
  splits(world);
  mistakes(w, world);
  /* What is not freed ends with the world, and its handle with it. */
  OK(rushmem_team_split_strided(world, 0, 1, n, NULL, &left));
  const int rc = finish(w);
  FAILS(rushmem_team_sync(left), RUSHMEM_ERR_BAD_HANDLE, "not a team");
  FAILS(rushmem_team_sync(world), RUSHMEM_ERR_BAD_HANDLE, "not a team");
  return rc;
}
