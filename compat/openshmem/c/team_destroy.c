/* The end of a team: of its contexts first, which know their team as teams know no contexts. */
#include "library.h"

void team_destroy(struct call call, shmem_team_t team)
{
  if (team == SHMEM_TEAM_INVALID) return;
  struct team *found = team_of(call, team);
  if (team == SHMEM_TEAM_WORLD || team == SHMEM_TEAM_SHARED)
    refuse(call, "a predefined team is not destroyed");
  context_forget(found);
  team_free(call, found);
}
