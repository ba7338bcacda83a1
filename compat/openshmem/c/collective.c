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
  const struct team *of = team_of(call, team);
  const size_t all = bytes_of(call, bytes_of(call, n, bytes), (size_t) of->info.n_pes);
  memory_arrays(call, dest, all, source, all);
  check(call, rushmem_team_alltoall(of->team, dest, source, bytes_of(call, n, bytes)));
  return 0;
}

int collective_alltoalls(struct call call, shmem_team_t team, void *dest, const void *source, ptrdiff_t dst,
                         ptrdiff_t sst, size_t n, size_t bytes)
{
  const struct team *of = team_of(call, team);
  const size_t all = bytes_of(call, bytes_of(call, n, bytes), (size_t) of->info.n_pes);
  memory_arrays(call, dest, memory_spread(call, all, dst), source, memory_spread(call, all, sst));
  check(call, rushmem_team_alltoalls(of->team, dest, source, dst, sst, bytes, n));
  return 0;
}

int collective_broadcast(struct call call, shmem_team_t team, void *dest, const void *source, size_t n,
                         size_t bytes,
                         int root)
{
  const struct team *of = team_of(call, team);
  const size_t all = bytes_of(call, n, bytes);
  memory_arrays(call, dest, all, source, all);
  check(call, rushmem_team_broadcast(of->team, dest, source, all, root));
  return 0;
}

int collective_collect(struct call call, shmem_team_t team, void *dest, const void *source, size_t n,
                       size_t bytes)
{
  const struct team *of = team_of(call, team);
  memory_arrays(call, dest, bytes_of(call, n, bytes), source, bytes_of(call, n, bytes));
  const size_t room = memory_room(dest, n);
  check(call, rushmem_team_collect(of->team, dest, room, source, bytes_of(call, n, bytes), NULL));
  return 0;
}

int collective_fcollect(struct call call, shmem_team_t team, void *dest, const void *source, size_t n,
                        size_t bytes)
{
  const struct team *of = team_of(call, team);
  const size_t each = bytes_of(call, n, bytes);
  memory_arrays(call, dest, bytes_of(call, each, (size_t) of->info.n_pes), source, each);
  check(call, rushmem_team_fcollect(of->team, dest, source, each));
  return 0;
}

/* Elements of the members from `first` up to but not including `last`, one after the other. */
static void combine_all(struct call call, const struct team *team, char *dest, const char *source, size_t n,
                        int op,
                        int last)
{
  enum { PIECE = 1024 };
  const size_t bytes = type_bytes(LONG_DOUBLE), whole = n * bytes;
  const bool symmetric = memory_is_symmetric(dest);
  /* Before the first piece is written. */
  if (whole > 0 && symmetric && !memory_is_symmetric(dest + whole - 1))
    refuse(call, "%zu bytes at dest %p reach past the end of its allocation", whole, (void *) dest);
  if (whole > 0 && memory_is_symmetric(source) && !memory_is_symmetric(source + whole - 1))
    refuse(call, "%zu bytes at source %p reach past the end of its allocation", whole, (const void *) source);
  char *all = malloc(PIECE * bytes * (size_t) team->info.n_pes);
  if (!all) refuse(call, "there is no memory for %d elements of each member", PIECE);
  do {
    const size_t now = n < PIECE ? n : PIECE;
    /* Sizes are compared, so members that give other numbers of elements are an error. */
    check(call, rushmem_team_fcollect(team->team, all, source, now * bytes));
    for (int i = 1; i < last; i++) combine(LONG_DOUBLE, op, all, all + (size_t) i * now * bytes, now);
    if (last == 0) memset(all, 0, now * bytes);
    if (symmetric)
      check_at(call, rushmem_put(job.world, dest, all, now * bytes, job.me), dest);
    else
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
  const size_t all = bytes_of(call, n, type_bytes(type));
  memory_arrays(call, dest, all, source, all);
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
  const size_t all = bytes_of(call, n, type_bytes(type));
  memory_arrays(call, dest, all, source, all);
  if (type == LONG_DOUBLE)
    combine_all(call, of, dest, source, n, RUSHMEM_SUM, of->info.my_pe + (inclusive ? 1 : 0));
  else if (inclusive)
    check(call, rushmem_team_inscan(of->team, dest, source, n, type, RUSHMEM_SUM));
  else
    check(call, rushmem_team_exscan(of->team, dest, source, n, type, RUSHMEM_SUM));
  return 0;
}
