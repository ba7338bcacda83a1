/* SHMEM_DEBUG: a pSync of all PEs that is used again too early.
 *
 * Sets of all PEs are a team here and need no pSync. Other libraries do, so a program that gives the same
 * array to a second collective while a PE is still in the first works here and fails there. To see it, each
 * PE notes in symmetric memory by which of its collectives of all PEs it last left each pSync; a PE that
 * comes with that array again looks whether the others have left it, too.
 *
 * All PEs make the collectives of all PEs in one order, so their numbers agree. A pSync takes the place that
 * a hash of its offset says. One that finds another one there takes it over, and counts as left by all
 * collectives before: nothing is refused that is right, and a table that is too small sees less. */
#include <stdlib.h>

#include "library.h"

enum { PLACES = 1024 };

struct place {
  uint64_t which; /* offset of the pSync, plus one; 0 where there is none */
  uint64_t left;  /* the collective by which this PE left it last */
};

static struct place *places, *entered; /* null where nothing is noted */
static uint64_t collectives;

void psync_start(struct call call)
{
  psync_forget();
  /* Where the setting differs, there is no memory that all have. */
  int32_t mine = job.debug != 0, all = 0;
  check(call, rushmem_team_reduce(job.team, &all, &mine, 1, RUSHMEM_INT32, RUSHMEM_MIN));
  /* What is noted is looked at by loads. */
  if (!all || !job.host) return;
  void *at = NULL;
  if (rushmem_alloc(job.world, PLACES * sizeof *places, 0, &at) == RUSHMEM_OK) places = at;
}

void psync_forget(void)
{
  places = entered = NULL;
  collectives = 0;
}

/* The same number on all PEs for one array, which a program's variables need: they have other addresses on
 * each PE. 0 for what is neither in the heap nor a variable. */
static uint64_t offset_of(struct call call, const void *psync)
{
  const uint64_t in_data = static_offset(psync);
  if (in_data) return in_data << 1;
  rushmem_view_t view;
  check(call, rushmem_view(job.world, &view));
  return ((uint64_t) psync - view.heap_base) << 1 | 1;
}

static struct place *place_of(uint64_t which)
{
  return &places[(which >> 4) * 0x9e3779b97f4a7c15ull >> 54];
}
_Static_assert(PLACES == 1 << 10, "the hash has as many bits");

static uint64_t fetch(struct call call, const uint64_t *word, int pe)
{
  uint64_t value = 0;
  check(call, rushmem_g(job.world, word, &value, sizeof value, pe));
  return value;
}

void psync_enter(struct call call, const void *psync)
{
  if (!places) return;
  const uint64_t which = offset_of(call, psync) + 1;
  struct place *mine = place_of(which);
  entered = mine;
  collectives++;
  if (mine->which != which) {
    __atomic_store_n(&mine->left, collectives - 1, __ATOMIC_RELEASE);
    __atomic_store_n(&mine->which, which, __ATOMIC_RELEASE);
    return;
  }
  for (int pe = 0; pe < job.n_pes; pe++) {
    if (fetch(call, &mine->which, pe) != which) continue;
    if (fetch(call, &mine->left, pe) < mine->left)
      refuse(call,
             "pSync at %p is used again, but PE %d is still in the collective that used it last: a barrier has "
             "to come between, or another pSync",
             psync, pe);
  }
}

/* Collectives of all PEs come one after the other, so the one that was entered is the one that is left. */
void psync_leave(void)
{
  if (places) __atomic_store_n(&entered->left, collectives, __ATOMIC_RELEASE);
}
