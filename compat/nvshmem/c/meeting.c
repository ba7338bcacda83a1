/* Teams by unique ID: their members alone make them, and learn of each other by the ID.
 *
 * A PE that gives an ID out keeps a table for it in its symmetric memory. Each member leaves its number
 * there, at its place in the team, and counts itself in. The last one reads all of them, takes a ticket (PE 0
 * counts them), clears the table, and sends ticket and numbers to each member. So the PE that made the ID has
 * no part in it but for its memory. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "library.h"

/* IDs of a PE that members are meeting by, at most. */
enum { TABLES = 16 };
/* Words of a table: its ID, who has come, and the members; those who have come are counted in the low half,
 * and the sizes of the team that they gave in the high half. */
enum { ID, COME, MEMBERS };
/* Words of this PE's inbox: the ID of the last team, its ticket, its members; here, too, MEMBERS is the
 * third. */
enum { OF, TICKET };

static uint64_t *area; /* on PE 0 the last ticket, the inbox, the tables */
static pthread_mutex_t meeting = PTHREAD_MUTEX_INITIALIZER;
static uint32_t given;

static size_t words(void)
{
  return MEMBERS + (size_t) job.n_pes;
}

static uint64_t *table(int number)
{
  return area + 1 + words() * (size_t) (1 + number);
}

void meeting_start(struct call call)
{
  check(call, rushmem_alloc(job.world, (1 + words() * (1 + TABLES)) * sizeof *area, 0, (void **) &area));
}

void meeting_stop(struct call call)
{
  if (job.joined) check(call, rushmem_free(job.world, area));
  area = NULL;
}

static uint64_t atomic(struct call call, int op, uint64_t *at, uint64_t value, int pe)
{
  uint64_t before = 0;
  check(call, rushmem_atomic(job.world, op, RUSHMEM_UINT64, at, value, 0, pe, &before));
  return before;
}

/* PE + 1, table, and a number that is never 0. */
uint64_t meeting_id(struct call call)
{
  uint64_t id = 0;
  pthread_mutex_lock(&meeting);
  if (++given == 0) given = 1;
  /* The oldest table that no member has written to: an ID that is never used is good until 16 others were
   * given out. */
  for (uint32_t turn = 0; turn < TABLES && id == 0; turn++) {
    const int number = (int) ((given + turn) % TABLES);
    if (atomic(call, RUSHMEM_ATOMIC_FETCH, table(number) + COME, 0, job.me) != 0) continue;
    id = (uint64_t) (job.me + 1) << 40 | (uint64_t) number << 32 | given;
    atomic(call, RUSHMEM_ATOMIC_SWAP, table(number) + ID, id, job.me);
  }
  pthread_mutex_unlock(&meeting);
  return id;
}

/* The last of the members has come: tells all of them who they are. */
static void introduce(struct call call, uint64_t *at, int owner, uint64_t id, int n)
{
  const size_t bytes = ((size_t) n + MEMBERS) * sizeof(uint64_t);
  uint64_t *all = calloc(1, bytes);
  if (!all) refuse(call, "there is no memory for the numbers of %d PEs", n);
  check(call, rushmem_get(job.world, all, at, bytes, owner));
  uint64_t *const members = all + MEMBERS, *const none = calloc(1, bytes);
  if (!none) refuse(call, "there is no memory for the numbers of %d PEs", n);
  const uint64_t ticket = 1 + atomic(call, RUSHMEM_ATOMIC_FETCH_ADD, area, 1, 0);
  check(call, rushmem_put(job.world, at + MEMBERS, none + MEMBERS, bytes - MEMBERS * sizeof *none, owner));
  check(call, rushmem_quiet(job.world));
  /* Only now may the table have another ID. */
  atomic(call, RUSHMEM_ATOMIC_SWAP, at + ID, 0, owner);
  atomic(call, RUSHMEM_ATOMIC_SWAP, at + COME, 0, owner);
  all[TICKET] = ticket;
  uint64_t *const inbox = area + 1;
  for (int i = 0; i < n; i++)
    check(call, rushmem_put_signal(job.world, inbox + TICKET, all + TICKET, bytes - sizeof *all, inbox + OF, id,
                                   RUSHMEM_SIGNAL_SET, (int) members[i] - 1));
  check(call, rushmem_quiet(job.world));
  free(none);
  free(all);
}

int meeting_hold(struct call call, uint64_t id, int n, int mine, rushmem_team_t **out)
{
  const int owner = (int) (id >> 40) - 1, number = (int) (id >> 32 & 0xff);
  if (owner < 0 || owner >= job.n_pes || number >= TABLES)
    return decline(call, NVSHMEMX_ERROR_INVALID_VALUE, "%#llx is no unique ID of nvshmemx_team_get_uniqueid's",
                   (unsigned long long) id);
  int code = 0;
  uint64_t *const at = table(number), *const inbox = area + 1;
  pthread_mutex_lock(&meeting);
  if (atomic(call, RUSHMEM_ATOMIC_FETCH, at + ID, 0, owner) != id) {
    code = decline(call, NVSHMEMX_ERROR_INVALID_VALUE,
                   "the unique ID of PE %d is old: a team was made by it, or %d others were given out", owner, TABLES);
  } else if (atomic(call, RUSHMEM_ATOMIC_SWAP, at + MEMBERS + mine, (uint64_t) (job.me + 1), owner) != 0) {
    refuse(call, "two PEs are member %d of one team", mine);
  } else {
    const uint64_t one = 1 | (uint64_t) n << 32;
    const uint64_t come = one + atomic(call, RUSHMEM_ATOMIC_FETCH_ADD, at + COME, one, owner);
    if ((uint32_t) come >= (uint32_t) n) {
      if (come >> 32 != (uint64_t) n * (uint64_t) n)
        refuse(call, "the members of one team differ in its size: here it is %d", n);
      introduce(call, at, owner, id, n);
    }
    check(call, rushmem_wait_until(job.world, RUSHMEM_UINT64, inbox + OF, RUSHMEM_CMP_EQ, id, 0));
    uint64_t *all = calloc((size_t) n + MEMBERS, sizeof *all);
    int32_t *pes = calloc((size_t) n, sizeof *pes);
    if (!all || !pes) refuse(call, "there is no memory for the numbers of %d PEs", n);
    check(call, rushmem_get(job.world, all, inbox, ((size_t) n + MEMBERS) * sizeof *all, job.me));
    for (int i = 0; i < n; i++) pes[i] = (int32_t) all[MEMBERS + i] - 1;
    code = team_declined(call, rushmem_team_meet(job.world, pes, (size_t) n, all[TICKET], NULL, out));
    free(pes);
    free(all);
  }
  pthread_mutex_unlock(&meeting);
  return code;
}
