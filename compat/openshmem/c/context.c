/* Contexts: a team, whose numbers of PEs the context speaks, options, and how far its operations are.
 *
 * A context counts its operations on far PEs; those on near PEs are complete when they return. Fence and
 * quiet of a context that has none under way do nothing, whatever other contexts have under way. Otherwise
 * they are the runtime's, which keeps one order for all operations of a PE: a quiet then waits for what all
 * contexts had begun before it, and for nothing that they begin later.
 *
 * An operation is counted when its call of the runtime has returned, by the thread that made it. A quiet
 * notes the count before it calls the runtime, and that all of these are complete when the runtime has
 * returned. So a thread that finds its operation's number complete knows of a quiet that began behind the
 * operation and is over. The same holds for fence. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "library.h"

struct context {
  const struct team *team;
  long options;
  pthread_t owner;
  /* Operations on far PEs: begun, ordered by a fence, complete. */
  _Atomic(uint64_t) begun, fenced, complete;
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

void context_used(shmem_ctx_t ctx, int pe)
{
  struct context *used = slots_find(&context_slots, (uintptr_t) ctx);
  /* The call has checked both; a context that another thread has destroyed meanwhile counts nothing. */
  if (!used || pe < 0 || pe >= used->team->info.n_pes || !team_is_far(team_member(used->team, pe))) return;
  atomic_fetch_add_explicit(&used->begun, 1, memory_order_release);
}

static void raise_to(_Atomic(uint64_t) *count, uint64_t least)
{
  uint64_t seen = atomic_load_explicit(count, memory_order_relaxed);
  while (seen < least && !atomic_compare_exchange_weak_explicit(count, &seen, least, memory_order_release,
                                                                memory_order_relaxed)) {}
}

void context_quiet(struct call call, shmem_ctx_t ctx)
{
  struct context *of = find(call, ctx);
  const uint64_t begun = atomic_load_explicit(&of->begun, memory_order_acquire);
  if (atomic_load_explicit(&of->complete, memory_order_acquire) >= begun) {
    /* Stores to near PEs come before loads behind this. */
    atomic_thread_fence(memory_order_seq_cst);
    check(call, rushmem_check(job.world));
    return;
  }
  check(call, rushmem_quiet(job.world));
  raise_to(&of->complete, begun);
}

void context_fence(struct call call, shmem_ctx_t ctx)
{
  struct context *of = find(call, ctx);
  const uint64_t begun = atomic_load_explicit(&of->begun, memory_order_acquire);
  if (atomic_load_explicit(&of->fenced, memory_order_acquire) >= begun ||
      atomic_load_explicit(&of->complete, memory_order_acquire) >= begun) {
    atomic_thread_fence(memory_order_release);
    check(call, rushmem_check(job.world));
    return;
  }
  check(call, rushmem_fence(job.world));
  raise_to(&of->fenced, begun);
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
  *made = (struct context){.team = of, .options = options, .owner = pthread_self()};
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
  context_quiet(call, ctx);
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
