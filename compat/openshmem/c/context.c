/* Contexts. The runtime keeps one order for all operations of a PE, so what completes or orders those of one
 * context does it for all: more than is asked for. A context is its team, whose numbers of PEs it speaks, and
 * its options. */
#include <pthread.h>
#include <stdlib.h>

#include "library.h"

struct context {
  const struct team *team;
  long options;
  pthread_t owner;
};

static struct context *find(struct call call, shmem_ctx_t ctx)
{
  in_job(call);
  struct context *found = slots_find(&context_slots, (uintptr_t) ctx);
  if (!found)
    refuse(call, ctx == SHMEM_CTX_INVALID ? "the context is SHMEM_CTX_INVALID"
                                          : "%p is not a context: it was destroyed, or never made",
           (void *) ctx);
  if (job.debug && found->options & SHMEM_CTX_PRIVATE && !pthread_equal(found->owner, pthread_self()))
    refuse(call, "another thread made this context, with SHMEM_CTX_PRIVATE");
  return found;
}

int context_target(struct call call, shmem_ctx_t ctx, int pe)
{
  return team_to_world(call, find(call, ctx)->team, pe);
}

void context_check(struct call call, shmem_ctx_t ctx)
{
  in_job(call);
  if (ctx != SHMEM_CTX_DEFAULT) find(call, ctx);
}

int context_create(struct call call, shmem_team_t team, long options, shmem_ctx_t *out)
{
  in_job(call);
  if (!out) refuse(call, "ctx is null");
  *out = SHMEM_CTX_INVALID;
  if (team == SHMEM_TEAM_INVALID) return -1;
  const struct team *of = team_of(call, team);
  if (options & ~(SHMEM_CTX_SERIALIZED | SHMEM_CTX_PRIVATE | SHMEM_CTX_NOSTORE)) return -1;
  struct context *made = malloc(sizeof *made);
  if (!made) return -1;
  *made = (struct context){of, options, pthread_self()};
  *out = (shmem_ctx_t) slots_add(&context_slots, made);
  if (*out == SHMEM_CTX_INVALID) {
    free(made);
    return -1;
  }
  return 0;
}

void context_destroy(struct call call, shmem_ctx_t ctx)
{
  if (ctx == SHMEM_CTX_INVALID) return;
  if (ctx == SHMEM_CTX_DEFAULT) refuse(call, "the default context is not destroyed");
  find(call, ctx);
  check(call, rushmem_quiet(job.world));
  free(slots_take(&context_slots, (uintptr_t) ctx));
}

int context_team(struct call call, shmem_ctx_t ctx, shmem_team_t *team)
{
  if (!team) refuse(call, "team is null");
  *team = SHMEM_TEAM_INVALID;
  if (ctx == SHMEM_CTX_INVALID) return -1;
  *team = ctx == SHMEM_CTX_DEFAULT ? SHMEM_TEAM_WORLD : find(call, ctx)->team->handle;
  return 0;
}

/* Sessions are hints, and nothing here depends on them. */
void context_session(struct call call, shmem_ctx_t ctx, long options,
                     const shmem_ctx_session_config_t *config,
                     long mask)
{
  (void) options;
  if (ctx == SHMEM_CTX_INVALID) return;
  context_check(call, ctx);
  if (mask && !config) refuse(call, "config is null, but config_mask is not 0");
}

static bool of_team(const void *object, const void *team)
{
  return !team || ((const struct context *) object)->team == team;
}

void context_forget(const struct team *team)
{
  for (void *context; (context = slots_take_any(&context_slots, of_team, team));) free(context);
}
