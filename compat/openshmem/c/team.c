/* Teams: handles of the specification's, each with a team of the runtime's behind it.
 *
 * SHMEM_TEAM_WORLD and SHMEM_TEAM_SHARED are constants, which are looked at first. */
#include <stdlib.h>
#include <string.h>

#include "library.h"

static struct team world_team, shared_team;
/* A byte for each PE: whether it is far. Null where none is. */
static uint8_t *far;

static struct team *find(shmem_team_t team)
{
  if (team == SHMEM_TEAM_WORLD) return &world_team;
  if (team == SHMEM_TEAM_SHARED) return &shared_team;
  return slots_find(&team_slots, (uintptr_t) team);
}

struct team *team_of(struct call call, shmem_team_t team)
{
  in_job(call);
  struct team *found = find(team);
  if (!found)
    refuse(call, team == SHMEM_TEAM_INVALID ? "the team is SHMEM_TEAM_INVALID"
                                            : "%p is not a team: it was destroyed, or never made",
           (void *) team);
  return found;
}

int team_to_world(struct call call, const struct team *team, int pe)
{
  if (pe < 0 || pe >= team->info.n_pes)
    refuse(call, "there is no PE %d in a team of %d PEs", pe, team->info.n_pes);
  return team_member(team, pe);
}

int team_member(const struct team *team, int pe)
{
  return team->info.members ? team->info.members[pe] : team->info.start + pe * team->info.stride;
}

bool team_is_far(int pe)
{
  return far && far[pe];
}

/* Operations of the host on GPU memory are not over when they return, either. */
static void find_far(struct call call)
{
  rushmem_view_t view;
  check(call, rushmem_view(job.world, &view));
  job.host = view.device == RUSHMEM_DEVICE_CPU;
  job.all_near = job.host && shared_team.info.n_pes == job.n_pes;
  if (job.all_near) return;
  far = malloc((size_t) job.n_pes);
  if (!far) refuse(call, "there is no memory for %d PEs", job.n_pes);
  memset(far, 1, (size_t) job.n_pes);
  for (int i = 0; job.host && i < shared_team.info.n_pes; i++) far[team_member(&shared_team, i)] = 0;
}

static void describe(struct call call, struct team *team)
{
  check(call, rushmem_team_info(team->team, &team->info));
}

void team_start(struct call call)
{
  world_team = (struct team){.team = job.team, .handle = SHMEM_TEAM_WORLD};
  describe(call, &world_team);
  shared_team = (struct team){.handle = SHMEM_TEAM_SHARED};
  check(call, rushmem_team_node(job.world, NULL, &shared_team.team));
  describe(call, &shared_team);
  find_far(call);
}

static bool any(const void *object, const void *what)
{
  (void) object, (void) what;
  return true;
}

void team_forget(void)
{
  for (void *team; (team = slots_take_any(&team_slots, any, NULL));) free(team);
  free(far);
  far = NULL;
}

int team_my_pe(struct call call, shmem_team_t team)
{
  return team == SHMEM_TEAM_INVALID ? -1 : team_of(call, team)->info.my_pe;
}

int team_n_pes(struct call call, shmem_team_t team)
{
  return team == SHMEM_TEAM_INVALID ? -1 : team_of(call, team)->info.n_pes;
}

int team_get_config(struct call call, shmem_team_t team, long mask, shmem_team_config_t *config)
{
  if (team == SHMEM_TEAM_INVALID) return -1;
  const struct team *found = team_of(call, team);
  if (mask & ~SHMEM_TEAM_NUM_CONTEXTS) refuse(call, "config_mask %#lx has bits that stand for nothing", mask);
  if (mask & SHMEM_TEAM_NUM_CONTEXTS) {
    if (!config) refuse(call, "config is null");
    config->num_contexts = found->config.num_contexts;
  }
  return 0;
}

int team_translate(struct call call, shmem_team_t from, int pe, shmem_team_t to)
{
  if (from == SHMEM_TEAM_INVALID || to == SHMEM_TEAM_INVALID) return -1;
  const struct team *source = team_of(call, from), *dest = team_of(call, to);
  if (pe < 0 || pe >= source->info.n_pes) return -1;
  int32_t out;
  check(call, rushmem_team_translate_pe(source->team, pe, dest->team, &out));
  return out;
}

/* A handle for a new team; SHMEM_TEAM_INVALID where this PE is no member. */
static shmem_team_t adopt(struct call call, rushmem_team_t *made, const shmem_team_config_t *config,
                          long mask)
{
  if (!made) return SHMEM_TEAM_INVALID;
  struct team *team = calloc(1, sizeof *team);
  if (!team) refuse(call, "there is no memory for a team");
  team->team = made;
  if (config && mask & SHMEM_TEAM_NUM_CONTEXTS) team->config = *config;
  describe(call, team);
  team->handle = (shmem_team_t) slots_add(&team_slots, team);
  if (team->handle == SHMEM_TEAM_INVALID) refuse(call, "there is no memory for a team");
  return team->handle;
}

/* What a split returns instead of ending the job: arguments that make no team, too little room or too many
 * teams, alike on all. */
static bool declined(struct call call, int32_t code)
{
  if (code == RUSHMEM_ERR_INVALID_ARGUMENT || code == RUSHMEM_ERR_HEAP_EXHAUSTED ||
      code == RUSHMEM_ERR_UNSUPPORTED)
    return true;
  check(call, code);
  return false;
}

static void check_config(struct call call, const shmem_team_config_t *config, long mask)
{
  if (mask & ~SHMEM_TEAM_NUM_CONTEXTS) refuse(call, "config_mask %#lx has bits that stand for nothing", mask);
  if (mask && !config) refuse(call, "config is null, but config_mask is not 0");
  if (mask && config->num_contexts < 0) refuse(call, "num_contexts is %d", config->num_contexts);
}

int team_split_strided(struct call call, shmem_team_t parent, int start, int stride, int size,
                       const shmem_team_config_t *config, long mask, shmem_team_t *out)
{
  if (!out) refuse(call, "new_team is null");
  *out = SHMEM_TEAM_INVALID;
  if (parent == SHMEM_TEAM_INVALID) return -1;
  const struct team *from = team_of(call, parent);
  check_config(call, config, mask);
  rushmem_team_t *made = NULL;
  /* One member needs no stride. */
  if (size == 1 && stride == 0) stride = 1;
  if (declined(call, rushmem_team_split_strided(from->team, start, stride, size, NULL, &made))) return -1;
  *out = adopt(call, made, config, mask);
  return 0;
}

int team_split_2d(struct call call, shmem_team_t parent, int xrange, const shmem_team_config_t *xconfig,
                  long xmask,
                  shmem_team_t *xout, const shmem_team_config_t *yconfig, long ymask, shmem_team_t *yout)
{
  if (!xout || !yout) refuse(call, "%s is null", xout ? "yaxis_team" : "xaxis_team");
  *xout = *yout = SHMEM_TEAM_INVALID;
  if (parent == SHMEM_TEAM_INVALID) return -1;
  const struct team *from = team_of(call, parent);
  check_config(call, xconfig, xmask);
  check_config(call, yconfig, ymask);
  rushmem_team_t *x = NULL, *y = NULL;
  if (declined(call, rushmem_team_split_2d(from->team, xrange, NULL, &x, &y))) return -1;
  *xout = adopt(call, x, xconfig, xmask);
  *yout = adopt(call, y, yconfig, ymask);
  return 0;
}

void team_free(struct call call, struct team *team)
{
  check(call, rushmem_team_free(team->team));
  slots_take(&team_slots, (uintptr_t) team->handle);
  free(team);
}
