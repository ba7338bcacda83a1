/* Deprecated collectives of active sets: PEs that are a power of two apart, with a work array of the
 * program's.
 *
 * A set of all PEs is their team. Any other one has no team, and making one would need PEs outside of it. So
 * it meets in its pSync: each member counts the arrivals of its two children in a binary tree there, and has
 * a flag by which its parent lets it go. Members restore SHMEM_SYNC_VALUE before they let the next one go on,
 * so the array may be used again at once. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "inline.h"

enum {
  ARRIVED, /* children, or members, that have come */
  RELEASE, /* set by the parent */
  OFFSET,  /* of collect: where this member's part begins, plus one */
  USED
};
_Static_assert(USED <= SHMEM_SYNC_SIZE, "pSync has room");

/* A set as one of its members sees it. */
struct member {
  struct active_set set;
  int index;
  bool noted; /* SHMEM_DEBUG: psync.c knows that it is in a collective of all PEs */
};

static int pe_of(const struct member *m, int index)
{
  return m->set.start + (int) ((unsigned) index << m->set.log_stride);
}

/* SHMEM_DEBUG: no collective leaves more than this behind, nor do members that are early. What is not the
 * start value was never initialised, or another collective, of this thread or another, still uses it. */
static void check_psync(struct call call, struct active_set set, const long *psync)
{
  const long most[USED] = {[ARRIVED] = set.size, [RELEASE] = 1, [OFFSET] = LONG_MAX};
  for (int i = 0; i < USED; i++) {
    uint64_t bits;
    check_at(call, rushmem_g(job.world, &psync[i], &bits, sizeof bits, job.me), psync);
    const long seen = (long) bits;
    if (seen < SHMEM_SYNC_VALUE || seen > SHMEM_SYNC_VALUE + (set.size == job.n_pes ? 0 : most[i]))
      refuse(call, "pSync[%d] is %ld: it was not set to SHMEM_SYNC_VALUE, or another collective uses it",
             i, seen);
  }
}

static struct member join(struct call call, struct active_set set, const long *psync)
{
  in_job(call);
  const bool sound = set.start >= 0 && set.log_stride >= 0 && set.log_stride < 31 && set.size >= 1;
  const long last = sound ? set.start + ((long) (set.size - 1) << set.log_stride) : -1;
  if (last < 0 || last >= job.n_pes)
    refuse(call, "PE_start %d, logPE_stride %d and PE_size %d are no set of the job's %d PEs", set.start,
        set.log_stride,
           set.size, job.n_pes);
  const int distance = job.me - set.start;
  const int index = distance < 0 ? -1 : distance >> set.log_stride;
  if (index < 0 || index >= set.size || distance != (int) ((unsigned) index << set.log_stride))
    refuse(call, "this PE is not in the active set PE_start %d, logPE_stride %d, PE_size %d", set.start,
        set.log_stride,
           set.size);
  if (!psync) refuse(call, "pSync is null");
  if (job.debug) check_psync(call, set, psync);
  return (struct member){set, index, false};
}

/* Whether the set is all PEs: then it is their team. */
static bool everyone(const struct member *m)
{
  return m->set.size == job.n_pes;
}

/* `join`, for collectives that are not to use their pSync again before all members have left. */
static struct member begin(struct call call, struct active_set set, const long *psync)
{
  struct member m = join(call, set, psync);
  m.noted = job.debug && everyone(&m);
  if (m.noted) psync_enter(call, psync);
  return m;
}

static void leave(const struct member *m)
{
  if (m->noted) psync_leave();
}
/* Of a function that calls `begin`. */
#define MEMBER const struct member m __attribute__((cleanup(leave)))

static void add(struct call call, long *word, long value, int pe)
{
  check_at(call, rushmem_atomic(job.world, RUSHMEM_ATOMIC_ADD, RUSHMEM_INT64, word, (uint64_t) value, 0, pe,
           NULL), word);
}

/* Waits until as many have been counted, and takes them off again. */
static void take(struct call call, long *word, long value)
{
  if (value == 0) return;
  wait_until(call, RUSHMEM_INT64, word, RUSHMEM_CMP_GE, (uint64_t) value);
  add(call, word, -value, job.me);
}

/* Arrival and release; the caller has seen to what is to be complete before. */
static void meet(struct call call, const struct member *m, long *psync)
{
  const int left = 2 * m->index + 1, right = left + 1, size = m->set.size;
  take(call, &psync[ARRIVED], (left < size) + (right < size));
  if (m->index > 0) {
    add(call, &psync[ARRIVED], 1, pe_of(m, (m->index - 1) / 2));
    take(call, &psync[RELEASE], 1);
  }
  if (left < size) add(call, &psync[RELEASE], 1, pe_of(m, left));
  if (right < size) add(call, &psync[RELEASE], 1, pe_of(m, right));
}

/* Tells all members that what this one has put for them is there, and waits for all of theirs. */
static void exchanged(struct call call, const struct member *m, long *psync)
{
  check(call, rushmem_fence(job.world));
  for (int i = 0; i < m->set.size; i++) add(call, &psync[ARRIVED], 1, pe_of(m, i));
  take(call, &psync[ARRIVED], m->set.size);
}

void active_sync(struct call call, struct active_set set, long *psync)
{
  const struct member m = join(call, set, psync);
  if (everyone(&m))
    check(call, rushmem_sync_all(job.world));
  else
    meet(call, &m, psync);
}

void active_barrier(struct call call, struct active_set set, long *psync)
{
  in_job(call);
  check(call, rushmem_quiet(job.world));
  active_sync(call, set, psync);
}

void active_broadcast(struct call call, struct active_set set, long *psync, void *dest, const void *source,
                      size_t n,
                      size_t bytes, int root)
{
  MEMBER = begin(call, set, psync);
  const size_t all = bytes_of(call, n, bytes);
  memory_arrays(call, dest, all, source, all);
  if (root < 0 || root >= set.size) refuse(call, "PE_root is %d, in an active set of %d PEs", root, set.size);
  if (everyone(&m)) {
    /* The root's own dest is left alone: 1.4, section 9.8.5. */
    check(call, rushmem_team_broadcast(job.team, m.index == root ? (void *) source : dest, source, all,
          root));
    return;
  }
  if (m.index != root) {
    take(call, &psync[RELEASE], 1);
    return;
  }
  for (int i = 0; i < set.size; i++)
    if (i != root) put(call, SHMEM_CTX_DEFAULT, dest, source, all, 1, pe_of(&m, i));
  check(call, rushmem_fence(job.world));
  for (int i = 0; i < set.size; i++)
    if (i != root) add(call, &psync[RELEASE], 1, pe_of(&m, i));
}

void active_fcollect(struct call call, struct active_set set, long *psync, void *dest, const void *source,
                     size_t n,
                     size_t bytes)
{
  MEMBER = begin(call, set, psync);
  const size_t each = bytes_of(call, n, bytes);
  memory_arrays(call, dest, bytes_of(call, each, (size_t) set.size), source, each);
  if (everyone(&m)) {
    check(call, rushmem_team_fcollect(job.team, dest, source, each));
    return;
  }
  for (int i = 0; i < set.size; i++)
    put(call, SHMEM_CTX_DEFAULT, (char *) dest + (size_t) m.index * each, source, each, 1, pe_of(&m, i));
  exchanged(call, &m, psync);
}

void active_collect(struct call call, struct active_set set, long *psync, void *dest, const void *source,
                    size_t n,
                    size_t bytes)
{
  MEMBER = begin(call, set, psync);
  const size_t mine = bytes_of(call, n, bytes);
  memory_arrays(call, dest, mine, source, mine);
  if (everyone(&m)) {
    check(call, rushmem_team_collect(job.team, dest, memory_room(dest, n), source, mine, NULL));
    return;
  }
  /* Each member tells the next one where its part begins. */
  long offset = 0;
  if (m.index > 0) {
    wait_until(call, RUSHMEM_INT64, &psync[OFFSET], RUSHMEM_CMP_NE, SHMEM_SYNC_VALUE);
    uint64_t bits;
    check(call, rushmem_g(job.world, &psync[OFFSET], &bits, sizeof bits, job.me));
    offset = (long) bits - 1;
    add(call, &psync[OFFSET], -(offset + 1), job.me);
  }
  if (m.index + 1 < set.size) add(call, &psync[OFFSET], offset + (long) mine + 1, pe_of(&m, m.index + 1));
  for (int i = 0; i < set.size; i++)
    put(call, SHMEM_CTX_DEFAULT, (char *) dest + offset, source, mine, 1, pe_of(&m, i));
  exchanged(call, &m, psync);
}

void active_alltoalls(struct call call, struct active_set set, long *psync, void *dest, const void *source,
                      ptrdiff_t dst, ptrdiff_t sst, size_t n, size_t bytes)
{
  MEMBER = begin(call, set, psync);
  const size_t all = bytes_of(call, bytes_of(call, n, bytes), (size_t) set.size);
  memory_arrays(call, dest, memory_spread(call, all, dst), source, memory_spread(call, all, sst));
  if (everyone(&m)) {
    if (dst == 1 && sst == 1)
      check(call, rushmem_team_alltoall(job.team, dest, source, bytes_of(call, n, bytes)));
    else
      check(call, rushmem_team_alltoalls(job.team, dest, source, dst, sst, bytes, n));
    return;
  }
  if (dst < 1 || sst < 1) refuse(call, "strides %td and %td are to be at least 1", dst, sst);
  const size_t block = bytes_of(call, n, bytes);
  for (int i = 0; i < set.size; i++) {
    char *to = (char *) dest + (size_t) m.index * block * (size_t) dst;
    const char *from = (const char *) source + (size_t) i * block * (size_t) sst;
    iput(call, SHMEM_CTX_DEFAULT, to, from, dst, sst, bytes, n, pe_of(&m, i));
  }
  exchanged(call, &m, psync);
}

void active_reduce(struct call call, struct active_set set, long *psync, void *dest, const void *source,
                   int n,
                   int type, int op)
{
  MEMBER = begin(call, set, psync);
  if (n < 0) refuse(call, "nreduce is %d", n);
  if (everyone(&m)) {
    collective_reduce(call, SHMEM_TEAM_WORLD, dest, source, (size_t) n, type, op);
    return;
  }
  const size_t bytes = bytes_of(call, (size_t) n, type_bytes(type));
  memory_arrays(call, dest, bytes, source, bytes);
  char *result = malloc(2 * bytes + 1);
  if (!result) refuse(call, "there is no memory for %d elements", n);
  /* All sources are ready, then read by all members in one order, then dest may be one of them. */
  meet(call, &m, psync);
  for (int i = 0; i < set.size; i++) {
    char *part = i == 0 ? result : result + bytes;
    get(call, SHMEM_CTX_DEFAULT, part, source, bytes, 1, pe_of(&m, i));
    if (i > 0) combine(type, op, result, part, (size_t) n);
  }
  meet(call, &m, psync);
  put(call, SHMEM_CTX_DEFAULT, dest, result, bytes, 1, job.me);
  free(result);
}
