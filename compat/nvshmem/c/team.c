/* Teams: integers, each with a team of the runtime's behind it. Kernels find them by the same integers, in
 * the runtime's table of numbered teams. A PE has numbers of its own, so that one may have run out of them
 * where others have not: members agree on that before a team has one. */
#include <pthread.h>
#include <string.h>

#include <rushmem/abi.h>

#include "library.h"

_Static_assert((int) TEAMS == RUSHMEM_NUMBERED_TEAMS, "kernels find all of them by number");

struct team {
  rushmem_team_t *team; /* null: no team of that number, or this PE is no member */
  bool kept;            /* for a team that is being made */
  rushmem_team_info_t info;
  nvshmem_team_config_t config;
  bool borrowed; /* another entry's, which frees it */
};

static struct team teams[TEAMS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static struct team *find(struct call call, nvshmem_team_t team)
{
  in_job(call);
  if (team < 0 || team >= TEAMS || !teams[team].team)
    refuse(call,
           team == NVSHMEM_TEAM_INVALID ? "the team is NVSHMEM_TEAM_INVALID"
                                        : "%d is not a team that this PE is a member of: it was destroyed, or never made",
           (int) team);
  return &teams[team];
}

rushmem_team_t *team_of(struct call call, nvshmem_team_t team)
{
  return find(call, team)->team;
}

/* Puts a team, or none, at a number. */
static void put_at(struct call call, nvshmem_team_t number, rushmem_team_t *team, bool borrowed)
{
  struct team *at = &teams[number];
  *at = (struct team){.team = team, .borrowed = borrowed, .config = NVSHMEM_TEAM_CONFIG_INITIALIZER};
  at->config.num_contexts = 0;
  if (team) check(call, rushmem_team_info(team, &at->info));
  check(call, rushmem_team_number(job.world, number, team));
}

/* PEs that share a GPU have one colour, and those on the CPU each its own. */
static int64_t colour_of_gpu(struct call call)
{
  if (job.gpu < 0) return job.me;
  rushmem_gpu_t gpu = {.size = sizeof gpu};
  check(call, rushmem_gpu_info(job.gpu, &gpu));
  uint64_t colour;
  memcpy(&colour, gpu.uuid, sizeof colour);
  return (int64_t) (colour & INT64_MAX);
}

void team_start(struct call call)
{
  rushmem_team_t *world, *mapped, *host, *across, *gpu, *leaders;
  check(call, rushmem_team_world(job.world, &world));
  put_at(call, NVSHMEM_TEAM_WORLD, world, true);
  check(call, rushmem_team_node(job.world, NULL, &mapped));
  put_at(call, NVSHMEM_TEAM_SHARED, mapped, false);
  put_at(call, NVSHMEM_TEAM_MC_SHARED, mapped, true);
  /* Of one host, mapped or not: programs choose their GPU by its numbers. */
  check(call, rushmem_team_host(job.world, NULL, &host));
  put_at(call, NVSHMEMX_TEAM_NODE, host, false);
  check(call, rushmem_team_split(world, teams[NVSHMEMX_TEAM_NODE].info.my_pe, job.me, NULL, &across));
  put_at(call, NVSHMEMX_TEAM_SAME_MYPE_NODE, across, false);
  check(call, rushmem_team_split(host, colour_of_gpu(call), job.me, NULL, &gpu));
  put_at(call, NVSHMEM_TEAM_SAME_GPU_INDEX, gpu, false);
  const bool leads = teams[NVSHMEM_TEAM_SAME_GPU_INDEX].info.my_pe == 0;
  check(call, rushmem_team_split(world, leads ? 0 : RUSHMEM_TEAM_NO_COLOUR, job.me, NULL, &leaders));
  put_at(call, NVSHMEM_TEAM_GPU_LEADERS_INDEX, leaders, false);
  meeting_start(call);
}

void team_stop(struct call call)
{
  /* All PEs have the predefined ones at the same numbers. Teams of the program's end with the world, unless
   * that goes on. */
  for (int i = TEAMS; i-- > 0;) {
    struct team *at = &teams[i];
    if (!at->team) continue;
    check(call, rushmem_team_number(job.world, i, NULL));
    if (!at->borrowed && i < NVSHMEM_TEAMS_MIN && job.joined) check(call, rushmem_team_free(at->team));
    *at = (struct team){0};
  }
  meeting_stop(call);
}

int team_my_pe(struct call call, nvshmem_team_t team)
{
  in_job(call);
  if (team < 0 || team >= TEAMS || !teams[team].team) return -1;
  return teams[team].info.my_pe;
}

int team_n_pes(struct call call, nvshmem_team_t team)
{
  in_job(call);
  if (team < 0 || team >= TEAMS || !teams[team].team) return -1;
  return teams[team].info.n_pes;
}

void team_get_config(struct call call, nvshmem_team_t team, nvshmem_team_config_t *config)
{
  if (!config) refuse(call, "config is null");
  *config = find(call, team)->config;
}

int team_translate(struct call call, nvshmem_team_t from, int pe, nvshmem_team_t to)
{
  in_job(call);
  if (from == NVSHMEM_TEAM_INVALID || to == NVSHMEM_TEAM_INVALID) return -1;
  const struct team *source = find(call, from), *dest = find(call, to);
  if (pe < 0 || pe >= source->info.n_pes) return -1;
  int32_t out;
  check(call, rushmem_team_translate_pe(source->team, pe, dest->team, &out));
  return out;
}

/* A number for a team to come; NVSHMEM_TEAM_INVALID where there is none. */
static nvshmem_team_t keep_number(void)
{
  nvshmem_team_t number = NVSHMEM_TEAMS_MIN;
  pthread_mutex_lock(&lock);
  while (number < TEAMS && (teams[number].team || teams[number].kept)) number++;
  if (number == TEAMS) number = NVSHMEM_TEAM_INVALID;
  else teams[number].kept = true;
  pthread_mutex_unlock(&lock);
  return number;
}

/* A kept number becomes that of `made`, or, of none, is given back. */
static nvshmem_team_t give_number(struct call call, nvshmem_team_t number, rushmem_team_t *made,
                                  const nvshmem_team_config_t *config, long mask)
{
  if (number == NVSHMEM_TEAM_INVALID) return number;
  pthread_mutex_lock(&lock);
  if (!made) {
    teams[number] = (struct team){0};
    number = NVSHMEM_TEAM_INVALID;
  } else {
    put_at(call, number, made, false);
    if (config && mask & NVSHMEM_TEAM_CONFIG_MASK_NUM_CONTEXTS)
      teams[number].config.num_contexts = config->num_contexts;
  }
  pthread_mutex_unlock(&lock);
  return number;
}

/* 0 where each member of `team` has the number that it needs; all of them learn the same. */
static int agree(struct call call, rushmem_team_t *team, bool mine)
{
  int64_t all;
  check(call, rushmem_team_least(team, mine, &all));
  if (all) return 0;
  return decline(call, NVSHMEMX_ERROR_OUT_OF_MEMORY,
                 "%s has no number left for a new team: a PE is in %d at most, the predefined ones included; destroy one",
                 mine ? "another member" : "this PE", (int) TEAMS);
}

/* Of a team of `size` of the parent's members; more of them than it has are refused later. */
static bool is_member(const struct team *parent, int start, int stride, int size)
{
  for (int i = 0; i < size && i < parent->info.n_pes; i++)
    if (start + i * (long) stride == parent->info.my_pe) return true;
  return false;
}

int team_split_strided(struct call call, nvshmem_team_t parent, int start, int stride, int size,
                       const nvshmem_team_config_t *config, long mask, nvshmem_team_t *out)
{
  if (!out) refuse(call, "new_team is null");
  *out = NVSHMEM_TEAM_INVALID;
  if (parent == NVSHMEM_TEAM_INVALID) return NVSHMEMX_ERROR_INVALID_VALUE;
  const struct team *of = find(call, parent);
  rushmem_team_t *made = NULL;
  /* One member needs no stride. */
  if (size == 1 && stride == 0) stride = 1;
  const nvshmem_team_t number = keep_number();
  int code = agree(call, of->team,
                   number != NVSHMEM_TEAM_INVALID || !is_member(of, start, stride, size));
  if (code == 0) code = team_declined(call, rushmem_team_split_strided(of->team, start, stride, size, NULL, &made));
  *out = give_number(call, number, made, config, mask);
  return code;
}

int team_split_2d(struct call call, nvshmem_team_t parent, int xrange, const nvshmem_team_config_t *xconfig,
                  long xmask, nvshmem_team_t *xout, const nvshmem_team_config_t *yconfig, long ymask,
                  nvshmem_team_t *yout)
{
  if (!xout || !yout) refuse(call, "%s is null", xout ? "yaxis_team" : "xaxis_team");
  *xout = *yout = NVSHMEM_TEAM_INVALID;
  if (parent == NVSHMEM_TEAM_INVALID) return NVSHMEMX_ERROR_INVALID_VALUE;
  rushmem_team_t *of = team_of(call, parent), *x = NULL, *y = NULL;
  const nvshmem_team_t xnumber = keep_number(), ynumber = keep_number();
  int code = agree(call, of, ynumber != NVSHMEM_TEAM_INVALID);
  if (code == 0) code = team_declined(call, rushmem_team_split_2d(of, xrange, NULL, &x, &y));
  *xout = give_number(call, xnumber, x, xconfig, xmask);
  *yout = give_number(call, ynumber, y, yconfig, ymask);
  return code;
}

int team_unique_id(struct call call, nvshmemx_team_uniqueid_t *id)
{
  in_job(call);
  if (!id) return decline(call, NVSHMEMX_ERROR_INVALID_VALUE, "uniqueid is null");
  *id = meeting_id(call);
  if (*id) return 0;
  return decline(call, NVSHMEMX_ERROR_OUT_OF_MEMORY, "other PEs make as many teams by this PE's unique IDs as can be");
}

int team_init(struct call call, nvshmem_team_t *out, nvshmem_team_config_t *config, long mask, int n, int pe)
{
  in_job(call);
  if (!out || !config || !(mask & NVSHMEM_TEAM_CONFIG_MASK_UNIQUEID) || n < 1 || pe < 0 || pe >= n)
    return decline(call, NVSHMEMX_ERROR_INVALID_VALUE,
                   "a team, a configuration with a unique ID and a PE's number below that of the PEs are needed");
  *out = NVSHMEM_TEAM_INVALID;
  if (n > job.n_pes)
    return decline(call, NVSHMEMX_ERROR_INVALID_VALUE, "a team of %d of %d PEs", n, job.n_pes);
  rushmem_team_t *made = NULL;
  const nvshmem_team_t number = keep_number();
  int code = meeting_hold(call, config->uniqueid, n, pe, &made);
  if (code == 0) code = agree(call, made, number != NVSHMEM_TEAM_INVALID);
  if (code != 0 && made) {
    check(call, rushmem_team_free(made));
    made = NULL;
  }
  *out = give_number(call, number, made, config, mask);
  return code;
}

void team_destroy(struct call call, nvshmem_team_t team)
{
  if (team == NVSHMEM_TEAM_INVALID) return;
  struct team *found = find(call, team);
  if (team < NVSHMEM_TEAMS_MIN) refuse(call, "a predefined team is not destroyed");
  check(call, rushmem_team_number(job.world, team, NULL));
  check(call, rushmem_team_free(found->team));
  pthread_mutex_lock(&lock);
  *found = (struct team){0};
  pthread_mutex_unlock(&lock);
}
