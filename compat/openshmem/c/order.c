/* Fence and quiet, of the default context and of others. */
#include "library.h"

void order_fence(struct call call, shmem_ctx_t ctx)
{
  if (ctx == SHMEM_CTX_INVALID) return;
  in_job(call);
  if (ctx == SHMEM_CTX_DEFAULT)
    check(call, rushmem_fence(job.world));
  else
    context_fence(call, ctx);
}

void order_quiet(struct call call, shmem_ctx_t ctx)
{
  if (ctx == SHMEM_CTX_INVALID) return;
  in_job(call);
  if (ctx == SHMEM_CTX_DEFAULT)
    check(call, rushmem_context_quiet(job.world, RUSHMEM_CONTEXT_DEFAULT));
  else
    context_quiet(call, ctx);
}

void order_pe_quiet(struct call call, shmem_ctx_t ctx, const int *pes, size_t n)
{
  if (ctx == SHMEM_CTX_INVALID || n == 0) return;
  context_check(call, ctx);
  if (!pes) refuse(call, "target_pes is null");
  for (size_t i = 0; i < n; i++) {
    shmem_team_t handle;
    context_team(call, ctx, &handle);
    team_to_world(call, team_of(call, handle), pes[i]);
  }
  order_quiet(call, ctx);
}
