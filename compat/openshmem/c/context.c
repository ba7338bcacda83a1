/* Contexts: a team, whose numbers of PEs the context speaks, options, and how far its operations are.
 *
 * Operations on near PEs are complete when they return. For those on far PEs each context is one of the
 * runtime's, made with its first such operation: the thread is in it during the call. Fence and quiet of a
 * context then wait for nothing of another's.
 *
 * A context also counts its operations on far PEs, so that fence and quiet of one that has none under way
 * cost nothing. An operation is counted when its call of the runtime has returned, by the thread that made
 * it. A quiet notes the count before it calls the runtime, and that all of these are complete when the
 * runtime has returned. So a thread that finds its operation's number complete knows of a quiet that began
 * behind the operation and is over. The same holds for fence. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "library.h"

struct context {
  const struct team *team;
  long options;
  pthread_t owner;
  /* The runtime's, once there is an operation on a far PE. */
  _Atomic(uint64_t) number;
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

/* The runtime's context of this one. */
static uint64_t number_of(struct call call, struct context *of)
{
  uint64_t number = atomic_load_explicit(&of->number, memory_order_acquire);
  if (number != RUSHMEM_CONTEXT_DEFAULT) return number;
  uint64_t made;
  check(call, rushmem_context_create(job.world, &made));
  if (atomic_compare_exchange_strong_explicit(&of->number, &number, made, memory_order_acq_rel,
                                              memory_order_acquire))
    return made;
  /* Another thread was first. */
  check(call, rushmem_context_destroy(job.world, made));
  return number;
}

bool context_enter(struct call call, shmem_ctx_t ctx, int pe)
{
  /* The operation itself refuses what makes no sense. */
  struct context *used = job.world ? slots_find(&context_slots, (uintptr_t) ctx) : NULL;
  if (!used || pe < 0 || pe >= used->team->info.n_pes || !team_is_far(team_member(used->team, pe)))
    return false;
  check(call, rushmem_context_enter(job.world, number_of(call, used)));
  return true;
}

void context_leave(shmem_ctx_t ctx, bool may_last)
{
  /* The default context is always there. */
  rushmem_context_enter(job.world, RUSHMEM_CONTEXT_DEFAULT);
  /* One that another thread has destroyed meanwhile counts nothing. */
  struct context *used = may_last ? slots_find(&context_slots, (uintptr_t) ctx) : NULL;
  if (used) atomic_fetch_add_explicit(&used->begun, 1, memory_order_release);
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
  if (!job.checked && atomic_load_explicit(&of->complete, memory_order_acquire) >= begun) {
    /* Stores to near PEs come before loads behind this. */
    atomic_thread_fence(memory_order_seq_cst);
    check(call, rushmem_check(job.world));
    return;
  }
  check(call, rushmem_context_quiet(job.world, number_of(call, of)));
  raise_to(&of->complete, begun);
}

void context_fence(struct call call, shmem_ctx_t ctx)
{
  struct context *of = find(call, ctx);
  const uint64_t begun = atomic_load_explicit(&of->begun, memory_order_acquire);
  if (!job.checked && (atomic_load_explicit(&of->fenced, memory_order_acquire) >= begun ||
                       atomic_load_explicit(&of->complete, memory_order_acquire) >= begun)) {
    atomic_thread_fence(memory_order_release);
    check(call, rushmem_check(job.world));
    return;
  }
  check(call, rushmem_context_fence(job.world, number_of(call, of)));
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
  struct context *ends = slots_take(&context_slots, (uintptr_t) ctx);
  if (!ends) refuse(call, "another thread destroys the context, too");
  if (ends->number != RUSHMEM_CONTEXT_DEFAULT)
    check(call, rushmem_context_destroy(job.world, ends->number));
  free(ends);
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
  for (struct context *ends; (ends = slots_take_any(&context_slots, of_team, team));) {
    /* In a broken job the next call says so. */
    if (ends->number != RUSHMEM_CONTEXT_DEFAULT) rushmem_context_destroy(job.world, ends->number);
    free(ends);
  }
}
