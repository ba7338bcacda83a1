/* Collectives of teams: the runtime's, from the host. Long doubles it does not know: those go round whole, a
 * piece at a time, and are combined here, in the order of the members. */
#include <stdlib.h>
#include <string.h>

#include "library.h"

void collective_barrier_all(struct call call)
{
  in_job(call);
  check(call, rushmem_barrier_all(job.world));
}

void collective_sync_all(struct call call)
{
  in_job(call);
  check(call, rushmem_sync_all(job.world));
}

int collective_sync(struct call call, shmem_team_t team)
{
  check(call, rushmem_team_sync(team_of(call, team)->team));
  return 0;
}

int collective_alltoall(struct call call, shmem_team_t team, void *dest, const void *source, size_t n,
                        size_t bytes)
{
  check(call, rushmem_team_alltoall(team_of(call, team)->team, dest, source, bytes_of(call, n, bytes)));
  return 0;
}

int collective_alltoalls(struct call call, shmem_team_t team, void *dest, const void *source, ptrdiff_t dst,
                         ptrdiff_t sst, size_t n, size_t bytes)
{
  check(call, rushmem_team_alltoalls(team_of(call, team)->team, dest, source, dst, sst, bytes, n));
  return 0;
}

int collective_broadcast(struct call call, shmem_team_t team, void *dest, const void *source, size_t n,
                         size_t bytes,
                         int root)
{
  check(call, rushmem_team_broadcast(team_of(call, team)->team, dest, source, bytes_of(call, n, bytes),
        root));
  return 0;
}

int collective_collect(struct call call, shmem_team_t team, void *dest, const void *source, size_t n,
                       size_t bytes)
{
  rushmem_team_t *of = team_of(call, team)->team;
  check(call, rushmem_team_collect(of, dest, SIZE_MAX, source, bytes_of(call, n, bytes), NULL));
  return 0;
}

int collective_fcollect(struct call call, shmem_team_t team, void *dest, const void *source, size_t n,
                        size_t bytes)
{
  check(call, rushmem_team_fcollect(team_of(call, team)->team, dest, source, bytes_of(call, n, bytes)));
  return 0;
}

/* Elements of the members from `first` up to but not including `last`, one after the other. */
static void combine_all(struct call call, const struct team *team, char *dest, const char *source, size_t n,
                        int op,
                        int last)
{
  enum { PIECE = 1024 };
  const size_t bytes = type_bytes(LONG_DOUBLE);
  char *all = malloc(PIECE * bytes * (size_t) team->info.n_pes);
  if (!all) refuse(call, "there is no memory for %d elements of each member", PIECE);
  do {
    const size_t now = n < PIECE ? n : PIECE;
    /* Sizes are compared, so members that give other numbers of elements are an error. */
    check(call, rushmem_team_fcollect(team->team, all, source, now * bytes));
    for (int i = 1; i < last; i++) combine(LONG_DOUBLE, op, all, all + (size_t) i * now * bytes, now);
    if (last == 0) memset(all, 0, now * bytes);
    memcpy(dest, all, now * bytes);
    n -= now;
    dest += now * bytes;
    source += now * bytes;
  } while (n > 0);
  free(all);
}

int collective_reduce(struct call call, shmem_team_t team, void *dest, const void *source, size_t n,
                      int type, int op)
{
  const struct team *of = team_of(call, team);
  if (type == LONG_DOUBLE)
    combine_all(call, of, dest, source, n, op, of->info.n_pes);
  else
    check(call, rushmem_team_reduce(of->team, dest, source, n, type, op));
  return 0;
}

int collective_scan(struct call call, shmem_team_t team, void *dest, const void *source, size_t n, int type,
                    bool inclusive)
{
  const struct team *of = team_of(call, team);
  if (type == LONG_DOUBLE)
    combine_all(call, of, dest, source, n, RUSHMEM_SUM, of->info.my_pe + (inclusive ? 1 : 0));
  else if (inclusive)
    check(call, rushmem_team_inscan(of->team, dest, source, n, type, RUSHMEM_SUM));
  else
    check(call, rushmem_team_exscan(of->team, dest, source, n, type, RUSHMEM_SUM));
  return 0;
}
